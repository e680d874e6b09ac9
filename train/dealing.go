package train

import (
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// try computes a batch of n samples on the given number of ranks. Each rank divides its samples
// into k parts. lone is true if a part would have a single sample and batch normalisation needs
// more. err is an out-of-memory error, and fatal is an error that ends the training.
func (a *Adapt) try(b *data.Batch, n, ranks, k int, weight float64, f func(s *tensor.Scope, part *data.Batch) *tensor.Tensor) (lone bool, err, fatal error) {
	if a.team != nil {
		return a.team.try(b, n, ranks, k, weight)
	}
	err = outOfMemory(func() {
		a.keep.save()
		lone = a.attempt(b, n, 0, n, k, weight, f)
	})
	return lone, err, nil
}

// ranks returns the number of devices over which a batch of n samples is distributed. Each of these
// devices gets at least one sample, or two if batch normalisation needs them. A batch that cannot
// be divided stays on one device.
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

// dealt divides a batch of n samples among the first ranks of a training. The argument ranks is
// their number. dealt returns the range lo … hi-1 of the samples that one rank gets. The samples
// keep their order, and the numbers of samples differ by at most one. All other ranks get none.
func dealt(n, ranks, rank int) (lo, hi int) {
	if rank >= ranks {
		return n, n
	}
	return ceil(n*rank, ranks), ceil(n*(rank+1), ranks)
}

// seedOf returns the seed of a rank's generator. Rank 0 has the training's own seed.
func seedOf(seed uint64, rank int) uint64 {
	if rank == 0 {
		return seed
	}
	x := seed + uint64(rank)*0x9E3779B97F4A7C15 // splitmix64 (Steele, Lea and Flood, 2014)
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
