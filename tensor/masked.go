package tensor

import (
	"bytes"
	"unsafe"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// truePositions returns the row-major positions of the elements of x that are not 0, in ascending
// order. The number of positions, 8 bytes, is copied to the host, because it is the result's size.
// So truePositions waits for the device.
func (x *Tensor) truePositions(op string) *Tensor {
	x.shapedByValues(op)
	return within(x.scope, func(c *Scope) *Tensor {
		c.modes.noGrad = true
		m := c.On(x.st.dev).Typed(dtype.I64)
		mask, n := x.detachedIn(c), x.Size()
		if n == 0 {
			return m.Empty(0)
		}
		if mask.dtype != boolType {
			mask = mask.NeScalar(0)
		}
		mask = mask.reshape(shape.Of(n))
		if x.st.buf.Host() != nil {
			at := mask.bytes(op)
			out := m.Empty(n - bytes.Count(at, []byte{0}))
			listTrue(out.st.buf.Host(), at)
			return out
		}
		// Find all positions by a binary search in one op. A scatter would process the elements one
		// after the other.
		counts := mask.CumSum(0)
		some := int(counts.Select(0, n-1).Item())
		k := m.Arange(some).reshape(shape.Of(1, some))
		return Apply(searchFunc{op, true}, counts.reshape(shape.Of(1, n)), k).reshape(shape.Of(some))
	})
}

// listTrue fills list with the positions of the bytes of mask that are not 0. list has room for one
// int64 for each such byte.
func listTrue(list, mask []byte) {
	n := len(list) / 8
	if n == 0 {
		return
	}
	out := unsafe.Slice((*int64)(unsafe.Pointer(&list[0])), n)
	for i, k := 0, 0; k < n; i++ {
		out[k] = int64(i) // if mask[i] is 0, the next write replaces this one
		if mask[i] != 0 {
			k++
		}
	}
}

// coordinates returns the indices in dimension d for row-major positions x in a tensor of shape s.
func (x *Tensor) coordinates(s shape.Dims, d int) *Tensor {
	if n := s.Tail(d + 1).Size(); n > 1 {
		x = x.FloorDivideScalar(float64(n))
	}
	if d > 0 {
		x = x.RemainderScalar(float64(max(1, s.At(d))))
	}
	return x
}

// Nonzero returns the indices of the elements that are not 0 in row-major order, int64 of shape [n,
// rank]. NaN is not 0. It copies n, 8 bytes, to the host, and so waits for the device.
func (x *Tensor) Nonzero() *Tensor {
	const op = "nonzero"
	x.use(op)
	p := x.truePositions(op)
	defer p.Free()
	if x.Rank() == 1 { // the returned view keeps the memory of p
		return p.reshape(shape.Of(p.Size(), 1))
	}
	return within(x.scope, func(c *Scope) *Tensor {
		if x.Rank() == 0 {
			return c.On(x.st.dev).Typed(dtype.I64).Empty(p.Size(), 0)
		}
		columns := make([]*Tensor, x.Rank())
		for d := range columns {
			columns[d] = p.In(c).coordinates(x.layout.Shape, d)
		}
		return Stack(1, columns...)
	})
}

// NonzeroTuple returns the columns of [Tensor.Nonzero]: one vector for each dimension, which
// [Tensor.Index] accepts. A tensor of rank 0 counts as a vector of one element.
func (x *Tensor) NonzeroTuple() []*Tensor {
	const op = "nonzero"
	x.use(op)
	p := x.truePositions(op)
	defer p.Free()
	s := padTo(x.layout.Shape, 1)
	columns := make([]*Tensor, s.Rank())
	for d := range columns {
		columns[d] = within(x.scope, func(c *Scope) *Tensor { return p.In(c).coordinates(s, d) })
	}
	return columns
}

// masked checks mask, and returns the common shape to which x and mask broadcast.
func (x *Tensor) masked(op string, mask *Tensor, more ...*Tensor) shape.Dims {
	in := append([]*Tensor{x, mask}, more...)
	youngest(op, in)
	sameDevice(op, in)
	if mask.dtype != boolType {
		panic(newError(op, ErrType, in, "the mask is "+mask.dtype.String()+", it must be bool").hint("compare to get one"))
	}
	s := broadcast(op, in[:2])
	x.fits(op, s)
	return s
}

// MaskedSelect returns the elements of x where the bool tensor mask is true, as a vector in
// row-major order. x and mask are broadcast to a common shape. MaskedSelect copies the number of
// elements, 8 bytes, to the host, and so waits for the device. Where and MaskedFill do not wait.
func (x *Tensor) MaskedSelect(mask *Tensor) *Tensor {
	const op = "masked_select"
	s := x.masked(op, mask)
	return within(youngest(op, []*Tensor{x, mask}), func(c *Scope) *Tensor {
		flat := shape.Of(s.Size())
		return x.In(c).expand(s).reshape(flat).indexSelect(op, 0, mask.In(c).expand(s).truePositions(op))
	})
}

// nextOp computes, for each element that is replaced, the position of the new value in the source.
// For other elements it computes 0. Its operands are the mask, and the number of elements replaced
// so far.
var nextOp = &Elementwise{Name: "masked_scatter", Arity: 2, Result: Integral, NoGrad: true, Expr: x0.Select(x1.Sub(expr.C(1)), expr.C(0)), Fixed: 1}

// MaskedScatter returns x with some elements replaced, as torch.masked_scatter does. Where the bool
// tensor mask is true, the next element of src, in row-major order, replaces the element of x. x
// and mask are broadcast to a common shape. src has x's type. It is an index error if src has fewer
// elements than are replaced. A GPU reports the error at the next wait. Nothing is copied to the
// host.
func (x *Tensor) MaskedScatter(mask, src *Tensor) *Tensor {
	const op = "masked_scatter"
	s := x.masked(op, mask, src)
	if src.dtype != x.dtype {
		panic(newError(op, ErrType, []*Tensor{x, mask, src}, "source is "+src.dtype.String()+", the tensor "+x.dtype.String()).hint("use Cast"))
	}
	own := youngest(op, []*Tensor{x, mask, src})
	if y := x.maskedScatterHere(own, s, mask, src); y != nil {
		return y
	}
	return within(own, func(c *Scope) *Tensor {
		n := s.Size()
		table := src.In(c).reshape(shape.Of(src.Size()))
		which := mask.In(c).expand(s).reshape(shape.Of(n))
		before := which.CumSum(0)
		if src.Size() == 0 { // the op below reads an element of src even if it replaces nothing
			table, before = Cat(0, table, c.On(x.st.dev).Typed(x.dtype).Zeros(1)), before.AddScalar(1)
		}
		picked := table.indexSelect(op, 0, nextOp.Apply([]*Tensor{which, before})).reshape(s)
		return Where(mask, picked, x.In(c))
	})
}

// maskedScatterHere computes MaskedScatter on the host in one pass. It returns nil if an operand
// is empty, is not contiguous in the host's memory, or must be broadcast. It also returns nil if
// the op is recorded for a gradient or a capture, or if a mode asks for other ops or for
// checks. If src has too few elements it returns nil as well, so that the caller finds the
// error.
func (x *Tensor) maskedScatterHere(s *Scope, sh shape.Dims, mask, src *Tensor) *Tensor {
	const op = "masked_scatter"
	in := []*Tensor{x, mask, src}
	dev := x.st.dev
	if !isHost(dev) || s.modes.composed || s.modes.anomaly != 0 || s.route(op, dev).graph != nil || wantsGrad(op, s, in) {
		return nil
	}
	if x.layout.Shape != sh || mask.layout.Shape != sh || sh.Size() == 0 || src.Size() == 0 {
		return nil
	}
	for _, t := range in {
		if !t.layout.Contiguous() {
			return nil
		}
		t.awaitWrites(op)
	}
	y := alloc(op, s, dev, x.dtype, sh)
	enough := false
	switch x.dtype.Size() {
	case 1:
		enough = replaceTrue[uint8](y, x, mask, src)
	case 2:
		enough = replaceTrue[uint16](y, x, mask, src)
	case 4:
		enough = replaceTrue[uint32](y, x, mask, src)
	case 8:
		enough = replaceTrue[uint64](y, x, mask, src)
	}
	if !enough {
		y.Free()
		return nil
	}
	return y
}

// replaceTrue sets the elements of y. Where mask is true they become the next elements of src, and
// elsewhere the elements of x. replaceTrue reports whether src has enough elements. The loop does
// not branch on the mask, because a processor would often predict the branch wrongly.
func replaceTrue[T uint8 | uint16 | uint32 | uint64](y, x, mask, src *Tensor) bool {
	which, from, next := hostElements[uint8](mask), hostElements[T](x), hostElements[T](src)
	to := hostElements[T](y)[:len(which)]
	from = from[:len(which)]
	k, last := 0, len(next)-1
	for i, m := range which {
		all := -T(m) // every bit is set if m is 1
		to[i] = next[min(k, last)]&all | from[i]&^all
		k += int(m)
	}
	return k <= len(next)
}

// MaskedScatterInPlace is [Tensor.MaskedScatter] in place, torch's masked_scatter_. mask must
// broadcast to x's shape.
func (x *Tensor) MaskedScatterInPlace(mask, src *Tensor) *Tensor {
	const op = "masked_scatter"
	if s := x.masked(op, mask, src); s != x.layout.Shape {
		fail(op, ErrShape, []*Tensor{x, mask, src}, "the result has shape %v, the tensor changed in place %v", s, x.layout.Shape)
	}
	return x.change(op, []*Tensor{mask, src}, func() *Tensor { return x.MaskedScatter(mask, src) }, func(s *Scope) {
		y := x.MaskedScatter(mask, src)
		run(op, s, castProgram(y.dtype, x.dtype), x, []*Tensor{y}, nil)
		y.Free()
	})
}
