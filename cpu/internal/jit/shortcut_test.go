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
			if c := traced(q.loop); c.short == nil || 2*len(c.short.loop.Steps) > len(c.Steps)+20 {
				t.Errorf("%s of %v has no shortcut, or a long one", name, typ)
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

// traced returns a compiler that has analysed the loop l for AVX-512.
func traced(l *Loop) *compiler {
	c := &compiler{Loop: l, lanes: 16, values: make([]value, len(l.Code)), registers: 32}
	c.wide = true
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
