package nn_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// told compares a loss with what PyTorch 2.15 gives.
func told(t *testing.T, what string, y *tensor.Tensor, ty dtype.Type, dims []int, want ...float64) {
	t.Helper()
	if y.Type() != ty || y.Rank() != len(dims) || !slices.Equal(y.Shape().Slice(), dims) && len(dims) > 0 {
		t.Errorf("%s is %v %v, want %v %v", what, y.Type(), y.Shape(), ty, dims)
		return
	}
	tolerance := 1e-6
	if ty == dtype.F16 {
		tolerance = 1e-3
	}
	for i, v := range y.Floats() {
		if math.Abs(v-want[i]) > tolerance*(1+math.Abs(want[i])) && !(v != v && want[i] != want[i]) {
			t.Errorf("%s is %v, want %v", what, y.Floats(), want)
			return
		}
	}
}

// Losses that torch computes of integers, in their arithmetic, as float32.
func TestLossesOfIntegers(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		six := []int{2, 3}
		of := func(ty dtype.Type, v ...int64) *tensor.Tensor { return s.From(v, 2, 3).Cast(ty) }
		for _, ty := range []dtype.Type{dtype.I64, dtype.U8} {
			a, b, y := of(ty, -3, 2, 5, 1, 7, 4), of(ty, 1, 2, 0, 0, 9, 4), of(ty, 1, -1, 1, -1, 1, 1)
			wraps := ty == dtype.U8
			ranking := []float64{4, 0, 0, 1, 2, 0}
			if wraps {
				ranking[2] = 251
			}
			told(t, "margin_ranking_loss", nn.MarginRankingLoss{Reduction: nn.None}.Forward(a, b, y), dtype.F32, six, ranking...)
			for i := range ranking {
				ranking[i] += 0.5
			}
			if !wraps {
				ranking[2] = 0
			}
			told(t, "margin_ranking_loss, margin ½", nn.MarginRankingLoss{Margin: 0.5, Reduction: nn.None}.Forward(a, b, y), dtype.F32, six, ranking...)
			poisson, means, full := nn.NewPoissonNLLLoss(), nn.NewPoissonNLLLoss(), nn.NewPoissonNLLLoss()
			poisson.Reduction, means.Reduction, full.Reduction = nn.None, nn.None, nn.None
			means.LogInput, full.Full = false, true
			first, mean := 3.0497870445251465, math.NaN()
			if wraps {
				first, mean = math.Inf(1), 247.46661376953125
			}
			told(t, "poisson_nll_loss", poisson.Forward(a, b), dtype.F32, six, first, 3.3890562057495117, 148.4131622314453, 2.7182817459106445, 1033.6331787109375, 38.598148345947266)
			told(t, "poisson_nll_loss of means", means.Forward(a, b), dtype.F32, six, mean, 0.6137056350708008, 5, 1, -10.513191223144531, -1.5451774597167969)
			told(t, "poisson_nll_loss, full", full.Forward(a, b), dtype.F32, six, first, 4.040862560272217, 148.4131622314453, 2.7182817459106445, 1046.42578125, 41.75541305541992)
			triplet, swap := nn.NewTripletMarginLoss(), nn.NewTripletMarginLoss()
			triplet.Reduction, swap.Reduction = nn.None, nn.None
			swap.Margin, swap.P, swap.Swap = 2.5, 1, true
			plain, swapped := []float64{0.9999995231628418, 0}, []float64{7.5, 0}
			if wraps {
				plain, swapped = []float64{1, 248.00196838378906}, []float64{1.5, 246.5}
			}
			told(t, "triplet_margin_loss", triplet.Forward(a, b, y), dtype.F32, []int{2}, plain...)
			told(t, "triplet_margin_loss, swap", swap.Forward(a, b, y), dtype.F32, []int{2}, swapped...)
		}
		x, counts := s.From([]float32{-3, 2, 5, 1, 7, 4}, 2, 3), of(dtype.I64, 1, 2, 0, 0, 9, 4)
		full := nn.NewPoissonNLLLoss()
		full.Full = true
		told(t, "poisson_nll_loss of floats and counts", nn.NewPoissonNLLLoss().Forward(x, counts), dtype.F32, nil, 204.96693420410156)
		told(t, "poisson_nll_loss of float16, full", full.Forward(x.Half(), counts), dtype.F16, nil, 207.875)
		told(t, "margin_ranking_loss of floats and integers", nn.MarginRankingLoss{}.Forward(x, counts, counts), dtype.F32, nil, 3.6666667461395264)
		yes := s.Typed(dtype.Bool).Ones(2, 3)
		for name, f := range map[string]func(){"ranking": func() { nn.MarginRankingLoss{}.Forward(yes, yes, yes) }, "poisson": func() { nn.NewPoissonNLLLoss().Forward(yes, counts) },
			"triplet": func() { nn.NewTripletMarginLoss().Forward(yes, yes, yes) }} {
			if err := tensor.Try(f); !errors.Is(err, tensor.ErrType) {
				t.Errorf("%s of bool: %v", name, err)
			}
		}
	})
}

// A score of rank 0 is one of one class; a vector of scores takes its class in a vector too.
func TestMarginLossesOfRank0(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		three, class := s.Full(3), s.Typed(dtype.I64).Zeros()
		none := *nn.NewMultiMarginLoss()
		none.Reduction = nn.None
		told(t, "multi_margin_loss", nn.NewMultiMarginLoss().Forward(three, class), dtype.F32, nil, 0)
		told(t, "multi_margin_loss, no reduction", none.Forward(three, class), dtype.F32, nil, 0)
		told(t, "multi_margin_loss of a class in a vector", none.Forward(three, class.Unsqueeze(0)), dtype.F32, []int{1}, 0)
		x := s.From([]float32{3, 2}).RequiresGrad()
		y := none.Forward(x, s.From([]int64{1}))
		told(t, "multi_margin_loss of two scores", y, dtype.F32, []int{1}, 1)
		y.Sum().Backward()
		told(t, "its gradient", x.Grad(), dtype.F32, []int{2}, 0.5, -0.5)
		for _, r := range []nn.Reduction{nn.None, nn.Mean, nn.Sum} {
			l := nn.MultiLabelMarginLoss{Reduction: r}
			told(t, "multilabel_margin_loss", l.Forward(three, class), dtype.F32, nil, 0)
			told(t, "multilabel_margin_loss of a vector and a scalar", l.Forward(three.Unsqueeze(0), class), dtype.F32, nil, 0)
			told(t, "multilabel_margin_loss without a class", l.Forward(three, class.AddScalar(-1)), dtype.F32, nil, 0)
		}
		z := s.Full(3).RequiresGrad()
		nn.MultiLabelMarginLoss{}.Forward(z, class).Backward()
		told(t, "its gradient", z.Grad(), dtype.F32, nil, 0)
	})
}
