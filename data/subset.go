package data

import (
	"math/rand/v2"
	"slices"
)

// Subset is a dataset of those samples of another dataset that Index lists, in the order of Index.
type Subset struct {
	Of    Dataset
	Index []int
}

// Len returns the number of samples.
func (s Subset) Len() int { return len(s.Index) }

// Get returns sample i of the subset.
func (s Subset) Get(i int) (Sample, error) { return s.Of.Get(s.Index[i]) }

// getBatch calls GetBatch of the underlying dataset, which must be a Batcher.
func (s Subset) getBatch(index []int) (*Batch, error) {
	of := make([]int, len(index))
	for k, i := range index {
		of[k] = s.Index[i]
	}
	return batcher(s.Of)(of)
}

// The following functions recognise the datasets of this package that wrap other datasets. They
// compare types instead of using an interface, because a type that embeds such a dataset may have
// its own method Get.

// random reports whether the samples of ds depend on random numbers.
func random(ds Dataset) bool {
	switch d := ds.(type) {
	case Subset:
		return random(d.Of)
	case *Concat:
		return slices.ContainsFunc(d.parts, random)
	case RandDataset:
		return true
	}
	return false
}

// GetRand returns sample i of ds, for datasets that wrap other datasets. If ds is a [RandDataset]
// or wraps one, rng supplies the random numbers.
func GetRand(ds Dataset, i int, rng *rand.Rand) (Sample, error) {
	switch d := ds.(type) {
	case Subset:
		return GetRand(d.Of, d.Index[i], rng)
	case *Concat:
		of, k, err := d.find(i)
		if err != nil {
			return Sample{}, err
		}
		return GetRand(of, k, rng)
	case RandDataset:
		return d.GetRand(i, rng)
	}
	return ds.Get(i)
}

// batcher returns the function with which ds makes whole batches, or nil if ds has none.
func batcher(ds Dataset) func(index []int) (*Batch, error) {
	switch d := ds.(type) {
	case Subset:
		if batcher(d.Of) != nil {
			return d.getBatch
		}
	case *NamedDataset:
		return d.getBatch
	case Batcher:
		return func(index []int) (*Batch, error) {
			x, y, err := d.GetBatch(index)
			return &Batch{X: x, Y: y}, err
		}
	}
	return nil
}
