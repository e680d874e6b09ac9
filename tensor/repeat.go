package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// around returns the number of elements of the dimensions before dimension a of s, and of the
// dimensions after it.
func around(s shape.Dims, a int) (outer, inner int) { return s.Head(a).Size(), s.Tail(a + 1).Size() }

// repeatAxis repeats dimension a as a whole n times. If interleave is true, it repeats each entry
// of the dimension n times in a row instead.
func (x *Tensor) repeatAxis(a, n int, interleave bool) *Tensor {
	s := x.layout.Shape
	outer, inner := around(s, a)
	from, to := shape.Of(outer, 1, s.At(a)*inner), shape.Of(outer, n, s.At(a)*inner)
	if interleave {
		from, to = shape.Of(outer*s.At(a), 1, inner), shape.Of(outer*s.At(a), n, inner)
	}
	return x.reshape(from).expand(to).reshape(s.With(a, n*s.At(a)))
}

// fits panics if the number of bytes of a tensor of shape s and x's type overflows an int.
func (x *Tensor) fits(op string, s shape.Dims) {
	n := x.dtype.Size()
	for i := range s.Rank() {
		n = x.grown(op, n, s.At(i))
	}
}

// grown returns n·k, and panics if the product overflows an int. n and k are numbers of elements or
// bytes.
func (x *Tensor) grown(op string, n, k int) int {
	if n > 0 && k > math.MaxInt/n {
		fail(op, ErrShape, []*Tensor{x}, "the result has too many elements")
	}
	return n * k
}

// repeat returns copies of x along each dimension. counts has one count for each dimension of the
// result.
func (x *Tensor) repeat(op string, counts []int) *Tensor {
	for i, n := range counts {
		if n < 0 {
			fail(op, ErrValue, []*Tensor{x}, "%d copies along dimension %d", n, i)
		}
	}
	to := padTo(x.layout.Shape, len(counts))
	for a, n := range counts {
		to = to.With(a, x.grown(op, to.At(a), n))
	}
	x.fits(op, to)
	return within(x.scope, func(c *Scope) *Tensor {
		y := x.In(c).reshape(padTo(x.layout.Shape, len(counts)))
		for a := len(counts) - 1; a >= 0; a-- {
			if counts[a] != 1 {
				y = y.repeatAxis(a, counts[a], false)
			}
		}
		if y.st == x.st {
			return y.Clone()
		}
		return y
	})
}

// Repeat returns counts[i] copies of x along each dimension i, as torch.Tensor.repeat does. There
// must be at least as many counts as dimensions. If there are more counts, the first of them make
// new dimensions. The result is a copy.
func (x *Tensor) Repeat(counts ...int) *Tensor {
	x.use("repeat")
	if len(counts) < x.Rank() || len(counts) > shape.MaxRank {
		e := newError("repeat", ErrShape, []*Tensor{x}, itoa(len(counts))+" counts for a tensor of rank "+itoa(x.Rank())+"; there must be at least one for each dimension, and at most "+itoa(shape.MaxRank))
		panic(e.hint("Tile takes fewer counts than dimensions"))
	}
	return x.repeat("repeat", counts)
}

// Tile does what [Tensor.Repeat] does, but also accepts fewer counts than x has dimensions. The
// counts are then for the last dimensions.
func (x *Tensor) Tile(counts ...int) *Tensor {
	x.use("tile")
	if len(counts) > shape.MaxRank {
		fail("tile", ErrShape, []*Tensor{x}, "%d counts, at most %d dimensions are supported", len(counts), shape.MaxRank)
	}
	all := append([]int(nil), counts...)
	for len(all) < x.Rank() {
		all = append([]int{1}, all...)
	}
	return x.repeat("tile", all)
}

// RepeatInterleave returns each entry of a dimension n times in a row. For torch's form without a
// dimension, flatten x first.
func (x *Tensor) RepeatInterleave(n, dim int) *Tensor {
	x.use("repeat_interleave")
	a := x.axisOf("repeat_interleave", dim)
	if n < 0 {
		fail("repeat_interleave", ErrValue, []*Tensor{x}, "%d copies", n)
	}
	x.fits("repeat_interleave", x.layout.Shape.With(a, x.grown("repeat_interleave", x.layout.Shape.At(a), n)))
	return within(x.scope, func(c *Scope) *Tensor {
		y := x.In(c)
		if n == 1 {
			return y.Clone()
		}
		return y.repeatAxis(a, n, true)
	})
}

// flipFunc reverses the order of entries along axes.
type flipFunc struct{ mask uint }

func (flipFunc) Name() string { return "flip" }

func (f flipFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	l := x.layout
	for a := range x.Rank() {
		if f.mask>>a&1 != 0 && l.Shape.At(a) > 0 {
			l.Offset += (l.Shape.At(a) - 1) * l.Strides.At(a)
			l.Strides = l.Strides.With(a, -l.Strides.At(a))
		}
	}
	s := c.Scope()
	y := alloc("flip", s, x.st.dev, x.dtype, l.Shape)
	// Only this view has negative strides. No other function sees it.
	v := x.handle("flip", s, l)
	defer v.Free()
	run("flip", s, castProgram(x.dtype, x.dtype), y, []*Tensor{v}, nil)
	return y
}

func (f flipFunc) lean(c *Context, in []*Tensor) *Tensor { return f.Forward(c, in) }

func (f flipFunc) VJP(_ *Context, g *Tensor) []*Tensor { return []*Tensor{Apply(f, g)} }

// Flip returns x with the order of entries reversed along dims. As in torch it is a copy, because
// strides are never negative.
func (x *Tensor) Flip(dims ...int) *Tensor {
	x.use("flip")
	var mask uint
	for _, d := range dims {
		a := x.axis("flip", d)
		if mask>>a&1 != 0 {
			fail("flip", ErrShape, []*Tensor{x}, "dimension %d appears twice", d)
		}
		mask |= 1 << a
	}
	return Apply(flipFunc{mask}, x)
}

// rollFunc moves entries along each axis. Entries that leave at the end enter again at the start.
type rollFunc struct {
	shifts shape.Dims // one shift for each dimension, between 0 and the dimension's size - 1
}

func (rollFunc) Name() string { return "roll" }

func (f rollFunc) Forward(_ *Context, in []*Tensor) *Tensor {
	y := in[0]
	for a := range y.Rank() {
		if k := f.shifts.At(a); k != 0 {
			n := y.layout.Shape.At(a)
			y = Cat(a, y.Narrow(a, n-k, k), y.Narrow(a, 0, n-k))
		}
	}
	if y == in[0] {
		return y.Clone()
	}
	return y
}

func (f rollFunc) VJP(_ *Context, g *Tensor) []*Tensor {
	back := f
	for a := range g.Rank() {
		if k := f.shifts.At(a); k != 0 {
			back.shifts = back.shifts.With(a, g.layout.Shape.At(a)-k)
		}
	}
	return []*Tensor{Apply(back, g)}
}

// Roll returns x with its entries moved by shifts[i] along dims[i]. Entries that leave at one end
// enter at the other end. A dimension that is given twice moves twice. Without dims there must be
// one shift. The flattened tensor then moves by it.
func (x *Tensor) Roll(shifts, dims []int) *Tensor {
	x.use("roll")
	if len(dims) == 0 && len(shifts) == 1 && x.Rank() != 1 {
		return within(x.scope, func(c *Scope) *Tensor {
			return x.In(c).reshape(shape.Of(x.Size())).Roll(shifts, []int{0}).reshape(x.layout.Shape)
		})
	}
	if len(dims) == 0 && len(shifts) == 1 {
		dims = []int{0}
	}
	if len(shifts) != len(dims) || len(dims) == 0 {
		fail("roll", ErrShape, []*Tensor{x}, "%d shifts for %d dimensions", len(shifts), len(dims))
	}
	var f rollFunc
	for range x.Rank() {
		f.shifts = f.shifts.Append(0)
	}
	for i, d := range dims {
		a := x.axisOf("roll", d)
		if n := x.layout.Shape.At(a); n > 0 {
			f.shifts = f.shifts.With(a, ((f.shifts.At(a)+shifts[i]%n)%n+n)%n)
		}
	}
	return Apply(f, x)
}

// RepeatInterleaveBy returns entry i of a dimension repeats[i] times in a row, as torch's
// repeat_interleave with a tensor does. repeats is a vector of integers. It holds one count for
// each entry, or one count for all. The size of the result is copied to the host, so the op waits
// for the work queued so far. Negative counts are an error.
func (x *Tensor) RepeatInterleaveBy(repeats *Tensor, dim int) *Tensor {
	const op = "repeat_interleave"
	in := []*Tensor{x, repeats}
	s := youngest(op, in)
	s.uncapturable(op, "the shape of the result depends on values, for which the host would wait")
	sameDevice(op, in)
	a := x.axisOf(op, dim)
	n := x.layout.Shape.At(a)
	if repeats.dtype.IsFloat() || repeats.dtype == boolType {
		e := newError(op, ErrType, in, "the counts must be integers, they are "+repeats.dtype.String())
		panic(e.hint("use Cast(dtype.I64)"))
	}
	if repeats.Rank() > 1 || repeats.Size() != n && repeats.Size() != 1 {
		fail(op, ErrShape, in, "the counts must be a vector of %d, the size of dimension %d, or of 1; their shape is %v", n, dim, repeats.Shape())
	}
	return within(s, func(c *Scope) *Tensor {
		y := x.In(c)
		if n == 0 {
			return y.Clone()
		}
		ends := repeats.In(c).Cast(dtype.I64).reshape(shape.Of(repeats.Size())).expand(shape.Of(n))
		// vast is true if counts are so great that their sum might wrap.
		wrong, vast := ends.LtScalar(0).Any(), ends.GtScalar(float64(1<<52/int64(n))).Any()
		ends = ends.CumSum(0)
		total := int(ends.Select(0, -1).MaskedFill(vast, -2).MaskedFill(wrong, -1).Item())
		switch total {
		case -1:
			fail(op, ErrValue, in, "a count is negative")
		case -2:
			fail(op, ErrValue, in, "a count is so great that the result has too many elements")
		}
		x.fits(op, x.layout.Shape.With(a, total))
		at := ends.Searchsorted(c.On(x.st.dev).Typed(dtype.I64).Arange(total), true)
		return y.indexSelect(op, a, at)
	})
}
