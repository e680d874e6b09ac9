package autograd_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

type tt = tensor.Tensor

// onDevices runs f on the CPU and on an emulated GPU. Afterwards the GPU must have no memory in
// use.
func onDevices(t *testing.T, f func(t *testing.T, s *tensor.Scope)) {
	t.Helper()
	t.Run("cpu", func(t *testing.T) { tensor.Do(func(s *tensor.Scope) { f(t, s) }) })
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("cuda", func(t *testing.T) { tensor.Do(func(s *tensor.Scope) { f(t, s) }, tensor.On(gpus[0])) })
	if n := gpus[0].Stats().Allocated; n != 0 {
		t.Errorf("%d bytes are left in use", n)
	}
}

func near(t *testing.T, what string, x *tt, want ...float64) {
	t.Helper()
	if x == nil {
		t.Errorf("%s is nil", what)
		return
	}
	got := x.Floats()
	ok := len(got) == len(want)
	for i := range got {
		ok = ok && math.Abs(got[i]-want[i]) <= 1e-10*(1+math.Abs(want[i]))
	}
	if !ok {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// point returns the inputs at which the tests differentiate, and a direction for each input.
func point(s *tensor.Scope) (in, v []*tt) {
	return []*tt{s.From([]float64{0.5, 1, 2}), s.From([]float64{1, -1, 2, 0.5, 3, -2}, 2, 3)},
		[]*tt{s.From([]float64{1, 2, 3}), s.From([]float64{1, 0, -1, 2, 0.5, 0}, 2, 3)}
}

// wide returns e^(w·sin x) times the first two elements of x. The slice in holds x and w.
func wide(in []*tt) *tt {
	x, w := in[0], in[1]
	return w.MatMul(x.Sin()).Exp().Mul(x.Narrow(0, 0, 2))
}

func energy(in []*tt) *tt { return wide(in).Square().Sum() }

// TestProducts compares the results of VJP, JVP and HVP with those of torch.autograd.functional.
func TestProducts(t *testing.T) {
	onDevices(t, func(t *testing.T, s *tensor.Scope) {
		in, v := point(s)
		u := s.From([]float64{1, -2})
		y, g := autograd.VJP(wide, in, u)
		near(t, "f", y, 2.145563510826, 2.574179570821)
		near(t, "vᵀJ by x", g[0], 3.914981041653, -14.652623000929, -6.070685675689)
		near(t, "vᵀJ by w", g[1], 1.028637941787, 1.805429440423, 1.950955379485, -2.468254854410, -4.332194837063, -4.681389719870)
		y, d := autograd.JVP(wide, in, v)
		near(t, "f", y, 2.145563510826, 2.574179570821)
		near(t, "J·v", d, -2.424003923935, 24.601621314192)
		y, h := autograd.HVP(energy, in, v)
		near(t, "the energy", y, 11.229843241821)
		near(t, "H·v by x", h[0], 38.211517242321, 600.815923813930, 254.052885760293)
		near(t, "H·v by w", h[1], -1.893887413806, -7.556469198216, -30.410742879387, 133.076569458785, 227.479071480127, 213.794220682971)
		j := autograd.Jacobian(wide, in)
		near(t, "the Jacobian by x", j[0], 6.174036144181, -1.159252912286, -1.785738935282, 1.129527551264, 6.746685044322, 2.142473370203)
		if want := []int{2, 2, 3}; !slices.Equal(j[1].Shape().Slice(), want) {
			t.Errorf("the Jacobian by w has shape %v, want %v", j[1].Shape(), want)
		}
		near(t, "J·v by the Jacobian", j[0].MatMul(v[0]).Add(j[1].Reshape(2, 6).MatMul(v[1].Reshape(6))), d.Floats()...)
		all := autograd.Hessian(energy, in)
		near(t, "the Hessian by x", all[0][0], 113.159795284555, 1.853189026242, -34.420936124043, 1.853189026242, 148.485489400321, 66.098864423659, -34.420936124043, 66.098864423659, 38.474103614046)
		for i := range 2 {
			n := in[i].Size()
			sum := all[i][0].Reshape(n, 3).MatMul(v[0]).Add(all[i][1].Reshape(n, 6).MatMul(v[1].Reshape(6)))
			near(t, "H·v by the Hessian", sum, h[i].Floats()...)
		}
		near(t, "the other half of the Hessian", all[1][0].Reshape(6, 3).T().Contiguous(), all[0][1].Reshape(3, 6).Floats()...)
		for _, x := range append(slices.Clone(in), y, d, g[0], h[0], j[0], all[0][0]) {
			if x.NeedsGrad() || x.Grad() != nil || x.Scope() != s {
				t.Error("an input or a result has a graph, a gradient or another scope")
			}
		}
	})
}

// TestInputs covers special inputs: integers, unused inputs, constants, leaves and results.
func TestInputs(t *testing.T) {
	onDevices(t, func(t *testing.T, s *tensor.Scope) {
		x, rows := s.From([]float64{1, 2, 3}).RequiresGrad(), s.From([]int64{2, 2, 0})
		in := []*tt{x.MulScalar(1), rows, s.Typed(dtype.F64).Ones(2)}
		f := func(in []*tt) *tt { return in[0].IndexSelect(0, in[1]).Square() }
		y, g := autograd.VJP(f, in, s.Typed(dtype.F64).Ones(3))
		near(t, "f", y, 9, 9, 1)
		near(t, "by x", g[0], 2, 0, 12)
		near(t, "by what is not used", g[2], 0, 0)
		_, d := autograd.JVP(f, in, []*tt{x.OnesLike(), nil, in[2]})
		near(t, "J·1", d, 6, 6, 2)
		j := autograd.Jacobian(f, in)
		near(t, "the Jacobian", j[0], 0, 0, 6, 0, 0, 6, 2, 0, 0)
		near(t, "by what is not used", j[2], 0, 0, 0, 0, 0, 0)
		sum := func(in []*tt) *tt { return f(in).Sum() }
		h := autograd.Hessian(sum, in)
		near(t, "the Hessian", h[0][0], 2, 0, 0, 0, 0, 0, 0, 0, 4)
		near(t, "of what is not used", h[2][2], 0, 0, 0, 0)
		_, hv := autograd.HVP(sum, in, []*tt{x.OnesLike(), nil, in[2]})
		near(t, "H·1", hv[0], 2, 0, 4)
		if g[1] != nil || j[1] != nil || h[1][0] != nil || h[0][1] != nil || hv[1] != nil {
			t.Error("an integer input has a derivative")
		}
		constant := func(in []*tt) *tt { return in[0].Detach().Sum() }
		_, g = autograd.VJP(constant, in, nil)
		near(t, "of a constant", g[0], 0, 0, 0)
		_, d = autograd.JVP(constant, in, []*tt{x.OnesLike(), nil, in[2]})
		near(t, "of a constant", d, 0)
		near(t, "of a constant", autograd.Hessian(constant, in)[0][0], make([]float64, 9)...)
		linear := func(in []*tt) *tt { return in[0].Sum() }
		near(t, "of a linear function", autograd.Hessian(linear, in)[0][0], make([]float64, 9)...)
		_, hv = autograd.HVP(linear, in, []*tt{x.OnesLike(), nil, in[2]})
		near(t, "of a linear function", hv[0], 0, 0, 0)
		if x.Grad() != nil || in[0].Grad() != nil {
			t.Error("a gradient was added to an input")
		}
		s.Do(func(c *tensor.Scope) { // the two inputs of the function belong to different scopes
			y, g := autograd.VJP(func(in []*tt) *tt { return in[0].Mul(in[1]).Sum() }, []*tt{x, c.From([]float64{1, 0, 2})}, nil)
			near(t, "f", y, 7)
			near(t, "by the older", g[0], 1, 0, 2)
			if g[0].Scope() != c {
				t.Error("a result is not in the youngest scope of the inputs")
			}
		}, tensor.NoGrad())
	})
}

func TestGrad(t *testing.T) {
	onDevices(t, func(t *testing.T, s *tensor.Scope) {
		x, w := s.From([]float64{1, 2}).RequiresGrad(), s.From([]float64{3, 4}).RequiresGrad()
		h := x.Mul(w)
		a, b := h.Square(), h.Sum()
		g := autograd.Grad([]*tt{a, b}, []*tt{x, w, h}, []*tt{s.From([]float64{1, 10}), nil}, tensor.RetainGraph())
		// h = x·w, a = h² and b = Σh. The gradient of x is (2h·g + 1)·w, where g = (1, 10) is the
		// given gradient of a.
		near(t, "by x", g[0], 3*(2*3+1), 4*(2*8*10+1))
		near(t, "by w", g[1], 1*(2*3+1), 2*(2*8*10+1))
		near(t, "by h", g[2], 7, 161)
		near(t, "of one", autograd.Grad([]*tt{b}, []*tt{x}, nil)[0], 3, 4)
		for what, c := range map[string]struct {
			kind error
			f    func()
		}{
			"no outputs":              {tensor.ErrValue, func() { autograd.Grad(nil, []*tt{x}, nil) }},
			"gradients of too few":    {tensor.ErrValue, func() { autograd.Grad([]*tt{a, b}, []*tt{x}, []*tt{nil}) }},
			"no scalar":               {tensor.ErrGrad, func() { autograd.Grad([]*tt{x.Sum(), a}, []*tt{x}, nil) }},
			"no inputs":               {tensor.ErrValue, func() { autograd.VJP(energy, nil, nil) }},
			"integers only":           {tensor.ErrType, func() { autograd.Jacobian(energy, []*tt{s.Arange(3)}) }},
			"a vector for a scalar":   {tensor.ErrShape, func() { autograd.VJP(func(in []*tt) *tt { return in[0].Sum() }, []*tt{x}, x) }},
			"no vector":               {tensor.ErrShape, func() { autograd.VJP(func(in []*tt) *tt { return in[0].Neg() }, []*tt{x}, nil) }},
			"too few directions":      {tensor.ErrValue, func() { autograd.JVP(wide, []*tt{x, w}, []*tt{x}) }},
			"a direction of no shape": {tensor.ErrShape, func() { autograd.JVP(func(in []*tt) *tt { return in[0] }, []*tt{x}, []*tt{x.Sum()}) }},
			"no direction":            {tensor.ErrValue, func() { autograd.HVP(func(in []*tt) *tt { return in[0].Sum() }, []*tt{x}, []*tt{nil}) }},
			"a direction of an index": {tensor.ErrType, func() { autograd.JVP(func(in []*tt) *tt { return in[0] }, []*tt{x, s.Arange(2)}, []*tt{x, x}) }},
			"a Hessian of a vector":   {tensor.ErrShape, func() { autograd.Hessian(func(in []*tt) *tt { return in[0] }, []*tt{x}) }},
			"more than 8 dimensions": {tensor.ErrShape, func() {
				y := x.Reshape(2, 1, 1, 1, 1)
				autograd.Jacobian(func(in []*tt) *tt { return in[0].Neg() }, []*tt{y})
			}},
			"what the function raises": {tensor.ErrShape, func() { autograd.VJP(wide, []*tt{x, w}, nil) }},
			"a Func without Backward":  {tensor.ErrValue, func() { (&autograd.Func{Name: "half"}).Apply(x) }},
		} {
			if err := tensor.Try(c.f); !errors.Is(err, c.kind) {
				t.Errorf("%s: %v, want %v", what, err, c.kind)
			}
		}
		var e *tensor.Error
		err := tensor.Try(func() { autograd.Grad(nil, []*tt{x}, nil) })
		if !errors.As(err, &e) || !strings.HasPrefix(e.Site, "autograd/autograd_test.go:") {
			t.Errorf("the site is missing: %v", err)
		}
	})
}

// scaled returns a function that computes x³·k. Its VJP uses the second argument instead of k. The
// gradient is therefore right only if the two arguments are equal.
func scaled(k, by float64) *autograd.Func {
	return &autograd.Func{Name: "scaled",
		Forward: func(c *tensor.Context, in []*tt) *tt { c.Save(in[0]); return in[0].PowScalar(3).MulScalar(k) },
		Backward: func(c *tensor.Context, g *tt) []*tt {
			return []*tt{c.Saved(0).Square().MulScalar(3 * by).Mul(g)}
		}}
}

func TestCheck(t *testing.T) {
	onDevices(t, func(t *testing.T, s *tensor.Scope) {
		in, _ := point(s)
		second := autograd.CheckOptions{SecondOrder: true}
		for what, f := range map[string]func(in []*tt) *tt{
			"exp, matmul": wide, "a scalar": energy, "a constant": func(in []*tt) *tt { return in[0].Detach() },
			"one input": func(in []*tt) *tt { return in[1].Softmax(-1) }, "nothing": func(in []*tt) *tt { return in[0].Narrow(0, 1, 0) },
			"a Func": func(in []*tt) *tt { return scaled(2, 2).Apply(in[0]) },
		} {
			// Check runs the function several times for each element, which is slow on an emulated
			// GPU. So only one function is tested there.
			if s.Device().Info().Kind != "cpu" && what != "one input" {
				continue
			}
			if what == "a constant" { // the result depends on its input, but has no gradient
				var wrong *autograd.CheckError
				if err := autograd.Check(f, in, second); !errors.As(err, &wrong) || wrong.Got != 0 || math.Abs(wrong.Want-1) > 1e-6 {
					t.Errorf("%s: %v", what, err)
				}
				continue
			}
			if err := autograd.Check(f, in, second); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := autograd.Check(func(in []*tt) *tt { return in[0].IndexSelect(0, in[1]).Exp() }, []*tt{in[0], s.From([]int64{1, 1})}, second); err != nil {
			t.Error(err)
		}

		var wrong *autograd.CheckError
		err := autograd.Check(func(in []*tt) *tt { return scaled(1, 1.01).Apply(in[1]).Sum(1) }, in, autograd.CheckOptions{})
		if !errors.As(err, &wrong) || wrong.Order != 1 || wrong.Input != 1 || !slices.Equal(wrong.At, []int{0, 0}) || !slices.Equal(wrong.Output, []int{0}) ||
			math.Abs(wrong.Got-3.03) > 1e-9 || math.Abs(wrong.Want-3) > 1e-6 {
			t.Errorf("a gradient that is off by 1%%: %v", err)
		} else if msg := err.Error(); !strings.Contains(msg, "the derivative of the result at [0] by input 1 at [0 0] is 3.03, by differences ") {
			t.Errorf("the message is %q", msg)
		}
		if err := autograd.Check(func(in []*tt) *tt { return scaled(1, 1.01).Apply(in[1]) }, in, autograd.CheckOptions{Rtol: 0.02}); err != nil {
			t.Errorf("2%% are allowed: %v", err)
		}
		// The gradient is right, but its derivative is wrong: the saved value is detached from its
		// graph.
		cut := &autograd.Func{Name: "cut",
			Forward:  func(c *tensor.Context, in []*tt) *tt { c.Save(in[0]); return in[0].Square() },
			Backward: func(c *tensor.Context, g *tt) []*tt { return []*tt{c.Saved(0).Detach().MulScalar(2).Mul(g)} }}
		f := func(in []*tt) *tt { return cut.Apply(in[1]).Sum() }
		if err := autograd.Check(f, in, autograd.CheckOptions{}); err != nil {
			t.Errorf("first order: %v", err)
		}
		if err := autograd.Check(f, in, second); !errors.As(err, &wrong) || wrong.Order != 2 || wrong.Of != 1 || wrong.Input != 1 || wrong.Got != 0 {
			t.Errorf("second order: %v", err)
		}
		if err := autograd.Check(func(in []*tt) *tt { return in[0].Dropout(0.5) }, in, second); !errors.Is(err, autograd.ErrNondeterministic) {
			t.Errorf("dropout: %v", err)
		}
		for what, f := range map[string]func() error{
			"float32":  func() error { return autograd.Check(energy, []*tt{in[0].Float(), in[1]}, second) },
			"a cast":   func() error { return autograd.Check(func(in []*tt) *tt { return in[0].Float() }, in, second) },
			"integers": func() error { return autograd.Check(energy, []*tt{s.Arange(3)}, second) },
			"OnceDifferentiable": func() error {
				f := *scaled(1, 1)
				f.OnceDifferentiable = true
				return autograd.Check(func(in []*tt) *tt { return f.Apply(in[0]) }, in, second)
			},
			"no function": func() error { return autograd.Check(nil, in, second) },
			"no result":   func() error { return autograd.Check(func([]*tt) *tt { return nil }, in, second) },
			"no result, Jacobian": func() error {
				return tensor.Try(func() { autograd.Jacobian(func([]*tt) *tt { return nil }, in) })
			},
			"no result, VJP":      func() error { return tensor.Try(func() { autograd.VJP(func([]*tt) *tt { return nil }, in, nil) }) },
			"a function's misuse": func() error { return autograd.Check(func(in []*tt) *tt { return in[1].MatMul(in[1]) }, in, second) },
		} {
			var e *tensor.Error
			if err := f(); !errors.As(err, &e) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// TestOnceDifferentiable checks that the gradient of a function with OnceDifferentiable is right. A
// second derivative through the function, with respect to any tensor, must be an error.
func TestOnceDifferentiable(t *testing.T) {
	onDevices(t, func(t *testing.T, s *tensor.Scope) {
		f := scaled(1, 1)
		f.OnceDifferentiable = true
		x := s.From([]float64{2}).RequiresGrad()
		near(t, "the gradient", tensor.Gradients(f.Apply(x), []*tt{x})[0], 12)
		g := tensor.Gradients(f.Apply(x).Add(x.Square()), []*tt{x}, tensor.CreateGraph())[0]
		near(t, "the gradient with a graph", g, 16)
		if err := tensor.Try(func() { tensor.Gradients(g, []*tt{x}) }); !errors.Is(err, tensor.ErrGrad) || !strings.Contains(err.Error(), "OnceDifferentiable") {
			t.Errorf("a second derivative: %v", err)
		}
	})
}

// TestFuncGradientIsSummed tests functions that return a gradient whose shape differs from the
// operand's. If the operand was broadcast to the gradient's shape, the gradient is summed to the
// operand's shape, as in PyTorch. Any other wrong shape is an error.
func TestFuncGradientIsSummed(t *testing.T) {
	scale := func(back func(g, x *tensor.Tensor) *tensor.Tensor) *autograd.Func {
		return &autograd.Func{Name: "scale",
			Forward: func(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor { c.Save(in...); return in[0].Mul(in[1]) },
			Backward: func(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
				return []*tensor.Tensor{g.Mul(c.Saved(1)), back(g, c.Saved(0))}
			}}
	}
	f := scale(func(g, x *tensor.Tensor) *tensor.Tensor { return g.Mul(x) })
	x := tensor.From([][]float64{{1, 2}, {3, 4}}).RequiresGrad()
	for _, w := range []*tensor.Tensor{tensor.From([]float64{1, 2}), tensor.From([]float64{3}), tensor.From([][]float64{{1}, {2}}), tensor.From([]float64{2}).Squeeze()} {
		w.RequiresGrad()
		if err := autograd.Check(func(x []*tensor.Tensor) *tensor.Tensor { return f.Apply(x...) }, []*tensor.Tensor{x, w}, autograd.CheckOptions{SecondOrder: true}); err != nil {
			t.Errorf("%v: %v", w.Shape(), err)
		}
	}
	w := tensor.From([]float64{1, 2}).RequiresGrad()
	err := tensor.Try(func() {
		scale(func(g, x *tensor.Tensor) *tensor.Tensor { return g.Sum() }).Apply(x, w).Sum().Backward()
	})
	if !errors.Is(err, tensor.ErrGrad) || !strings.Contains(err.Error(), "shape [] on cpu for operand 1, of shape [2]") {
		t.Error(err)
	}
}
