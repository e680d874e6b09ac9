package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

type spaceKey struct {
	t   dtype.Type
	log bool
}

var spacePrograms cache[spaceKey, *expr.Program]

// spaceProgram returns the program for evenly spaced numbers, computed in float64 and rounded once.
// Its parameters are start, end, step, the number of steps, half the number of elements, and the
// base for log. The second half is computed backwards from end, so that the last number is exactly
// end.
func spaceProgram(t dtype.Type, log bool) *expr.Program {
	return spacePrograms.get(spaceKey{t, log}, func() *expr.Program {
		p := func(i int) *expr.Expr { return expr.Param(i, dtype.F64) }
		i := expr.Index(dtype.I64).Cvt(dtype.F64)
		e := i.Lt(p(4)).Select(p(0).Add(p(2).Mul(i)), p(1).Sub(p(2).Mul(p(3).Sub(i))))
		if log {
			e = p(5).Pow(e)
		}
		return expr.MustLower([]*expr.Expr{e}, []dtype.Type{t}, nil, -1)
	})
}

func (m Maker) space(op string, start, end float64, n int, log bool, base float64) *Tensor {
	if n < 0 {
		fail(op, ErrValue, nil, "%d steps", n)
	}
	if math.IsNaN(start-start) || math.IsNaN(end-end) {
		fail(op, ErrValue, nil, "no steps lead from %v to %v", start, end)
	}
	x := m.make(op, m.floatType(), []int{n})
	start, end = fitted(op, x.dtype, start), fitted(op, x.dtype, end)
	step, half := 0.0, float64(n/2)
	if n > 1 {
		step = end/float64(n-1) - start/float64(n-1)
	} else {
		half = 1
	}
	run(op, m.s, spaceProgram(x.dtype, log), x, nil, []float64{start, end, step, float64(n - 1), half, base})
	return x
}

// Linspace returns n evenly spaced numbers from start to end, both included. If n is 1 the number
// is start. For an integer type, start and end lose their fractions first. The numbers between them
// lose theirs afterwards: Linspace(0.5, 5.7, 4) is 0, 1, 3, 5. The type must be able to hold start
// and end, as for [Tensor.Fill].
func (m Maker) Linspace(start, end float64, n int) *Tensor {
	return m.space("linspace", start, end, n, false, 0)
}

// Logspace returns n powers of base, whose exponents are evenly spaced from start to end. For an
// integer type the exponents start and end lose their fractions, but the exponents between them
// keep their fractions. The powers lose their fractions at the end.
func (m Maker) Logspace(start, end float64, n int, base float64) *Tensor {
	return m.space("logspace", start, end, n, true, base)
}

// Linspace returns n float32 numbers from start to end on the scope's device; see [Maker.Linspace].
func (s *Scope) Linspace(start, end float64, n int) *Tensor {
	return s.Typed(dtype.Invalid).Linspace(start, end, n)
}

// Linspace returns n float32 numbers from start to end in the root scope, on the CPU; see
// [Maker.Linspace].
func Linspace(start, end float64, n int) *Tensor { return root.Linspace(start, end, n) }

// Logspace returns n float32 powers of base on the scope's device; see [Maker.Logspace].
func (s *Scope) Logspace(start, end float64, n int, base float64) *Tensor {
	return s.Typed(dtype.Invalid).Logspace(start, end, n, base)
}
