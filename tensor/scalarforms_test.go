package tensor_test

import (
	"errors"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func TestScalarFormMisuse(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, ints, truth := s.Ones(2), s.From([]int64{1, 0}), s.From([]bool{true, false})
		freed := s.Ones(2)
		freed.Free()
		for name, wrong := range map[string]func(){
			"a shift by floats":        func() { x.RBitwiseLeftShiftScalar(1) },
			"a shift to the right":     func() { x.RBitwiseRightShiftScalar(1) },
			"a condition of numbers":   func() { tensor.WhereScalar(ints, x, 1) },
			"the same, reversed":       func() { tensor.RWhereScalar(x, 1, x) },
			"the same, of two numbers": func() { tensor.WhereScalars(x, 1, 2) },
			"shapes that do not meet":  func() { tensor.WhereScalar(s.From([]bool{true, false, true}), x, 1) },
			"a freed tensor":           func() { freed.RRemainderScalar(2) },
		} {
			var e *tensor.Error
			if err := tensor.Try(wrong); !errors.As(err, &e) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, c := range []struct {
			what string
			x    *tensor.Tensor
			want dtype.Type
			v    [2]float64
		}{
			{"7 // int64, by 0 too", ints.RFloorDivideScalar(7), dtype.I64, [2]float64{7, 0}},
			{"7.5 // int64", ints.AddScalar(1).RFloorDivideScalar(7.5), dtype.F32, [2]float64{3, 7}},
			{"7 % bool", s.From([]bool{true, true}).RRemainderScalar(7), dtype.I64, [2]float64{0, 0}},
			{"where(bool, int64, 2)", tensor.WhereScalar(truth, ints, 2), dtype.I64, [2]float64{1, 2}},
			{"where(bool, 0.5, int64)", tensor.RWhereScalar(truth, 0.5, ints), dtype.F32, [2]float64{0.5, 0}},
			{"where(bool, 1, 0)", tensor.WhereScalars(truth, 1, 0), dtype.F32, [2]float64{1, 0}},
		} {
			if v := c.x.Floats(); c.x.Type() != c.want || v[0] != c.v[0] || v[1] != c.v[1] {
				t.Errorf("%s is %v %v, want %v %v", c.what, c.x.Type(), v, c.want, c.v)
			}
		}
	})
}
