//go:build linux && amd64 && !noasm

package jit

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestChains compiles programs with fmod. The steps of fmod must be found as chains, and the
// results must be equal to the interpreter's. The quotients of a vector are all small, all large,
// or mixed.
func TestChains(t *testing.T) {
	if !canRun(t) {
		return
	}
	r := rand.New(rand.NewPCG(7, 8))
	for _, c := range []struct {
		t      dtype.Type
		chains int
	}{{dtype.F32, 1}, {dtype.F64, 3}} {
		p := expr.MustLower([]*expr.Expr{expr.X(0).Fmod(expr.X(1))}, []dtype.Type{c.t}, []dtype.Type{c.t, c.t}, -1)
		q := prepare(t, p, r, 1, 203, 0)
		loop := &compiler{Loop: q.loop, lanes: 8, values: make([]value, len(q.loop.Code)), registers: 32}
		loop.wide = true
		loop.analyse()
		if len(loop.chains) != c.chains {
			t.Errorf("fmod of %v has %d chains, want %d", c.t, len(loop.chains), c.chains)
		}
		// maximum number of binary digits of the random quotients
		for _, span := range []float64{3, 60, 120, 250} {
			for k := range q.n {
				x, y := r.NormFloat64(), r.NormFloat64()
				put(q.in[0][guard:], c.t, k, expr.Encode(c.t, x*math.Exp2(span*r.Float64()/2)))
				put(q.in[1][guard:], c.t, k, expr.Encode(c.t, y*math.Exp2(-span*r.Float64()/2)))
			}
			q.run(t)
		}
	}
}

// TestNoChain stores an inner value of the steps as a result. The steps must then not form a chain.
func TestNoChain(t *testing.T) {
	if !canRun(t) {
		return
	}
	x, y := expr.X(0), expr.X(1)
	step := func(r *expr.Expr) (next, quotient *expr.Expr) {
		q := r.Div(y).Trunc()
		return q.Neg().FMA(y, r), q
	}
	first, _ := step(x)
	second, q := step(first)
	for _, outs := range [][]*expr.Expr{{second, q}, {second, first}} {
		p := expr.MustLower(outs, []dtype.Type{dtype.F32, dtype.F32}, []dtype.Type{dtype.F32, dtype.F32}, -1)
		prepare(t, p, rand.New(rand.NewPCG(9, 10)), 2, 37, 0).run(t)
	}
}

// TestSecondDivisions divides integers in two steps. The second step must be found, and the results
// must be equal to the interpreter's. The quotients of a vector are all small, all large, or mixed.
func TestSecondDivisions(t *testing.T) {
	if !canRun(t) {
		return
	}
	r := rand.New(rand.NewPCG(17, 18))
	x, y := expr.X(0), expr.X(1)
	divide := func(a, y *expr.Expr) *expr.Expr { return a.Cvt(dtype.F64).Div(y.Cvt(dtype.F64)).Trunc().Cvt(dtype.I64) }
	steps := func(y *expr.Expr) (first, more, product, rest *expr.Expr) {
		first = divide(x, y)
		left := x.Sub(first.Mul(y))
		more = divide(left, y)
		product = more.Mul(y)
		return first, more, product, left.Sub(product)
	}
	first, more, product, rest := steps(y)
	_, _, _, ofParam := steps(expr.Param(0, dtype.I64))
	for k, c := range []struct {
		outs   []*expr.Expr
		chains int
	}{
		{[]*expr.Expr{rest}, 1}, {[]*expr.Expr{first.Add(more), rest}, 1}, {[]*expr.Expr{rest.Cvt(dtype.F64).Sqrt(), more}, 1}, {[]*expr.Expr{ofParam}, 1},
		{[]*expr.Expr{rest, product}, 0}, {[]*expr.Expr{more}, 0},
	} {
		out := make([]dtype.Type, len(c.outs))
		p := expr.MustLower(c.outs, out, []dtype.Type{dtype.I64, dtype.I64}, -1)
		q := prepare(t, p, r, 1, 203, 0)
		q.loop.AVX2 = true
		loop := &compiler{Loop: q.loop, lanes: 8, values: make([]value, len(q.loop.Code)), registers: 16}
		loop.analyse()
		if len(loop.chains) != c.chains {
			t.Errorf("program %d has %d second steps, want %d\n%s", k, len(loop.chains), c.chains, p)
		}
		for _, large := range []int{0, 1, 30, 100} { // number of large quotients in a hundred
			for k := range q.n {
				a, b := r.Int64N(1<<40)-1<<39, r.Int64N(1000)-500
				if r.IntN(100) < large {
					a, b = int64(r.Uint64()), r.Int64N(9)-4
				}
				put(q.in[0][guard:], dtype.I64, k, uint64(a))
				put(q.in[1][guard:], dtype.I64, k, uint64(b))
			}
			q.run(t)
		}
	}
}
