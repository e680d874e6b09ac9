package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// Sorting compares integer keys, which [device.SortKey] computes. A greater element has a greater
// key. Equal keys are ordered by the position of the element in its row. So no two elements are
// equal in this order, and sorting is stable with any algorithm. A key of up to 32 bits is packed
// with the position into one int64, with the key in the upper bits.

// packs reports whether keys of elements of type t have at most 32 bits, so that they can be packed
// with the position.
func packs(t dtype.Type) bool { return t != dtype.F64 && t != dtype.I64 }

// sortStep is the key of a program for sorting in the cache. t and descending are set only for
// programs that depend on them.
type sortStep struct {
	name       string
	t          dtype.Type
	descending bool
}

var sortPrograms cache[sortStep, *expr.Program]

// sortProgram returns the program that computes the expressions in the list out, of type int64.
func sortProgram(step sortStep, out []*expr.Expr, in ...dtype.Type) *expr.Program {
	return sortPrograms.get(step, func() *expr.Program {
		types := make([]dtype.Type, len(out))
		for i := range types {
			types[i] = dtype.I64
		}
		return expr.MustLower(out, types, in, -1)
	})
}

// keyProgram computes, for each element, the integer by which it is sorted: the key packed with the
// position, or only the key.
func keyProgram(t dtype.Type, descending bool) *expr.Program {
	key := device.SortKey(t, descending)
	if packs(t) {
		key = key.Cvt(dtype.I64).Shl(expr.Bits(dtype.I64, 32)).Or(expr.X(1))
		return sortProgram(sortStep{"key", t, descending}, []*expr.Expr{key}, t, dtype.I64)
	}
	return sortProgram(sortStep{"key", t, descending}, []*expr.Expr{key}, t)
}

// orderProgram returns the program that puts two elements in order. An element is one packed
// integer, or a pair of a key and a position.
func orderProgram(packed bool) *expr.Program {
	a, b := expr.X(0), expr.X(1)
	if packed {
		return sortProgram(sortStep{name: "packed"}, []*expr.Expr{a.Min(b), a.Max(b)}, dtype.I64, dtype.I64)
	}
	i, j := expr.X(2), expr.X(3)
	swap := b.Lt(a).Or(b.Eq(a).And(j.Lt(i)))
	out := []*expr.Expr{swap.Select(b, a), swap.Select(a, b), swap.Select(j, i), swap.Select(i, j)}
	return sortProgram(sortStep{name: "pairs"}, out, dtype.I64, dtype.I64, dtype.I64, dtype.I64)
}

// positionsOf returns an int64 view [rows, n], in which each row holds the positions 0 … n-1.
func positionsOf(s *Scope, dev device.Device, rows, n int) *Tensor {
	return s.On(dev).Typed(dtype.I64).Arange(n).reshape(shape.Of(1, n)).expand(shape.Of(rows, n))
}

// argsortRows sorts each row of x. It returns the positions in x of the first k elements of each
// sorted row, with shape [rows, k].
func argsortRows(op string, s *Scope, x *Tensor, k int, descending bool) *Tensor {
	rows, n := x.layout.Shape.At(0), x.layout.Shape.At(1)
	var o *device.Argsort
	if rows > 0 && k > 0 {
		o = argsortOps.supported(s, x.st.dev, device.Argsort{Out: resultOf(dtype.I64, shape.Of(rows, k)), X: x.operand(), Descending: descending})
	}
	if o != nil {
		y := alloc(op, s, x.st.dev, dtype.I64, shape.Of(rows, k))
		launch(op, s, o, y, x)
		argsortOps.put(o)
		return y
	}
	if x.Size() == 0 || n == 1 {
		return positionsOf(s, x.st.dev, rows, n).Narrow(1, 0, k).Contiguous()
	}
	packed := packs(x.dtype)
	width := 1
	for width < n {
		width *= 2
	}
	at := positionsOf(s, x.st.dev, rows, width)
	keys := alloc(op, s, x.st.dev, dtype.I64, shape.Of(rows, width))
	// Fill up the rows with keys that sort last. An equal key of x comes before them, because its
	// position is lower.
	if width > n {
		fill := sortProgram(sortStep{name: "fill"}, []*expr.Expr{expr.Bits(dtype.I64, math.MaxInt64)})
		run(op, s, fill, keys.Narrow(1, n, width-n), nil, nil)
	}
	in := []*Tensor{x, at.Narrow(1, 0, n)}
	list := []*Tensor{keys}
	if !packed {
		in = in[:1]
		list = append(list, at.Contiguous())
	}
	run(op, s, keyProgram(x.dtype, descending), keys.Narrow(1, 0, n), in, nil)
	network(op, s, list, orderProgram(packed))
	if !packed {
		return list[1].Narrow(1, 0, k).Contiguous()
	}
	y := alloc(op, s, x.st.dev, dtype.I64, shape.Of(rows, k))
	place := sortProgram(sortStep{name: "place"}, []*expr.Expr{expr.X(0).And(expr.Bits(dtype.I64, math.MaxUint32))}, dtype.I64)
	run(op, s, place, y, []*Tensor{keys.Narrow(1, 0, k)}, nil)
	return y
}

// network sorts rows in place by Batcher's odd-even merges. The tensors in list together represent
// one value, and the number of columns is a power of 2. Each step orders disjoint pairs of elements
// that have the same distance. One view holds the first elements of the pairs, and another view
// holds the second elements (K. E. Batcher: Sorting networks and their applications, 1968).
func network(op string, s *Scope, list []*Tensor, order *expr.Program) {
	rows, width := list[0].layout.Shape.At(0), list[0].layout.Shape.At(1)
	for p := 1; p < width; p *= 2 {
		for k := p; k > 0; k /= 2 {
			views := make([]*Tensor, 0, 2*len(list))
			for _, t := range list {
				blocks := t.reshape(shape.Of(rows, width/(2*p), 2*p))
				// the first k and the last k elements of a block are in order already
				if k < p {
					blocks = blocks.Narrow(2, k, 2*p-2*k)
				}
				pairs := blocks.Unflatten(2, -1, 2, k)
				views = append(views, pairs.Select(3, 0), pairs.Select(3, 1))
			}
			runMap(op, s, order, views, views, nil)
		}
	}
}

// orderFunc sorts each row and returns the positions of the first k elements.
type orderFunc struct {
	op         string
	k          int
	descending bool
}

func (f orderFunc) Name() string { return f.op }

func (f orderFunc) Forward(c *Context, in []*Tensor) *Tensor {
	return argsortRows(f.op, c.Scope(), in[0], f.k, f.descending)
}

func (orderFunc) VJP(*Context, *Tensor) []*Tensor { return []*Tensor{nil} }

// ordered returns the positions, along axis a, of the first k elements in sorted order.
func (x *Tensor) ordered(op string, a, k int, descending bool) *Tensor {
	if y := x.argsort(op, a, k, device.Argsort{Descending: descending}); y != nil {
		return y
	}
	return within(x.scope, func(c *Scope) *Tensor {
		t := x.In(c).Detach()
		if x.Rank() == 0 {
			return Apply(orderFunc{op, k, descending}, t.reshape(shape.Of(1, 1))).reshape(shape.Dims{})
		}
		t = t.Transpose(a, -1)
		rows := t.layout.Shape.Remove(t.Rank() - 1).Size()
		y := Apply(orderFunc{op, k, descending}, t.reshape(shape.Of(rows, t.Dim(-1))))
		return y.reshape(t.layout.Shape.With(t.Rank()-1, k)).Transpose(a, -1).Contiguous()
	})
}

// argsort runs o on the rows of x along axis a, and returns k positions for each row. The result is
// nil if the device does not support o, if there is nothing to do, or if the rows form no matrix.
func (x *Tensor) argsort(op string, a, k int, o device.Argsort) *Tensor {
	to, from := padTo(x.layout.Shape, 1).With(a, k), x.layout
	if x.Rank() == 0 {
		from = from.Unsqueeze(0)
	}
	if from.Size() == 0 || k == 0 {
		return nil
	}
	last, n := to.Rank()-1, from.Shape.At(a)
	rows := from.Size() / n
	in, ok := from.Transpose(a, last).View(shape.Of(rows, n))
	out, also := shape.Dense(to).Transpose(a, last).View(shape.Of(rows, k))
	if !ok || !also {
		return nil
	}
	o.Out, o.X = device.View{Type: dtype.I64, Layout: out}, device.View{Type: x.dtype, Layout: in}
	p := argsortOps.supported(x.scope, x.st.dev, o)
	if p == nil {
		return nil
	}
	if t := device.Tracing(); t != nil {
		defer t.End(tracedOp(t, device.SpanOp, op, nil, []*Tensor{x}))
	}
	if x.Rank() == 0 {
		to = x.layout.Shape
	}
	y := alloc(op, x.scope, x.st.dev, dtype.I64, to)
	launch(op, x.scope, p, y, x)
	argsortOps.put(p)
	return y
}

// takeAt returns the elements of x at the given positions along axis a. Gradients flow through it.
func (x *Tensor) takeAt(op string, a int, positions *Tensor) *Tensor {
	if x.Rank() == 0 {
		return x.Clone()
	}
	return Apply(takenFunc{gatherFunc{a, op}}, x, positions)
}

// Sort returns the elements along a dimension in ascending or descending order, and their positions
// in it, int64. It is always stable: equal elements keep their order. 0 and -0 are equal, and NaN
// is the greatest. Each element gets its gradient back at its old position.
func (x *Tensor) Sort(dim int, descending bool) (values, indices *Tensor) {
	x.use("sort")
	a := x.axis("sort", dim)
	indices = x.ordered("sort", a, x.length(a), descending)
	return x.takeAt("sort", a, indices), indices
}

// Argsort returns the positions, int64, that sort a dimension. They are [Tensor.Sort]'s second
// result.
func (x *Tensor) Argsort(dim int, descending bool) *Tensor {
	x.use("argsort")
	a := x.axis("argsort", dim)
	return x.ordered("argsort", a, x.length(a), descending)
}
