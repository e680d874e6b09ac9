package tensor_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/tensor"
)

// draws returns random numbers from ops of all kinds in s, and the numbers that their gradients
// draw again.
func draws(s *tensor.Scope) (all []float64) {
	add := func(x *tensor.Tensor) { all = append(all, x.Floats()...) }
	add(s.Rand(3))
	add(s.Randn(3))
	add(s.On(s.Device()).RandPerm(5))
	add(s.Empty(3).UniformInPlace(0, 1))
	x := s.Ones(16).RequiresGrad()
	y := autograd.Checkpoint(func(x *tensor.Tensor) *tensor.Tensor { return x.Dropout(0.5).Exp().Dropout(0.5) }, x)
	s.Do(func(c *tensor.Scope) { add(c.Rand(2)) }) // a child scope draws in between
	y.Sum().Backward()
	add(y)
	add(x.Grad())
	add(s.Full(0.5, 8).Bernoulli())
	add(s.From([]float32{1, 2, 3}).Multinomial(4, true))
	return all
}

// TestSeedsOfRanksAreApart draws in a scope with a seed while other code draws on the same device,
// on another device, or from the root scope's generator. The scope must draw the same numbers as
// alone.
func TestSeedsOfRanksAreApart(t *testing.T) {
	devs := threeDevices(t)
	run := func(rank int) (all []float64) {
		tensor.Do(func(s *tensor.Scope) { all = draws(s) }, tensor.On(devs[rank%3]), tensor.Seed(uint64(rank)))
		return all
	}
	const ranks = 6
	_, before := tensor.Root().Generator().State()
	var alone [ranks][]float64
	for rank := range ranks {
		alone[rank] = run(rank)
		for other := range rank {
			if slices.Equal(alone[rank], alone[other]) {
				t.Errorf("ranks %d and %d draw the same", other, rank)
			}
		}
	}
	if _, now := tensor.Root().Generator().State(); now != before {
		t.Errorf("ranks have drawn %d numbers from the root's generator", now-before)
	}
	// The numbers depend on the seed, not on the device.
	tensor.Do(func(s *tensor.Scope) {
		if !slices.Equal(draws(s), alone[4]) {
			t.Error("seed 4 draws other numbers on the CPU than on a GPU")
		}
	}, tensor.Seed(4))
	var together [ranks][]float64
	var wg sync.WaitGroup
	for rank := range ranks {
		wg.Go(func() { together[rank] = run(rank) })
		wg.Go(func() {
			for range 20 {
				tensor.Root().Rand(7).Free()
			}
		})
	}
	wg.Wait()
	for rank := range ranks {
		if !slices.Equal(alone[rank], together[rank]) {
			t.Errorf("rank %d draws %v alone, %v among others", rank, alone[rank], together[rank])
		}
	}
	if _, now := tensor.Root().Generator().State(); now != before+ranks*20*7 {
		t.Errorf("%d numbers were drawn from the root's generator, not %d", now-before, ranks*20*7)
	}
}

// TestOneGeneratorForAll draws from one generator on several goroutines. No two goroutines may get
// the same numbers.
func TestOneGeneratorForAll(t *testing.T) {
	const workers, times, n = 8, 25, 4
	g := tensor.NewGenerator(11)
	var want []float64
	tensor.Do(func(s *tensor.Scope) {
		for range workers * times {
			want = append(want, s.Rand(n).Floats()...)
		}
	}, tensor.WithGenerator(tensor.NewGenerator(11)))
	var got [workers][]float64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range times {
				tensor.Do(func(s *tensor.Scope) { got[w] = append(got[w], s.Rand(n).Floats()...) }, tensor.WithGenerator(g))
			}
		})
	}
	wg.Wait()
	all := slices.Concat(got[:]...)
	slices.Sort(all)
	slices.Sort(want)
	if !slices.Equal(all, want) {
		t.Error("the numbers that were drawn at the same time are not those that are drawn one after the other")
	}
}
