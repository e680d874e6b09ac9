package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/shape"
)

// viewFunc is the [Function] that records a view in the graph.
type viewFunc struct {
	name string
	vjp  func(c *Context, g *Tensor) *Tensor
	part *part // the range of one axis that the view selects from its base; nil for other views
}

func (f *viewFunc) Name() string { return f.name }

// Forward is never called: Tensor.view makes views.
func (f *viewFunc) Forward(*Context, []*Tensor) *Tensor { panic("tensor: " + f.name + " is a view") }

func (f *viewFunc) VJP(c *Context, g *Tensor) []*Tensor { return []*Tensor{f.vjp(c, g)} }

// view makes a view of x with layout l. vjp computes the gradient of x from the gradient of the
// view.
func (x *Tensor) view(op string, l shape.Layout, vjp func(c *Context, g *Tensor) *Tensor) *Tensor {
	y, grad := x.unrecordedView(op, l)
	if grad {
		y.attachView(x, vjp, nil)
	}
	return y
}

// unrecordedView makes a view of x with layout l. If it reports true, the caller calls attachView.
// Otherwise the caller need not allocate a function that computes the gradient.
func (x *Tensor) unrecordedView(op string, l shape.Layout) (y *Tensor, grad bool) {
	y = x.handle(op, x.scope, l)
	if !x.scope.modes.noGrad {
		if y.viewed = x.viewed; x.viewed == nil {
			y.viewed = x
		}
	}
	return y, wantsGrad(op, x.scope, []*Tensor{x})
}

// attachView adds y, a view of x, to the graph. vjp computes the gradient of x from the gradient of
// y. p is the range of one axis that the view selects from x, or nil for other views.
func (y *Tensor) attachView(x *Tensor, vjp func(c *Context, g *Tensor) *Tensor, p *part) {
	record(y, &viewFunc{y.op, vjp, p}, []*Tensor{x}, nil)
}

// Reshape returns the elements in the given shape. The result is a view if the layout allows it,
// and otherwise a copy. One size may be -1: it is computed from the other sizes.
func (x *Tensor) Reshape(dims ...int) *Tensor {
	x.use("reshape")
	return x.reshape(x.inferShape("reshape", dims))
}

// View does what [Tensor.Reshape] does, but never copies. It panics if the layout does not allow a
// view.
func (x *Tensor) View(dims ...int) *Tensor {
	x.use("view")
	s := x.inferShape("view", dims)
	if _, ok := x.layout.View(s); !ok {
		e := newError("view", ErrShape, []*Tensor{x}, "strides "+x.layout.Strides.String()+" do not allow shape "+s.String()+" without a copy")
		panic(e.hint("use Reshape"))
	}
	return x.reshape(s)
}

func (x *Tensor) inferShape(op string, dims []int) shape.Dims {
	if len(dims) > shape.MaxRank {
		fail(op, ErrShape, []*Tensor{x}, "%d dimensions, at most %d are supported", len(dims), shape.MaxRank)
	}
	s := shape.Of(dims...)
	at, known := -1, 1
	for i, d := range dims {
		switch {
		case d == -1 && at < 0:
			at = i
		case d < 0:
			fail(op, ErrShape, []*Tensor{x}, "invalid shape %v: a size is negative or two are -1", s)
		case d != 0 && known > math.MaxInt/d:
			fail(op, ErrShape, []*Tensor{x}, "shape %v has too many elements", s)
		default:
			known *= d
		}
	}
	if at >= 0 {
		if known == 0 || x.Size()%known != 0 {
			fail(op, ErrShape, []*Tensor{x}, "shape %v is invalid for %d elements", s, x.Size())
		}
		s = s.With(at, x.Size()/known)
	}
	if s.Size() != x.Size() {
		fail(op, ErrShape, []*Tensor{x}, "shape %v has %d elements, the tensor %d", s, s.Size(), x.Size())
	}
	return s
}

// reshape does what Reshape does, for a shape of the same size.
func (x *Tensor) reshape(s shape.Dims) *Tensor {
	from := x.layout.Shape
	if from == s {
		return x
	}
	l, ok := x.layout.View(s)
	if !ok {
		y := x.Contiguous()
		defer y.Free() // the view keeps y's memory
		return y.reshape(s)
	}
	y, grad := x.unrecordedView("reshape", l)
	if grad {
		y.attachView(x, func(_ *Context, g *Tensor) *Tensor { return g.reshape(from) }, nil)
	}
	return y
}

// Flatten joins dimensions start … end (inclusive) into one. Negative dimensions count from the
// end.
func (x *Tensor) Flatten(start, end int) *Tensor {
	x.use("flatten")
	if x.Rank() == 0 {
		return x.reshape(shape.Of(1))
	}
	a, b := x.axis("flatten", start), x.axis("flatten", end)
	if a > b {
		fail("flatten", ErrShape, []*Tensor{x}, "start %d lies behind end %d", start, end)
	}
	var s shape.Dims
	n := 1
	for i := range x.Rank() {
		d := x.layout.Shape.At(i)
		switch {
		case i < a || i > b:
			s = s.Append(d)
		case i == b:
			s = s.Append(n * d)
		default:
			n *= d
		}
	}
	return x.reshape(s)
}

// Transpose returns x with dimensions i and j swapped, as a view.
func (x *Tensor) Transpose(i, j int) *Tensor {
	x.use("transpose")
	a, b := x.axis("transpose", i), x.axis("transpose", j)
	if a == b {
		return x
	}
	y, grad := x.unrecordedView("transpose", x.layout.Transpose(a, b))
	if grad {
		y.attachView(x, func(_ *Context, g *Tensor) *Tensor { return g.Transpose(a, b) }, nil)
	}
	return y
}

// T returns the transposed matrix, as a view: the last two dimensions are swapped. A tensor of rank
// 0 or 1 is returned unchanged.
func (x *Tensor) T() *Tensor {
	x.use("t")
	if x.Rank() < 2 {
		return x
	}
	return x.Transpose(-2, -1)
}

// Permute returns x with its dimensions in the given order, as a view. Each dimension must be given
// exactly once.
func (x *Tensor) Permute(dims ...int) *Tensor {
	x.use("permute")
	if len(dims) != x.Rank() {
		fail("permute", ErrShape, []*Tensor{x}, "%d dimensions given for a tensor of rank %d", len(dims), x.Rank())
	}
	p, inverse := make([]int, len(dims)), make([]int, len(dims))
	seen := 0
	for i, d := range dims {
		p[i] = x.axis("permute", d)
		if seen>>p[i]&1 != 0 {
			fail("permute", ErrShape, []*Tensor{x}, "dimension %d appears twice", d)
		}
		seen |= 1 << p[i]
		inverse[p[i]] = i
	}
	return x.view("permute", x.layout.Permute(p), func(_ *Context, g *Tensor) *Tensor { return g.Permute(inverse...) })
}

// Expand returns x broadcast to the given shape, as a view. -1 keeps a size.
func (x *Tensor) Expand(dims ...int) *Tensor {
	x.use("expand")
	if len(dims) > shape.MaxRank || len(dims) < x.Rank() {
		fail("expand", ErrShape, []*Tensor{x}, "%d dimensions given for a tensor of rank %d", len(dims), x.Rank())
	}
	s := shape.Of(dims...)
	for i, d := range dims {
		at := i - (len(dims) - x.Rank())
		switch {
		case d == -1 && at >= 0:
			s = s.With(i, x.layout.Shape.At(at))
		case d < 0:
			fail("expand", ErrShape, []*Tensor{x}, "size %d of dimension %d", d, i)
		}
	}
	if _, ok := x.layout.Expand(s); !ok {
		e := newError("expand", ErrShape, []*Tensor{x}, "shape "+x.layout.Shape.String()+" does not expand to "+s.String()+": a size of 1 does, another stays")
		panic(e.hint("Repeat copies elements; -1 keeps a size"))
	}
	n := 1
	for i := range s.Rank() {
		if d := s.At(i); d != 0 && n > math.MaxInt/d {
			fail("expand", ErrShape, []*Tensor{x}, "shape %v has too many elements", s)
		}
		n *= s.At(i)
	}
	return x.expand(s)
}

func (x *Tensor) expand(s shape.Dims) *Tensor {
	from := x.layout.Shape
	if from == s {
		return x
	}
	l, ok := x.layout.Expand(s)
	if !ok {
		fail("expand", ErrShape, []*Tensor{x}, "shape %v does not expand to %v", from, s)
	}
	y, grad := x.unrecordedView("expand", l)
	if grad {
		y.attachView(x, func(_ *Context, g *Tensor) *Tensor { return g.sumTo(from) }, nil)
	}
	return y
}

// Unsqueeze inserts a dimension of size 1 before dimension i, as a view. A negative i counts from
// the end of the result: -1 makes the new dimension the last.
func (x *Tensor) Unsqueeze(i int) *Tensor {
	x.use("unsqueeze")
	n := x.Rank() + 1
	if i < -n || i >= n || n > shape.MaxRank {
		fail("unsqueeze", ErrShape, []*Tensor{x}, "dimension %d is out of range for a result of rank %d", i, n)
	}
	if i < 0 {
		i += n
	}
	from := x.layout.Shape
	y, grad := x.unrecordedView("unsqueeze", x.layout.Unsqueeze(i))
	if grad {
		y.attachView(x, func(_ *Context, g *Tensor) *Tensor { return g.reshape(from) }, nil)
	}
	return y
}

// Squeeze removes the given dimensions that have size 1, as a view. Without dims it removes all
// dimensions of size 1.
func (x *Tensor) Squeeze(dims ...int) *Tensor {
	x.use("squeeze")
	mask, _ := x.axes("squeeze", dims)
	l, from := x.layout, x.layout.Shape
	for i := x.Rank() - 1; i >= 0; i-- {
		if mask>>i&1 != 0 && l.Shape.At(i) == 1 {
			l = l.Squeeze(i)
		}
	}
	if l.Shape == from {
		return x
	}
	y, grad := x.unrecordedView("squeeze", l)
	if grad {
		y.attachView(x, func(_ *Context, g *Tensor) *Tensor { return g.reshape(from) }, nil)
	}
	return y
}

// Contiguous returns x itself if its elements are dense in row-major order, and otherwise a
// contiguous copy.
func (x *Tensor) Contiguous() *Tensor {
	x.use("contiguous")
	if x.layout.Contiguous() {
		return x
	}
	return x.Clone()
}

// Clone returns a contiguous copy of x. Gradients flow through it.
func (x *Tensor) Clone() *Tensor { return cloneOp.Apply([]*Tensor{x}) }

// copied does what Clone does, but records no graph. The copy belongs to s.
func (x *Tensor) copied(s *Scope) *Tensor {
	in := []*Tensor{x}
	y := alloc("clone", s, x.st.dev, x.dtype, x.layout.Shape)
	run("clone", s, cloneOp.program(in, x.dtype, x.dtype), y, in, nil)
	return y
}

// AsStrided returns the view of x's storage with the given sizes, strides and offset, counted in
// elements. If no offset is given, it is x's offset. The view may extend beyond x, but not beyond
// the storage. Strides must not be negative. Gradients flow to the elements of x. If x requires a
// gradient, it must not be an expanded tensor. If several elements of the view are one element of
// the storage, their gradients are added.
func (x *Tensor) AsStrided(dims, strides []int, offset ...int) *Tensor {
	const op = "as_strided"
	x.use(op)
	in := []*Tensor{x}
	if len(dims) != len(strides) || len(dims) > shape.MaxRank || len(offset) > 1 {
		fail(op, ErrShape, in, "%d sizes, %d strides and %d offsets; there must be as many strides as sizes, at most %d, and one offset or none", len(dims), len(strides), len(offset), shape.MaxRank)
	}
	l := shape.Layout{Shape: shape.Of(dims...), Strides: shape.Of(strides...), Offset: x.layout.Offset}
	if len(offset) == 1 {
		l.Offset = offset[0]
	}
	held := x.st.buf.Size() / x.dtype.Size()
	last, empty := l.Offset, false
	for i, d := range dims {
		if d < 0 || strides[i] < 0 {
			fail(op, ErrValue, in, "sizes %v and strides %v must not be negative", l.Shape, l.Strides)
		}
		empty = empty || d == 0
		if d > 1 && strides[i] > 0 {
			if d-1 > held/strides[i] || last > held {
				last = held
			} else {
				last += (d - 1) * strides[i]
			}
		}
	}
	if l.Offset < 0 || !empty && last >= held {
		e := newError(op, ErrIndex, in, "sizes "+l.Shape.String()+" and strides "+l.Strides.String()+" from an offset of "+itoa(l.Offset)+" on leave the storage, which holds "+itoa(held)+" elements")
		panic(e)
	}
	if !empty {
		x.fits(op, l.Shape)
	}
	if x.needsGrad && !x.scope.modes.noGrad && x.layout.Overlaps() {
		e := newError(op, ErrGrad, in, "several elements of the tensor share one place, so that a gradient cannot be given back to them")
		panic(e.hint("use Contiguous or Detach first"))
	}
	return x.asStrided(l)
}
