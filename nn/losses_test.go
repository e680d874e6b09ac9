package nn_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

func TestLossMisuse(t *testing.T) {
	for _, c := range []struct {
		kind error
		want string
		f    func(x, y *tt, target *tt)
	}{
		{tensor.ErrValue, "beta is -1", func(x, y, _ *tt) { nn.SmoothL1(x, y, -1) }},
		{tensor.ErrValue, "beta is NaN", func(x, y, _ *tt) { nn.SmoothL1(x, y, math.NaN()) }},
		{tensor.ErrValue, "delta is 0", func(x, y, _ *tt) { nn.Huber(x, y, 0) }},
		{tensor.ErrValue, "2 reductions", func(x, y, _ *tt) { nn.L1(x, y, nn.Sum, nn.Mean) }},
		{tensor.ErrValue, "there is no reduction 9", func(x, y, _ *tt) { nn.MSE(x, y, nn.Reduction(9)) }},
		{tensor.ErrShape, "must have one shape", func(x, y, _ *tt) { nn.BCE(x, y.Reshape(6, 2)) }},
		{tensor.ErrType, "floating point", func(x, y, _ *tt) { nn.BCEWithLogits(x.Long(), y.Long(), nil) }},
		{tensor.ErrShape, "without the classes", func(x, y, _ *tt) { nn.NLL(x, y) }},
		{tensor.ErrIndex, "4", func(x, _, target *tt) { nn.NLL(x, target.AddScalar(4)) }},
		{tensor.ErrShape, "dimensions of shape [3]", func(x, _, _ *tt) { nn.NewLayerNorm([]int{3}).Forward(x) }},
		{tensor.ErrShape, "dimensions of shape [3, 3, 4]", func(x, _, _ *tt) { nn.NewRMSNorm([]int{3, 3, 4}).Forward(x) }},
		{tensor.ErrShape, "dimensions of shape []", func(x, _, _ *tt) { nn.NewRMSNorm([]int(nil)).Forward(x) }},
		{tensor.ErrType, "needs a floating point", func(x, _, _ *tt) { nn.NewLayerNorm([]int{4}).Forward(x.Long()) }},
	} {
		tensor.Do(func(s *tensor.Scope) {
			err := tensor.Try(func() { c.f(s.Ones(3, 4), s.Zeros(3, 4), s.Typed(dtype.I64).Zeros(3)) })
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v is not %v with %q", err, c.kind, c.want)
			}
		})
	}
}

// LayerNorm and RMSNorm compute 16-bit inputs in float32. Their weights and biases have torch's
// names and are trained.
func TestNorms(t *testing.T) {
	l, r := nn.NewLayerNorm([]int{2, 3}), nn.NewRMSNorm([]int{3}, nn.Typed(dtype.BF16))
	if p := nn.Named(l); len(p) != 2 || p[0].Name != "weight" || p[1].Name != "bias" || p[0].Tensor.Size() != 6 {
		t.Errorf("parameters %v", p)
	}
	if p := nn.Named(r); len(p) != 1 || p[0].Name != "weight" {
		t.Errorf("parameters %v", p)
	}
	if n := len(nn.Parameters(nn.NewLayerNorm([]int{3}, nn.NoAffine()))) + len(nn.Parameters(nn.NewLayerNorm([]int{3}, nn.NoBias()))); n != 1 {
		t.Errorf("%d parameters without a bias, and without any", n)
	}
	tensor.Do(func(s *tensor.Scope) {
		in := s.Rand(4, 2, 3)
		y := l.Forward(in)
		if !slices.Equal(y.Floats(), in.LayerNorm([]int{2, 3}, l.Weight, l.Bias, 1e-5).Floats()) {
			t.Error("the layer is not the op with its parameters")
		}
		y.Square().Sum().Backward()
		if l.Weight.Grad() == nil || l.Bias.Grad() == nil {
			t.Error("no gradient")
		}
		x := s.Typed(dtype.BF16).From([]float32{1000, 1001, 1002})
		if y := r.Forward(x); y.Type() != dtype.BF16 || y.Select(0, 0).Item() != 1 {
			t.Errorf("root mean square in bfloat16: %v", y)
		}
		// The mean square of the elements of tiny is 2⁻²⁴/3, so the default eps of 2⁻²³ changes the
		// result.
		tiny := s.From([]float32{0x1p-12, 0, 0})
		n := nn.NewRMSNorm([]int{3})
		if got, want := n.Forward(tiny).Floats()[0], 0x1p-12/math.Sqrt(0x1p-24/3+0x1p-23); math.Abs(got-want) > 1e-6 {
			t.Errorf("the default eps gives %v, want %v", got, want)
		}
	})
}

func TestLossOptionMisuse(t *testing.T) {
	three := tensor.Ones(3)
	for _, c := range []struct {
		kind error
		want string
		f    func(x, y *tt, target *tt)
	}{
		{tensor.ErrShape, "MoveAxis(-1, 1)", func(x, _, _ *tt) {
			nn.CrossEntropy(x.Reshape(2, 3, 2), tensor.Typed(dtype.I64).Zeros(2, 3))
		}},
		{tensor.ErrShape, "class indices are int64", func(x, _, target *tt) { nn.CrossEntropy(x, target.Float()) }},
		{tensor.ErrShape, "probabilities are of floating point", func(x, y, _ *tt) { nn.CrossEntropy(x, y.Long()) }},
		{tensor.ErrShape, "not a scalar", func(x, _, target *tt) { nn.CrossEntropy(x.Sum(), target) }},
		{tensor.ErrType, "probabilities are float64", func(x, y, _ *tt) { nn.CrossEntropy(x, y.Double()) }},
		{tensor.ErrType, "they are int32", func(x, _, target *tt) { nn.CrossEntropy(x, target.Cast(dtype.I32)) }},
		{tensor.ErrType, "floating point", func(x, _, target *tt) { nn.CrossEntropy(x.Long(), target) }},
		{tensor.ErrIndex, "index 4", func(x, _, target *tt) { nn.CrossEntropy(x, target.AddScalar(4)) }},
		{tensor.ErrIndex, "index 4", func(x, _, target *tt) { nn.CrossEntropyLoss{LabelSmoothing: 0.5}.Forward(x, target.AddScalar(4)) }},
		{tensor.ErrShape, "[3] are the weights of 4 classes", func(x, _, target *tt) { nn.CrossEntropyLoss{Weight: three}.Forward(x, target) }},
		{tensor.ErrType, "weights are float64", func(x, _, target *tt) { nn.CrossEntropyLoss{Weight: tensor.Ones(4).Double()}.Forward(x, target) }},
		{tensor.ErrValue, "label smoothing is 1.5", func(x, _, target *tt) { nn.CrossEntropyLoss{LabelSmoothing: 1.5}.Forward(x, target) }},
		{tensor.ErrShape, "there are no classes", func(x, _, target *tt) { nn.CrossEntropy(x.Narrow(1, 0, 0), target) }},
		{tensor.ErrShape, "there are no classes", func(x, _, target *tt) { nn.NLL(x.Narrow(1, 0, 0), target) }},
		{tensor.ErrShape, "[3] are the weights of 4 classes", func(x, _, target *tt) { nn.NLLLoss{Weight: three}.Forward(x, target) }},
		{tensor.ErrType, "weights are float64", func(x, _, target *tt) { nn.NLLLoss{Weight: tensor.Ones(4).Double()}.Forward(x, target) }},
		{tensor.ErrType, "Cast(dtype.I64)", func(x, _, target *tt) { nn.NLL(x, target.Float()) }},
		{tensor.ErrType, "floating point", func(x, _, target *tt) { nn.NLL(x.Long(), target) }},
		{tensor.ErrShape, "weights have the shape", func(x, y, _ *tt) { nn.MSELoss{Weight: three}.Forward(x, y) }},
		{tensor.ErrShape, "do not broadcast", func(x, y, _ *tt) { nn.BCELoss{Weight: three}.Forward(x, y) }},
		{tensor.ErrShape, "needs vectors", func(x, y, _ *tt) { nn.CosineEmbeddingLoss{}.Forward(x, y, y) }},
		{tensor.ErrValue, "NewTripletMarginLoss sets P to 2", func(x, y, _ *tt) { (&nn.TripletMarginLoss{Margin: 1}).Forward(x, y, y) }},
		{tensor.ErrValue, "the margin is 0", func(x, y, _ *tt) { (&nn.TripletMarginLoss{P: 2}).Forward(x, y, y) }},
		{tensor.ErrShape, "as many dimensions", func(x, y, _ *tt) { nn.NewTripletMarginLoss().Forward(x, y, y.Select(0, 0)) }},
		{tensor.ErrShape, "variances have", func(x, y, _ *tt) { nn.NewGaussianNLLLoss().Forward(x, y, tensor.Ones(4)) }},
		{tensor.ErrShape, "variances have", func(x, y, _ *tt) { nn.NewGaussianNLLLoss().Forward(x, y, tensor.Ones(1, 1)) }},
		{tensor.ErrValue, "Eps must be positive", func(x, y, _ *tt) { (&nn.GaussianNLLLoss{}).Forward(x, y, y) }},
		{tensor.ErrValue, "NewPoissonNLLLoss sets torch's", func(x, y, _ *tt) { (&nn.PoissonNLLLoss{}).Forward(x, y) }},
		{tensor.ErrValue, "Beta is 0", func(x, y, _ *tt) { nn.SmoothL1Loss{}.Forward(x, y) }},
		{tensor.ErrValue, "Margin is 0", func(x, y, _ *tt) { nn.HingeEmbeddingLoss{}.Forward(x, y) }},
		{tensor.ErrValue, "P of the literal is 0 (nn.NewPairwiseDistance(2, 1e-6)", func(x, y, _ *tt) { nn.PairwiseDistance{}.Forward(x, y) }},
		{tensor.ErrValue, "Eps of the literal is 0", func(x, y, _ *tt) { nn.CosineSimilarity{Dim: 1}.Forward(x, y) }},
		{tensor.ErrValue, "P is 3", func(x, _, target *tt) { (&nn.MultiMarginLoss{P: 3}).Forward(x, target) }},
		{tensor.ErrShape, "scores are [n, classes]", func(x, _, target *tt) { nn.NewMultiMarginLoss().Forward(x.Unsqueeze(0), target) }},
		{tensor.ErrIndex, "index 4", func(x, _, target *tt) { nn.NewMultiMarginLoss().Forward(x, target.AddScalar(4)) }},
		{tensor.ErrShape, "needs logarithms [time, n, classes]", func(x, _, target *tt) { nn.CTCLoss{}.Forward(x, target, target, target) }},
		{tensor.ErrType, "targets and lengths must be int64 or int32, one is float32", func(x, y, _ *tt) { nn.CTCLoss{}.Forward(x, y.Select(0, 0), y.Sum(), y.Sum()) }},
		{tensor.ErrType, "floating point", func(x, _, target *tt) { nn.CTCLoss{}.Forward(x.Long(), target, target.Sum(), target.Sum()) }},
		{tensor.ErrValue, "the blank is class 4 of 4", func(x, _, target *tt) { nn.CTCLoss{Blank: 4}.Forward(x, target, target.Sum(), target.Sum()) }},
		{tensor.ErrShape, "no time", func(x, _, target *tt) { nn.CTCLoss{}.Forward(x.Narrow(0, 0, 0), target, target.Sum(), target.Sum()) }},
		{tensor.ErrIndex, "index 9", func(x, _, target *tt) {
			nn.CTCLoss{}.Forward(x, target.AddScalar(9), target.Sum().AddScalar(3), target.Sum().AddScalar(3))
		}},
		{tensor.ErrShape, "[3, 4] and [3]", func(x, _, target *tt) { nn.MultiLabelMarginLoss{}.Forward(x, target) }},
		{tensor.ErrType, "Cast(dtype.I64)", func(x, y, _ *tt) { nn.MultiLabelMarginLoss{}.Forward(x, y) }},
		{tensor.ErrType, "floating point scores", func(x, y, _ *tt) { nn.MultiLabelMarginLoss{}.Forward(x.Long(), y.Long()) }},
		{tensor.ErrIndex, "index 4", func(x, y, _ *tt) { nn.MultiLabelMarginLoss{}.Forward(x, y.Long().AddScalar(4)) }},
		{tensor.ErrShape, "not a scalar", func(x, y, _ *tt) { nn.MultiLabelSoftMarginLoss{}.Forward(x.Sum(), y.Sum()) }},
		{tensor.ErrType, "floating point", func(x, y, _ *tt) { nn.SoftMarginLoss{}.Forward(x.Long(), y.Long()) }},
	} {
		tensor.Do(func(s *tensor.Scope) {
			err := tensor.Try(func() { c.f(s.Ones(3, 4), s.Zeros(3, 4), s.Typed(dtype.I64).Zeros(3)) })
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v is not %v with %q", err, c.kind, c.want)
			}
		})
	}
}

// The mean is exact even if bfloat16 cannot represent the number of targets. The weights of ignored
// targets do not matter, even if they are NaN.
func TestMeansOfClasses(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Typed(dtype.BF16).Zeros(385, 2) // bfloat16 represents 384, but not 385
		if got, want := nn.CrossEntropy(x, s.Typed(dtype.I64).Zeros(385)).Item(), 0.69140625; got != want {
			t.Errorf("the mean is %v, want %v", got, want)
		}
		l := nn.CrossEntropyLoss{Weight: s.From([]float32{float32(math.NaN()), 2}), IgnoreIndex: new(0)}
		if got := l.Forward(s.Zeros(3, 2), s.From([]int64{0, 1, 0})).Item(); math.Abs(got-math.Ln2) > 1e-7 {
			t.Errorf("the loss of one target is %v", got)
		}
	})
}

// The weights of losses are buffers, as in torch: they move with the model and are not trained.
func TestLossesHoldBuffers(t *testing.T) {
	type model struct {
		Fc   *nn.Linear
		Loss nn.CrossEntropyLoss
	}
	m := &model{nn.NewLinear(2, 2), nn.CrossEntropyLoss{Weight: tensor.Ones(2)}}
	if n := nn.Named(m); len(n) != 3 || n[2].Name != "loss.weight" {
		t.Errorf("names are %v", n)
	}
	if n := len(nn.Parameters(m)); n != 2 {
		t.Errorf("%d parameters", n)
	}
}

// A triplet loss accepts any function as its distance.
func TestTripletDistance(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		a, p, n := s.From([][]float32{{1, 0}}), s.From([][]float32{{0, 2}}), s.From([][]float32{{3, 0}})
		l := nn.NewTripletMarginLoss()
		l.Distance = func(x, y *tt) *tt { return x.CosineSimilarity(y, 1, 1e-8).RSubScalar(1) }
		if got := l.Forward(a, p, n).Item(); got != 2 { // 1 + (1 - 0) - (1 - 1)
			t.Errorf("the loss is %v", got)
		}
	})
}

// checkLoss compares the loss y with the values that PyTorch 2.15 returns.
func checkLoss(t *testing.T, what string, y *tensor.Tensor, ty dtype.Type, dims []int, want ...float64) {
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

// Some losses accept integers, as in torch. They compute with integers and return float32.
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
			checkLoss(t, "margin_ranking_loss", nn.MarginRankingLoss{Reduction: nn.None}.Forward(a, b, y), dtype.F32, six, ranking...)
			for i := range ranking {
				ranking[i] += 0.5
			}
			if !wraps {
				ranking[2] = 0
			}
			checkLoss(t, "margin_ranking_loss, margin ½", nn.MarginRankingLoss{Margin: 0.5, Reduction: nn.None}.Forward(a, b, y), dtype.F32, six, ranking...)
			poisson, means, full := nn.NewPoissonNLLLoss(), nn.NewPoissonNLLLoss(), nn.NewPoissonNLLLoss()
			poisson.Reduction, means.Reduction, full.Reduction = nn.None, nn.None, nn.None
			means.LogInput, full.Full = false, true
			first, mean := 3.0497870445251465, math.NaN()
			if wraps {
				first, mean = math.Inf(1), 247.46661376953125
			}
			checkLoss(t, "poisson_nll_loss", poisson.Forward(a, b), dtype.F32, six, first, 3.3890562057495117, 148.4131622314453, 2.7182817459106445, 1033.6331787109375, 38.598148345947266)
			checkLoss(t, "poisson_nll_loss of means", means.Forward(a, b), dtype.F32, six, mean, 0.6137056350708008, 5, 1, -10.513191223144531, -1.5451774597167969)
			checkLoss(t, "poisson_nll_loss, full", full.Forward(a, b), dtype.F32, six, first, 4.040862560272217, 148.4131622314453, 2.7182817459106445, 1046.42578125, 41.75541305541992)
			triplet, swap := nn.NewTripletMarginLoss(), nn.NewTripletMarginLoss()
			triplet.Reduction, swap.Reduction = nn.None, nn.None
			swap.Margin, swap.P, swap.Swap = 2.5, 1, true
			plain, swapped := []float64{0.9999995231628418, 0}, []float64{7.5, 0}
			if wraps {
				plain, swapped = []float64{1, 248.00196838378906}, []float64{1.5, 246.5}
			}
			checkLoss(t, "triplet_margin_loss", triplet.Forward(a, b, y), dtype.F32, []int{2}, plain...)
			checkLoss(t, "triplet_margin_loss, swap", swap.Forward(a, b, y), dtype.F32, []int{2}, swapped...)
		}
		x, counts := s.From([]float32{-3, 2, 5, 1, 7, 4}, 2, 3), of(dtype.I64, 1, 2, 0, 0, 9, 4)
		full := nn.NewPoissonNLLLoss()
		full.Full = true
		checkLoss(t, "poisson_nll_loss of floats and counts", nn.NewPoissonNLLLoss().Forward(x, counts), dtype.F32, nil, 204.96693420410156)
		checkLoss(t, "poisson_nll_loss of float16, full", full.Forward(x.Half(), counts), dtype.F16, nil, 207.875)
		checkLoss(t, "margin_ranking_loss of floats and integers", nn.MarginRankingLoss{}.Forward(x, counts, counts), dtype.F32, nil, 3.6666667461395264)
		yes := s.Typed(dtype.Bool).Ones(2, 3)
		for name, f := range map[string]func(){"ranking": func() { nn.MarginRankingLoss{}.Forward(yes, yes, yes) }, "poisson": func() { nn.NewPoissonNLLLoss().Forward(yes, counts) },
			"triplet": func() { nn.NewTripletMarginLoss().Forward(yes, yes, yes) }} {
			if err := tensor.Try(f); !errors.Is(err, tensor.ErrType) {
				t.Errorf("%s of bool: %v", name, err)
			}
		}
	})
}

// A score of rank 0 is a score for one class. If the scores are a vector, the class may be a vector
// of size 1.
func TestMarginLossesOfRank0(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		three, class := s.Full(3), s.Typed(dtype.I64).Zeros()
		none := *nn.NewMultiMarginLoss()
		none.Reduction = nn.None
		checkLoss(t, "multi_margin_loss", nn.NewMultiMarginLoss().Forward(three, class), dtype.F32, nil, 0)
		checkLoss(t, "multi_margin_loss, no reduction", none.Forward(three, class), dtype.F32, nil, 0)
		checkLoss(t, "multi_margin_loss of a class in a vector", none.Forward(three, class.Unsqueeze(0)), dtype.F32, []int{1}, 0)
		x := s.From([]float32{3, 2}).RequiresGrad()
		y := none.Forward(x, s.From([]int64{1}))
		checkLoss(t, "multi_margin_loss of two scores", y, dtype.F32, []int{1}, 1)
		y.Sum().Backward()
		checkLoss(t, "its gradient", x.Grad(), dtype.F32, []int{2}, 0.5, -0.5)
		for _, r := range []nn.Reduction{nn.None, nn.Mean, nn.Sum} {
			l := nn.MultiLabelMarginLoss{Reduction: r}
			checkLoss(t, "multilabel_margin_loss", l.Forward(three, class), dtype.F32, nil, 0)
			checkLoss(t, "multilabel_margin_loss of a vector and a scalar", l.Forward(three.Unsqueeze(0), class), dtype.F32, nil, 0)
			checkLoss(t, "multilabel_margin_loss without a class", l.Forward(three, class.AddScalar(-1)), dtype.F32, nil, 0)
		}
		z := s.Full(3).RequiresGrad()
		nn.MultiLabelMarginLoss{}.Forward(z, class).Backward()
		checkLoss(t, "its gradient", z.Grad(), dtype.F32, nil, 0)
	})
}
