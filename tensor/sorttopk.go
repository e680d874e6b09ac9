package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// length returns the size of axis a, or 1 if x has rank 0.
func (x *Tensor) length(a int) int {
	if x.Rank() == 0 {
		return 1
	}
	return x.layout.Shape.At(a)
}

// TopK returns the k greatest elements along a dimension, or the k least, and their positions in
// it, int64. The greatest elements are in descending order, and the least elements in ascending
// order. If sorted is false, callers must not rely on the order. Among equal elements the first are
// returned. NaN is the greatest. The gradient goes to the returned elements.
func (x *Tensor) TopK(k, dim int, largest, sorted bool) (values, indices *Tensor) {
	x.use("topk")
	a := x.axis("topk", dim)
	n := x.length(a)
	if k < 0 || k > n {
		fail("topk", ErrValue, []*Tensor{x}, "k is %d, dimension %d has %d elements", k, dim, n)
	}
	_ = sorted // the results are always sorted, at no extra cost
	if x.Rank() == 0 {
		if k == 0 {
			e := newError("topk", ErrValue, []*Tensor{x}, "k is 0 for a tensor of rank 0, whose result has one element")
			panic(e.hint("Reshape to one dimension"))
		}
		indices = x.ordered("topk", 0, 1, largest)
	} else {
		indices = x.ordered("topk", a, k, largest)
	}
	return x.takeAt("topk", a, indices), indices
}

// oneDim resolves the dimension of an op that selects one element of each row.
func (x *Tensor) oneDim(op string, dims []int) (a int, keep bool) {
	dim, n := 0, 0
	for _, d := range dims {
		if d == KeepDim {
			keep = true
			continue
		}
		dim, n = d, n+1
	}
	if n != 1 {
		fail(op, ErrShape, []*Tensor{x}, "takes one dimension, not %d", n)
	}
	a = x.axis(op, dim)
	if x.length(a) == 0 {
		fail(op, ErrShape, []*Tensor{x}, "dimension %d has no elements to choose from", dim)
	}
	return a, keep
}

// selected returns one element of each row along axis a, and its position. The argument positions
// has the position for each row.
func (x *Tensor) selected(op string, a int, keep bool, positions *Tensor) (values, indices *Tensor) {
	values = x.takeAt(op, a, positions)
	if keep || x.Rank() == 0 {
		return values, positions
	}
	return values.Squeeze(a), positions.Squeeze(a)
}

// Kthvalue returns the k-th least element, counted from 1, along one dimension, and its position,
// int64. Add [KeepDim] to keep the dimension. NaN is the greatest. Equal elements are counted in
// the order of their positions. The gradient goes to the element at that position.
func (x *Tensor) Kthvalue(k int, dims ...int) (values, indices *Tensor) {
	x.use("kthvalue")
	a, keep := x.oneDim("kthvalue", dims)
	if n := x.length(a); k < 1 || k > n {
		fail("kthvalue", ErrValue, []*Tensor{x}, "k is %d, it must be from 1 to %d", k, n)
	}
	at := x.argsort("kthvalue", a, 1, device.Argsort{Pick: device.PickRank, Rank: k - 1})
	if at == nil {
		if at = x.ordered("kthvalue", a, k, false); x.Rank() > 0 {
			at = at.Narrow(a, k-1, 1).Contiguous()
		}
	}
	return x.selected("kthvalue", a, keep, at)
}

// medianAt returns the position of the median of each row along axis a. In the result, axis a has
// size 1. If nan is true, the median of a row that contains NaN is NaN. Otherwise NaN is ignored.
func (x *Tensor) medianAt(op string, a int, nan bool) *Tensor {
	if x.Rank() == 0 {
		return x.ordered(op, 0, 1, false)
	}
	pick := device.PickNanMedian
	if nan {
		pick = device.PickMedian
	}
	if at := x.argsort(op, a, 1, device.Argsort{Pick: pick}); at != nil {
		return at
	}
	return within(x.scope, func(c *Scope) *Tensor {
		t := x.In(c).Detach()
		n := x.length(a)
		order := t.ordered(op, a, n, false)
		if !x.dtype.IsFloat() {
			return order.Narrow(a, (n-1)/2, 1).Contiguous()
		}
		nans := t.IsNaN().Sum(a, KeepDim) // NaN sorts after all numbers
		var at *Tensor
		if nan {
			at = Where(nans.EqScalar(0), nans.FullLike(float64((n-1)/2)), nans.RSubScalar(float64(n)))
		} else {
			at = nans.RSubScalar(float64(n - 1)).ClampMin(0).FloorDivideScalar(2)
		}
		return Apply(gatherFunc{a, op}, order, at)
	})
}

func (x *Tensor) median(op string, nan bool, dims []int) (values, indices *Tensor) {
	x.use(op)
	given := 0
	for _, d := range dims {
		if d != KeepDim {
			given++
		}
	}
	if given == 0 {
		if len(dims) > 0 {
			fail(op, ErrShape, []*Tensor{x}, "there is no dimension to keep: the median of all elements has rank 0")
		}
		if x.Size() == 0 {
			if !x.dtype.IsFloat() {
				fail(op, ErrShape, []*Tensor{x}, "there are no elements to choose from")
			}
			return x.Sum().AddScalar(math.NaN()), x.Scope().On(x.st.dev).Typed(dtype.I64).Zeros()
		}
		flat := x.reshape(shape.Of(x.Size()))
		at := flat.medianAt(op, 0, nan)
		return Apply(sharedFunc{op}, flat, at), at.reshape(shape.Dims{})
	}
	a, keep := x.oneDim(op, dims)
	return x.selected(op, a, keep, x.medianAt(op, a, nan))
}

// sharedFunc returns the element of a vector at a position. All elements that equal it share the
// gradient.
type sharedFunc struct{ op string }

func (f sharedFunc) Name() string { return f.op }

func (f sharedFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x, at, s := in[0], in[1], c.Scope()
	y := alloc(f.op, s, x.st.dev, x.dtype, shape.Dims{})
	o := gatherOps.reuse(device.Gather{Out: y.operandAs(shape.Of(1)), Src: x.operand(), Index: at.operand(), Tag: lateTag(f.op, x, at, at)})
	launch(f.op, s, o, y, x, at)
	gatherOps.put(o)
	if c.Needs(0) {
		c.Save(x, y)
	}
	return y
}

func (f sharedFunc) lean(c *Context, in []*Tensor) *Tensor { return f.Forward(c, in) }

func (f sharedFunc) VJP(c *Context, g *Tensor) []*Tensor {
	x, y := c.Saved(0), c.Saved(1)
	hit := x.Eq(y).LogicalOr(x.IsNaN().LogicalAnd(y.IsNaN()))
	share := g.Div(hit.Sum()).expand(x.layout.Shape)
	return []*Tensor{share.MaskedFill(hit.LogicalNot(), 0), nil}
}

// Median returns the median along one dimension and its position, int64. Without a dimension it
// returns the median of the flattened tensor and its position. Add [KeepDim] to keep the dimension.
// For an even number of elements the median is the lower of the two middle elements. If a row
// contains NaN, Median returns the first NaN. For a tensor without elements it returns NaN at
// position 0. The gradient goes to the element at the returned position. Without a dimension all
// elements equal to the median share the gradient evenly.
func (x *Tensor) Median(dims ...int) (values, indices *Tensor) { return x.median("median", true, dims) }

// NanMedian is [Tensor.Median] of the elements that are not NaN. If a row contains only NaN, the
// result is NaN.
func (x *Tensor) NanMedian(dims ...int) (values, indices *Tensor) {
	return x.median("nanmedian", false, dims)
}

// Mode returns the most frequent element along one dimension, and the position, int64, of its last
// occurrence. Among equally frequent elements it returns the least. Add [KeepDim] to keep the
// dimension. NaN equals no other NaN. The gradient goes to the element at the position.
func (x *Tensor) Mode(dims ...int) (values, indices *Tensor) {
	x.use("mode")
	a, keep := x.oneDim("mode", dims)
	if x.Rank() == 0 {
		return x.Clone(), x.Scope().On(x.st.dev).Typed(dtype.I64).Zeros()
	}
	if at := x.argsort("mode", a, 1, device.Argsort{Pick: device.PickMode}); at != nil {
		return x.selected("mode", a, keep, at)
	}
	at := within(x.scope, func(c *Scope) *Tensor {
		t := x.In(c).Detach()
		sorted, order := t.Sort(a, false)
		n := x.length(a)
		at := alongAxis(c, t, a)
		// Find where each run of equal elements starts. Then compute the distance of each position
		// from the start of its run.
		fresh := sorted.Narrow(a, 1, n-1).Ne(sorted.Narrow(a, 0, n-1))
		first := c.On(t.st.dev).Typed(boolType).Zeros(t.layout.Shape.With(a, 1).Slice()...)
		starts, _ := at.Mul(Cat(a, first, fresh).Cast(dtype.I64)).CumMax(a)
		return Apply(gatherFunc{a, "mode"}, order, at.Sub(starts).Argmax(a, KeepDim))
	})
	return x.selected("mode", a, keep, at)
}

// alongAxis returns, for each element of the given tensor, its position along axis a, int64, as a
// view.
func alongAxis(s *Scope, like *Tensor, a int) *Tensor {
	sh := like.layout.Shape
	return expandVector(s.On(like.st.dev).Typed(dtype.I64).Arange(sh.At(a)), a, sh)
}
