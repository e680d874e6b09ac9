// Package data brings samples to a training loop: datasets, the order in which they are visited, and a loader whose goroutines
// prepare batches ahead.
//
// The order of samples is a function of the seed and the epoch alone, whatever the number of workers. Nothing of the loader
// outlives the loop over its batches, also when the loop is left early.
package data

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// A Sample is one input and its target, as Go values: what [tensor.From] takes. All samples of a dataset have the same types
// and shapes, and neither value is nil: a dataset without targets gives a number, such as the sample's, for Y.
type Sample struct {
	X, Y any
}

// A Dataset gives samples by number. Get is called by several goroutines at once.
type Dataset interface {
	Len() int
	Get(i int) (Sample, error)
}

// A Batcher is a Dataset that makes whole batches faster than sample by sample. The tensors are on the CPU; the first dimension is
// the batch.
type Batcher interface {
	Dataset
	GetBatch(index []int) (x, y *tensor.Tensor, err error)
}

// A Batch is collated samples: X and Y have a first dimension more than the samples. It belongs to who receives it:
// s.From(b.X) hands it to a scope.
type Batch struct {
	X, Y  *tensor.Tensor
	Index []int // of the samples in the dataset
}

// A SampleError is a sample that could not be had.
type SampleError struct {
	Index int // in the dataset; -1 where it is the batch as a whole
	Err   error
}

func (e *SampleError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("data: batch: %v", e.Err)
	}
	return fmt.Sprintf("data: sample %d: %v", e.Index, e.Err)
}

// Unwrap returns the cause.
func (e *SampleError) Unwrap() error { return e.Err }

// Subset is the samples of a dataset that Index lists, in that order.
type Subset struct {
	Of    Dataset
	Index []int
}

// Len returns the number of samples.
func (s Subset) Len() int { return len(s.Index) }

// Get returns sample i of the subset.
func (s Subset) Get(i int) (Sample, error) { return s.Of.Get(s.Index[i]) }

// TensorDataset is samples along the first dimension of two CPU tensors.
type TensorDataset struct{ X, Y *tensor.Tensor }

// NewTensorDataset returns the dataset of x and y, whose first dimensions must be equal.
func NewTensorDataset(x, y *tensor.Tensor) (*TensorDataset, error) {
	if x.Rank() == 0 || y.Rank() == 0 || x.Dim(0) != y.Dim(0) {
		return nil, fmt.Errorf("data: x of shape %v and y of shape %v do not have the same number of samples", x.Shape(), y.Shape())
	}
	if x.Device().Info().Kind != "cpu" || y.Device().Info().Kind != "cpu" {
		return nil, fmt.Errorf("data: a dataset is on the CPU, x is on %s and y on %s", x.Device().Name(), y.Device().Name())
	}
	return &TensorDataset{x, y}, nil
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

// GetBatch returns the samples that index names.
func (d *TensorDataset) GetBatch(index []int) (x, y *tensor.Tensor, err error) {
	err = tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			idx := s.From(index)
			x = d.X.In(s).IndexSelect(0, idx)
			y = d.Y.In(s).IndexSelect(0, idx)
			s.Close(x, y)
		}, tensor.NoGrad())
	})
	return x, y, err
}
