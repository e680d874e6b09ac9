package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// UniqueOptions say what [Tensor.Unique] and [Tensor.UniqueConsecutive] return besides the
// elements.
type UniqueOptions struct {
	// Inverse asks for where each element of the tensor is among the unique ones.
	Inverse bool
	// Counts asks for how often each unique element occurs.
	Counts bool
}

// counted returns the distances of starts from one another and of the last from n.
func counted(starts *Tensor, n int) *Tensor {
	end := starts.Scope().On(starts.st.dev).Typed(dtype.I64).Full(float64(n), 1)
	return Cat(0, starts.Narrow(0, 1, starts.Size()-1), end).Sub(starts)
}

// fromPlaces returns y with y[places[i]] = values[i], where places are a permutation.
func fromPlaces(op string, c *Scope, places, values *Tensor) *Tensor {
	y := c.On(values.st.dev).Typed(values.dtype).Empty(values.Size())
	y.scatterOp(op, c, device.Scatter{Kind: device.ScatterSet, Distinct: true}, values, places)
	return y
}

// newRuns reports which entries of a vector, or which rows of a matrix, differ from the one before;
// the first does.
func (x *Tensor) newRuns() *Tensor {
	n := x.Dim(0)
	differ := x.Narrow(0, 1, n-1).Ne(x.Narrow(0, 0, n-1))
	if x.Rank() > 1 {
		differ = differ.Any(1)
	}
	return Cat(0, x.Scope().On(x.st.dev).Typed(boolType).Ones(1), differ)
}

// uniqueResult are the parts of a result; what was not asked for is nil.
type uniqueResult struct{ values, inverse, counts *Tensor }

// distinct finds the distinct rows of a matrix, or elements of a vector, in order, or only among
// neighbours.
func (x *Tensor) distinct(op string, consecutive bool, o UniqueOptions) uniqueResult {
	s := x.scope
	c := s.child()
	defer c.recycle()
	x = x.In(c).Detach()
	i64 := c.On(x.st.dev).Typed(dtype.I64)
	var r uniqueResult
	n := x.Dim(0)
	if n == 0 {
		r = uniqueResult{x.Clone(), i64.Zeros(0), i64.Zeros(0)}
	} else {
		var order *Tensor
		sorted := x
		if !consecutive {
			order = x.lexical(op)
			sorted = x.indexSelect(op, 0, order)
		}
		fresh := sorted.newRuns()
		starts := fresh.truePositions(op)
		r.values = sorted.indexSelect(op, 0, starts)
		if o.Inverse {
			// the number of the run that each element is in
			if r.inverse = fresh.CumSum(0).SubScalar(1); order != nil {
				r.inverse = fromPlaces(op, c, order, r.inverse)
			}
		}
		if o.Counts {
			r.counts = counted(starts, n)
		}
	}
	kept := []*Tensor{r.values}
	if !o.Inverse {
		r.inverse = nil
	} else {
		kept = append(kept, r.inverse)
	}
	if !o.Counts {
		r.counts = nil
	} else {
		kept = append(kept, r.counts)
	}
	c.close(kept, false)
	return r
}

// lexical returns the order of the rows of a matrix by their first, then their second column and so
// on; equal rows keep their order. It sorts by one column after the other, the last first.
func (x *Tensor) lexical(op string) *Tensor {
	if x.Rank() == 1 {
		return x.ordered(op, 0, x.Dim(0), false)
	}
	var order *Tensor
	for k := x.Dim(1) - 1; k >= 0; k-- {
		column := x.Select(1, k)
		if order == nil {
			order = column.ordered(op, 0, x.Dim(0), false)
			continue
		}
		order = order.indexSelect(op, 0, column.indexSelect(op, 0, order).ordered(op, 0, x.Dim(0), false))
	}
	return order
}

// unique is the ops on the flattened tensor, and along dimensions.
func (x *Tensor) unique(op string, consecutive bool, o UniqueOptions, dims []int) (values, inverse, counts *Tensor) {
	x.use(op)
	x.shapedByValues(op)
	switch {
	case len(dims) > 1:
		fail(op, ErrShape, []*Tensor{x}, "takes one dimension, or none, not %d", len(dims))
	case len(dims) == 0:
		r := x.reshape(shape.Of(x.Size())).distinct(op, consecutive, o)
		if r.inverse != nil {
			r.inverse = r.inverse.reshape(x.layout.Shape)
		}
		return r.values, r.inverse, r.counts
	}
	a := x.axisOf(op, dims[0])
	rest := x.layout.Shape.Remove(a)
	if rest.Size() == 0 {
		fail(op, ErrShape, []*Tensor{x}, "another dimension than %d has no elements, so that its entries cannot be told apart", dims[0])
	}
	front := x.MoveAxis(a, 0)
	r := front.reshape(shape.Of(x.layout.Shape.At(a), rest.Size())).distinct(op, consecutive, o)
	values = r.values.reshape(front.layout.Shape.With(0, r.values.Dim(0))).MoveAxis(0, a).Contiguous()
	return values, r.inverse, r.counts
}

// Unique returns the distinct elements in ascending order as a vector. If o asks for them it also
// returns two int64 tensors, else nil. One has x's shape and says where each element of x is among
// the distinct ones. The other says how often each of these occurs. Given a dimension, its entries
// are compared as wholes and ordered by their elements in row-major order: the values have x's
// other dimensions, and inverse is a vector.
//
// 0 and -0 are equal, and the first of them is returned; no NaN is equal to another. The number of
// distinct elements, which decides the shapes, is read from the device: the op waits for the work
// queued so far. There is no gradient.
func (x *Tensor) Unique(o UniqueOptions, dim ...int) (values, inverse, counts *Tensor) {
	return x.unique("unique", false, o, dim)
}

// UniqueConsecutive is [Tensor.Unique] that leaves out only elements equal to the one before, and
// keeps the order.
func (x *Tensor) UniqueConsecutive(o UniqueOptions, dim ...int) (values, inverse, counts *Tensor) {
	return x.unique("unique_consecutive", true, o, dim)
}
