//go:build linux && amd64 && !noasm

package jit

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestShortcuts compiles trigonometric functions. Their loops must have a shortcut, and their
// results must be equal to the interpreter's. The arguments of a vector are all small, all large,
// or mixed.
func TestShortcuts(t *testing.T) {
	if !canRun(t) {
		return
	}
	r := rand.New(rand.NewPCG(11, 12))
	x := expr.X(0)
	for name, e := range map[string]*expr.Expr{"sin": x.Sin(), "cos": x.Cos(), "tan": x.Tan(), "both": x.Sin().Add(x.Cos())} {
		for _, typ := range []dtype.Type{dtype.F32, dtype.F64} {
			p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{typ}, []dtype.Type{typ}, -1)
			q := prepare(t, p, r, 2, 203, 0)
			for _, avx2 := range []bool{false, true} {
				q.loop.AVX2 = avx2
				if c := traced(q.loop); c.short == nil || 2*len(c.short.loop.Steps) > len(c.Steps)+20 {
					t.Errorf("%s of %v has no shortcut, or a long one (AVX2: %v)", name, typ, avx2)
				}
			}
			for _, rare := range []int{0, 1, 30, 100} { // number of large arguments in a hundred
				for k := range q.n * q.rows {
					v := r.NormFloat64()
					if r.IntN(100) < rare {
						v *= math.Exp2(100 * r.Float64())
					}
					put(q.in[0][guard:], typ, k, expr.Encode(typ, v))
				}
				put(q.in[0][guard:], typ, 5, expr.Encode(typ, math.NaN()))
				put(q.in[0][guard:], typ, 40, expr.Encode(typ, math.Inf(1)))
				q.run(t)
			}
		}
	}
}

// TestFoldsWithShortcuts combines the values of rows in loops that have a shorter body. Either body
// must combine each vector once.
func TestFoldsWithShortcuts(t *testing.T) {
	if !canRun(t) {
		return
	}
	const rows = 3
	r := rand.New(rand.NewPCG(15, 16))
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64} {
		p := expr.MustLower([]*expr.Expr{expr.X(0).Sin().Add(expr.X(1))}, []dtype.Type{typ}, []dtype.Type{typ, typ}, -1)
		for _, kind := range []FoldKind{Sum, Max} {
			for _, n := range []int{1, 7, 8, 15, 64, 203} {
				q := prepare(t, p, r, rows, n, 2)
				q.loop.Fold = &Fold{Value: p.Outs[0], Kind: kind, Reg: q.loop.Arena + 1}
				for k := range rows * n {
					v := r.NormFloat64()
					if k/11%2 == 1 {
						v *= 1e20
					}
					put(q.in[0][guard:], typ, k, expr.Encode(typ, v))
				}
				q.forEach(func() { testFoldOf(t, q, p, typ, typ, kind, false, true, n, rows) })
			}
		}
	}
}

// TestShortcutsWithTruths compiles a loop with a uniform truth value in a register. The whole body
// first uses the value in lanes of 32 bits, but the shorter body first uses it in lanes of 64 bits.
// The results must be right with either body.
func TestShortcutsWithTruths(t *testing.T) {
	if !canRun(t) {
		return
	}
	r := rand.New(rand.NewPCG(21, 22))
	x, b := expr.X(0), expr.Param(0, dtype.Bool)
	long := b.Select(x, x.Sqrt())
	for range 30 {
		long = long.Sqrt().Add(expr.C(1))
	}
	e := x.Abs().Lt(expr.C(1<<20)).Select(x, long)
	p := expr.MustLower([]*expr.Expr{e, b.Select(x.Cvt(dtype.F64), expr.C(1))}, []dtype.Type{dtype.F32, dtype.F64}, []dtype.Type{dtype.F32}, -1)
	q := prepare(t, p, r, 2, 203, 0)
	for k := range q.n * q.rows {
		v := r.NormFloat64()
		if k/40%2 == 1 {
			v *= math.Exp2(60)
		}
		put(q.in[0][guard:], dtype.F32, k, expr.Encode(dtype.F32, v))
	}
	param := q.loop.Same[0].Value
	q.loop.AVX2 = true
	if c := traced(q.loop); c.short == nil || c.values[param].truth == c.short.values[param].truth {
		t.Error("the loop has no shortcut, or both bodies begin with lanes of the same size")
	}
	for _, q.params[0] = range []uint64{0, 1} {
		q.run(t)
	}
}

// traced returns a compiler that has analysed the loop l.
func traced(l *Loop) *compiler {
	c := &compiler{Loop: l, lanes: 16, values: make([]value, len(l.Code)), registers: 32}
	if c.wide = !l.AVX2; l.AVX2 {
		c.registers = 16
	}
	c.analyse()
	return c
}

// TestNoShortcut compiles three choices that get no shortcut: one between short alternatives, one
// after a comparison with a small number, and one after a comparison other than "less than".
func TestNoShortcut(t *testing.T) {
	x := expr.X(0)
	long := x.Log().Add(x.Exp()).Log()
	for name, e := range map[string]*expr.Expr{
		"short sides":  x.Lt(expr.C(1<<20)).Select(x, x.Neg()),
		"small number": x.Lt(expr.C(2)).Select(x, long),
		"long before":  x.Gt(expr.C(1<<20)).Select(x, long),
	} {
		p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
		q := prepare(t, p, rand.New(rand.NewPCG(13, 14)), 1, 37, 0)
		if traced(q.loop).short != nil {
			t.Errorf("%s: the loop has a shortcut", name)
		}
	}
}
