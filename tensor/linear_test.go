package tensor_test

import (
	"errors"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/cpu"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestKeptLinearUnderAutocast computes second derivatives of a loss after the scope of autocast has
// ended. They use autocast's 16-bit copy of the weight, so the loss must keep that copy alive.
func TestKeptLinearUnderAutocast(t *testing.T) {
	type tt = tensor.Tensor
	second := func(s *tensor.Scope, x, w *tt, f func(x, w *tt) *tt) (numbers []float64) {
		c := s.New(tensor.Autocast(dtype.BF16))
		y := f(x.In(c), w.In(c)).Tanh().Sum()
		c.Close(y)
		g := tensor.Gradients(y, []*tt{x, w}, tensor.CreateGraph())
		for _, h := range tensor.Gradients(g[0].Square().Sum().Add(g[1].Square().Sum()), []*tt{x, w}) {
			numbers = append(numbers, h.Floats()...)
		}
		return numbers
	}
	tensor.Do(func(s *tensor.Scope) {
		x, w := s.Randn(3, 4).RequiresGrad(), s.Randn(5, 4).RequiresGrad()
		got := second(s, x, w, func(x, w *tt) *tt { return x.Linear(w, nil) })
		want := second(s, x, w, func(x, w *tt) *tt { return x.MatMul(w.T()) })
		for i := range want {
			if !(math.Abs(got[i]-want[i]) <= 0.02*(10+math.Abs(want[i]))) {
				t.Errorf("%d: %v, want %v", i, got[i], want[i])
			}
		}
	}, tensor.Seed(1))
}

// TestLinearOfNothing checks that a missing operand leads to a [tensor.Error], not to a crash.
func TestLinearOfNothing(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		var none *tensor.Tensor
		x, target := s.Randn(3, 4), s.RandInt(0, 4, 3)
		for name, f := range map[string]func(){
			"x":        func() { none.Linear(x, nil) },
			"weight":   func() { x.LinearT(nil, nil) },
			"logits":   func() { none.CrossEntropy(target, tensor.CrossEntropyOptions{}) },
			"residual": func() { x.DropoutAdd(nil, 0.5) },
		} {
			var e *tensor.Error
			if err := tensor.Try(f); !errors.As(err, &e) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestNoAutocastMissed opens a scope with NoAutocast, but calls ops on tensors of the scope around
// it. NoAutocast then has no effect. This must be an error, even for ops that read 16-bit operands
// without a cast.
func TestNoAutocastMissed(t *testing.T) {
	for name, f := range map[string]func(x, w, target *tensor.Tensor){
		"linear":        func(x, w, _ *tensor.Tensor) { x.Linear(w, nil) },
		"cross entropy": func(x, _, target *tensor.Tensor) { x.CrossEntropy(target, tensor.CrossEntropyOptions{}) },
	} {
		err := tensor.Try(func() {
			tensor.Do(func(s *tensor.Scope) {
				x, w := s.Typed(dtype.BF16).Randn(3, 4), tensor.Root().Ones(5, 4).RequiresGrad()
				target := s.RandInt(0, 4, 3)
				//flambeau:ignore unusedmode the test checks this report
				s.Do(func(*tensor.Scope) { f(x, w, target) }, tensor.NoAutocast())
			}, tensor.Autocast(dtype.BF16))
		})
		if !errors.Is(err, tensor.ErrScope) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBiasGradientComesWithTheWeights checks the number of ops in the backward pass. One op
// computes the gradients of weight and bias together. Another op computes the gradient of x.
func TestBiasGradientComesWithTheWeights(t *testing.T) {
	type tt = tensor.Tensor
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	for k, on := range []tensor.Option{tensor.On(cpu.Get()), tensor.On(gpus[0])} {
		for _, low := range []dtype.Type{dtype.Invalid, dtype.BF16, dtype.F16} {
			for _, byInputs := range []bool{false, true} {
				tensor.Do(func(s *tensor.Scope) {
					x, w, b := s.Randn(9, 4).RequiresGrad(), s.Randn(6, 4), s.Randn(6).RequiresGrad()
					if byInputs {
						w = s.Randn(4, 6)
					}
					in := []*tt{x, w.RequiresGrad(), b}
					var y *tt
					s.Do(func(c *tensor.Scope) {
						if y = x.In(c); byInputs {
							y = y.LinearT(w, b)
						} else {
							y = y.Linear(w, b)
						}
						c.Close(y)
					}, tensor.Autocast(low))
					g := s.Randn(9, 6).Cast(y.Type())
					var got []*tt
					n := watching(t, device.SpanOp, func() { got = tensor.Gradients(y, in, tensor.RetainGraph(), tensor.GradOutput(g)) }).ops
					want := 2
					if low != dtype.Invalid {
						want++ // the gradient of x's cast is one more op
					}
					if n != want {
						t.Errorf("device %d, %v, by inputs %v: %d ops of the device, want %d", k, low, byInputs, n, want)
					}
					apart := tensor.Gradients(y, in, tensor.CreateGraph(), tensor.GradOutput(g))
					for i := range in {
						if !got[i].AllClose(apart[i].Detach(), 1e-5, 1e-5) {
							t.Errorf("device %d, %v, by inputs %v: gradient %d is %v, want %v", k, low, byInputs, i, got[i], apart[i])
						}
					}
				}, on, tensor.Seed(4))
			}
		}
	}
}
