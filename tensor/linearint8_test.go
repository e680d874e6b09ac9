package tensor_test

import (
	"errors"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestQuantizeRows checks that each row is quantised with its own scale. No error may exceed half a
// scale.
func TestQuantizeRows(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		base := s.Randn(5, 6, 33).Mul(s.From([]float32{1e-30, 1e-3, 1, 700, 1e30, 0}).Unsqueeze(-1))
		for name, x := range map[string]*tensor.Tensor{"float32": base, "transposed": base.Transpose(0, 2), "bfloat16": base.BFloat16(),
			"float64": base.Cast(dtype.F64), "strided": base.Slice(-1, 0, 33, 2), "a vector": base.Select(0, 1).Select(0, 2)} {
			q, scale := x.QuantizeRows()
			if q.Type() != dtype.I8 || scale.Type() != dtype.F32 || scale.Dim(-1) != 1 || scale.Rank() != x.Rank() {
				t.Fatalf("%s: q is %v %v, the scale %v %v", name, q.Type(), q.Shape(), scale.Type(), scale.Shape())
			}
			most := x.Abs().Amax(-1, tensor.KeepDim).Float()
			if want := most.DivScalar(127); want.Eq(scale).All().Item() == 0 {
				t.Errorf("%s: the scales are not the maxima divided by 127", name)
			}
			wide := x.Cast(dtype.F64)
			off := q.Cast(dtype.F64).Mul(scale.Cast(dtype.F64)).Sub(wide).Abs()
			if off.Le(scale.Cast(dtype.F64).MulScalar(0.5+1e-5)).All().Item() == 0 {
				t.Errorf("%s: an error exceeds half a scale", name)
			}
			if m := q.Abs().Cast(dtype.I32).Amax(-1).Eq(most.Squeeze(-1).GtScalar(0).Cast(dtype.I32).MulScalar(127)); m.All().Item() == 0 {
				t.Errorf("%s: a row does not use all of its range", name)
			}
		}
	})
}

// TestQuantizeExtremes checks rows of zeros, of tiny numbers, and rows that are not finite.
func TestQuantizeExtremes(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		nan, inf := float32(math.NaN()), float32(math.Inf(1))
		x := s.From([][]float32{{0, 0}, {1e-38, -1e-40}, {nan, 1}, {inf, 1}, {3e38, -3e38}})
		w, scale := s.From([][]float32{{1, 1}, {2, -1}}).QuantizeRows()
		y := x.LinearInt8(w, scale.Squeeze(-1), s.From([]float32{7, 8})).Floats()
		for i, want := range []float64{7, 8, 7, 8} {
			if y[i] != want {
				t.Errorf("element %d is %v, want the bias %v", i, y[i], want)
			}
		}
		for _, v := range y[4:8] {
			if !math.IsNaN(v) {
				t.Errorf("a row that is not finite gives %v, want NaN", v)
			}
		}
		if math.Abs(y[8]-7) > 0 || math.IsNaN(y[8]) {
			t.Errorf("large numbers cancel to %v, want 7", y[8])
		}
	})
}

// TestLinearInt8 compares LinearInt8 with Linear. The results may differ only by the rounding to
// int8.
func TestLinearInt8(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for _, dims := range [][]int{{40, 96}, {3, 5, 96}, {96}} {
			x, weight, bias := s.Randn(dims...), s.Randn(50, 96), s.Randn(50)
			w, scale := weight.QuantizeRows()
			y := x.LinearInt8(w, scale.Squeeze(-1), bias)
			want := x.Linear(weight, bias)
			if y.Shape() != want.Shape() {
				t.Fatalf("shape %v, want %v", y.Shape(), want.Shape())
			}
			// Both factors of a product are rounded. Each has an error of up to 1/254 of the
			// greatest value in its row, which is about 3.
			if off := y.Sub(want).Abs().Amax().Item(); off > 1 || off == 0 {
				t.Errorf("%v: the largest error is %v", dims, off)
			}
			if without := x.LinearInt8(w, scale.Squeeze(-1), nil).Add(bias); without.Eq(y).All().Item() == 0 {
				t.Errorf("%v: the bias is not added last", dims)
			}
		}
	})
}

func TestLinearInt8Errors(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, weight := s.Randn(3, 4), s.Randn(5, 4)
		w, scale := weight.QuantizeRows()
		flat := scale.Squeeze(-1)
		for _, c := range []struct {
			name string
			kind error
			f    func()
		}{
			{"a float weight", tensor.ErrType, func() { x.LinearInt8(weight, flat, nil) }},
			{"an integer input", tensor.ErrType, func() { w.LinearInt8(w, flat, nil) }},
			{"an integer bias", tensor.ErrType, func() { x.LinearInt8(w, flat, flat.Cast(dtype.I32)) }},
			{"scales of a column", tensor.ErrShape, func() { x.LinearInt8(w, scale, nil) }},
			{"an input of other features", tensor.ErrShape, func() { s.Randn(3, 5).LinearInt8(w, flat, nil) }},
			{"no scales", tensor.ErrValue, func() { x.LinearInt8(w, nil, nil) }},
			{"rows of a scalar", tensor.ErrShape, func() { s.From(float32(1)).QuantizeRows() }},
			{"rows of integers", tensor.ErrType, func() { w.QuantizeRows() }},
			{"a gradient", tensor.ErrGrad, func() { s.Randn(3, 4).RequiresGrad().LinearInt8(w, flat, nil) }},
			{"a gradient of the bias", tensor.ErrGrad, func() { x.LinearInt8(w, flat, s.Randn(5).RequiresGrad()) }},
		} {
			if err := tensor.Try(c.f); !errors.Is(err, c.kind) {
				t.Errorf("%s: %v, want an error of the kind %v", c.name, err, c.kind)
			}
		}
		s.Do(func(c *tensor.Scope) { s.Randn(3, 4).RequiresGrad().In(c).LinearInt8(w, flat, nil) }, tensor.NoGrad())
	})
}
