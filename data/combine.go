package data

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// A Concat is the concatenation of several datasets: torch's ConcatDataset. [NewConcat] makes one.
type Concat struct {
	parts []Dataset
	ends  []int // for each dataset, the index of its last sample plus 1
}

// NewConcat returns the concatenation of the datasets. It calls Len of each dataset once.
func NewConcat(datasets ...Dataset) *Concat {
	c := &Concat{parts: slices.Clone(datasets)}
	end := 0
	for _, d := range datasets {
		end += d.Len()
		c.ends = append(c.ends, end)
	}
	return c
}

// Len returns the number of samples.
func (c *Concat) Len() int {
	if len(c.ends) == 0 {
		return 0
	}
	return c.ends[len(c.ends)-1]
}

// find returns the dataset that holds sample i, and the sample's index in that dataset.
func (c *Concat) find(i int) (Dataset, int, error) {
	if i < 0 || i >= c.Len() {
		return nil, 0, fmt.Errorf("index %d is out of range for %d samples", i, c.Len())
	}
	k, _ := slices.BinarySearch(c.ends, i+1)
	if k > 0 {
		i -= c.ends[k-1]
	}
	return c.parts[k], i, nil
}

// Get returns sample i.
func (c *Concat) Get(i int) (Sample, error) {
	d, k, err := c.find(i)
	if err != nil {
		return Sample{}, err
	}
	return d.Get(k)
}

// mapped is a dataset with a function applied to its samples.
type mapped struct {
	base Dataset
	f    func(s Sample, rng *rand.Rand) (Sample, error)
}

// Map returns ds with f applied to every sample. Several goroutines may call f at the same time.
// rng is the sample's source of random numbers, for example for augmentation: see [RandDataset].
// Without a loader, Get passes the random numbers that a loader with seed 0 would pass in epoch 0.
func Map(ds Dataset, f func(s Sample, rng *rand.Rand) (Sample, error)) RandDataset {
	return &mapped{ds, f}
}

func (m *mapped) Len() int { return m.base.Len() }

func (m *mapped) Get(i int) (Sample, error) {
	return m.GetRand(i, rand.New(rand.NewPCG(streamSeed(0, 0, i))))
}

func (m *mapped) GetRand(i int, rng *rand.Rand) (Sample, error) {
	s, err := GetRand(m.base, i, rng)
	if err != nil {
		return s, err
	}
	return m.f(s, rng)
}

// RandomSplit divides ds at random into parts of the given sizes, which do not overlap: torch's
// random_split. If the sizes do not add up to the number of samples, the error is a *[ConfigError].
// The same seed gives the same parts.
func RandomSplit(ds Dataset, seed uint64, sizes ...int) ([]Subset, error) {
	n, sum := ds.Len(), 0
	for i, k := range sizes {
		if k < 0 {
			return nil, &ConfigError{"sizes", fmt.Sprintf("part %d has %d samples", i, k)}
		}
		sum += k
	}
	if sum != n {
		return nil, &ConfigError{"sizes", fmt.Sprintf("they add up to %d, the dataset has %d samples", sum, n)}
	}
	order := rand.New(rand.NewPCG(seed, 0)).Perm(n)
	parts := make([]Subset, len(sizes))
	at := 0
	for i, k := range sizes {
		parts[i] = Subset{ds, order[at : at+k : at+k]}
		at += k
	}
	return parts, nil
}

// RandomSplitFractions is [RandomSplit] for fractions that add up to 1. As in torch, each part gets
// its fraction of the samples, rounded down. The remaining samples go to the first parts, one to
// each.
func RandomSplitFractions(ds Dataset, seed uint64, fractions ...float64) ([]Subset, error) {
	n, sum, left := ds.Len(), 0.0, ds.Len()
	sizes := make([]int, len(fractions))
	for i, f := range fractions {
		if !(f >= 0 && f <= 1) {
			return nil, &ConfigError{"fractions", fmt.Sprintf("fraction %d is %v, it must lie between 0 and 1", i, f)}
		}
		sum += f
		sizes[i] = int(math.Floor(float64(n) * f))
		left -= sizes[i]
	}
	if math.Abs(sum-1) > 1e-9 {
		return nil, &ConfigError{"fractions", fmt.Sprintf("they add up to %v, not to 1", sum)}
	}
	for i := 0; left > 0; i++ {
		sizes[i%len(sizes)]++
		left--
	}
	return RandomSplit(ds, seed, sizes...)
}
