//go:build linux && amd64 && !noasm

package jit

import (
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestSteps runs loads of every second element, and loads in reverse order. The results must be
// equal to the interpreter's, and no load may read beyond the last element.
func TestSteps(t *testing.T) {
	if !canRun(t) || !canRunWide() {
		return
	}
	r := rand.New(rand.NewPCG(11, 12))
	x, y := expr.X(0), expr.X(1)
	for _, p := range []*expr.Program{
		expr.MustLower([]*expr.Expr{x.Add(y)}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32, dtype.F32}, -1),
		expr.MustLower([]*expr.Expr{x}, []dtype.Type{dtype.I32}, []dtype.Type{dtype.I32}, -1),
		// programs with lanes of 64 bits
		expr.MustLower([]*expr.Expr{x.Fmod(y)}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32, dtype.F32}, -1),
		expr.MustLower([]*expr.Expr{x.Cvt(dtype.F64).Mul(y)}, []dtype.Type{dtype.F64}, []dtype.Type{dtype.F32, dtype.F64}, -1),
		expr.MustLower([]*expr.Expr{x.Lt(y)}, []dtype.Type{dtype.Bool}, []dtype.Type{dtype.U32, dtype.U32}, -1),
	} {
		for _, n := range []int{1, 2, 7, 8, 9, 15, 16, 17, 33, 100} {
			for _, reads := range []Reads{{Second: 1}, {Back: 1}, {Second: 3}, {Back: 3}, {Second: 1, Back: 2}, {Once: 1, Back: 2}} {
				for _, rows := range []int{1, 3} {
					q := prepare(t, p, r, rows, n, 0)
					l := q.loop.With(reads)
					for i := range l.Loads {
						x := &l.Loads[i]
						if x.stepped() && !l.CanStep(i) {
							x.Step = 1
						}
						if k := l.Code[x.Value].Imm; x.stepped() && x.Step == 2 {
							m := beforeFault(t, (2*rows*n-1)*4)
							for e := range 2*rows*n - 1 {
								put(m[guard:], x.Type, e, stored(r, x.Type))
							}
							q.in[k] = m
						}
					}
					q.loop = l
					q.compare(t)
				}
			}
		}
	}
}
