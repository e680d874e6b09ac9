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

// A nil operand raises a *tensor.Error.
func TestNilOperands(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, classes := s.Rand(2, 3), s.Typed(dtype.I64).Zeros(2)
		var none *tt
		two := map[string]func(x, y *tt){
			"nll":        func(x, y *tt) { nn.NLL(x, y) },
			"gaussian":   func(x, y *tt) { nn.NewGaussianNLLLoss().Forward(x, y, y) },
			"cosine":     func(x, y *tt) { nn.CosineEmbeddingLoss{}.Forward(x, x, y) },
			"triplet":    func(x, y *tt) { nn.NewTripletMarginLoss().Forward(x, y, x) },
			"margin":     func(x, y *tt) { nn.NewMultiMarginLoss().Forward(x, y) },
			"label":      func(x, y *tt) { nn.MultiLabelMarginLoss{}.Forward(x, y) },
			"soft label": func(x, y *tt) { nn.MultiLabelSoftMarginLoss{}.Forward(x, y) },
			"ctc":        func(x, y *tt) { nn.CTCLoss{}.Forward(x, y, classes, classes) },
			"ranking":    func(x, y *tt) { nn.MarginRankingLoss{}.Forward(x, x, y) },
			"entropy":    func(x, y *tt) { nn.CrossEntropy(x, y) },
			"mse":        func(x, y *tt) { nn.MSE(x, y) },
		}
		cases := map[string]func(){
			"layer norm":    func() { none.LayerNorm([]int{3}, x, x, 1) },
			"norm alone":    func() { none.RMSNorm([]int{3}, nil, 1) },
			"batch norm":    func() { none.BatchNorm(nil, nil, nil, nil, true, 0.1, 1) },
			"group norm":    func() { none.GroupNorm(1, nil, nil, 1) },
			"instance norm": func() { none.InstanceNorm(nil, nil, x, x, true, 0.1, 1) },
			"batch layer":   func() { nn.NewBatchNorm1d(3).Forward(nil) },
			"softmax2d":     func() { nn.Softmax2d{}.Forward(nil) },
		}
		for name, f := range two {
			cases[name+", second"], cases[name+", first"], cases[name+", both"] = func() { f(x, nil) }, func() { f(nil, x) }, func() { f(nil, nil) }
		}
		for name, f := range cases {
			if err := tensor.Try(f); !errors.Is(err, tensor.ErrValue) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A RoPE offset is an error if a position is outside of -2⁵³ … 2⁵³-1, where float64 represents
// every integer. The largest and the smallest valid offset are accepted.
func TestFarOffsets(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Rand(3, 2)
		for _, far := range []int{math.MaxInt, math.MinInt, 1<<53 - 2, -1<<53 - 1} {
			if err := tensor.Try(func() { x.RoPE(tensor.RoPEOptions{Offset: far}) }); !errors.Is(err, tensor.ErrValue) {
				t.Errorf("offset %d: %v", far, err)
			}
		}
		for _, near := range []int{1<<53 - 3, -1 << 53} {
			y := x.RoPE(tensor.RoPEOptions{Offset: near})
			at := s.From([]int64{int64(near), int64(near) + 1, int64(near) + 2})
			if want := x.RoPE(tensor.RoPEOptions{Positions: at}); !slices.Equal(y.Floats(), want.Floats()) {
				t.Errorf("offset %d: %v, by positions %v", near, y, want)
			}
		}
	})
}

// Without a count of batches, a layer with CumulativeAverage cannot average over all batches. As in
// torch, its running statistics then stay unchanged.
func TestAverageWithoutCount(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		l := nn.NewBatchNorm1d(2)
		l.Momentum, l.NumBatchesTracked = nn.CumulativeAverage, nil
		l.Forward(s.Rand(4, 2))
		if m, v := l.RunningMean.Floats(), l.RunningVar.Floats(); !slices.Equal(m, []float64{0, 0}) || !slices.Equal(v, []float64{1, 1}) {
			t.Errorf("running statistics %v and %v", m, v)
		}
	})
}

// The gradients of losses with respect to targets are right in edge cases. The gradients of
// divergences equal PyTorch's. For counts up to 1, the gradients of the Poisson loss equal those
// without Stirling's approximation.
func TestTargetGradients(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		y := s.From([]float32{0, float32(math.Inf(1)), 2}).RequiresGrad()
		g := tensor.Gradients(nn.KLDiv(s.Ones(3), y, nn.Sum), []*tt{y})[0].Floats()
		if !math.IsNaN(g[0]) || !math.IsNaN(g[1]) || math.Abs(g[2]-math.Ln2) > 1e-6 {
			t.Errorf("divergence: %v", g)
		}
		y = s.From([]float32{0, -1, 0.5, 1}).RequiresGrad()
		l := nn.NewPoissonNLLLoss()
		l.Full, l.Reduction = true, nn.Sum
		if g := tensor.Gradients(l.Forward(s.Ones(4), y), []*tt{y})[0].Floats(); !slices.Equal(g, []float64{-1, -1, -1, -1}) {
			t.Errorf("counts: %v", g)
		}
		if x := nn.BCEWithLogits(s.Full(math.Inf(-1), 2), s.From([]float32{0.5, 1}), nil, nn.None).Floats(); !math.IsInf(x[0], 1) || !math.IsInf(x[1], 1) {
			t.Errorf("logits of -Inf: %v", x)
		}
	})
}
