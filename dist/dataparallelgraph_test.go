package dist_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// pair returns a model on three devices and an equal model on one device, both in float64.
func pair(t *testing.T) (dp *dist.Parallel[nn.Module], single nn.Module, devices []device.Device) {
	devices = append([]device.Device{host(t)}, gpus(t, ":2,mem=64MiB")...)
	m := nn.Cast(mlp(), dtype.F64)
	return dist.DataParallel(m, devices), nn.Clone(m), devices
}

// sameGrads compares the gradients of models a and b, and clears them.
func sameGrads(t *testing.T, what string, a, b any) {
	t.Helper()
	tensor.Do(func(s *tensor.Scope) {
		want := gradients(s, b)
		for k, g := range gradients(s, a) {
			checkNear(t, fmt.Sprint(what, " ", k), g, want[k], 1e-9)
		}
	})
}

// TestDataParallelBackward runs every kind of backward pass, such as Grad and retained graphs. The
// gradients must equal those of one device.
func TestDataParallelBackward(t *testing.T) {
	dp, one, devices := pair(t)
	inputs := func(s *tensor.Scope) (*tt, *tt) { return s.Randn(7, 6).Double(), s.Randn(4, 6).Double() }
	each := func(name string, f func(s *tensor.Scope, m nn.Module)) {
		t.Run(name, func(t *testing.T) {
			for _, m := range []nn.Module{dp, one} {
				tensor.Do(func(s *tensor.Scope) { f(s, m) }, tensor.Seed(5))
			}
			sameGrads(t, name, dp, one)
			if n := allocated(devices); n[1] != 0 || n[2] != 0 {
				t.Errorf("%d bytes stay on other devices", n)
			}
		})
	}
	each("two calls, one Backward", func(s *tensor.Scope, m nn.Module) {
		a, b := inputs(s)
		m.Forward(a).Square().Sum().Add(m.Forward(b).Exp().Sum()).Backward()
	})
	each("two of Backward", func(s *tensor.Scope, m nn.Module) {
		a, b := inputs(s)
		y, z := m.Forward(a).Square().Sum(), m.Forward(b).Exp().Sum()
		z.Backward()
		y.Backward()
	})
	each("a retained graph", func(s *tensor.Scope, m nn.Module) {
		a, _ := inputs(s)
		y := m.Forward(a).Square().Sum()
		y.Backward(tensor.RetainGraph())
		y.Backward(tensor.RetainGraph())
		y.Backward()
		checkPanic(t, tensor.ErrGrad, func() { y.Backward() }, "freed by an earlier Backward")
	})
	each("kept past its scope", func(s *tensor.Scope, m nn.Module) {
		a, _ := inputs(s)
		var y *tt
		s.Do(func(c *tensor.Scope) {
			y = m.Forward(a.In(c))
			c.Close(y)
		})
		y.Square().Sum().Backward()
	})
	each("some parameters", func(s *tensor.Scope, m nn.Module) {
		a, _ := inputs(s)
		p := nn.Parameters(m)
		m.Forward(a).Square().Sum().Backward(tensor.Into(p[0], p[3]))
		if p[0].Grad() == nil || p[1].Grad() != nil {
			t.Error("the gradients are not those of the parameters that Into names")
		}
	})
	each("added up", func(s *tensor.Scope, m nn.Module) {
		a, b := inputs(s)
		for _, a := range []*tt{a, b, a.Exp()} {
			m.Forward(a).Square().Mean().Backward()
		}
	})
	var of [][]float64
	each("part of a larger graph", func(s *tensor.Scope, m nn.Module) {
		a, _ := inputs(s)
		w := a.RequiresGrad()
		m.Forward(w.Sin()).MulScalar(2).Square().Sum().Add(m.Forward(w.Exp().Add(w)).Sum()).Backward()
		of = append(of, w.Grad().Floats())
	})
	for i, v := range of[0] {
		if math.Abs(v-of[1][i]) > 1e-9 {
			t.Errorf("the gradient of the input is %v, want %v", v, of[1][i])
		}
	}
	each("frozen", func(s *tensor.Scope, m nn.Module) {
		p := nn.Parameters(m)
		p[0].SetRequiresGrad(false)
		defer p[0].SetRequiresGrad(true)
		a, _ := inputs(s)
		m.Forward(a).Square().Sum().Backward()
		if p[0].Grad() != nil {
			t.Error("a frozen parameter has a gradient")
		}
	})
	each("checkpoints inside", func(s *tensor.Scope, m nn.Module) {
		if nn.SetCheckpointing(m, true) == 0 {
			t.Error("nothing is checkpointed")
		}
		defer nn.SetCheckpointing(m, false)
		nn.Parameters(m)[1].SetRequiresGrad(false)
		defer nn.Parameters(m)[1].SetRequiresGrad(true)
		a, _ := inputs(s)
		m.Forward(a).Square().Sum().Backward()
	})
	each("saved on the CPU", func(s *tensor.Scope, m nn.Module) {
		a, _ := inputs(s)
		s.Do(func(s *tensor.Scope) { m.Forward(a.In(s)).Square().Sum().Backward() }, autograd.SaveOnCPU(false))
	})
}

// TestDataParallelHooks checks hooks on the gradient of a parameter. Each hook is called once, when
// the gradient is complete. A GradScaler, and an average over several calls, must use the complete
// gradient too.
func TestDataParallelHooks(t *testing.T) {
	dp, one, _ := pair(t)
	before, after := 0, 0
	p := nn.Parameters(dp)[0]
	defer p.RegisterHook(func(g *tt) *tt { before++; return g.MulScalar(2) })()
	defer p.RegisterPostAccumulateGradHook(func(*tt) { after++ })()
	defer nn.Parameters(one)[0].RegisterHook(func(g *tt) *tt { return g.MulScalar(2) })()
	tensor.Do(func(s *tensor.Scope) {
		x := s.Randn(6, 6).Double()
		for _, m := range []nn.Module{dp, one} {
			m.Forward(x).Square().Sum().Backward()
		}
	})
	if sameGrads(t, "hooked", dp, one); before != 1 || after != 1 {
		t.Errorf("the hooks were called %d and %d times", before, after)
	}
	g := gpus(t, ":2,mem=64MiB")
	m := dist.DataParallel(nn.To(mlp(), g[0]), g)
	opt, scaler := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1}), amp.NewGradScaler()
	was := nn.Parameters(m)[0].Floats()
	for step := range 2 {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Randn(6, 6)
			if step == 0 {
				// make the gradients overflow; the scaler must skip this step
				x = x.MulScalar(math.Inf(1))
			}
			scaler.Scale(m.Forward(x).Square().Mean()).Backward()
			scaler.Step(opt)
			scaler.Update()
			opt.ZeroGrad()
		}, tensor.Autocast(dtype.F16))
		if changed := !slices.Equal(was, nn.Parameters(m)[0].Floats()); changed != (step == 1) {
			t.Errorf("step %d: changed is %v", step, changed)
		}
	}
}

// TestDataParallelInputs checks that the gradient of an input is on the input's device.
func TestDataParallelInputs(t *testing.T) {
	dp, one, devices := pair(t)
	for _, d := range devices {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Randn(5, 6).Double()
			a, b := x.To(d).Detach().RequiresGrad(), x.Clone().RequiresGrad()
			dp.Forward(a.MulScalar(2)).Exp().Sum().Backward()
			one.Forward(b.MulScalar(2)).Exp().Sum().Backward()
			checkNear(t, "on "+d.Name(), a.Grad(), b.Grad(), 1e-9)
			if a.Grad().Device() != d {
				t.Errorf("the gradient is on %s", a.Grad().Device().Name())
			}
		})
		sameGrads(t, d.Name(), dp, one)
	}
	// Use a tensor from an outer scope as a constant, and a leaf of the root scope as an input.
	tensor.Do(func(s *tensor.Scope) {
		x := tensor.Ones(4, 6).Double().RequiresGrad()
		if y := dp.Forward(x.In(s)); y.Scope() != s {
			t.Errorf("the result is of %v", y.Scope())
		}
		if y := dp.Forward(x); y.Scope() != tensor.Root() {
			t.Errorf("the result is of %v", y.Scope())
		}
	})
}

// twoInputs is a model with two inputs and with results of several types.
type twoInputs struct {
	nn.Base
	A, B *nn.Linear
}

func (m *twoInputs) Forward(x, y *tt, scale float64, back bool) []*tt {
	h := m.A.Forward(x).Tanh()
	if back {
		h = h.Add(m.B.Forward(y))
	}
	loss := h.Square().Mean().MulScalar(scale)
	return []*tt{h, loss, h.Detach().Mul(h.Detach()), h.Sum(1).Float(), h.Argmax(1)}
}

// TestDataParallelCall tests Call with several inputs and results, and with arguments that are not
// tensors.
func TestDataParallelCall(t *testing.T) {
	devices := append([]device.Device{host(t)}, gpus(t, ":2,mem=64MiB")...)
	m := nn.Cast(&twoInputs{A: nn.NewLinear(4, 3), B: nn.NewLinear(2, 3)}, dtype.F64)
	one := nn.Clone(m)
	dp := dist.DataParallel(m, devices)
	for _, back := range []bool{true, false} {
		tensor.Do(func(s *tensor.Scope) {
			x, y := s.Randn(6, 4).Double(), s.Randn(6, 2).Double()
			got := dp.Call(func(m *twoInputs, x ...*tt) []*tt { return m.Forward(x[0], x[1], 3, back) }, x, y)
			want := one.Forward(x, y, 3, back)
			for i, k := range []int{0, 2, 3, 4} {
				checkNear(t, fmt.Sprint("result ", i), got[k], want[k], 1e-9)
				if got[k].Type() != want[k].Type() || got[k].NeedsGrad() != want[k].NeedsGrad() {
					t.Errorf("result %d is %v, want %v", i, got[k].Type(), want[k].Type())
				}
			}
			// each part of the batch has its own loss
			if s := got[1].Shape().Slice(); !slices.Equal(s, []int{3}) {
				t.Errorf("the losses have shape %v", s)
			}
			checkNear(t, "loss", got[1].Mean(), want[1], 1e-9)
			got[1].Mean().Add(got[3].Square().Sum()).Backward()
			want[1].Add(want[3].Square().Sum()).Backward()
			if g := m.B.Weight.Grad(); (g == nil) == back {
				t.Errorf("the gradient of what was not used is %v", g)
			}
			sameGrads(t, "gradient", dp, one)
		})
	}
	// One replica does not use a parameter and returns a result that requires no gradient.
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(6, 4).Double()
		y := dp.Call(func(m *twoInputs, x ...*tt) []*tt {
			if x[0].Device() == devices[1] {
				return []*tt{x[0].Narrow(1, 0, 3)}
			}
			return []*tt{m.A.Forward(x[0])}
		}, x)[0]
		y.Sum().Backward()
		checkNear(t, "of two thirds", m.A.Bias.Grad(), tensor.Full(4, 3).Double(), 1e-9)
		m.A.Bias.ZeroGrad()
		m.A.Weight.ZeroGrad()
	})
	// Return parameters and inputs themselves as results, and a result that depends only on inputs.
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(6, 4).Double().RequiresGrad()
		y := dp.Call(func(m *twoInputs, x ...*tt) []*tt { return []*tt{x[0], m.A.Weight} }, x)
		y[0].MulScalar(3).Sum().Add(y[1].Sum()).Backward()
		checkNear(t, "input", x.Grad(), tensor.Full(3, 6, 4).Double(), 0)
		checkNear(t, "parameter", m.A.Weight.Grad(), tensor.Full(3, 3, 4).Double(), 0)
		nn.ZeroGrad(dp)
	})
	if n := allocated(devices); n[1] != 0 || n[2] != 0 {
		t.Errorf("%d bytes stay on other devices", n)
	}
}

// TestDataParallelRefusals checks two kinds of calls that must be refused: Backward with second
// derivatives, and a call inside a checkpoint, which Backward would repeat.
func TestDataParallelRefusals(t *testing.T) {
	dp, _, _ := pair(t)
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(4, 6).Double().RequiresGrad()
		y := dp.Forward(x).Sum()
		checkPanic(t, tensor.ErrGrad, func() { tensor.Gradients(y, []*tt{x}, tensor.CreateGraph()) }, "no second derivative", "CreateGraph")
		checkPanic(t, tensor.ErrGrad, func() { autograd.Checkpoint(dp.Forward, x) }, "checkpointed segment", "dataparallelgraph_test.go")
		w := s.Ones(6).Double().RequiresGrad()
		err := checkPanic(t, tensor.ErrGrad, func() {
			dp.Call(func(m nn.Module, x ...*tt) []*tt { return []*tt{m.Forward(x[0].Mul(w.To(x[0].Device())))} }, x)
		}, "neither a parameter of the model nor an input", "[6] float64")
		if _, ok := err.(*dist.ReplicaError); !ok {
			t.Errorf("the error is a %T", err)
		}
		// A tensor that requires no gradient may be used as a constant.
		w.SetRequiresGrad(false)
		dp.Call(func(m nn.Module, x ...*tt) []*tt { return []*tt{m.Forward(x[0].Mul(w.To(x[0].Device())))} }, x)[0].Sum().Backward()
		nn.ZeroGrad(dp)
	})
	p := nn.Parameters(dp)[0]
	// change the parameter in place before Backward needs its old value
	tensor.Do(func(s *tensor.Scope) {
		y := dp.Forward(s.Ones(4, 6).Double().RequiresGrad()).Sum()
		s.Do(func(s *tensor.Scope) { p.In(s).AddScalarInPlace(1) }, tensor.NoGrad())
		checkPanic(t, tensor.ErrInPlace, func() { y.Backward() }, "modified by an in-place operation", "Backward of the replica on cpu")
	})
}
