package autograd_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// polar is a FunctionAll that returns the direction and the length of each row.
type polar struct{}

func (polar) Name() string { return "polar" }

func (polar) Forward(c *tensor.Context, in []*tt) []*tt {
	n := in[0].Norm(2, 1, tensor.KeepDim)
	u := in[0].Div(n)
	c.Save(u, in[0], n)
	return []*tt{u, n}
}

func (polar) VJP(c *tensor.Context, g []*tt) []*tt {
	u, n := c.Saved(0), c.Saved(2)
	if c.Saved(1).Rank() != 2 {
		panic("the operand is the operand")
	}
	return []*tt{g[0].Sub(u.Mul(g[0].Mul(u).Sum(1, tensor.KeepDim))).Div(n).Add(g[1].Mul(u))}
}

// odd is a FunctionAll whose Forward is the field f, so that tests can return wrong results.
type odd struct {
	polar
	f func(in []*tt) []*tt
}

func (o odd) Forward(_ *tensor.Context, in []*tt) []*tt { return o.f(in) }

func TestSeveralResults(t *testing.T) {
	onDevices(t, func(t *testing.T, s *tensor.Scope) {
		x := s.Typed(dtype.F64).Randn(3, 4).RequiresGrad()
		for name, f := range map[string]func(x []*tt) *tt{
			"both":   func(x []*tt) *tt { r := tensor.ApplyAll(polar{}, x...); return r[0].Square().Mul(r[1]).Sum() },
			"first":  func(x []*tt) *tt { return tensor.ApplyAll(polar{}, x...)[0].PowScalar(3).Sum() },
			"second": func(x []*tt) *tt { return tensor.ApplyAll(polar{}, x...)[1].PowScalar(3).Sum() },
			"again": func(x []*tt) *tt {
				return autograd.Checkpoint(func(x ...*tt) *tt { r := tensor.ApplyAll(polar{}, x...); return r[0].Mul(r[1].Exp()).Sin().Sum() }, x...)
			},
		} {
			if err := autograd.Check(f, []*tt{x}, autograd.CheckOptions{SecondOrder: true}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		r := tensor.ApplyAll(polar{}, x)
		if len(r) != 2 || r[0].Shape() != x.Shape() || r[1].Dim(1) != 1 || r[0].Scope() != x.Scope() || !r[0].Mul(r[1]).AllClose(x, 1e-12, 0) {
			t.Error("the results are those of Forward")
		}
		w := s.Typed(dtype.F64).Randn(3, 4)
		if plain := tensor.ApplyAll(polar{}, w); plain[0].NeedsGrad() || !plain[1].AllClose(w.Norm(2, 1, tensor.KeepDim), 0, 0) {
			t.Error("without gradients there is no graph")
		}
		alone := tensor.ApplyAll(odd{f: func(in []*tt) []*tt { return in }}, x)
		if len(alone) != 1 || alone[0] == x || !alone[0].Detach().AllClose(x, 0, 0) {
			t.Error("an operand as the result")
		}
		r[1].MulScalarInPlace(2)
		if err := tensor.Try(func() { r[0].Sum().Backward() }); !errors.Is(err, tensor.ErrInPlace) {
			t.Errorf("a result that was changed: %v", err)
		}
		for want, f := range map[string]func(in []*tt) []*tt{
			"has no results":              func(in []*tt) []*tt { return nil },
			"result 1 is nil":             func(in []*tt) []*tt { return []*tt{in[0].Exp(), nil} },
			"are of float64 and int64":    func(in []*tt) []*tt { return []*tt{in[0].Exp(), in[0].Argmax(1)} },
			"are of float64 and float32;": func(in []*tt) []*tt { return []*tt{in[0].Exp(), in[0].Float()} },
		} {
			if err := tensor.Try(func() { tensor.ApplyAll(odd{f: f}, x) }); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "applyall_test.go") {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	})
}
