package optest

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestDropoutAdd checks that DropoutAdd gives the same bits as Dropout followed by Add, in every
// mix of types. Its gradients have the same bits too, even with CreateGraph. DropoutAdd leaves the
// generator in the same state as Dropout does.
func TestDropoutAdd(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	all := []dtype.Type{dtype.F16, dtype.BF16, dtype.F32, dtype.F64}
	for _, on := range []tensor.Option{tensor.Seed(2), tensor.On(gpus[0])} {
		for _, low := range all {
			for _, high := range all {
				for _, p := range []float64{0, 0.3, 1} {
					tensor.Do(func(s *tensor.Scope) {
						x := s.Typed(low).Randn(33, 17).RequiresGrad()
						r := s.Typed(high).Randn(33, 17).RequiresGrad()
						results := func(f func(x, r *tt) *tt) (list [][]byte) {
							s.Do(func(s *tensor.Scope) {
								y := f(x.In(s), r.In(s))
								g := s.Typed(y.Type()).Randn(33, 17)
								d := tensor.Gradients(y, []*tt{x, r}, tensor.GradOutput(g), tensor.RetainGraph())
								d = append(d, tensor.Gradients(y, []*tt{x, r}, tensor.GradOutput(g.RequiresGrad()), tensor.CreateGraph())...)
								d = append(d, tensor.Gradients(d[2], []*tt{g}, tensor.GradOutput(d[0]))...)
								for _, v := range append(d, y, s.Rand(3)) {
									list = append(list, v.Bytes())
								}
							}, tensor.Seed(9))
							return list
						}
						got := results(func(x, r *tt) *tt { return x.DropoutAdd(r, p) })
						want := results(func(x, r *tt) *tt { return r.Add(x.Dropout(p)) })
						for i, what := range []string{"gradient", "residual's gradient", "recorded gradient", "residual's recorded gradient", "gradient's gradient", "result", "next number"} {
							if !bytes.Equal(got[i], want[i]) {
								t.Errorf("%v and %v, p %v, %s: the %s differs", low, high, p, s.Device().Name(), what)
							}
						}
					}, on)
				}
			}
		}
	}
}

// TestDropoutAddOperands checks that DropoutAdd broadcasts its operands like Add. The error for a
// wrong operand must say what is wrong.
func TestDropoutAddOperands(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, r := s.Ones(4, 3).RequiresGrad(), s.Ones(2, 1, 3).RequiresGrad()
		y := x.DropoutAdd(r, 0.5)
		y.Sum().Backward()
		if y.Shape() != s.Ones(2, 4, 3).Shape() || r.Grad().Sum().Item() != 24 {
			t.Errorf("the sum has shape %v, the gradient %v", y.Shape(), r.Grad())
		}
		for _, c := range []struct {
			f    func()
			kind error
			text string
		}{
			{func() { x.DropoutAdd(r, 2) }, tensor.ErrValue, "not a probability"},
			{func() { x.DropoutAdd(nil, 0.5) }, tensor.ErrValue, "nil"},
			{func() { x.DropoutAdd(s.Ones(5, 3), 0.5) }, tensor.ErrShape, "5"},
			{func() { x.Long().DropoutAdd(r, 0.5) }, tensor.ErrType, "int64"},
		} {
			if err := tensor.Try(c.f); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("the error is %v", err)
			}
		}
	})
}
