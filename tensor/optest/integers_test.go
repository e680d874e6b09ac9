package optest

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestIntegers compares division and shifts of int64 and int8 with Go's results. It covers the
// limits, numbers that float64 cannot hold, and division by zero.
func TestIntegers(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	odd := []int64{0, 1, -1, 2, -2, 3, -3, 7, 10, -10, 1 << 31, -1 << 31, 1<<53 - 1, 1<<53 + 1, -1<<53 - 1, 1 << 62, 1<<62 + 1, -1<<62 - 1, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MinInt64 + 1}
	var x, y []int64
	for _, a := range odd {
		for _, b := range odd {
			x, y = append(x, a), append(y, b)
		}
	}
	for range 20000 {
		a, b := int64(r.Uint64())>>r.IntN(63), int64(r.Uint64())>>r.IntN(63)
		x, y = append(x, a, b*(a/max(b, 1)), b*(a/max(b, 1))-1), append(y, b, b, b)
	}
	floorDiv := func(a, b int64) (q, r int64) {
		if b == 0 {
			return 0, a
		}
		q, r = a/b, a%b
		if r != 0 && (r < 0) != (b < 0) {
			q, r = q-1, r+b
		}
		return
	}
	truncDiv := func(a, b int64) (q, r int64) {
		if b == 0 {
			return 0, a
		}
		return a / b, a % b
	}
	hold := func(what string, got []int64, want func(a, b int64) int64) {
		t.Helper()
		for i := range got {
			if w := want(x[i], y[i]); got[i] != w {
				t.Errorf("%s of %d and %d is %d, want %d", what, x[i], y[i], got[i], w)
				return
			}
		}
	}
	tensor.Do(func(s *tensor.Scope) {
		a, b := s.From(x), s.From(y)
		long := tensor.Data[int64]
		hold("floor_divide", long(a.FloorDivide(b)), func(a, b int64) int64 { q, _ := floorDiv(a, b); return q })
		hold("remainder", long(a.Remainder(b)), func(a, b int64) int64 { _, r := floorDiv(a, b); return r })
		hold("trunc_divide", long(a.TruncDivide(b)), func(a, b int64) int64 { q, _ := truncDiv(a, b); return q })
		hold("fmod", long(a.Fmod(b)), func(a, b int64) int64 { _, r := truncDiv(a, b); return r })
		hold("left shift", long(a.BitwiseLeftShift(b)), func(a, b int64) int64 {
			if b < 0 || b > 63 {
				return 0
			}
			return a << b
		})
		hold("right shift", long(a.BitwiseRightShift(b)), func(a, b int64) int64 {
			if b < 0 || b > 63 {
				b = 63
			}
			return a >> b
		})
	})
	tensor.Do(func(s *tensor.Scope) {
		var a, b []int8
		for i := range 256 {
			for j := range 256 {
				a, b = append(a, int8(i)), append(b, int8(j))
			}
		}
		ta, tb := s.From(a), s.From(b)
		q, m, l, h := tensor.Data[int8](ta.FloorDivide(tb)), tensor.Data[int8](ta.Remainder(tb)), tensor.Data[int8](ta.BitwiseLeftShift(tb)), tensor.Data[int8](ta.BitwiseRightShift(tb))
		for i := range a {
			wq, wm := floorDiv(int64(a[i]), int64(b[i]))
			wl, wh := int8(0), a[i]>>7
			if b[i] >= 0 && b[i] < 8 {
				wl, wh = a[i]<<b[i], a[i]>>b[i]
			}
			if q[i] != int8(wq) || m[i] != int8(wm) || l[i] != wl || h[i] != wh {
				t.Fatalf("%d and %d: quotient %d, remainder %d, shifts %d, %d; want %d, %d, %d, %d", a[i], b[i], q[i], m[i], l[i], h[i], wq, wm, wl, wh)
			}
		}
		if near := ta.AddScalar(0); !ta.AllClose(near, 0, 0) || ta.AllClose(tb, 0, 1) || s.Ones(2).AllClose(s.From([]float32{1, 1.1}), 0.05, 0) || !s.Ones(2).AllClose(s.From([]float32{1, 1.1}), 0.1, 0) {
			t.Error("AllClose")
		}
		for _, what := range []func(){
			func() { ta.IsClose(tb, -1, 0) },
			func() { ta.Float().BitwiseAnd(tb) }, func() { ta.BitwiseAndScalar(300) }, func() { ta.BitwiseOrScalar(1 << 60) },
			func() { ta.Cast(dtype.Bool).FloorDivide(tb.Cast(dtype.Bool)) }, func() { ta.LeakyRelu(0.1) }, func() { ta.Long().Addcmul(ta.Long(), tb.Long(), 0.5) },
			func() { ta.Float().Logit(-0.7) }, func() { ta.Float().PRelu(s.Ones(3)) }, func() { ta.Float().Hardtanh(2, 1) }, func() { ta.Float().Softshrink(-1) },
			func() { ta.FloorDivideScalar(0) }, func() { ta.RemainderScalar(0) }, func() { ta.Clone().RemainderScalarInPlace(0) },
			func() { ta.Clone().ExpInPlace() }, func() { ta.Clone().AddcmulInPlace(ta, tb, 0.5) }, func() { ta.Clone().ClampInPlace(0.5, 2) }, func() { ta.Clone().MaskedFillInPlace(ta, 1) },
			func() { ta.Clone().RemainderScalarInPlace(0.5) }, func() { ta.Clone().DivScalarInPlace(2) }, func() { s.Ones(3).RequiresGrad().SinInPlace() },
			func() { s.Ones(1).Expand(3).SinInPlace() }, func() { s.Ones(3).LerpInPlace(s.Ones(2, 3), s.Ones(3)) },
		} {
			if tensor.Try(what) == nil {
				t.Error("a misuse is not refused")
			}
		}
	})
}

// TestNumbersBeyondIntegers checks numbers that exceed the range of an integer type. An op refuses
// such a number as a value to store or as a limit. In arithmetic the number wraps, as results of
// the type do. PyTorch 2.15 has both rules.
func TestNumbersBeyondIntegers(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		x := s.From([]int64{1, 100, -3})
		small, word, byt := x.Cast(dtype.I8), x.Cast(dtype.I32), x.Cast(dtype.U8)
		for what, f := range map[string]func(){
			"Full": func() { s.Typed(dtype.I8).Full(300, 2) }, "FullLike": func() { small.FullLike(-129) }, "Fill": func() { small.Fill(128) },
			"NaN": func() { word.Fill(math.NaN()) }, "Inf": func() { s.Typed(dtype.I64).Full(math.Inf(1)) }, "uint8": func() { byt.Fill(256) },
			"MaskedFill": func() { small.MaskedFill(small.EqScalar(1), 300) }, "MaskedFillInPlace": func() { small.MaskedFillInPlace(small.EqScalar(1), 300) },
			"ClampMin": func() { small.ClampMin(300) }, "ClampMax": func() { byt.ClampMax(-1) }, "Clamp": func() { word.Clamp(1e10, 1e11) },
			"ClampInPlace": func() { small.ClampInPlace(300, 400) }, "ClampMinInPlace": func() { small.ClampMinInPlace(300) }, "ClampMaxInPlace": func() { small.ClampMaxInPlace(-300) },
		} {
			if err := tensor.Try(f); !errors.Is(err, tensor.ErrValue) {
				t.Errorf("%s: %v", what, err)
			}
		}
		want(t, "a limit below the type", small.ClampMin(-300), 1, 100, -3)
		want(t, "a limit above the type", word.ClampMax(1e10), 1, 100, -3)
		want(t, "a fraction", s.Typed(dtype.I8).Full(127.9), 127)
		want(t, "a negative uint8", s.Typed(dtype.U8).Full(-1), 255)
		want(t, "int32 + 1e10", word.AddScalar(1e10), 1410065409, 1410065508, 1410065405)
		want(t, "int32 - 1e10", word.SubScalar(1e10), -1410065407, -1410065308, -1410065411)
		want(t, "1e10 - int32", word.RSubScalar(1e10), 1410065407, 1410065308, 1410065411)
		want(t, "int32 · 1e10", word.MulScalar(1e10), 1410065408, -727379968, 64771072)
		want(t, "int8 + 1e10", small.AddScalar(1e10), 1, 100, -3)
		want(t, "int8 + 300", small.AddScalar(300), 45, -112, 41)
		want(t, "uint8 + 1e10 in place", byt.AddScalarInPlace(1e10), 1, 100, 253)
		want(t, "int32 · 1e10 in place", word.MulScalarInPlace(1e10), 1410065408, -727379968, 64771072)
	})
}
