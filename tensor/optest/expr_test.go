package optest

import (
	"fmt"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func isExpr(op string) bool { return op == "expr" }

// TestExprOnDevices tests only expressions, on the CPU and the emulated GPU, in all types and
// layouts. It compares first and second derivatives with finite differences. TestCPU and TestCUDA
// test expressions too, together with all other ops.
func TestExprOnDevices(t *testing.T) {
	for _, dev := range []device.Device{hostDevice(), emulated(t)} {
		Run(t, dev, Options{Only: isExpr, Small: true, FirstOrder: dev != hostDevice()})
	}
}

// TestExprIsOneKernel checks that an expression of any length is one kernel, and that each gradient
// is one more kernel. Twelve operands must be accepted.
func TestExprIsOneKernel(t *testing.T) {
	dev := emulated(t)
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(2, 3, 4).RequiresGrad()
		vars, text, want := tensor.Vars{"x": x, "k": 0.5}, "k + tanh(x)*x", 0.5+math.Tanh(1)
		shapes := [][]int{{2, 3, 4}, {4}, {3, 1}, {}, {2, 1, 1}}
		for i := range 11 {
			v, name := float64(i+1)/4, fmt.Sprintf("x%d", i)
			vars[name] = s.Full(v, shapes[i%len(shapes)]...)
			text += fmt.Sprintf(" + tanh(%s)*%s", name, name)
			want += math.Tanh(v) * v
		}
		launches := func(f func()) uint64 {
			before := dev.Counters().Launches
			f()
			return dev.Counters().Launches - before
		}
		var y *tensor.Tensor
		if n := launches(func() { y = tensor.Expr(text, vars) }); n != 1 {
			t.Errorf("%d launches forward", n)
		}
		g := s.Ones(2, 3, 4)
		if n := launches(func() { y.Backward(tensor.GradOutput(g)) }); n > 1 {
			t.Errorf("%d launches backward", n)
		}
		if got := y.Floats(); math.Abs(got[0]-want) > 1e-4 || got[0] != got[23] {
			t.Errorf("%v, want %v", got, want)
		}
		slope := math.Tanh(1) + 1 - math.Tanh(1)*math.Tanh(1)
		if got := x.Grad().Floats(); math.Abs(got[5]-slope) > 1e-6 {
			t.Errorf("gradient %v, want %v", got[5], slope)
		}
	}, tensor.On(dev))
}

// TestExprUnderAutocast evaluates expressions under autocast. An expression must be computed in
// float32 if it contains a function that torch computes in float32. Other expressions must keep the
// 16-bit type of their operand.
func TestExprUnderAutocast(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		h := s.Typed(dtype.BF16).Ones(2).RequiresGrad()
		e, m := tensor.Expr("exp(h) + 1", tensor.Vars{"h": h}), tensor.Expr("h*2 + 1", tensor.Vars{"h": h})
		if e.Type() != dtype.F32 || m.Type() != dtype.BF16 {
			t.Error(e.Type(), m.Type())
		}
		e.Sum().Backward()
		if g := h.Grad(); g.Type() != dtype.BF16 || math.Abs(g.Floats()[0]-math.E) > 0.01 {
			t.Error(g)
		}
	}, tensor.Autocast(dtype.BF16))
}
