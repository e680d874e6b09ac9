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

// Options that PyTorch refuses are errors here too. Without an error, the result would be NaN, or
// the option would have no effect.
func TestOptionsThatWouldBeWrongInSilence(t *testing.T) {
	norm := func(eps float64, eval bool) func(s *tensor.Scope) {
		return func(s *tensor.Scope) {
			l := nn.NewBatchNorm1d(3)
			l.Eps = eps
			if eval {
				nn.Eval(l)
			}
			l.Forward(s.Randn(4, 3))
		}
	}
	ignoring := func(class *int) func(s *tensor.Scope) {
		return func(s *tensor.Scope) {
			nn.CrossEntropyLoss{IgnoreIndex: class}.Forward(s.Randn(4, 3), s.Rand(4, 3))
		}
	}
	bilinear := func(n, m int) func(s *tensor.Scope) {
		return func(s *tensor.Scope) { s.Ones(4, n).Bilinear(s.Ones(4, m), s.Ones(2, n, m), nil) }
	}
	for _, c := range []struct {
		name string
		f    func(s *tensor.Scope)
		kind error
		says string
	}{
		{"negative eps", norm(-1, false), tensor.ErrValue, "eps is -1, in training it must be positive"},
		{"eps of 0 in training", norm(0, false), tensor.ErrValue, "eps is 0"},
		{"eps that is NaN", norm(math.NaN(), true), tensor.ErrValue, "eps is NaN"},
		{"negative eps in evaluation", norm(-1, true), tensor.ErrValue, "eps is -1, it must not be negative"},
		{"eps of 0 in evaluation", norm(0, true), nil, ""},
		{"class to ignore among probabilities", ignoring(new(1)), tensor.ErrValue, "class 1 is to be ignored, but the targets are probabilities"},
		{"no class", ignoring(new(-1)), nil, ""},
		{"bilinear of no first features", bilinear(0, 2), tensor.ErrShape, "no features"},
		{"bilinear of no second features", bilinear(2, 0), tensor.ErrShape, "no features"},
	} {
		tensor.Do(func(s *tensor.Scope) {
			err := tensor.Try(func() { c.f(s) })
			if !errors.Is(err, c.kind) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.says)
			}
		})
	}
	for _, in := range [][2]int{{0, 2}, {2, 0}} {
		func() {
			defer func() {
				if e, ok := recover().(*nn.Error); !ok || !strings.Contains(e.Error(), "each must have at least one") {
					t.Errorf("a bilinear layer of %v features: got %v", in, e)
				}
			}()
			nn.NewBilinear(in[0], in[1], 3)
		}()
	}
}

// As in PyTorch, BatchMean does not change a scalar loss.
func TestBatchMeanOfScalars(t *testing.T) {
	for got, want := range map[*tensor.Tensor]float64{
		// The expected values are PyTorch's.
		nn.KLDiv(tensor.From(0.3), tensor.From(0.4), nn.BatchMean):    -0.48651629274966206,
		nn.KLDivLog(tensor.From(0.3), tensor.From(0.4), nn.BatchMean): 0.14918246976412708,
	} {
		if math.Abs(got.Item()-want) > 1e-15 {
			t.Errorf("got %v, want %v", got.Item(), want)
		}
	}
}

// If no path through the input gives the target, the gradient is NaN for every class at every valid
// time step. With ZeroInfinity it is 0 instead.
func TestCTCGradientOfImpossibleTarget(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for _, zero := range []bool{false, true} {
			x := s.Typed(dtype.F64).Randn(5, 1, 4).LogSoftmax(-1).Detach().RequiresGrad()
			l := nn.CTCLoss{Reduction: nn.Sum, ZeroInfinity: zero}.Forward(x, s.From([][]int64{{1, 1, 1}}), s.From([]int64{3}), s.From([]int64{3}))
			l.Backward()
			for i, g := range x.Grad().Floats() {
				if math.IsNaN(g) != (!zero && i < 3*4) || !math.IsNaN(g) && g != 0 {
					t.Errorf("ZeroInfinity %v: the gradient at time %d by class %d is %v", zero, i/4, i%4, g)
				}
			}
		}
	}, tensor.Seed(1))
}
