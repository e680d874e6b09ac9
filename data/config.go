package data

import (
	"fmt"
	"math/rand/v2"

	"github.com/flambeau-go/flambeau/device"
)

// Config configures a [Loader]. Workers and Prefetch correspond to num_workers and prefetch_factor
// of PyTorch's DataLoader. Workers are goroutines of the process and share the dataset.
type Config struct {
	Batch   int  // number of samples in a batch, at least 1
	Shuffle bool // visits the samples in a random order, which differs between epochs
	// Seed determines the order, and the random numbers for a [RandDataset] and for Transform.
	Seed     uint64
	DropLast bool // leaves out the last batch if it is not full
	Workers  int  // number of goroutines that prepare batches; 0 means 1
	// number of batches prepared ahead of the loop; 0 means twice the number of workers
	Prefetch int

	Sampler Sampler // chooses the samples and their order, instead of Shuffle
	// Batches chooses the samples of each batch, instead of Batch, Shuffle, DropLast and Sampler.
	Batches BatchSampler

	// Transform changes each sample. rng is the sample's source of random numbers, as in
	// [RandDataset]. Several workers may call Transform at the same time.
	Transform func(s Sample, rng *rand.Rand) (Sample, error)
	// Collate makes a batch of samples. The loader then sets the batch's field Index. A nil Collate
	// means the function [Collate]. Several workers may call Collate at the same time. It must not
	// keep the slice samples.
	Collate func(samples []Sample) (*Batch, error)

	// Device is the device on which the loop receives its batches. A nil Device means the CPU,
	// where batches are made. At most Prefetch batches are copied ahead of the loop, on the
	// loader's own streams. An op that reads a batch waits for its copy, on any stream. If the
	// device's memory does not suffice, the batch is copied when the loop needs it. If the memory
	// does not suffice then either, the loop gets the error. The scope s that receives the batches
	// must be on this device too ([tensor.On]). If s was opened without a device, s.From(batch.X)
	// is an error, because it would copy the batch back to the CPU.
	//
	// Pin copies batches through page-locked memory, so that copies run while the GPU computes.
	// Without Device, batches stay in page-locked memory, as with PyTorch's pin_memory. A GPU in
	// use ([device.OpenAny]) allocates this memory. Page-locked memory has no advantage if there is
	// no GPU, or if Device is the CPU or a rank of the CPU. The loader then ignores Pin.
	// [Loader.Note] reports this, and the log reports it once in a process.
	Device device.Device
	Pin    bool

	// Skip leaves out samples that fail to load, instead of ending the loop with their error. The
	// batch of such a sample is smaller. If a batch has no samples left, the loop does not receive
	// it. If OnSkip is not nil, the loop's goroutine calls it for each skipped sample, in the order
	// of the loop. [Loader.Skipped] counts skipped samples. Samples that do not fit together in a
	// batch are always an error.
	Skip   bool
	OnSkip func(*SampleError)
}

// mostAhead is the upper limit of Workers and of Prefetch.
const mostAhead = 1 << 16

// check validates c and returns it with its defaults filled in.
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

// sampler returns the batch sampler that c describes, for a dataset of n samples.
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
