package tensor

import (
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A Span is a range of indices of a dimension, for [Tensor.Index]; see [Range].
type Span struct{ start, stop, step int }

// Range is Python's start:stop, or start:stop:step, for [Tensor.Index]. Negative numbers count from
// the end. Indices outside of the dimension are cut off. [End] as stop means up to the end. With a
// negative step the range runs downwards, and the result is a copy ([Tensor.Slice]).
func Range(start, stop int, step ...int) Span {
	s := Span{start, stop, 1}
	if len(step) > 0 {
		s.step = step[0]
	}
	if len(step) > 1 {
		s.step = 0 // Index refuses a step of 0
	}
	return s
}

// All is Python's ":", a whole dimension, for [Tensor.Index].
var All = Span{0, End, 1}

// An IndexMark is [Ellipsis] or [NewAxis].
type IndexMark uint8

// In [Tensor.Index], Ellipsis stands for all dimensions that the other arguments do not index.
// NewAxis inserts a dimension of size 1.
const (
	Ellipsis IndexMark = iota + 1
	NewAxis
)

// Index is Python's x[…]. Each argument says what to select in the next dimension. Dimensions
// without an argument are selected whole.
//
//   - an int selects one entry and removes the dimension; a negative int counts from the end
//   - [Range] and [All] select a range, as a view
//   - [Ellipsis] may occur once; [NewAxis] may occur several times
//   - a tensor of int64 or int32, or a []int, selects entries, and its shape replaces the
//     dimension; negative indices count from the end. A tensor of rank 0 selects an entry as an int
//     does, but its value is not copied to the host
//   - a tensor of bool indexes as many dimensions as it has, and their sizes must equal its own. It
//     selects the entries where it is true, in one dimension. Their number, 8 bytes, is copied to
//     the host, which waits for the device. A bool, or a bool tensor of rank 0, inserts a dimension
//     of size 1 or 0
//
// Several index tensors are broadcast to a common shape and select entries pairwise. The common
// shape replaces the dimensions that they index if these are adjacent. Otherwise the common shape
// comes first in the result. As in PyTorch, and unlike in NumPy, an int does not count as an index
// tensor here.
//
// With only ints, ranges, Ellipsis and NewAxis the result is a view that shares x's memory.
// Otherwise it is a copy. Gradients flow to x, and are added up if an entry is selected several
// times. An index out of range is an error, which a GPU reports at the next wait.
func (x *Tensor) Index(ix ...any) *Tensor {
	const op = "index"
	p := x.plan(op, ix)
	if len(p.parts) == 0 {
		return p.view(x)
	}
	if index := p.only(); index != nil {
		places, wrap := index.fromEnd(op, youngest(op, []*Tensor{x, index}), x.Dim(0), x)
		defer freeView(nil, places, index)
		flat := places.reshape(shape.Of(index.Size()))
		defer freeView(nil, flat, places)
		return x.indexSelectBy(op, 0, flat, flat, wrap).reshaped(index.layout.Shape.Append(x.layout.Shape.Slice()[1:]...))
	}
	s := youngest(op, p.operands(x))
	if y := p.pairs(s); y != nil {
		return y
	}
	return within(s, func(c *Scope) *Tensor {
		return p.apply(x.In(c), p.combine(c, x))
	})
}

// pairs does the work of Index on the CPU for tensors of integers that index adjacent dimensions of
// the contiguous x. It needs no scope for intermediate tensors. It returns nil for other arguments.
func (p *indexPlan) pairs(s *Scope) *Tensor {
	x := p.x
	if len(p.parts) < 2 || !isHost(x.st.dev) || !p.isAll(x.layout.Shape) || !x.layout.Contiguous() {
		return nil
	}
	for _, q := range p.parts {
		if q.index == nil {
			return nil
		}
	}
	p.join()
	if p.axis != p.place || !slices.IsSorted(p.order) {
		return nil
	}
	places := p.positions(s)
	if places == nil {
		return nil
	}
	flat, rows := places.reshape(shape.Of(places.Size())), x.reshape(p.merged(p.extent()))
	y := rows.indexSelectBy(p.op, p.axis, flat, flat, false).reshaped(p.result())
	return freeView(freeView(freeView(y, flat, places), places, nil), rows, x)
}

// only returns the plan's index tensor of integers if it is the only argument, as in x[rows]. It
// returns nil if there are other arguments, if the index tensor has rank 0, or if the result has
// too many dimensions.
func (p *indexPlan) only() *Tensor {
	if len(p.parts) != 1 || p.parts[0].dim != 0 || p.parts[0].index == nil || p.parts[0].index.Rank() == 0 || !p.isAll(p.x.layout.Shape) {
		return nil
	}
	index := p.parts[0].index
	if index.Rank()+p.x.Rank()-1 > shape.MaxRank { // join raises the error
		return nil
	}
	return index
}

// An indexPlan holds the arguments of Index, resolved for a tensor's shape. It describes a view of
// the tensor, and the dimensions of the view from which index tensors select.
type indexPlan struct {
	op    string
	x     *Tensor
	steps indexSteps
	shape shape.Dims // shape of the view
	flips []int      // dimensions of the view that must be reversed
	parts []indexPart
	// The method combine sets the fields below.
	order   []int      // the view's dimensions, with the indexed dimensions next to each other
	axis, n int        // order[axis : axis+n] are the indexed dimensions
	place   int        // position of the common shape in the result
	common  shape.Dims // common shape of the index tensors
	wrap    bool       // numbers below 0 in the combined index count from the end
	// the memory of short lists, so that few allocations are needed
	fewSteps [4]indexStep
	fewParts [2]indexPart
}

// An indexStep says what the view selects from one dimension of x, or that it inserts a dimension.
type indexStep struct {
	kind           stepKind
	first, n, step int
}

type indexSteps []indexStep

type stepKind uint8

const (
	stepSelect stepKind = iota // one entry, whose index is first
	stepSpan                   // n entries: first, first+step, …
	stepNew                    // a new dimension of size 1
)

// An indexPart is an argument that indexes dimensions dim … dim+rank-1 of the view by a tensor or a
// list.
type indexPart struct {
	dim, rank int
	index     *Tensor // integers; for a mask the row-major positions where it is true
	mask      *Tensor
	list      []int64 // indices that were given as numbers; index and mask are nil then
	known     bool    // the indices are known to be in range
}

// region returns the layout of the view of a tensor with layout l.
func (list indexSteps) region(l shape.Layout) shape.Layout {
	out := shape.Layout{Offset: l.Offset}
	d := 0
	for _, s := range list {
		if s.kind == stepNew {
			out.Shape, out.Strides = out.Shape.Append(1), out.Strides.Append(1)
			continue
		}
		by := l.Strides.At(d)
		if s.kind == stepSelect || s.n > 0 {
			out.Offset += s.first * by
		}
		if d++; s.kind == stepSpan {
			out.Shape, out.Strides = out.Shape.Append(s.n), out.Strides.Append(by*s.step)
		}
	}
	return out
}

// isAll reports whether the view of a tensor of shape s has all its elements, in their order.
func (p *indexPlan) isAll(s shape.Dims) bool {
	d := 0
	for _, st := range p.steps {
		if st.kind != stepSpan || st.n != s.At(d) || st.step != 1 {
			return false
		}
		d++
	}
	return len(p.flips) == 0
}

// view returns x with all parts of the plan applied except the index tensors. The view is
// differentiable.
func (p *indexPlan) view(x *Tensor) *Tensor {
	y := x.region(p.op, p.steps.region)
	if len(p.flips) > 0 {
		return y.Flip(p.flips...)
	}
	return y
}

// operands appends the index tensors of the plan to the given list.
func (p *indexPlan) operands(more ...*Tensor) []*Tensor {
	for _, q := range p.parts {
		if q.mask != nil {
			more = append(more, q.mask)
		} else if q.list == nil {
			more = append(more, q.index)
		}
	}
	return more
}

func (x *Tensor) plan(op string, ix []any) *indexPlan {
	x.use(op)
	p := &indexPlan{op: op, x: x}
	p.steps, p.parts = p.fewSteps[:0], p.fewParts[:0]
	consumed, dots := 0, -1
	for k, v := range ix {
		switch v := v.(type) {
		case IndexMark:
			if v == Ellipsis {
				if dots >= 0 {
					fail(op, ErrValue, []*Tensor{x}, "argument %d is a second Ellipsis", k)
				}
				dots = k
			}
		case bool:
		case *Tensor:
			v.use(op)
			if consumed++; v.dtype == boolType {
				consumed += v.Rank() - 1
			}
		default:
			consumed++
		}
	}
	if consumed > x.Rank() {
		fail(op, ErrShape, []*Tensor{x}, "%d dimensions are indexed, the tensor has %d", consumed, x.Rank())
	}
	d := 0
	for k, v := range ix {
		if k == dots {
			d = p.spans(d, x.Rank()-consumed)
			continue
		}
		d = p.add(d, k, v)
	}
	if dots < 0 {
		p.spans(d, x.Rank()-d)
	}
	if p.shape.Rank() > shape.MaxRank {
		fail(op, ErrShape, []*Tensor{x}, "the result has %d dimensions, at most %d are supported", p.shape.Rank(), shape.MaxRank)
	}
	if len(p.parts) > 0 {
		in := p.operands(x)
		youngest(op, in)
		sameDevice(op, in)
	}
	return p
}

// spans selects n whole dimensions of x, from d on, and returns the next dimension.
func (p *indexPlan) spans(d, n int) int {
	for range n {
		p.step(indexStep{stepSpan, 0, p.x.layout.Shape.At(d), 1})
		d++
	}
	return d
}

func (p *indexPlan) step(s indexStep) {
	p.steps = append(p.steps, s)
	switch {
	case s.kind == stepSelect:
		return
	case p.shape.Rank() == shape.MaxRank:
		fail(p.op, ErrShape, []*Tensor{p.x}, "the result has more than %d dimensions", shape.MaxRank)
	}
	p.shape = p.shape.Append(s.n)
}

// add resolves v, which is argument k and indexes dimension d. It returns the next dimension.
func (p *indexPlan) add(d, k int, v any) int {
	in := []*Tensor{p.x}
	size := func() int { return p.x.layout.Shape.At(d) }
	inside := func(i int) int {
		if i < -size() || i >= size() {
			fail(p.op, ErrIndex, in, "index %d is out of range for dimension %d of size %d", i, d, size())
		}
		if i < 0 {
			i += size()
		}
		return i
	}
	dim := p.shape.Rank()
	switch v := v.(type) {
	case int:
		p.step(indexStep{stepSelect, inside(v), 1, 1})
		return d + 1
	case Span:
		if v.step == 0 {
			fail(p.op, ErrValue, in, "argument %d is a range with a step of 0, or with several", k)
		}
		first, n, step, down := spanOf(size(), v.start, v.stop, v.step)
		if p.step(indexStep{stepSpan, first, n, step}); down && n > 1 {
			p.flips = append(p.flips, dim)
		}
		return d + 1
	case IndexMark:
		if v != NewAxis {
			fail(p.op, ErrValue, in, "argument %d is no mark that there is", k)
		}
		p.step(indexStep{stepNew, 0, 1, 1})
		return d
	case bool:
		p.step(indexStep{stepNew, 0, 1, 1})
		p.parts = append(p.parts, indexPart{dim: dim, rank: 1, list: make([]int64, int(indicator(v)))})
		return d
	case []int:
		list := make([]int64, len(v))
		for j, i := range v {
			list[j] = int64(inside(i))
		}
		p.parts = append(p.parts, indexPart{dim: dim, rank: 1, list: list})
		return p.spans(d, 1)
	case *Tensor:
		switch {
		case v.dtype == dtype.I64 || v.dtype == dtype.I32:
			p.parts = append(p.parts, indexPart{dim: dim, rank: 1, index: v})
			return p.spans(d, 1)
		case v.dtype != boolType:
			e := newError(p.op, ErrType, []*Tensor{p.x, v}, "argument "+itoa(k)+" is a tensor of "+v.dtype.String()+"; indices are int64 or int32, masks are bool")
			panic(e.hint("use Cast"))
		case v.Rank() == 0:
			p.step(indexStep{stepNew, 0, 1, 1})
			p.parts = append(p.parts, indexPart{dim: dim, rank: 1, mask: v.reshape(shape.Of(1))})
			return d
		}
		for i := range v.Rank() {
			if n, m := v.layout.Shape.At(i), p.x.layout.Shape.At(d+i); n != m {
				fail(p.op, ErrShape, []*Tensor{p.x, v}, "the mask has size %d in its dimension %d, the tensor %d in dimension %d", n, i, m, d+i)
			}
		}
		p.parts = append(p.parts, indexPart{dim: dim, rank: v.Rank(), mask: v})
		return p.spans(d, v.Rank())
	}
	fail(p.op, ErrType, in, "argument %d is a %T; there are int, Range, All, Ellipsis, NewAxis, []int, bool and *Tensor", k, v)
	return 0
}
