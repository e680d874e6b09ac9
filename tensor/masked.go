package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// truePositions returns the row-major positions of the elements of x that are not 0, ascending.
// Their number decides the result's size: it is read back, 8 bytes, which waits for the device.
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
		counts := mask.CumSum(0)
		some := int(counts.Select(0, n-1).Item())
		// all are looked up at once, where a scatter would have an order
		if x.st.buf.Host() == nil {
			k := m.Arange(some).reshape(shape.Of(1, some))
			return Apply(searchFunc{op, true}, counts.reshape(shape.Of(1, n)), k).reshape(shape.Of(some))
		}
		// Each goes to the place that the number of those before it gives; the others meet in a
		// place behind the last.
		place := counts.AddScalar(-1).MaskedFill(mask.LogicalNot(), float64(some))
		out := m.Empty(some + 1)
		out.scatter(op, c, device.ScatterSet, 0, m.Arange(n), place)
		return out.Narrow(0, 0, some)
	})
}

// coordinates turns row-major positions in a tensor of shape s into those in dimension d.
func (x *Tensor) coordinates(s shape.Dims, d int) *Tensor {
	return x.FloorDivideScalar(float64(max(1, s.Tail(d+1).Size()))).RemainderScalar(float64(max(1, s.At(d))))
}

// Nonzero returns the indices of the elements that are not 0 (NaN is not) in row-major order: int64
// of shape [n, rank]. It reads their number n back, 8 bytes, and so waits for the device.
func (x *Tensor) Nonzero() *Tensor {
	const op = "nonzero"
	x.use(op)
	p := x.truePositions(op)
	defer p.Free()
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

// NonzeroTuple returns the columns of [Tensor.Nonzero], a vector for each dimension: what
// [Tensor.Index] takes. A tensor of rank 0 counts as a vector of one.
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

// masked checks a mask for x and returns the shape that both broadcast to.
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

// MaskedSelect returns the elements of x where mask, bool, is true, as a vector in row-major order;
// x and mask broadcast together. It reads their number back, 8 bytes, and so waits for the device;
// Where and MaskedFill do not.
func (x *Tensor) MaskedSelect(mask *Tensor) *Tensor {
	const op = "masked_select"
	s := x.masked(op, mask)
	return within(youngest(op, []*Tensor{x, mask}), func(c *Scope) *Tensor {
		flat := shape.Of(s.Size())
		return x.In(c).expand(s).reshape(flat).indexSelect(op, 0, mask.In(c).expand(s).truePositions(op))
	})
}

// MaskedScatter returns x with the elements where mask, bool, is true replaced by those of src in
// its row-major order, as torch.masked_scatter; x and mask broadcast together. src has x's type and
// at least as many elements as are replaced. Too few are an index error, on a GPU reported at the
// next wait. Nothing is read back.
func (x *Tensor) MaskedScatter(mask, src *Tensor) *Tensor {
	const op = "masked_scatter"
	s := x.masked(op, mask, src)
	if src.dtype != x.dtype {
		panic(newError(op, ErrType, []*Tensor{x, mask, src}, "source is "+src.dtype.String()+", the tensor "+x.dtype.String()).hint("use Cast"))
	}
	return within(youngest(op, []*Tensor{x, mask, src}), func(c *Scope) *Tensor {
		n := s.Size()
		table := src.In(c).reshape(shape.Of(src.Size()))
		which := mask.In(c).expand(s).reshape(shape.Of(n))
		place := which.CumSum(0).AddScalar(-1)
		if src.Size() == 0 { // there must be something to read where nothing is replaced
			table, place = Cat(0, table, c.On(x.st.dev).Typed(x.dtype).Zeros(1)), place.AddScalar(1)
		}
		picked := table.indexSelect(op, 0, place.MaskedFill(which.LogicalNot(), 0)).reshape(s)
		return Where(mask, picked, x.In(c))
	})
}

// MaskedScatterInPlace is [Tensor.MaskedScatter] in x's own memory, torch's masked_scatter_: mask
// broadcasts to x's shape.
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
