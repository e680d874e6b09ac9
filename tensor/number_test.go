package tensor_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestNumbersThatDoNotFit writes numbers into integer tensors by several ops. The ops must accept
// and refuse the same numbers as PyTorch's fill_.
func TestNumbersThatDoNotFit(t *testing.T) {
	ops := map[string]func(x, mask *tensor.Tensor, v float64) *tensor.Tensor{
		"fill":        func(x, _ *tensor.Tensor, v float64) *tensor.Tensor { return x.Clone().Fill(v) },
		"full":        func(x, _ *tensor.Tensor, v float64) *tensor.Tensor { return x.FullLike(v) },
		"masked_fill": func(x, m *tensor.Tensor, v float64) *tensor.Tensor { return x.MaskedFill(m, v) },
		"masked_fill_": func(x, m *tensor.Tensor, v float64) *tensor.Tensor {
			return x.Clone().MaskedFillInPlace(m, v)
		},
		"index_put": func(x, _ *tensor.Tensor, v float64) *tensor.Tensor { return x.Clone().SetIndex(v, 0) },
		"index_fill": func(x, _ *tensor.Tensor, v float64) *tensor.Tensor {
			return x.IndexFill(0, x.Scope().On(x.Device()).Typed(dtype.I64).Zeros(1), v)
		},
		"scatter": func(x, _ *tensor.Tensor, v float64) *tensor.Tensor {
			return x.ScatterScalar(0, x.Scope().On(x.Device()).Typed(dtype.I64).Zeros(1), v)
		},
		"pad": func(x, _ *tensor.Tensor, v float64) *tensor.Tensor { return x.Pad(v, 1, 0) },
	}
	gpu, _ := emulated(t, 1)
	for _, c := range []struct {
		t    dtype.Type
		v    float64
		want float64
		bad  bool
	}{
		{t: dtype.U8, v: 255, want: 255}, {t: dtype.U8, v: 255.9, want: 255}, {t: dtype.U8, v: -1, want: 255}, {t: dtype.U8, v: -255, want: 1},
		{t: dtype.U8, v: 256, bad: true}, {t: dtype.U8, v: -256, bad: true}, {t: dtype.U8, v: math.NaN(), bad: true},
		{t: dtype.I8, v: -128, want: -128}, {t: dtype.I8, v: 128, bad: true}, {t: dtype.I8, v: -129, bad: true},
		{t: dtype.I16, v: -32768.5, want: -32768}, {t: dtype.I16, v: 32768, bad: true},
		{t: dtype.I32, v: math.MaxInt32, want: math.MaxInt32}, {t: dtype.I32, v: 1 << 31, bad: true},
		{t: dtype.I64, v: math.MinInt64, want: math.MinInt64}, {t: dtype.I64, v: 1 << 63, bad: true}, {t: dtype.I64, v: math.Inf(-1), bad: true},
		{t: dtype.Bool, v: 7, want: 1}, {t: dtype.Bool, v: math.NaN(), want: 1}, {t: dtype.F32, v: 1 << 40, want: 1 << 40},
	} {
		for name, op := range ops {
			for _, dev := range []device.Device{tensor.Zeros().Device(), gpu} {
				tensor.Do(func(s *tensor.Scope) {
					m := s.On(dev)
					x, mask := m.Typed(c.t).Zeros(3), m.Typed(dtype.Bool).Ones(3)
					err := tensor.Try(func() {
						if got := op(x, mask, c.v).Select(0, 0).Item(); got != c.want {
							t.Errorf("%s of %v with %v on %s: %v, want %v", name, c.t, c.v, dev.Name(), got, c.want)
						}
					})
					var e *tensor.Error
					switch {
					case !c.bad && err != nil:
						t.Errorf("%s of %v with %v: %v", name, c.t, c.v, err)
					case c.bad && (!errors.As(err, &e) || e.Err != tensor.ErrValue || e.Op != strings.TrimSuffix(name, "_") || !strings.Contains(err.Error(), "does not fit into "+c.t.String())):
						t.Errorf("%s of %v with %v: the error is %v", name, c.t, c.v, err)
					}
				})
			}
		}
	}
}

// TestNumbersBeforeOperators checks that RWhereScalar refuses a number that the type cannot hold.
// Arithmetic wraps such a number, as in PyTorch.
func TestNumbersBeforeOperators(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Typed(dtype.U8).Full(7, 2)
		yes := x.GtScalar(0)
		if y := x.RFloorDivideScalar(300); y.Type() != dtype.U8 || y.Select(0, 0).Item() != 44/7 {
			t.Errorf("300 // 7 is %v", y)
		}
		if y := tensor.RWhereScalar(yes, -1, x); y.Select(0, 0).Item() != 255 {
			t.Errorf("-1 is %v", y)
		}
		for _, f := range []func(){func() { tensor.RWhereScalar(yes, 300, x) }, func() { tensor.WhereScalar(yes, x, 300) }} {
			var e *tensor.Error
			if err := tensor.Try(f); !errors.As(err, &e) || e.Err != tensor.ErrValue || e.Op != "where" {
				t.Errorf("the error is %v", err)
			}
		}
	})
}

// TestFactorOfIndexAdd passes wrong values of alpha to IndexAdd and IndexAddInPlace. Both errors
// must name the op index_add. For bool tensors any alpha except 0 counts as true.
func TestFactorOfIndexAdd(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		index := s.Typed(dtype.I64).Zeros(1)
		for alpha, want := range map[float64]float64{0: 0, 1: 1, 2: 1, 0.5: 1, -1: 1} {
			x, yes := s.Typed(dtype.Bool).Zeros(1), s.Typed(dtype.Bool).Ones(1)
			if y := x.IndexAdd(0, index, yes, alpha); y.Type() != dtype.Bool || y.Floats()[0] != want || x.IndexAddInPlace(0, index, yes, alpha).Floats()[0] != want {
				t.Errorf("false and %v times true is %v, want %v", alpha, y.Floats(), want)
			}
		}
		for _, ty := range []dtype.Type{dtype.U8, dtype.I32} {
			x := s.Typed(ty).Ones(1)
			for _, f := range []func(){func() { x.IndexAdd(0, index, x, 0.5) }, func() { x.IndexAddInPlace(0, index, x, 0.5) }} {
				var e *tensor.Error
				if err := tensor.Try(f); !errors.As(err, &e) || e.Err != tensor.ErrType || e.Op != "index_add" || !strings.Contains(e.Msg, "alpha is 0.5") {
					t.Errorf("of %v the error is %v", ty, err)
				}
			}
		}
	})
}
