package data

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
)

// A Sampler chooses the samples of an epoch and their order: torch's Sampler. The order depends
// only on the sampler's fields and the epoch. A [Loader] passes the number of each epoch, so
// torch's set_epoch is not needed.
type Sampler interface {
	Len() int                        // number of indexes in an epoch
	Indices(epoch int) iter.Seq[int] // indexes of the samples in the dataset
}

// A BatchSampler chooses the samples of each batch of an epoch: torch's batch_sampler. The caller
// may keep and change the slices.
type BatchSampler interface {
	Len() int                          // number of batches in an epoch
	Batches(epoch int) iter.Seq[[]int] // indexes in the dataset, one slice for each batch
}

// A repeater is a sampler that may return an index several times in an epoch. If it does, the
// loader gives each occurrence of an index its own random numbers.
type repeater interface{ repeats() bool }

func repeats(s any) bool {
	r, ok := s.(repeater)
	return ok && r.repeats()
}

// SequentialSampler visits N samples in ascending order.
type SequentialSampler struct{ N int }

// Len returns the number of samples.
func (s SequentialSampler) Len() int { return max(s.N, 0) }

// Indices returns 0, 1, …, N-1.
func (s SequentialSampler) Indices(int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range s.N {
			if !yield(i) {
				return
			}
		}
	}
}

// RandomSampler visits N samples in a random order that differs from epoch to epoch. If Samples is
// set, an epoch has Samples indexes. If Samples exceeds N and Replacement is not set, the indexes
// come from several permutations, one after another, as in torch.
type RandomSampler struct {
	N           int
	Seed        uint64
	Replacement bool // draws each index independently from all N
	Samples     int  // number of indexes in an epoch; 0 means N
}

// Len returns the number of indexes in an epoch.
func (s RandomSampler) Len() int {
	if s.N <= 0 {
		return 0
	}
	if s.Samples > 0 {
		return s.Samples
	}
	return s.N
}

func (s RandomSampler) repeats() bool { return s.Replacement || s.Samples > s.N }

// Indices returns the indexes of an epoch in their order.
func (s RandomSampler) Indices(epoch int) iter.Seq[int] {
	return func(yield func(int) bool) {
		rng := rand.New(rand.NewPCG(s.Seed, uint64(epoch)))
		left := s.Len()
		for left > 0 {
			if s.Replacement {
				if !yield(rng.IntN(s.N)) {
					return
				}
				left--
				continue
			}
			for _, i := range rng.Perm(s.N) {
				if left == 0 || !yield(i) {
					return
				}
				left--
			}
		}
	}
}

// SubsetRandomSampler visits the samples that Index lists, in a random order that differs from
// epoch to epoch.
type SubsetRandomSampler struct {
	Index []int
	Seed  uint64
}

// Len returns the number of samples.
func (s SubsetRandomSampler) Len() int { return len(s.Index) }

// Indices returns the indexes of an epoch in their order.
func (s SubsetRandomSampler) Indices(epoch int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range (RandomSampler{N: len(s.Index), Seed: s.Seed}).Indices(epoch) {
			if !yield(s.Index[i]) {
				return
			}
		}
	}
}

// WeightedRandomSampler draws each sample with a probability proportional to its weight.
// [NewWeightedRandomSampler] makes one.
type WeightedRandomSampler struct {
	weights     []float64
	sums        []float64 // sums[i] is the sum of the weights with indexes 0 to i
	samples     int
	replacement bool
	seed        uint64
}

// NewWeightedRandomSampler returns a sampler that draws the given number of samples in each epoch:
// torch's WeightedRandomSampler. The probability of an index is proportional to its weight. Weights
// must be finite and not negative, but need not add up to 1. Without replacement no index is drawn
// twice, so the number of positive weights must be at least samples. The error is a *[ConfigError].
func NewWeightedRandomSampler(weights []float64, samples int, replacement bool, seed uint64) (*WeightedRandomSampler, error) {
	s := &WeightedRandomSampler{slices.Clone(weights), make([]float64, len(weights)), samples, replacement, seed}
	positive, sum := 0, 0.0
	for i, w := range weights {
		if !(w >= 0) || math.IsInf(w, 1) {
			return nil, &ConfigError{"weights", fmt.Sprintf("weight %d is %v, it must be finite and not negative", i, w)}
		}
		if w > 0 {
			positive++
		}
		sum += w
		s.sums[i] = sum
	}
	switch {
	case samples < 1:
		return nil, &ConfigError{"samples", fmt.Sprintf("%d samples an epoch, at least 1 is needed", samples)}
	case positive == 0:
		return nil, &ConfigError{"weights", "none is positive"}
	case math.IsInf(sum, 1):
		return nil, &ConfigError{"weights", "their sum is not finite; scale them"}
	case !replacement && samples > positive:
		return nil, &ConfigError{"samples", fmt.Sprintf("%d samples without replacement, but only %d weights are positive", samples, positive)}
	}
	return s, nil
}

// Len returns the number of indexes in an epoch.
func (s *WeightedRandomSampler) Len() int { return s.samples }

func (s *WeightedRandomSampler) repeats() bool { return s.replacement }

// Indices returns the indexes drawn in an epoch. Without replacement, each index i gets the value
// -log(uᵢ)/wᵢ, where uᵢ is a uniform random number and wᵢ the weight. The indexes with the smallest
// values are drawn, in ascending order of the value (P. S. Efraimidis, P. G. Spirakis, "Weighted
// random sampling with a reservoir", Information Processing Letters 97, 2006, algorithm A).
func (s *WeightedRandomSampler) Indices(epoch int) iter.Seq[int] {
	return func(yield func(int) bool) {
		rng := rand.New(rand.NewPCG(s.seed, uint64(epoch)))
		if s.replacement {
			total := s.sums[len(s.sums)-1]
			for range s.samples {
				u := rng.Float64() * total
				i := sort.Search(len(s.sums), func(i int) bool { return s.sums[i] > u })
				// Rounding may make u·total equal to total.
				for i == len(s.sums) || s.weights[i] == 0 {
					i--
				}
				if !yield(i) {
					return
				}
			}
			return
		}
		type key struct {
			k float64
			i int
		}
		var keys []key
		for i, w := range s.weights {
			if w > 0 {
				keys = append(keys, key{rng.ExpFloat64() / w, i})
			}
		}
		slices.SortFunc(keys, func(a, b key) int {
			switch {
			case a.k < b.k:
				return -1
			case a.k > b.k:
				return 1
			}
			return a.i - b.i
		})
		for _, k := range keys[:s.samples] {
			if !yield(k.i) {
				return
			}
		}
	}
}

// batches is a BatchSampler that groups the indexes of a sampler into batches.
type batches struct {
	s        Sampler
	size     int
	dropLast bool
}

// NewBatchSampler returns a batch sampler that groups the indexes of s: torch's BatchSampler. A
// [Loader] groups indexes in this way by its settings Batch and DropLast. The error is a
// *[ConfigError].
func NewBatchSampler(s Sampler, batch int, dropLast bool) (BatchSampler, error) {
	if s == nil {
		return nil, &ConfigError{"Sampler", "there is none"}
	}
	if batch < 1 {
		return nil, &ConfigError{"Batch", fmt.Sprintf("%d samples a batch, at least 1 is needed", batch)}
	}
	return batches{s, batch, dropLast}, nil
}

func (b batches) repeats() bool { return repeats(b.s) }

func (b batches) Len() int {
	if b.dropLast {
		return b.s.Len() / b.size
	}
	return (b.s.Len() + b.size - 1) / b.size
}

func (b batches) Batches(epoch int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		var batch []int
		for i := range b.s.Indices(epoch) {
			if batch == nil {
				batch = make([]int, 0, b.size)
			}
			if batch = append(batch, i); len(batch) == b.size {
				if !yield(batch) {
					return
				}
				batch = nil
			}
		}
		if len(batch) > 0 && !b.dropLast {
			yield(batch)
		}
	}
}
