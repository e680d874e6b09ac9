package tensor

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// FoldOptions say how the windows of [Tensor.Unfold2d] and [Tensor.Fold] move. Each list has either
// one number for height and width, or one number for each. Kernel must be given.
type FoldOptions struct {
	Kernel   []int // size of the windows
	Stride   []int // distance between windows; nil means 1
	Padding  []int // zeros on both sides; nil means 0
	Dilation []int // distance between the elements of a window; nil means 1
}

// foldGrid returns the geometry of windows over an image of the given height and width.
func foldGrid(op string, x *Tensor, o FoldOptions, height, width int) (g grid) {
	in := []*Tensor{x}
	if len(o.Kernel) == 0 {
		fail(op, ErrValue, in, "no size of the kernel is given")
	}
	g.rank, g.in = 2, [3]int{height, width}
	g.kernel = sizesFor(op, in, "kernel", 2, o.Kernel, 1, 1)
	g.stride = sizesFor(op, in, "stride", 2, o.Stride, 1, 1)
	g.before = sizesFor(op, in, "padding", 2, o.Padding, 0, 0)
	g.dilation = sizesFor(op, in, "dilation", 2, o.Dilation, 1, 1)
	g.behind = g.before
	for i := range 2 {
		if g.in[i] < 1 || g.span(i) > g.wide(i) {
			fail(op, ErrShape, in, "a window of %d (kernel %d, dilation %d) is larger than the image of %d with padding in dimension %d: %d",
				g.span(i), g.kernel[i], g.dilation[i], g.in[i], i-2, g.wide(i))
		}
		g.out[i] = (g.wide(i)-g.span(i))/g.stride[i] + 1
	}
	return g
}

// Unfold2d returns the windows of images x, [n, channels, height, width] or the same without n, as
// columns, as torch's F.unfold does. The shape is [n, channels·kernel height·kernel width, number
// of windows]. Windows may overlap, and contain zeros of the padding. The result is a copy, of any
// element type. [Tensor.Unfold] returns windows along one dimension as a view.
func (x *Tensor) Unfold2d(o FoldOptions) *Tensor {
	const op = "unfold2d"
	x.checkSpatial(op, 2)
	g := foldGrid(op, x, o, x.Dim(-2), x.Dim(-1))
	return batchedConv(x, 2, func(x *Tensor) *Tensor { return Apply(&unfold2dFunc{g, x.Dim(1)}, x) })
}

// Fold adds columns x, [n, channels·kernel height·kernel width, number of windows] or the same
// without n, to images of the given height and width, as torch's F.fold does. It puts elements
// where [Tensor.Unfold2d] reads them. Elements from several windows are added in a fixed order.
// Elements in the padding are dropped. 16-bit floats are added in float32. bool is refused.
func (x *Tensor) Fold(height, width int, o FoldOptions) *Tensor {
	const op = "fold"
	x.use(op)
	in := []*Tensor{x}
	if x.Rank() != 2 && x.Rank() != 3 {
		fail(op, ErrShape, in, "needs columns of 3 dimensions, or 2 without a batch, they have shape %v", x.Shape())
	}
	if x.dtype == boolType {
		fail(op, ErrType, in, "is not defined for bool")
	}
	g := foldGrid(op, x, o, height, width)
	if rows := x.Dim(-2); rows%g.taps() != 0 || x.Dim(-1) != g.places() {
		e := newError(op, ErrShape, in, fmt.Sprintf("columns have %d elements, which %d, the size of a window, must divide, and there are %d; the image has %d windows",
			rows, g.taps(), x.Dim(-1), g.places()))
		panic(e)
	}
	return batchedConv(x, 1, func(x *Tensor) *Tensor { return Apply(&foldFunc{g, x.Dim(1) / g.taps()}, x) })
}

// unfold2dFunc and foldFunc are each the gradient of the other.
type unfold2dFunc struct {
	grid
	channels int
}

func (f *unfold2dFunc) Name() string { return "unfold2d" }

func (f *unfold2dFunc) Forward(c *Context, in []*Tensor) *Tensor {
	s, x := c.Scope(), in[0]
	n := x.Dim(0)
	y := alloc(f.Name(), s, x.st.dev, x.dtype, shape.Of(n, f.channels*f.taps(), f.places()))
	f.unfold(f.Name(), s, y.reshape(f.columnShape(n, f.channels)), x)
	return y
}

func (f *unfold2dFunc) VJP(_ *Context, g *Tensor) []*Tensor {
	return []*Tensor{Apply(&foldFunc{f.grid, f.channels}, g)}
}

type foldFunc struct {
	grid
	channels int
}

func (f *foldFunc) Name() string { return "fold" }

func (f *foldFunc) Forward(c *Context, in []*Tensor) *Tensor {
	s, x := c.Scope(), in[0]
	n := x.Dim(0)
	y := alloc(f.Name(), s, x.st.dev, x.dtype, f.shaped(n, f.channels, f.in))
	f.fold(f.Name(), s, y, x.reshape(f.columnShape(n, f.channels)), nil, false)
	return y
}

func (f *foldFunc) VJP(_ *Context, g *Tensor) []*Tensor {
	return []*Tensor{Apply(&unfold2dFunc{f.grid, f.channels}, g)}
}

// window returns the description of the grid's windows for a primitive of the device.
func (g *grid) window() device.Window {
	return device.Window{Rank: g.rank, Kernel: g.kernel, Stride: g.stride, Dilation: g.dilation, Before: g.before}
}

// columnShape returns the shape of the elements of all windows, [n, c, kernel…, out…].
func (g *grid) columnShape(n, c int) shape.Dims {
	return g.shaped(n, c, g.kernel).Append(g.out[:g.rank]...)
}

// unfold sets y, [n, c, kernel…, out…], to the elements of the windows of x, [n, c, in…]. Elements
// in the padding are 0.
func (g *grid) unfold(op string, s *Scope, y, x *Tensor) {
	if y.Size() == 0 {
		return
	}
	if o := unfoldOps.supported(s, y.st.dev, device.Unfold{Y: y.operand(), X: x.operand(), Window: g.window()}); o != nil {
		launch(op, s, o, y, x)
		unfoldOps.put(o)
		y.st.version.Add(1)
		return
	}
	padded := g.pad(op, s, x, 0)
	y.store(op, s, padded.handle(op, s, g.windows(padded.layout)))
}

// fold sets each element of y, [n, c, in…], to the sum of the window elements at its position. If
// add is set, it adds the sums to y. x holds the window elements, [n, c, kernel…, out…]. If w, [c,
// kernel…], is not nil, element k of a window is multiplied by w's element k. Window elements in
// the padding are left out. The terms of a sum are added in the order of k, in the type in which y
// is computed. y is rounded once.
func (g *grid) fold(op string, s *Scope, y, x, w *Tensor, add bool) {
	if y.Size() == 0 {
		return
	}
	o := device.Fold{Y: y.operand(), X: x.operand(), Window: g.window(), Add: add}
	if w != nil {
		o.W = w.operand()
	}
	if o := foldOps.supported(s, y.st.dev, o); o != nil {
		launch(op, s, o, y, x, w)
		foldOps.put(o)
		y.st.version.Add(1)
		return
	}
	t := y.dtype.Compute()
	switch {
	case t != y.dtype:
		wide := alloc(op, s, y.st.dev, t, y.layout.Shape)
		if add {
			wide.store(op, s, y)
		}
		g.fold(op, s, wide, x, w, add)
		y.store(op, s, wide)
	case !g.unpadded():
		wide := alloc(op, s, y.st.dev, t, g.padded(y.Dim(0), y.Dim(1))).fill(0)
		in := g.cut(op, s, wide)
		if add {
			in.store(op, s, y)
		}
		g.addElements(op, s, wide, x, w)
		y.store(op, s, in)
	default:
		if !add {
			y.fill(0)
		}
		g.addElements(op, s, y, x, w)
	}
}

// foldKey identifies the program with which the method addElements adds one element of every
// window.
type foldKey struct {
	from, to dtype.Type
	weighted bool
}

var foldPrograms cache[foldKey, *expr.Program]

func foldProgram(from, to dtype.Type, weighted bool) *expr.Program {
	return foldPrograms.get(foldKey{from, to, weighted}, func() *expr.Program {
		types := []dtype.Type{to, from}
		e := expr.X(0).Add(expr.X(1))
		if weighted {
			types = append(types, from)
			if e = expr.X(0).Add(expr.X(1).Mul(expr.X(2))); to.IsFloat() {
				e = expr.X(1).FMA(expr.X(2), expr.X(0))
			}
		}
		return expr.MustLower([]*expr.Expr{e}, []dtype.Type{to}, types, -1)
	})
}

// addElements adds the elements of windows x to y, a padded tensor [n, c, …]. It makes one pass for
// each element k of a window, over all windows. x and w are as for the method fold.
func (g *grid) addElements(op string, s *Scope, y, x, w *Tensor) {
	p := foldProgram(x.dtype, y.dtype, w != nil)
	for k := range g.taps() {
		to, lx := y.handle(op, s, g.tap(y.layout, k)), x.layout
		var lw shape.Layout
		if w != nil {
			lw = w.layout
		}
		for i, left := g.rank-1, k; i >= 0; i-- {
			lx = lx.Select(2+i, left%g.kernel[i])
			if w != nil {
				lw = lw.Select(1+i, left%g.kernel[i])
			}
			left /= g.kernel[i]
		}
		from := x.handle(op, s, lx)
		in := []*Tensor{to, from}
		if w != nil {
			for range g.rank {
				lw = lw.Unsqueeze(1)
			}
			in = append(in, w.handle(op, s, lw))
		}
		run(op, s, p, to, in, nil)
		for _, t := range in {
			t.Free()
		}
	}
	y.st.version.Add(1)
}

// repeated returns windows for the method fold to add. All elements of a window are the same
// number. terms, [n, c, out…], holds the number of each window.
func (g *grid) repeated(op string, s *Scope, terms *Tensor) *Tensor {
	l := terms.layout
	w := shape.Layout{Offset: l.Offset, Shape: l.Shape.Head(2), Strides: l.Strides.Head(2)}
	for i := range g.rank {
		w.Shape, w.Strides = w.Shape.Append(g.kernel[i]), w.Strides.Append(0)
	}
	w.Shape, w.Strides = w.Shape.Append(l.Shape.Tail(2).Slice()...), w.Strides.Append(l.Strides.Tail(2).Slice()...)
	return terms.handle(op, s, w)
}
