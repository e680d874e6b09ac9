package tensor_test

import (
	"slices"
	"strings"
	"testing"

	_ "github.com/flambeau-go/flambeau/cpu"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestNormGradientJoins uses the input of a normalisation in another op as well, so that the input
// already has a gradient. The VJP must compute its own gradient and add it to that gradient in one
// pass. Hooks, retained gradients and second derivatives must see the sum as usual.
func TestNormGradientJoins(t *testing.T) {
	for name, norm := range map[string]func(x, w, b *tensor.Tensor) *tensor.Tensor{
		"layer norm": func(x, w, b *tensor.Tensor) *tensor.Tensor { return x.LayerNorm([]int{3, 5}, w, b, 1e-5) },
		"RMS norm":   func(x, w, _ *tensor.Tensor) *tensor.Tensor { return x.RMSNorm([]int{3, 5}, w, 1e-5) },
	} {
		tensor.Do(func(s *tensor.Scope) {
			leaf := s.Randn(4, 2, 3, 5).RequiresGrad()
			w, b := s.Randn(3, 5).RequiresGrad(), s.Randn(3, 5).RequiresGrad()
			g := s.Randn(4, 2, 3, 5)
			for kind, in := range map[string]func() *tensor.Tensor{
				"leaf": func() *tensor.Tensor { return leaf }, "result": func() *tensor.Tensor { return leaf.MulScalar(2) },
				"turned": func() *tensor.Tensor { return leaf.Transpose(0, 1).Contiguous().Transpose(0, 1) },
			} {
				loss := func(x *tensor.Tensor) *tensor.Tensor { return x.Mul(g).Sin().Add(norm(x, w, b)).Mul(g).Sum() }
				params := []*tensor.Tensor{leaf, w}
				if name == "layer norm" {
					params = append(params, b)
				}
				want := tensor.Gradients(loss(in()), params, tensor.CreateGraph())
				x := in()
				var hooked []float64
				if kind != "leaf" {
					x.RetainGrad()
				}
				x.RegisterHook(func(g *tensor.Tensor) *tensor.Tensor { hooked = g.Floats(); return nil })
				got := tensor.Gradients(loss(x), append(params, x))
				for i, v := range want {
					if !got[i].AllClose(v, 1e-5, 1e-5) {
						t.Errorf("%s of a %s: gradient %d is %v, want %v", name, kind, i, got[i], v)
					}
				}
				if last := got[len(got)-1]; !slices.Equal(hooked, last.Floats()) {
					t.Errorf("%s of a %s: a hook sees %v, the gradient is %v", name, kind, hooked, last)
				}
				for _, p := range params {
					p.ZeroGrad()
				}
				loss(in()).Backward()
				for i, v := range want {
					if !params[i].Grad().AllClose(v, 1e-5, 1e-5) {
						t.Errorf("%s of a %s: Backward's gradient %d is %v, want %v", name, kind, i, params[i].Grad(), v)
					}
				}
				h := tensor.Gradients(want[0].Mul(g).Sum(), []*tensor.Tensor{leaf}, tensor.AllowUnused())
				if h[0] == nil || h[0].Abs().Sum().Item() == 0 {
					t.Errorf("%s of a %s: there is no second derivative", name, kind)
				}
			}
			// If only the bias needs a gradient, no operand is saved.
			y := norm(leaf.Detach(), w.Detach(), b)
			if name == "layer norm" {
				if d := tensor.Gradients(y.Mul(g).Sum(), []*tensor.Tensor{b})[0]; !d.AllClose(g.Sum(0, 1), 1e-5, 1e-5) {
					t.Errorf("the bias's gradient alone is %v", d)
				}
			}
		}, tensor.Seed(3))
	}
}

// TestNormAs compares a 16-bit result with the float32 result after a cast. Results and gradients
// must be equal.
func TestNormAs(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, w, b := s.Randn(70, 9).RequiresGrad(), s.Randn(9).RequiresGrad(), s.Randn(9).RequiresGrad()
		turned := s.Randn(9, 70).T()
		for _, typ := range []dtype.Type{dtype.BF16, dtype.F16, dtype.F32, dtype.F64} {
			g := s.Randn(70, 9).Cast(typ)
			for name, f := range map[string][2]func(x *tensor.Tensor) *tensor.Tensor{
				"layer norm": {
					func(x *tensor.Tensor) *tensor.Tensor { return x.LayerNormAs(typ, []int{9}, w, b, 1e-5) },
					func(x *tensor.Tensor) *tensor.Tensor { return x.LayerNorm([]int{9}, w, b, 1e-5).Cast(typ) },
				},
				"RMS norm": {
					func(x *tensor.Tensor) *tensor.Tensor { return x.RMSNormAs(typ, []int{9}, w, -1) },
					func(x *tensor.Tensor) *tensor.Tensor { return x.RMSNorm([]int{9}, w, -1).Cast(typ) },
				},
			} {
				got, want := f[0](x), f[1](x)
				if got.Type() != typ || !got.AllClose(want, 0, 0) || !f[0](turned).AllClose(f[1](turned), 0, 0) {
					t.Errorf("%s as %v is %v, want %v", name, typ, got, want)
				}
				for _, opts := range [][]tensor.GradOption{{tensor.GradOutput(g)}, {tensor.GradOutput(g), tensor.CreateGraph()}} {
					d, e := tensor.Gradients(f[0](x), []*tensor.Tensor{x, w}, opts...), tensor.Gradients(f[1](x), []*tensor.Tensor{x, w}, opts...)
					for i := range d {
						if !d[i].AllClose(e[i], 1e-6, 1e-6) {
							t.Errorf("%s as %v: gradient %d is %v, want %v", name, typ, i, d[i], e[i])
						}
					}
				}
			}
		}
		if err := tensor.Try(func() { x.RMSNormAs(dtype.I64, []int{9}, w, -1) }); err == nil || !strings.Contains(err.Error(), "int64") {
			t.Errorf("a result of integers: %v", err)
		}
	}, tensor.Seed(3))
}
