// Package data provides the samples for a training loop. It has datasets, samplers for the order of
// samples, and a loader whose goroutines prepare batches ahead.
//
// A program provides samples as a [Dataset], makes a loader for it ([NewLoader]), and loops over
// the loader's batches ([Loader.Steps], [Loader.Batches]). Data whose samples have no index is a
// [Stream] ([NewStreamLoader]).
//
// The loader guarantees:
//
//   - The order of samples depends only on the seed and the epoch, not on the number of workers.
//     The same holds for the random numbers that a sample's transform draws.
//   - At most Prefetch batches are prepared ahead. No goroutine of the loader outlives the loop
//     over its batches, however the loop ends: after the last batch, by break, or because of an
//     error, a cancelled context or a panic.
//   - Failures come out of the loop as typed errors. A [SampleError] names the sample, also for a
//     panic in a dataset.
//   - [Loader.StateDict] saves the position within an epoch. [Loader.LoadStateDict] continues
//     after the last batch that the program received.
package data

import (
	"fmt"
	"math/rand/v2"

	"github.com/flambeau-go/flambeau/tensor"
)

// A Sample is one input, X, and its target, Y, as Go values. A value is anything that [tensor.From]
// accepts, a string, or a map or list of such values. [Collate] describes how samples become
// batches. All samples of a dataset have the same types and shapes. Neither X nor Y is nil. A
// dataset without targets sets Y to a number, such as the sample's index.
type Sample struct {
	X, Y any
}

// A Dataset returns samples by index. Several goroutines may call Get at the same time.
type Dataset interface {
	Len() int
	Get(i int) (Sample, error)
}

// A RandDataset is a Dataset whose samples depend on random numbers, such as augmented images. A
// loader calls GetRand instead of Get. Each sample gets its own rng. The random numbers depend only
// on the loader's seed, the epoch and the index i, and not on the number of workers. If a sampler
// draws with replacement, they also depend on the sample's position in the epoch. GetRand must not
// keep rng.
type RandDataset interface {
	Dataset
	GetRand(i int, rng *rand.Rand) (Sample, error)
}

// A Batcher is a Dataset with a fast method for whole batches. The tensors of the batch are on the
// CPU, and their first dimension counts the samples.
type Batcher interface {
	Dataset
	GetBatch(index []int) (x, y *tensor.Tensor, err error)
}

// TensorDataset is a dataset of two CPU tensors. Their first dimension counts the samples.
// [NamedDataset] has several inputs.
type TensorDataset struct{ X, Y *tensor.Tensor }

// NewTensorDataset returns the dataset of x and y, whose first dimensions must be equal.
func NewTensorDataset(x, y *tensor.Tensor) (*TensorDataset, error) {
	if x.Rank() == 0 || y.Rank() == 0 || x.Dim(0) != y.Dim(0) {
		return nil, fmt.Errorf("data: x of shape %v and y of shape %v do not have the same number of samples", x.Shape(), y.Shape())
	}
	if !x.Device().Info().Host || !y.Device().Info().Host {
		return nil, fmt.Errorf("data: a dataset is on the CPU, x is on %s and y on %s", x.Device().Name(), y.Device().Name())
	}
	return &TensorDataset{x, y}, nil
}

// String returns the shapes and types of both tensors.
func (d *TensorDataset) String() string {
	return fmt.Sprintf("TensorDataset(x %v %v, y %v %v)", d.X.Shape(), d.X.Type(), d.Y.Shape(), d.Y.Type())
}

// Len returns the number of samples.
func (d *TensorDataset) Len() int { return d.X.Dim(0) }

// Get returns sample i.
func (d *TensorDataset) Get(i int) (Sample, error) {
	if i < 0 || i >= d.Len() {
		return Sample{}, fmt.Errorf("index %d is out of range for %d samples", i, d.Len())
	}
	return Sample{d.X.Select(0, i), d.Y.Select(0, i)}, nil
}

// GetBatch returns the samples of the given indexes as tensors.
func (d *TensorDataset) GetBatch(index []int) (x, y *tensor.Tensor, err error) {
	err = tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			x = d.X.In(s).IndexSelect(0, s.On(d.X.Device()).From(index))
			y = d.Y.In(s).IndexSelect(0, s.On(d.Y.Device()).From(index))
			s.Close(x, y)
		}, tensor.NoGrad())
	})
	return x, y, err
}
