package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// padding holds the sizes to add before and after each dimension.
type padding struct{ before, behind shape.Dims }

// paddings checks and returns the sizes in pads. pads are pairs of sizes, before and after,
// beginning with the last dimension, as for torch's F.pad.
func (x *Tensor) paddings(op string, pads []int) padding {
	x.use(op)
	if len(pads)%2 != 0 || len(pads)/2 > x.Rank() {
		e := newError(op, ErrShape, []*Tensor{x}, itoa(len(pads))+" sizes for a tensor of rank "+itoa(x.Rank()))
		panic(e.hint("give pairs, before and behind, of the last dimension first"))
	}
	var p padding
	for i := range x.Rank() {
		l, r := 0, 0
		if k := x.Rank() - 1 - i; 2*k < len(pads) {
			l, r = pads[2*k], pads[2*k+1]
		}
		p.before, p.behind = p.before.Append(l), p.behind.Append(r)
	}
	return p
}

// Pad returns x surrounded by elements of value v. pads are pairs of sizes, before and after,
// beginning with the last dimension, as for torch's F.pad. A negative size removes elements.
func (x *Tensor) Pad(v float64, pads ...int) *Tensor {
	p := x.paddings("pad", pads)
	to := x.layout.Shape
	y := x
	for i := range x.Rank() {
		l, r, n := p.before.At(i), p.behind.At(i), to.At(i)
		if max(l, r) > math.MaxInt/4 || min(l, r) < -math.MaxInt/4 || l+n+r < 0 {
			fail("pad", ErrShape, []*Tensor{x}, "sizes %d and %d leave %d elements of dimension %d", l, r, l+n+r, i)
		}
		to = to.With(i, l+n+r)
		// The indices first … last-1 of x remain after negative sizes have removed elements.
		first, last := max(0, -l), max(n-max(0, -r), max(0, -l))
		if first > 0 || last < n {
			y = y.region("pad", sliced(i, min(first, n), max(0, min(last, n)-first), 1))
		}
	}
	x.fits("pad", to)
	v = x.fittedNumber("pad", v)
	part := y.layout.Shape
	return Apply(&intoFunc{op: "pad", shape: to, fill: v, region: func(l shape.Layout) shape.Layout {
		for i := range part.Rank() {
			at := max(0, p.before.At(i))
			if part.At(i) == 0 {
				at = 0
			}
			l = l.Narrow(i, at, part.At(i), 1)
		}
		return l
	}}, y)
}

// padBy pads every dimension with x's own entries. The function index returns the program that maps
// the positions of the result, -before … size-1+behind, to entries of x. Negative sizes leave out
// positions at the ends.
func (x *Tensor) padBy(op string, p padding, index func() *expr.Program) *Tensor {
	return within(x.scope, func(c *Scope) *Tensor {
		y := x.In(c)
		for a := range x.Rank() {
			l, r, n := p.before.At(a), p.behind.At(a), x.layout.Shape.At(a)
			x.fits(op, y.layout.Shape.With(a, l+r+n))
			if l != 0 || r != 0 {
				y = y.selectBy(op, c, a, l+n+r, index(), float64(-l), float64(n-1))
			}
		}
		if y.st == x.st {
			return y.Clone()
		}
		return y
	})
}

// These are formulas for the index of the entry that a position reads. padded is the position.
// Positions before the first entry are negative. padLast is the position of the last entry.
var (
	padded      = expr.Index(dtype.I64).Add(expr.Param(0, dtype.I64))
	padLast     = expr.Param(1, dtype.I64)
	padReflect  = indexBy(padLast.Sub(padLast.Sub(padded.Abs()).Abs())) // mirrored at both ends
	padNearest  = indexBy(padded.Max(expr.C(0)).Min(padLast))
	padSize     = padLast.Add(expr.C(1))
	padCircular = indexBy(padded.Lt(expr.C(0)).Select(padded.Add(padSize), padded.Gt(padLast).Select(padded.Sub(padSize), padded)))
)

// check checks that each size is at most limit(n) for a dimension of size n, and that negative
// sizes do not remove more elements than there are.
func (p padding) check(op string, x *Tensor, why string, limit func(n int) int) {
	for a := range x.Rank() {
		l, r, n := p.before.At(a), p.behind.At(a), x.layout.Shape.At(a)
		if most := limit(n); max(l, r) > most {
			fail(op, ErrShape, []*Tensor{x}, "sizes %d and %d for dimension %d of size %d: %s", l, r, a, n, why)
		}
		if low := -math.MaxInt / 4; min(l, r) < 0 && (min(l, r) < low || l+n+r < 1) {
			fail(op, ErrShape, []*Tensor{x}, "sizes %d and %d leave nothing of dimension %d of size %d", l, r, a, n)
		}
	}
}

// PadReflect pads x with its own entries, mirrored at the first and the last entry, which are not
// repeated. For pads see [Tensor.Pad]. Each size must be less than its dimension. A negative size
// removes entries. As in torch, the mirror at the other end still repeats the removed entries.
func (x *Tensor) PadReflect(pads ...int) *Tensor {
	p := x.paddings("pad_reflect", pads)
	p.check("pad_reflect", x, "a reflection is smaller than the dimension", func(n int) int { return max(0, n-1) })
	return x.padBy("pad_reflect", p, padReflect)
}

// PadReplicate pads x with repetitions of its first and last entries. For pads see [Tensor.Pad]. A
// dimension without entries cannot be padded. A negative size removes entries. As in torch, the
// removed entries can still be repeated at the other end.
func (x *Tensor) PadReplicate(pads ...int) *Tensor {
	p := x.paddings("pad_replicate", pads)
	p.check("pad_replicate", x, "there is no entry to repeat, or it is too often", func(n int) int {
		if n == 0 {
			return 0
		}
		return math.MaxInt / 4
	})
	return x.padBy("pad_replicate", p, padNearest)
}

// PadCircular pads x with entries from its other end. For pads see [Tensor.Pad]. A negative size
// removes entries first. Each size must be at most the number of entries that are left in its
// dimension. For a larger size, torch returns uninitialised memory.
func (x *Tensor) PadCircular(pads ...int) *Tensor {
	const op = "pad_circular"
	p := x.paddings(op, pads)
	y := x
	for a := range x.Rank() {
		l, r, n := p.before.At(a), p.behind.At(a), x.layout.Shape.At(a)
		first, last := max(0, -l), max(0, -r)
		if first > n || last > n-first {
			fail(op, ErrShape, []*Tensor{x}, "sizes %d and %d cut off more than dimension %d has, %d", l, r, a, n)
		}
		if first+last > 0 {
			y = y.region(op, sliced(a, first, n-first-last, 1))
			p.before, p.behind = p.before.With(a, max(0, l)), p.behind.With(a, max(0, r))
		}
	}
	p.check(op, y, "it wraps around more than once", func(n int) int { return n })
	return y.padBy(op, p, padCircular)
}
