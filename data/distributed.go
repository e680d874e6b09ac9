package data

import (
	"fmt"
	"iter"
)

// DistributedConfig configures a [DistributedSampler].
type DistributedConfig struct {
	Rank, World int  // index of this process, and number of processes: 0 ≤ Rank < World
	Shuffle     bool // random order of the samples; false by default, unlike in torch
	Seed        uint64
	DropLast    bool // leaves out the last samples of the order instead of repeating the first ones
}

// A DistributedSampler gives each of several processes its share of a dataset: torch's
// DistributedSampler. All shares have the same size. If World does not divide the number of
// samples, the sampler repeats the first samples at the end of the order. With DropLast, it leaves
// out the last samples instead. Sample k of the order goes to process k mod World. With Shuffle,
// the order differs between epochs and is the same for all processes. A [Loader] passes its epoch
// to the sampler.
type DistributedSampler struct {
	n int
	c DistributedConfig
}

// NewDistributedSampler returns the sampler of one process for a dataset of n samples. If a setting
// is invalid, the error is a *[ConfigError].
func NewDistributedSampler(n int, c DistributedConfig) (*DistributedSampler, error) {
	switch {
	case n < 0:
		return nil, &ConfigError{"n", fmt.Sprintf("%d samples", n)}
	case c.World < 1:
		return nil, &ConfigError{"World", fmt.Sprintf("%d processes, at least 1 is needed", c.World)}
	case c.Rank < 0 || c.Rank >= c.World:
		return nil, &ConfigError{"Rank", fmt.Sprintf("%d is not between 0 and %d", c.Rank, c.World-1)}
	}
	return &DistributedSampler{n, c}, nil
}

// Len returns the number of samples that this process visits in an epoch.
func (s *DistributedSampler) Len() int {
	if s.c.DropLast {
		return s.n / s.c.World
	}
	return (s.n + s.c.World - 1) / s.c.World
}

// Indices returns the samples that this process visits in an epoch.
func (s *DistributedSampler) Indices(epoch int) iter.Seq[int] {
	return func(yield func(int) bool) {
		if s.n == 0 {
			return
		}
		at := func(i int) int { return i }
		if s.c.Shuffle {
			order := make([]int, 0, s.n)
			for i := range (RandomSampler{N: s.n, Seed: s.c.Seed}).Indices(epoch) {
				order = append(order, i)
			}
			at = func(i int) int { return order[i] }
		}
		for k := range s.Len() {
			if !yield(at((s.c.Rank + k*s.c.World) % s.n)) {
				return
			}
		}
	}
}
