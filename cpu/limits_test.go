package cpu

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestLimits computes minima and maxima with params. A param or an operand may be NaN, infinite or
// zero. The bits must be equal to the interpreter's. It uses few and many elements, for which
// different code runs.
func TestLimits(t *testing.T) {
	d := Get()
	negative := float32(math.Copysign(0, -1))
	values := []float32{0, negative, 1, -1, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0.5, 3}
	x, low, high := expr.X(0), expr.Param(0, dtype.F32), expr.Param(1, dtype.F32)
	for _, e := range []*expr.Expr{x.Max(low).Min(high), low.Max(x).Mul(high), high.Min(low.Max(x)), low.Min(high).Add(x)} {
		p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
		for _, n := range []int{len(values), 17_000} {
			in, out := newView(t, d, dtype.F32, n), newView(t, d, dtype.F32, n)
			for i := range n {
				float32s(in)[i] = values[i%len(values)]
			}
			for _, a := range values {
				for _, b := range values {
					params := []uint64{expr.Encode(dtype.F32, float64(a)), expr.Encode(dtype.F32, float64(b))}
					m := mapOf(p, out, in)
					m.Params = params
					inEachWay(func() {
						clear(float32s(out))
						do(t, d, m)
						for i, got := range float32s(out) {
							if i >= 20 && i < n-20 {
								continue
							}
							want := math.Float32frombits(uint32(p.Eval(nil, []uint64{expr.Encode(dtype.F32, float64(float32s(in)[i]))}, params, 0)[0]))
							if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
								t.Fatalf("%v with params %v and %v of %v: %v, want %v", p, a, b, float32s(in)[i], got, want)
							}
						}
					})
				}
			}
		}
	}
}
