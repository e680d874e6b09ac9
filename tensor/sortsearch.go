package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

var (
	// behindLeft reports whether the second operand (a value) sorts after the first operand (an
	// element). behindRight reports true for equal operands too. NaN sorts after all numbers.
	behindLeft  = &Elementwise{Name: "searchsorted", Arity: 2, Result: Truth, Expr: x0.Lt(x1).Or(x1.Ne(x1)), NoGrad: true}
	behindRight = &Elementwise{Name: "searchsorted", Arity: 2, Result: Truth, Expr: x0.Le(x1).Or(x1.Ne(x1)), NoGrad: true}
)

// searchFunc finds the positions of values in sorted rows by binary search.
type searchFunc struct {
	op    string
	right bool
}

func (f searchFunc) Name() string { return f.op }

func (f searchFunc) Forward(c *Context, in []*Tensor) *Tensor {
	sorted, values := in[0], in[1] // sorted is [rows, n] and values [rows, m]
	if y := f.lean(c, in); y != nil {
		return y
	}
	n, s := sorted.layout.Shape.At(1), c.Scope()
	m := s.On(values.st.dev).Typed(dtype.I64)
	lo := m.Zeros(values.layout.Shape.Slice()...)
	if n == 0 || values.Size() == 0 {
		return lo
	}
	behind := behindLeft
	if f.right {
		behind = behindRight
	}
	hi := lo.FullLike(float64(n))
	for step := n; step > 0; step /= 2 { // hi - lo is at most step
		mid := lo.Add(hi).FloorDivideScalar(2)
		open := lo.Lt(hi)
		here := Apply(gatherFunc{1, f.op}, sorted, mid.ClampMax(float64(n-1)))
		up := behind.Apply([]*Tensor{here, values}).LogicalAnd(open)
		lo = Where(up, mid.AddScalar(1), lo)
		hi = Where(up, hi, Where(open, mid, hi))
	}
	return lo
}

func (f searchFunc) lean(c *Context, in []*Tensor) *Tensor {
	sorted, values, s := in[0], in[1], c.Scope()
	if sorted.Size() == 0 || values.Size() == 0 {
		return nil
	}
	o := searchOps.supported(s, values.st.dev, device.Search{Out: resultOf(dtype.I64, values.layout.Shape), Sorted: sorted.operand(), Values: values.operand(), Right: f.right})
	if o == nil {
		return nil
	}
	y := alloc(f.op, s, values.st.dev, dtype.I64, values.layout.Shape)
	launch(f.op, s, o, y, sorted, values)
	searchOps.put(o)
	return y
}

func (searchFunc) VJP(*Context, *Tensor) []*Tensor { return []*Tensor{nil, nil} }

// Searchsorted returns a position for each element of values, as int64. At this position the value
// can be inserted into the last dimension of x without breaking the order. The rows of x must be in
// ascending order. The result is the first such position. If the parameter right is true, the
// result is the last such position, after all elements equal to the value. x may be a vector, in
// which all values are searched. Otherwise x has the sizes of values in all dimensions except the
// last. x and values have the same type. NaN sorts after all numbers. For rows that are not in
// order the positions are meaningless.
//
// With a sorter x need not be sorted. The sorter has x's shape, and its rows list the positions of
// x's elements in sorted order, as [Tensor.Argsort] returns them. A position out of range is an
// index error, which a GPU reports at the next wait.
func (x *Tensor) Searchsorted(values *Tensor, right bool, sorter ...*Tensor) *Tensor {
	const op = "searchsorted"
	if len(sorter) == 0 {
		return x.search(op, values, right)
	}
	in := append([]*Tensor{x, values}, sorter...)
	s := youngest(op, in)
	checkIndex(op, x, sorter[0])
	if len(sorter) > 1 || sorter[0].layout.Shape != x.layout.Shape || x.Rank() == 0 {
		fail(op, ErrShape, in, "there is one sorter, of the sorted tensor's shape; shapes are %s", shapes(in))
	}
	return within(s, func(c *Scope) *Tensor {
		return Apply(gatherFunc{x.Rank() - 1, op}, x.In(c).Detach(), sorter[0]).search(op, values, right)
	})
}

func (x *Tensor) search(op string, values *Tensor, right bool) *Tensor {
	in := []*Tensor{x, values}
	s := youngest(op, in)
	sameDevice(op, in)
	if x.dtype != values.dtype {
		e := newError(op, ErrType, in, "the sorted tensor is "+x.dtype.String()+", the values are "+values.dtype.String())
		panic(e.hint("use Cast"))
	}
	vs := values.layout.Shape
	last := x.Rank() - 1
	if last < 0 || last > 0 && (vs.Rank() != x.Rank() || vs.Remove(last) != x.layout.Shape.Remove(last)) {
		fail(op, ErrShape, in, "the sorted tensor must be a vector, or equal the values in all dimensions but the last; shapes are %s", shapes(in))
	}
	n, rows, columns := x.layout.Shape.At(last), x.layout.Shape.Remove(last).Size(), vs.Size()
	if last > 0 {
		columns = vs.At(last)
	}
	from, ok := x.layout.View(shape.Of(rows, n))
	wanted, ok2 := values.layout.View(shape.Of(rows, columns))
	if ok && ok2 && n > 0 && vs.Size() > 0 { // both tensors can be read as matrices without a copy
		o := searchOps.supported(s, x.st.dev, device.Search{Out: resultOf(dtype.I64, wanted.Shape),
			Sorted: device.View{Type: x.dtype, Layout: from}, Values: device.View{Type: x.dtype, Layout: wanted}, Right: right})
		if o != nil {
			y := alloc(op, s, x.st.dev, dtype.I64, vs)
			launch(op, s, o, y, x, values)
			searchOps.put(o)
			return y
		}
	}
	return within(s, func(c *Scope) *Tensor {
		sorted := x.In(c).Detach().reshape(shape.Of(rows, n))
		return Apply(searchFunc{op, right}, sorted, values.In(c).Detach().reshape(shape.Of(rows, columns))).reshape(vs)
	})
}

// Bucketize returns for each element the number of its bucket. boundaries is a vector in ascending
// order, of x's type. Each boundary is the upper bound of a bucket, and belongs to that bucket. If
// the parameter right is true, each boundary is the lower bound of a bucket, and belongs to that
// bucket. Bucketize is [Tensor.Searchsorted] with the operands exchanged.
func (x *Tensor) Bucketize(boundaries *Tensor, right bool) *Tensor {
	boundaries.use("bucketize")
	if boundaries.Rank() != 1 {
		fail("bucketize", ErrShape, []*Tensor{x, boundaries}, "the boundaries must be a vector, their shape is %v", boundaries.Shape())
	}
	return boundaries.search("bucketize", x, right)
}

// IsIn reports for each element whether the tensor test, which may have any shape, contains it. If
// invert is true, IsIn reports the opposite. Elements are compared in the promoted type. NaN equals
// nothing.
func (x *Tensor) IsIn(test *Tensor, invert bool) *Tensor {
	in := []*Tensor{x, test}
	s := youngest("isin", in)
	sameDevice("isin", in)
	return within(s, func(c *Scope) *Tensor {
		t := dtype.Promote(x.dtype, test.dtype)
		if test.Size() == 0 {
			return c.On(x.st.dev).Typed(boolType).Full(indicator(invert), x.layout.Shape.Slice()...)
		}
		set, _ := test.In(c).Detach().reshape(shape.Of(test.Size())).Cast(t).Sort(0, false)
		flat := x.In(c).Detach().reshape(shape.Of(x.Size())).Cast(t)
		at := set.search("isin", flat, false).ClampMax(float64(test.Size() - 1))
		y := Apply(gatherFunc{0, "isin"}, set, at).Eq(flat)
		if invert {
			y = y.LogicalNot()
		}
		return y.reshape(x.layout.Shape)
	})
}

// Diff returns the differences x[i+1] - x[i] of neighbours along a dimension, n times in
// succession. The dimension gets shorter by n. For bool it returns whether neighbours differ. To
// start or end with other values, concatenate them with Cat first.
func (x *Tensor) Diff(n, dim int) *Tensor {
	x.use("diff")
	a := x.axisOf("diff", dim)
	if n < 0 {
		fail("diff", ErrValue, []*Tensor{x}, "differences of order %d", n)
	}
	return within(x.scope, func(c *Scope) *Tensor {
		y := x.In(c)
		for range min(n, x.layout.Shape.At(a)) {
			m := y.layout.Shape.At(a)
			after, before := y.Narrow(a, min(1, m), max(m-1, 0)), y.Narrow(a, 0, max(m-1, 0))
			if x.dtype == boolType {
				y = after.LogicalXor(before)
			} else {
				y = after.Sub(before)
			}
		}
		if y.st == x.st {
			return y.Clone()
		}
		return y
	})
}

// Histc counts the elements of a floating point tensor in bins of equal width between lo and hi. It
// returns a vector of x's type. The last bin includes hi. Elements out of range and NaN are not
// counted. If lo equals hi, the range is from the least to the greatest element. If all elements
// are equal, that range is widened by 1 on either side. If the range is not finite, nothing is
// counted; PyTorch fails there.
func (x *Tensor) Histc(bins int, lo, hi float64) *Tensor {
	x.use("histc")
	in := []*Tensor{x}
	if !x.dtype.IsFloat() {
		e := newError("histc", ErrType, in, "needs a floating point tensor, not "+x.dtype.String())
		panic(e.hint("use Float"))
	}
	if bins < 1 {
		fail("histc", ErrValue, in, "%d bins", bins)
	}
	if !(lo <= hi) || lo-lo != 0 || hi-hi != 0 {
		fail("histc", ErrValue, in, "the range from %v to %v is not one of finite numbers in order", lo, hi)
	}
	return within(x.scope, func(c *Scope) *Tensor {
		flat := x.detachedIn(c).reshape(shape.Of(x.Size())).Cast(x.dtype.Compute())
		counts := c.On(x.st.dev).Typed(flat.dtype).Zeros(bins)
		if x.Size() == 0 {
			return counts.Cast(x.dtype)
		}
		operands, params := []*Tensor{flat}, []float64{float64(bins), float64(bins - 1), lo, hi}
		if lo == hi {
			from, to := flat.Amin(), flat.Amax()
			one := from.Eq(to).Cast(flat.dtype)
			operands, params = append(operands, from.Sub(one), to.Add(one)), params[:2]
		}
		bin := alloc("histc", c, x.st.dev, dtype.I64, flat.layout.Shape)
		inside := alloc("histc", c, x.st.dev, flat.dtype, flat.layout.Shape)
		p := histcProgram(flat.dtype, lo < hi)
		runMap("histc", c, p, []*Tensor{bin, inside}, operands, encode(p, params))
		counts.scatter("histc", c, device.ScatterAdd, 0, inside, bin)
		return counts.Cast(x.dtype)
	})
}

type histcKey struct {
	t          dtype.Type
	fixedRange bool
}

var histcPrograms cache[histcKey, *expr.Program]

// histcProgram returns the program that computes the bin of each element X(0), of type t. Its
// second result is 1 for an element in the range, and otherwise 0. Param(0) is the number of bins,
// and Param(1) the last bin. The range is in Param(2) and Param(3) if fixedRange is true, otherwise
// in X(1) and X(2).
func histcProgram(t dtype.Type, fixedRange bool) *expr.Program {
	return histcPrograms.get(histcKey{t, fixedRange}, func() *expr.Program {
		from, to, in := x1, x2, []dtype.Type{t, t, t}
		if fixedRange {
			from, to, in = expr.Param(2, t), expr.Param(3, t), in[:1]
		}
		width := to.Sub(from)
		// 0·width is 0 only if the width is finite
		inside := x0.Ge(from).And(x0.Le(to)).And(width.Mul(expr.C(0)).Eq(expr.C(0)))
		place := x0.Sub(from).Mul(expr.Param(0, t)).Div(width).Floor()
		bin := atMost(inside.Select(place, expr.C(0)), expr.Param(1, t)).Cvt(dtype.I64)
		return expr.MustLower([]*expr.Expr{bin, inside.Cvt(t)}, []dtype.Type{dtype.I64, t}, in, -1)
	})
}

// countable reduces integers to one key, so that a single copy to the host suffices. If any number
// is negative, the key is the complement of the least number, and is not negative. Otherwise the
// key is the greatest number minus 2^63, and is negative.
var countable = &Reduction{Name: "bincount", Kind: device.Max, Count: true, Map: countableKey(x0.Cvt(dtype.I64))}

// greatestCountable computes the key of the reduction countable on the host.
func greatestCountable(list []int64) int64 {
	least, most := int64(math.MaxInt64), int64(0)
	for _, v := range list {
		least, most = min(least, v), max(most, v)
	}
	if least < 0 {
		return ^least
	}
	return most ^ math.MinInt64
}

func countableKey(x *expr.Expr) *expr.Expr {
	return x.Lt(expr.Bits(dtype.I64, 0)).Select(x.Not(), x.Xor(expr.Bits(dtype.I64, 1<<63)))
}

// Bincount returns how often each number 0, 1, … occurs in x, a vector of integers that are not
// negative. The result is int64. It has one element more than the greatest number, and at least
// minLength. weights has x's shape or is nil. With weights, Bincount returns the sums of the
// weights instead of counts. The sums are float32 if the weights are, otherwise float64. There is
// no gradient. Bincount copies the greatest number, 8 bytes, to the host, and so waits for the
// device. [Tensor.ScatterAdd] into zeros does not wait.
func (x *Tensor) Bincount(weights *Tensor, minLength int) *Tensor {
	const op = "bincount"
	in := []*Tensor{x}
	if weights != nil {
		in = append(in, weights)
	}
	s := youngest(op, in)
	sameDevice(op, in)
	switch {
	case x.Rank() != 1 || x.dtype.IsFloat() || x.dtype == boolType:
		fail(op, ErrType, in, "it counts in a vector of integers, this is %v %v", x.layout.Shape, x.dtype)
	case weights != nil && weights.layout.Shape != x.layout.Shape:
		fail(op, ErrShape, in, "there must be a weight for each number; shapes are %s", shapes(in))
	case minLength < 0:
		fail(op, ErrValue, in, "a length of %d", minLength)
	}
	s.uncapturable(op, "the length of the result depends on values, for which the host would wait")
	return within(s, func(c *Scope) *Tensor {
		c.modes.noGrad = true
		index, n := x.detachedIn(c), minLength
		here := isHost(x.st.dev) && !c.modes.composed && weights == nil
		if here { // the host counts the numbers, without launches
			index = index.Cast(dtype.I64).Contiguous()
			index.awaitWrites(op)
		}
		if x.Size() > 0 {
			var key int64
			if here {
				key = greatestCountable(hostElements[int64](index))
			} else {
				key = int64(element(dtype.I64, countable.Apply(index).bytes(op)))
			}
			if v := float64(key ^ math.MinInt64); key >= 0 {
				fail(op, ErrIndex, in, "the number %v is negative", float64(^key))
			} else if v < 1<<40 {
				n = max(n, int(v)+1)
			} else {
				fail(op, ErrValue, in, "counts up to the number %v do not fit into memory", v)
			}
		}
		if index.dtype != dtype.I32 {
			index = index.Cast(dtype.I64)
		}
		index.fits(op, shape.Of(n))
		t := dtype.I64
		if here {
			y := c.On(x.st.dev).Typed(t).Empty(n)
			counts := hostElements[int64](y)
			clear(counts)
			for _, v := range hostElements[int64](index) {
				counts[v]++
			}
			return y
		}
		var add *Tensor
		if weights != nil && x.Size() > 0 { // without elements the result is int64, as in PyTorch
			if t = dtype.F64; weights.dtype == dtype.F32 {
				t = dtype.F32
			}
			add = weights.detachedIn(c).Cast(t)
		} else {
			add = c.On(x.st.dev).Typed(t).Full(1).expand(x.layout.Shape)
		}
		y := c.On(x.st.dev).Typed(t).Zeros(n)
		y.scatter(op, c, device.ScatterAdd, 0, add, index)
		return y
	})
}
