package optest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestRules checks one rule of PyTorch 2.15 per row: rules of requires_grad, of in-place ops and of
// the engine. The second column is the text that torch prints, or the kind of the error that torch
// raises.
func TestRules(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		leaf := func() *tt { return s.From([]float32{1, 2, 3}).RequiresGrad() }
		grads := func(x ...*tt) string {
			var all []string
			for _, x := range x {
				if x.Grad() == nil {
					all = append(all, "None")
				} else {
					all = append(all, fmt.Sprint(x.Grad().Floats()))
				}
			}
			return strings.Join(all, " ")
		}
		inNoGrad := func(f func(c *tensor.Scope)) { s.Do(f, tensor.NoGrad()) }
		for _, c := range []struct {
			rule string
			want any // what torch prints, or the kind of the error that torch raises
			f    func() string
		}{
			// These rows check which tensors require a gradient.
			{"a leaf does when it is told to", "true true", func() string { x := leaf(); return fmt.Sprint(x.NeedsGrad(), x.IsLeaf()) }},
			{"a result of one does", "true false", func() string { y := leaf().Exp(); return fmt.Sprint(y.NeedsGrad(), y.IsLeaf()) }},
			{"one operand is enough", "true", func() string { return fmt.Sprint(s.Ones(3).Mul(leaf()).NeedsGrad()) }},
			{"a result of none is a leaf", "false true", func() string { y := s.Ones(3).Exp(); return fmt.Sprint(y.NeedsGrad(), y.IsLeaf()) }},
			{"an integer tensor", tensor.ErrType, func() string { s.Arange(3).RequiresGrad(); return "" }},
			{"a comparison does not", "false", func() string { return fmt.Sprint(leaf().Gt(s.Zeros(3)).NeedsGrad()) }},
			{"an argmax does not", "false", func() string { return fmt.Sprint(leaf().Argmax().NeedsGrad()) }},
			{"a cast to integers does not", "false", func() string { return fmt.Sprint(leaf().Long().NeedsGrad()) }},
			{"requires_grad_() of a result", "true", func() string { return fmt.Sprint(leaf().MulScalar(2).RequiresGrad().NeedsGrad()) }},
			{"requires_grad_(False) of a result", tensor.ErrGrad, func() string { leaf().MulScalar(2).SetRequiresGrad(false); return "" }},
			{"requires_grad_(False) of a leaf", "false", func() string { return fmt.Sprint(leaf().SetRequiresGrad(false).Exp().NeedsGrad()) }},
			{"under no_grad", "false", func() (r string) {
				inNoGrad(func(c *tensor.Scope) { r = fmt.Sprint(leaf().In(c).Exp().NeedsGrad()) })
				return r
			}},
			{"enable_grad inside no_grad", "true", func() (r string) {
				inNoGrad(func(c *tensor.Scope) {
					c.Do(func(c *tensor.Scope) { r = fmt.Sprint(leaf().In(c).Exp().NeedsGrad()) }, tensor.WithGrad())
				})
				return r
			}},
			{"detach() does not and shares memory", "false [2 4 6]", func() string {
				y := leaf().MulScalar(1)
				d := y.Detach()
				d.MulScalarInPlace(2)
				return fmt.Sprint(d.NeedsGrad(), " ", y.Floats())
			}},

			// These ops work in place.
			{"a leaf", tensor.ErrGrad, func() string { leaf().MulScalarInPlace(2); return "" }},
			{"a leaf under no_grad", "[2 4 6] true", func() string {
				x := leaf()
				inNoGrad(func(c *tensor.Scope) { x.In(c).MulScalarInPlace(2) })
				return fmt.Sprint(x.Floats(), x.NeedsGrad())
			}},
			{"a view of a leaf", tensor.ErrGrad, func() string { leaf().Narrow(0, 1, 2).MulScalarInPlace(2); return "" }},
			{"a view of a view of a leaf", tensor.ErrGrad, func() string { leaf().Reshape(3, 1).T().Select(0, 0).Fill(0); return "" }},
			{"a view that was taken before its base required a gradient", tensor.ErrGrad, func() string {
				x := s.Ones(3)
				v := x.Narrow(0, 1, 2)
				x.RequiresGrad()
				v.MulScalarInPlace(2)
				return ""
			}},
			{"an expanded tensor", tensor.ErrShape, func() string { s.Ones(1, 3).Expand(2, 3).MulScalarInPlace(2); return "" }},
			{"a value that a gradient needs", tensor.ErrInPlace, func() string { y := leaf().Exp(); y.MulScalarInPlace(2); y.Sum().Backward(); return "" }},
			{"through detach(): the versions are one", tensor.ErrInPlace, func() string { y := leaf().Exp(); y.Detach().MulScalarInPlace(2); y.Sum().Backward(); return "" }},
			{"through a view", tensor.ErrInPlace, func() string {
				y := leaf().MulScalar(2)
				z := y.Square()
				y.Select(0, 0).MulScalarInPlace(2)
				z.Sum().Backward()
				return ""
			}},
			{"a value that no gradient needs", "[2 2 2]", func() string {
				x := leaf()
				y := x.MulScalar(2)
				y.Detach().MulScalarInPlace(2)
				y.Sum().Backward()
				return grads(x)
			}},
			{"a result", "[30 30 30]", func() string {
				x := leaf()
				x.MulScalar(2).MulScalarInPlace(5).MulScalar(3).Sum().Backward()
				return grads(x)
			}},
			{"a view of a result", "[8 1600 2400] [2 40 60]", func() string {
				x := leaf()
				y := x.MulScalar(2)
				y.Narrow(0, 1, 2).MulScalarInPlace(10)
				y.Mul(y).Sum().Backward()
				return fmt.Sprint(grads(x), " ", y.Floats())
			}},
			{"a result that has views", "[0 1600 2400] [40 60]", func() string {
				x := leaf()
				y := x.MulScalar(2)
				v := y.Narrow(0, 1, 2)
				y.MulScalarInPlace(10)
				v.Mul(v).Sum().Backward()
				return fmt.Sprint(grads(x), " ", v.Floats())
			}},
			{"a result that is expanded", "[144 288 432]", func() string {
				x := leaf()
				y := x.MulScalar(2)
				e := y.Expand(2, 3)
				y.MulScalarInPlace(3)
				e.Mul(e).Sum().Backward()
				return grads(x)
			}},
			{"views of a constant", "[20 40 114] true", func() string {
				w := leaf()
				y := s.Zeros(2, 3)
				y.Select(0, 0).AddInPlace(w)
				y.Select(0, 1).AddInPlace(w.Mul(w))
				y.T().Select(0, 0).MulInPlace(w.Narrow(0, 0, 2))
				y.Square().Sum().Backward()
				return grads(w) + " " + fmt.Sprint(y.NeedsGrad())
			}},
			{"zero_() of a result", "true [0 0 0]", func() string {
				x := leaf()
				y := x.MulScalar(2).Zero()
				y.Sum().Backward()
				return fmt.Sprint(y.NeedsGrad(), " ", grads(x))
			}},
			{"copy_() into a view", "[8 0 0] [18 36 0]", func() string {
				x, w := leaf(), leaf()
				y := x.MulScalar(2)
				y.Narrow(0, 1, 2).Copy(w.Narrow(0, 0, 2).MulScalar(3))
				y.Mul(y).Sum().Backward()
				return grads(x, w)
			}},
			{"copy_() into a constant", "[2 4 6]", func() string {
				w := leaf()
				y := s.Zeros(3).Copy(w)
				y.Mul(y).Sum().Backward()
				return grads(w)
			}},
			{"copy_() of another type, broadcast", "[16] float32", func() string {
				w := s.From([]float64{2}).RequiresGrad()
				y := s.Zeros(4).Copy(w)
				y.Mul(y).Sum().Backward()
				return grads(w) + " " + y.Type().String()
			}},

			// These calls run Backward.
			{"of what requires none", tensor.ErrGrad, func() string { s.Ones(3).Sum().Backward(); return "" }},
			{"of what is no scalar", tensor.ErrGrad, func() string { leaf().MulScalar(2).Backward(); return "" }},
			{"of a leaf", "[1]", func() string { x := s.Ones(1).RequiresGrad(); x.Backward(); return grads(x) }},
			{"twice", tensor.ErrGrad, func() string { y := leaf().Square().Sum(); y.Backward(); y.Backward(); return "" }},
			{"twice through what saved nothing", "[2 2 2]", func() string { x := leaf(); y := x.AddScalar(1).Sum(); y.Backward(); y.Backward(); return grads(x) }},
			{"twice with retain_graph", "[4 8 12]", func() string {
				x := leaf()
				y := x.Square().Sum()
				y.Backward(tensor.RetainGraph())
				y.Backward()
				return grads(x)
			}},
			{"twice with create_graph", "[6 24 54] true", func() string {
				x := leaf()
				y := x.PowScalar(3).Sum()
				y.Backward(tensor.CreateGraph())
				y.Backward(tensor.CreateGraph())
				return fmt.Sprint(grads(x), " ", x.Grad().NeedsGrad())
			}},
			{"with a gradient of another shape", tensor.ErrShape, func() string { leaf().MulScalar(2).Backward(tensor.GradOutput(s.Ones(2))); return "" }},
			{"with a gradient of another type", "[2 2 2] float32", func() string {
				x := leaf()
				x.MulScalar(2).Backward(tensor.GradOutput(s.Typed(dtype.F64).Ones(3)))
				return grads(x) + " " + x.Grad().Type().String()
			}},
			{"with a gradient of integers", tensor.ErrType, func() string { leaf().MulScalar(2).Backward(tensor.GradOutput(s.Arange(3))); return "" }},
			{"with inputs=", "[1 2 3] None", func() string { x, w := leaf(), leaf(); x.Mul(w).Sum().Backward(tensor.Into(x)); return grads(x, w) }},
			{"with a result in inputs=", "None [4 8 12]", func() string {
				x := leaf()
				y := x.MulScalar(2)
				y.Mul(y).Sum().Backward(tensor.Into(y))
				return grads(x, y)
			}},
			{"of four results", "[6 10 14] [10 20 30]", func() string {
				x, w := leaf(), leaf()
				y := x.MulScalar(2)
				x.Square().Sum().Backward(tensor.Also(y.AddScalar(1), s.Ones(3)), tensor.Also(y.Mul(w).Sum(), nil), tensor.Also(w.Square().MulScalar(4).Sum(), nil))
				return grads(x, w) // the gradients are 2x + 2 + 2w and 2x + 8w
			}},

			// These calls run Gradients.
			{"by an input that is not used", tensor.ErrGrad, func() string { tensor.Gradients(leaf().Sum(), []*tt{leaf()}); return "" }},
			{"by one that requires none", tensor.ErrGrad, func() string { tensor.Gradients(leaf().Sum(), []*tt{s.Ones(3)}); return "" }},
			{"allow_unused", "true", func() string {
				return fmt.Sprint(tensor.Gradients(leaf().Sum(), []*tt{leaf()}, tensor.AllowUnused())[0] == nil)
			}},
			{"adds to no leaf", "None", func() string { x := leaf(); tensor.Gradients(x.Square().Sum(), []*tt{x}); return grads(x) }},
			{"of the tensor itself", "[1]", func() string {
				x := s.Ones(1).RequiresGrad()
				return fmt.Sprint(tensor.Gradients(x, []*tt{x})[0].Floats())
			}},
			{"by a result that is older than what the leaf is used in", "[3 3 3]", func() string {
				x := leaf()
				y := x.MulScalar(2)
				return fmt.Sprint(tensor.Gradients(y.MulScalar(3).Add(x.Exp()).Sum(), []*tt{y})[0].Floats())
			}},

			// These rows check which gradients and tensors are kept.
			{".grad of another shape", tensor.ErrShape, func() string { leaf().SetGrad(s.Ones(2)); return "" }},
			{".grad of another type", tensor.ErrType, func() string { leaf().SetGrad(s.Typed(dtype.F64).Ones(3)); return "" }},
			{"retain_grad() of what requires none", tensor.ErrGrad, func() string { s.Ones(3).RetainGrad(); return "" }},
			{"retain_grad() of a leaf", "[1 1 1]", func() string { x := leaf(); x.RetainGrad(); x.Sum().Backward(); return grads(x) }},
			{"retain_grad() of a result", "[4 8 12] [8 16 24]", func() string {
				x := leaf()
				y := x.MulScalar(2)
				y.RetainGrad()
				y.Mul(y).Sum().Backward()
				return grads(y, x)
			}},
			{"a result without it", "None", func() string { y := leaf().MulScalar(2); y.Sum().Backward(); return grads(y) }},
			{"retain_grad() adds, by autograd.grad too", "[1 1 1] [2 2 2]", func() string {
				x := leaf()
				y := x.MulScalar(2)
				y.RetainGrad()
				z := y.Sum()
				tensor.Gradients(z, []*tt{x}, tensor.RetainGraph())
				first := grads(y)
				tensor.Gradients(z, []*tt{y})
				return first + " " + grads(y)
			}},
			{"retain_grad(), then in place", "[3 3 3] [30 30 30]", func() string {
				x := leaf()
				y := x.MulScalar(2)
				y.RetainGrad()
				y.MulScalarInPlace(5).MulScalar(3).Sum().Backward()
				return grads(y, x)
			}},
			{"retain_grad() of a view and its base, then in place", "[4 43 63] [3 3] [8 430 630]", func() string {
				x := leaf()
				y := x.MulScalar(2)
				v := y.Narrow(0, 1, 2)
				y.RetainGrad()
				v.RetainGrad()
				v.MulScalarInPlace(5)
				y.Square().Sum().Add(v.MulScalar(3).Sum()).Backward()
				return grads(y, v, x)
			}},
		} {
			var got string
			err := tensor.Try(func() { got = c.f() })
			if kind, ok := c.want.(error); ok {
				if !errors.Is(err, kind) {
					t.Errorf("%s: %q %v, want the error %q", c.rule, got, err, kind)
				}
			} else if err != nil || got != c.want {
				t.Errorf("%s: %q %v, want %q", c.rule, got, err, c.want)
			}
		}
	})
}
