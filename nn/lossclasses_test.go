package nn_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

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
		{tensor.ErrValue, "the margin is 0", func(x, y, _ *tt) { (&nn.TripletMarginLoss{P: 2}).Forward(x, y, y) }},
		{tensor.ErrShape, "as many dimensions", func(x, y, _ *tt) { nn.NewTripletMarginLoss().Forward(x, y, y.Select(0, 0)) }},
		{tensor.ErrShape, "variances have", func(x, y, _ *tt) { nn.NewGaussianNLLLoss().Forward(x, y, tensor.Ones(4)) }},
		{tensor.ErrShape, "variances have", func(x, y, _ *tt) { nn.NewGaussianNLLLoss().Forward(x, y, tensor.Ones(1, 1)) }},
		{tensor.ErrValue, "Eps must be positive", func(x, y, _ *tt) { (&nn.GaussianNLLLoss{}).Forward(x, y, y) }},
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

// A count of targets that bfloat16 cannot hold does not blur the mean, and weights of ignored targets do not matter, NaN included.
func TestMeansOfClasses(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Typed(dtype.BF16).Zeros(385, 2) // 384 is a bfloat16, 385 is not
		if got, want := nn.CrossEntropy(x, s.Typed(dtype.I64).Zeros(385)).Item(), 0.69140625; got != want {
			t.Errorf("the mean is %v, want %v", got, want)
		}
		l := nn.CrossEntropyLoss{Weight: s.From([]float32{float32(math.NaN()), 2}), IgnoreIndex: new(0)}
		if got := l.Forward(s.Zeros(3, 2), s.From([]int64{0, 1, 0})).Item(); math.Abs(got-math.Ln2) > 1e-7 {
			t.Errorf("the loss of one target is %v", got)
		}
	})
}

// The weights are buffers, as in torch: they follow the model, and are not trained.
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

// The distance of a triplet loss may be any.
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
