package data

import (
	"fmt"
	"math/rand/v2"

	"github.com/flambeau-go/flambeau/device"
)

// Config sets a [Loader]. What PyTorch's DataLoader calls num_workers and prefetch_factor are
// Workers and Prefetch; workers are goroutines of the process and share the dataset.
type Config struct {
	Batch    int    // samples a batch, at least 1
	Shuffle  bool   // visit the samples in a random order, another one each epoch
	Seed     uint64 // of that order, and of the random numbers of a [RandDataset] and of Transform
	DropLast bool   // leave out a last batch that is not full
	Workers  int    // goroutines that prepare batches; 0: one
	Prefetch int    // batches prepared ahead; 0: twice the workers

	Sampler Sampler // which samples in which order, in the place of Shuffle
	// which samples in which batches, in the place of Batch, Shuffle, DropLast and Sampler
	Batches BatchSampler

	// Transform changes each sample, in the workers; rng is as in [RandDataset]. It is called by
	// several goroutines at once.
	Transform func(s Sample, rng *rand.Rand) (Sample, error)
	// Collate makes a batch of samples, in the workers; nil: [Collate]. The loader sets Index. It
	// is called by several goroutines at once and may not keep the slice.
	Collate func(samples []Sample) (*Batch, error)

	// Device is where batches arrive; nil: the CPU, where they are made. They are copied ahead of
	// the loop on streams of the loader's own, at most Prefetch of them, and an op that reads a
	// batch waits for its copy by itself, on any stream. Where the device's memory does not suffice
	// for that, a batch is copied when the loop asks for it; only if there is none then either that
	// is an error. The scope that takes them is on it too ([tensor.On]): From of one that was
	// opened without a device is an error, nothing is copied back in silence. Pin copies by way of
	// page-locked memory, so that the copies run while the GPU computes; without Device it is there
	// that batches are, as with PyTorch's pin_memory, of a GPU that is in use ([device.OpenAny]).
	// Without a GPU, and with the CPU or a rank of it for Device, no copy would be faster: Pin is
	// ignored, which [Loader.Note] tells, and the log once in a process.
	Device device.Device
	Pin    bool

	// Skip leaves out samples that cannot be had, instead of ending the loop with the error. Their
	// batch is smaller; one without any sample left is not seen. OnSkip, if not nil, is told of
	// each, by the goroutine of the loop and in the loop's order; [Loader.Skipped] counts them.
	// Samples that do not fit together in a batch are an error in any case.
	Skip   bool
	OnSkip func(*SampleError)
}

// mostAhead bounds workers and batches ahead.
const mostAhead = 1 << 16

// check returns c with its defaults.
func (c Config) check() (Config, error) {
	switch {
	case c.Workers < 0:
		return c, &ConfigError{"Workers", fmt.Sprintf("%d is negative", c.Workers)}
	case c.Prefetch < 0:
		return c, &ConfigError{"Prefetch", fmt.Sprintf("%d is negative", c.Prefetch)}
	case c.Workers > mostAhead:
		return c, &ConfigError{"Workers", fmt.Sprintf("%d goroutines, at most %d are started", c.Workers, mostAhead)}
	case c.Prefetch > mostAhead:
		return c, &ConfigError{"Prefetch", fmt.Sprintf("%d batches, at most %d are prepared ahead", c.Prefetch, mostAhead)}
	case c.OnSkip != nil && !c.Skip:
		return c, &ConfigError{"OnSkip", "is never called without Skip"}
	case c.Sampler != nil && c.Shuffle:
		return c, &ConfigError{"Shuffle", "the order is that of Sampler; leave one of the two out"}
	case c.Batches != nil && (c.Batch != 0 || c.Shuffle || c.DropLast || c.Sampler != nil):
		return c, &ConfigError{"Batches", "says all that Batch, Shuffle, DropLast and Sampler say; leave those out"}
	case c.Batches == nil && c.Batch < 1:
		return c, &ConfigError{"Batch", fmt.Sprintf("%d samples a batch, at least 1 is needed", c.Batch)}
	}
	c.Workers = max(c.Workers, 1)
	if c.Prefetch == 0 {
		c.Prefetch = min(2*c.Workers, mostAhead)
	}
	return c, nil
}

// sampler returns the batches that c means for n samples.
func (c *Config) sampler(n int, seed uint64) BatchSampler {
	switch {
	case c.Batches != nil:
		return c.Batches
	case c.Sampler != nil:
		return batches{c.Sampler, c.Batch, c.DropLast}
	case c.Shuffle:
		return batches{RandomSampler{N: n, Seed: seed}, c.Batch, c.DropLast}
	}
	return batches{SequentialSampler{n}, c.Batch, c.DropLast}
}
