package tensor

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// Windows of few elements are summed in passes. Each pass covers all windows: an elementwise
// program adds taps, which are views of the padded input. A reduction over the dimensions of the
// windows would be slow, because its inner loops would have only two or three steps.

// tapsAtOnce is the maximum number of taps that one pass adds.
const tapsAtOnce = 9

// passOf returns the number of taps of the program that is used for n taps. There are only programs
// for 4 taps and for tapsAtOnce taps. The caller adds operands for the taps that are missing.
func passOf(n int) int {
	if n <= 4 {
		return 4
	}
	return tapsAtOnce
}

// fewTaps is the greatest number of elements of a window for which passes are used.
const fewTaps = 4 * tapsAtOnce

type tapKey struct {
	from, to dtype.Type
	n        int
	weighted bool
}

var tapPrograms cache[tapKey, *expr.Program]

// tapProgram adds n taps to operand 0. If weighted, the taps are followed by n weights, and each
// tap is multiplied by its weight. Neighbouring taps are added first, so that rounding errors do
// not accumulate.
func tapProgram(from, to dtype.Type, n int, weighted bool) *expr.Program {
	return tapPrograms.get(tapKey{from, to, n, weighted}, func() *expr.Program {
		x := func(k int) *expr.Expr { return expr.X(1 + k).Cvt(to) }
		var sum func(lo, hi int) *expr.Expr
		sum = func(lo, hi int) *expr.Expr {
			switch {
			case hi-lo == 1 && weighted:
				return x(lo).Mul(x(n + lo))
			case hi-lo == 1:
				return x(lo)
			case hi-lo == 2 && weighted && to.IsFloat():
				return x(lo).FMA(x(n+lo), x(lo+1).Mul(x(n+lo+1)))
			}
			mid := (lo + hi) / 2
			return sum(lo, mid).Add(sum(mid, hi))
		}
		types := []dtype.Type{to}
		for range n {
			types = append(types, from)
		}
		if weighted {
			types = append(types, types[1:]...)
		}
		return expr.MustLower([]*expr.Expr{expr.X(0).Add(sum(0, n))}, []dtype.Type{to}, types, -1)
	})
}

// sumTaps returns the sums of the windows of x, [n, c, out…], in the type in which they are
// computed. x is [n, c, …] and padded already. If weight is not nil, tap k is multiplied by
// weight(k), which broadcasts.
func (g *grid) sumTaps(op string, c *Scope, x *Tensor, weight func(k int) *Tensor) *Tensor {
	t := x.dtype.Compute()
	to := g.shaped(x.Dim(0), x.Dim(1), g.out)
	if to.Size() == 0 {
		return alloc(op, c, x.st.dev, t, to)
	}
	// If neighbouring windows are neighbours in memory, all rows of windows are computed as one
	// long run. The run includes the elements between two rows, which the result leaves out.
	tap, whole := g.tap, to
	long := g.longRun(x.layout)
	if long > 0 {
		whole = g.runs(to, long+x.Dim(-1)-g.out[g.rank-1])
		tap = func(l shape.Layout, k int) shape.Layout {
			l = g.tap(l, k)
			l.Shape, l.Strides = g.runs(l.Shape, long), l.Strides.Remove(l.Shape.Rank()-2)
			return l
		}
	}
	y := alloc(op, c, x.st.dev, t, whole)
	out := y
	if whole != to {
		out = y.handle(op, c, y.layout.Narrow(whole.Rank()-1, 0, long, 1))
	}
	zero := c.On(x.st.dev).Typed(x.dtype).Full(0)
	sum := zero.Cast(t)
	for k := 0; k < g.taps(); {
		n := min(tapsAtOnce, g.taps()-k)
		in := []*Tensor{sum}
		for i := range n {
			in = append(in, x.handle(op, c, tap(x.layout, k+i)))
		}
		for range passOf(n) - n {
			in = append(in, zero)
		}
		for i := 0; i < n && weight != nil; i++ {
			w := weight(k + i)
			in = append(in, w.reshape(w.layout.Shape.Head(out.Rank())))
		}
		for i := n; i < passOf(n) && weight != nil; i++ {
			in = append(in, zero)
		}
		run(op, c, tapProgram(x.dtype, t, passOf(n), weight != nil), out, in, nil)
		sum, k = out, k+n
	}
	if whole == to {
		return y
	}
	l := shape.Dense(to)
	l.Strides = y.layout.Strides.With(y.Rank()-1, x.Dim(-1)).Append(1)
	return y.handle(op, c, l)
}

// longRun returns the length of one run over the last two dimensions of an input with layout l. The
// run holds all rows of windows, and the elements between the rows. It returns 0 if the rows do not
// follow each other in memory.
func (g *grid) longRun(l shape.Layout) int {
	r, last := g.rank, l.Shape.Rank()-1
	if r < 2 || g.stride[r-1] != 1 || g.stride[r-2] != 1 || g.out[r-2] == 1 || l.Strides.At(last) != 1 || l.Strides.At(last-1) != l.Shape.At(last) {
		return 0
	}
	return (g.out[r-2]-1)*l.Shape.At(last) + g.out[r-1]
}

// runs returns s with its last two sizes replaced by n.
func (g *grid) runs(s shape.Dims, n int) shape.Dims {
	return s.Head(s.Rank() - 2).Append(n)
}
