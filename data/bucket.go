package data

import (
	"cmp"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
)

// LengthConfig configures a [LengthSampler].
type LengthConfig struct {
	Batch int // number of samples in a batch, at least 1
	// Bounds are the upper bounds of the lengths in the buckets, ascending. If Bounds is nil, the
	// sampler uses pools instead of buckets.
	Bounds []int
	// Pool is the number of samples that are sorted by length together if Bounds is nil. 0 means 50
	// batches.
	Pool     int
	Shuffle  bool   // shuffles the samples before they are grouped, and the batches afterwards
	Seed     uint64 // seed of the shuffles of samples and of batches
	DropLast bool   // leaves out batches that are not full
}

// A LengthSampler makes batches of samples of similar length, so that batches need little padding.
// With Bounds, a sample of length n goes to the bucket of the first bound ≥ n. Samples longer than
// the last bound go to an additional bucket. A batch never mixes buckets. Without Bounds, the
// sampler sorts each group of Pool samples by length, longest first, and divides it into batches.
// With Shuffle, the batches and their order differ from epoch to epoch.
type LengthSampler struct {
	lengths []int
	c       LengthConfig
	// batches is the number of batches in an epoch, which is the same in every epoch.
	batches int
}

// NewLengthSampler returns a sampler for samples of the given lengths. If a setting is invalid, the
// error is a *[ConfigError].
func NewLengthSampler(lengths []int, c LengthConfig) (*LengthSampler, error) {
	switch {
	case c.Batch < 1:
		return nil, &ConfigError{"Batch", fmt.Sprintf("%d samples a batch, at least 1 is needed", c.Batch)}
	case c.Pool < 0:
		return nil, &ConfigError{"Pool", fmt.Sprintf("%d is negative", c.Pool)}
	case c.Bounds != nil && c.Pool != 0:
		return nil, &ConfigError{"Pool", "has no meaning beside Bounds"}
	}
	for i, b := range c.Bounds {
		if i > 0 && b <= c.Bounds[i-1] {
			return nil, &ConfigError{"Bounds", fmt.Sprintf("%v do not ascend", c.Bounds)}
		}
	}
	if c.Pool == 0 {
		c.Pool = 50 * c.Batch
	}
	c.Bounds = slices.Clone(c.Bounds)
	s := &LengthSampler{lengths: slices.Clone(lengths), c: c}
	for _, g := range s.groups(nil) {
		if s.batches += len(g) / c.Batch; len(g)%c.Batch != 0 && !c.DropLast {
			s.batches++
		}
	}
	return s, nil
}

// groups returns the samples of an epoch, grouped by bucket or pool.
func (s *LengthSampler) groups(rng *rand.Rand) [][]int {
	order := make([]int, len(s.lengths))
	for i := range order {
		order[i] = i
	}
	if rng != nil {
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	if s.c.Bounds == nil {
		var g [][]int
		for pool := range slices.Chunk(order, s.c.Pool) {
			slices.SortStableFunc(pool, func(a, b int) int { return cmp.Compare(s.lengths[b], s.lengths[a]) })
			g = append(g, pool)
		}
		return g
	}
	g := make([][]int, len(s.c.Bounds)+1)
	for _, i := range order {
		b, _ := slices.BinarySearch(s.c.Bounds, s.lengths[i])
		g[b] = append(g[b], i)
	}
	return g
}

// Len returns the number of batches in an epoch.
func (s *LengthSampler) Len() int { return s.batches }

// Batches returns the batches of an epoch.
func (s *LengthSampler) Batches(epoch int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		var rng *rand.Rand
		if s.c.Shuffle {
			rng = rand.New(rand.NewPCG(s.c.Seed, uint64(epoch)))
		}
		var all [][]int
		for _, g := range s.groups(rng) {
			for b := range slices.Chunk(g, s.c.Batch) {
				if len(b) == s.c.Batch || !s.c.DropLast {
					all = append(all, b)
				}
			}
		}
		if rng != nil {
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		}
		for _, b := range all {
			if !yield(slices.Clone(b)) {
				return
			}
		}
	}
}
