//go:build linux && amd64 && !noasm

package jit

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestChains compiles programs with fmod. Its steps must be found as chains, and the results must
// be equal to the interpreter's. The quotients of a vector are all small, all large, or mixed.
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
