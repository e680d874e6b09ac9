package train

import (
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// try computes a batch of n samples, dealt to so many ranks of the team, in k parts each. err is an
// out of memory, lone as attempt says; fatal ends the training.
func (a *Adapt) try(b *data.Batch, n, ranks, k int, weight float64, f func(s *tensor.Scope, part *data.Batch) *tensor.Tensor) (lone bool, err, fatal error) {
	if a.team != nil {
		return a.team.try(b, n, ranks, k, weight)
	}
	err = outOfMemory(func() {
		a.keep.take()
		lone = a.attempt(b, n, 0, n, k, weight, f)
	})
	return lone, err, nil
}

// ranks is to how many devices a batch of n samples is dealt: to all, if it can be divided and each
// gets a sample, or where batch normalisation asks for it two.
func (a *Adapt) ranks(b *data.Batch, n int) int {
	if a.team == nil {
		return 1
	}
	if why := indivisible(b, n); why != "" {
		a.team.sayAlone(why)
		return 1
	}
	return min(a.team.world(), max(a.mostParts(n), 1))
}

// dealt returns which samples of a batch of n are those of a rank, lo … hi-1, when they are dealt
// to the first so many ranks. They are dealt in their order, and in numbers that differ by one at
// most. The others get none.
func dealt(n, ranks, rank int) (lo, hi int) {
	if rank >= ranks {
		return n, n
	}
	return ceil(n*rank, ranks), ceil(n*(rank+1), ranks)
}

// seedOf is the seed of a rank's generator, which is at the offset of the training's. Rank 0 has
// the training's own.
func seedOf(seed uint64, rank int) uint64 {
	if rank == 0 {
		return seed
	}
	x := seed + uint64(rank)*0x9E3779B97F4A7C15 // of splitmix64 (Steele, Lea and Flood, 2014)
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
