//go:build linux && amd64 && !noasm

package jit

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestConversionEdges converts numbers at which rounding or the range of a type could go wrong:
// ties of float32 and their neighbours, and the ends of the integer types.
func TestConversionEdges(t *testing.T) {
	if !canRun(t) {
		return
	}
	var whole []uint64
	var floats []float64
	for k := range 64 {
		for _, tie := range []uint64{0, 1 << k >> 24, 1 << k >> 25, 3 << k >> 25, 1 << k >> 53, 3 << k >> 54} {
			for d := uint64(0); d < 5; d++ {
				v := uint64(1)<<k + tie + d - 2
				whole = append(whole, v, -v)
			}
		}
		for _, d := range []float64{-1, -0.5, -1e-9, 0, 1e-9, 0.5, 1} {
			v := math.Ldexp(1, k+1)
			floats = append(floats, v+d, -v+d, math.Nextafter(v, 0), math.Nextafter(-v, math.Inf(-1)))
		}
	}
	r := rand.New(rand.NewPCG(13, 14))
	all := []dtype.Type{dtype.F32, dtype.F64, dtype.I32, dtype.U32, dtype.I64, dtype.U64}
	for _, from := range all {
		for _, to := range all {
			p := expr.MustLower([]*expr.Expr{expr.X(0).Cvt(to)}, []dtype.Type{to}, []dtype.Type{from}, -1)
			n := len(whole)
			if from.IsFloat() {
				n = len(floats)
			}
			q := prepare(t, p, r, 1, n, 0)
			for k := range n {
				if from.IsFloat() {
					put(q.in[0][guard:], from, k, expr.Encode(from, floats[k]))
				} else {
					put(q.in[0][guard:], from, k, whole[k])
				}
			}
			q.run(t)
		}
	}
}

// TestTruthsOfBothSizes combines truth values of comparisons in lanes of 32 and of 64 bits, and
// uses them for choices of both sizes.
func TestTruthsOfBothSizes(t *testing.T) {
	if !canRun(t) {
		return
	}
	r := rand.New(rand.NewPCG(15, 16))
	f, d, b := expr.X(0), expr.X(1), expr.X(2)
	short, long := f.Lt(expr.C(0.5)), d.Gt(expr.C(-1))
	for _, e := range []*expr.Expr{
		short.And(long), long.And(short), short.Or(b), b.Xor(short), long.Xor(b), short.Not(), long.Not(),
		b.Select(short, long), short.Select(long, b), long.Select(b, short), short.Xor(expr.Param(0, dtype.Bool)), long.And(expr.Param(0, dtype.Bool)),
	} {
		in := []dtype.Type{dtype.F32, dtype.I64, dtype.Bool}
		outs := []*expr.Expr{e, e.Select(f, f.Neg()), e.Select(d, d.Neg()), e.Cvt(dtype.I64), e.Cvt(dtype.F32), e.Cvt(dtype.F64)}
		p := expr.MustLower(outs, []dtype.Type{dtype.Bool, dtype.F32, dtype.I64, dtype.I64, dtype.F32, dtype.F64}, in, -1)
		for _, n := range []int{1, 3, 4, 5, 37} {
			prepare(t, p, r, 1, n, 0).run(t)
		}
	}
}

// TestCanFold checks which folds a loop can compute. With AVX2, a loop with 64-bit values has four
// lanes. Such a loop cannot sum float32, because the accumulators would need all registers.
func TestCanFold(t *testing.T) {
	x := expr.X(0)
	for _, c := range []struct {
		e    *expr.Expr
		t    dtype.Type
		can  bool
		kind FoldKind
	}{
		{x.Neg(), dtype.F32, true, Sum}, {x.Cvt(dtype.F64).Sqrt().Cvt(dtype.F32), dtype.F32, false, Sum},
		{x.Cvt(dtype.F64).Sqrt().Cvt(dtype.F32), dtype.F32, true, Max}, {x.Cvt(dtype.F64), dtype.F64, true, Sum},
	} {
		p := expr.MustLower([]*expr.Expr{c.e}, []dtype.Type{c.t}, []dtype.Type{dtype.F32}, -1)
		l := prepare(t, p, rand.New(rand.NewPCG(1, 1)), 1, 5, 0).loop
		l.Fold = &Fold{Value: p.Outs[0], Kind: c.kind}
		for _, l.AVX2 = range []bool{false, true} {
			if got := l.CanFold(); got != (c.can || !l.AVX2) {
				t.Errorf("AVX2 %v, fold %d of %v: %v", l.AVX2, c.kind, c.t, got)
			}
		}
	}
}
