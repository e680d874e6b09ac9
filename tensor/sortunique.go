package tensor

import (
	"bytes"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// UniqueOptions say which results [Tensor.Unique] and [Tensor.UniqueConsecutive] return besides the
// distinct elements.
type UniqueOptions struct {
	// Inverse requests, for each element of the tensor, its position among the distinct elements.
	Inverse bool
	// Counts requests how often each distinct element occurs.
	Counts bool
}

// counted returns the lengths of the runs that begin at the given starts: the distance from each
// start to the next start, and from the last start to n.
func counted(starts *Tensor, n int) *Tensor {
	end := starts.Scope().On(starts.st.dev).Typed(dtype.I64).Full(float64(n), 1)
	return Cat(0, starts.Narrow(0, 1, starts.Size()-1), end).Sub(starts)
}

// fromPlaces returns y with y[places[i]] = values[i]. places must be a permutation.
func fromPlaces(op string, c *Scope, places, values *Tensor) *Tensor {
	y := c.On(values.st.dev).Typed(values.dtype).Empty(values.Size())
	y.scatterOp(op, c, device.Scatter{Kind: device.ScatterSet, Distinct: true}, values, places)
	return y
}

// newRuns reports which entries of a vector, or which rows of a matrix, differ from the previous
// entry or row. The first entry or row counts as different.
func (x *Tensor) newRuns() *Tensor {
	n := x.Dim(0)
	differ := x.Narrow(0, 1, n-1).Ne(x.Narrow(0, 0, n-1))
	if x.Rank() > 1 {
		differ = differ.Any(1)
	}
	return Cat(0, x.Scope().On(x.st.dev).Typed(boolType).Ones(1), differ)
}

// uniqueResult holds the results of Unique. Results that were not requested are nil.
type uniqueResult struct{ values, inverse, counts *Tensor }

func (r uniqueResult) parts() []*Tensor {
	list := []*Tensor{r.values}
	for _, t := range []*Tensor{r.inverse, r.counts} {
		if t != nil {
			list = append(list, t)
		}
	}
	return list
}

// runsHere returns the runs of equal elements of the vector x, in memory of the host. If x is
// sorted, order has the positions of its elements before sorting. Otherwise order is nil. runsHere
// makes one pass for each result, which takes less time than the launches of the composition.
func (x *Tensor) runsHere(op string, order *Tensor, o UniqueOptions) (r uniqueResult) {
	c, dev, n := x.scope, x.st.dev, x.Size()
	x = x.Contiguous()
	x.awaitWrites(op)
	fresh := alloc(op, c, dev, boolType, shape.Of(n))
	mask := hostElements[byte](fresh)
	if mask[0] = 1; n > 1 {
		in := []*Tensor{x.Narrow(0, 1, n-1), x.Narrow(0, 0, n-1)}
		run(op, c, neOp.program(in, x.dtype, boolType), fresh.Narrow(0, 1, n-1), in, nil)
	}
	runs := shape.Of(bytes.Count(mask, []byte{1}))
	r.values = alloc(op, c, dev, x.dtype, runs)
	switch x.dtype.Size() {
	case 1:
		compress(hostElements[uint8](r.values), hostElements[uint8](x), mask)
	case 2:
		compress(hostElements[uint16](r.values), hostElements[uint16](x), mask)
	case 4:
		compress(hostElements[uint32](r.values), hostElements[uint32](x), mask)
	default:
		compress(hostElements[uint64](r.values), hostElements[uint64](x), mask)
	}
	if o.Inverse {
		r.inverse = alloc(op, c, dev, dtype.I64, shape.Of(n))
		inverse, k := hostElements[int64](r.inverse), int64(-1)
		if order == nil {
			for i, m := range mask {
				k += int64(m)
				inverse[i] = k
			}
		} else {
			for i, at := range hostElements[int64](order.Contiguous()) {
				k += int64(mask[i])
				inverse[at] = k
			}
		}
	}
	if o.Counts {
		r.counts = alloc(op, c, dev, dtype.I64, runs)
		counts := hostElements[int64](r.counts)
		listTrue(r.counts.st.buf.Host(), mask) // the positions at which runs start
		for i := range counts[1:] {
			counts[i] = counts[i+1] - counts[i]
		}
		counts[len(counts)-1] = int64(n) - counts[len(counts)-1]
	}
	return r
}

// compress copies to dst the elements of src whose bytes in mask are 1. dst must be as long as the
// number of these elements.
func compress[T any](dst, src []T, mask []byte) {
	src = src[:len(mask)]
	for i, k := 0, 0; k < len(dst); i++ {
		dst[k] = src[i] // kept only if the byte is 1
		k += int(mask[i])
	}
}

// awaitWrites waits until x, whose memory is the host's, has its values. Another driver, or work
// that has a [Hold] on the memory, may still be writing them.
func (x *Tensor) awaitWrites(op string) { x.st.read(op, x.scope.source(op, x.st.dev)) }

// hostElements returns the elements of the contiguous x, whose memory is the host's. The caller
// calls awaitWrites first, unless the CPU has computed x.
func hostElements[T any](x *Tensor) []T {
	var e T
	p := unsafe.Pointer(unsafe.SliceData(x.st.buf.Host()))
	return unsafe.Slice((*T)(unsafe.Add(p, x.layout.Offset*int(unsafe.Sizeof(e)))), x.Size())
}

// distinct finds the distinct rows of a matrix, or elements of a vector, in sorted order. If
// consecutive is true, it only compares neighbours.
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
		if isHost(x.st.dev) && !c.modes.composed && x.Rank() == 1 {
			r = sorted.runsHere(op, order, o)
			c.close(r.parts(), false)
			return r
		}
		fresh := sorted.newRuns()
		starts := fresh.truePositions(op)
		r.values = sorted.indexSelect(op, 0, starts)
		if o.Inverse {
			// number of the run to which each element belongs
			if r.inverse = fresh.CumSum(0).SubScalar(1); order != nil {
				r.inverse = fromPlaces(op, c, order, r.inverse)
			}
		}
		if o.Counts {
			r.counts = counted(starts, n)
		}
	}
	if !o.Inverse {
		r.inverse = nil
	}
	if !o.Counts {
		r.counts = nil
	}
	c.close(r.parts(), false)
	return r
}

// lexical returns the lexicographic order of the rows of a matrix: by the first column, then by the
// second, and so on. Equal rows keep their order. It sorts by one column after the other, beginning
// with the last.
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

// unique does the work of Unique and UniqueConsecutive, on the flattened tensor or along a
// dimension.
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

// Unique returns the distinct elements in ascending order as a vector. inverse and counts are int64
// tensors if o requests them, and otherwise nil. inverse has x's shape. It holds, for each element
// of x, its position among the distinct elements. counts says how often each distinct element
// occurs. If a dimension is given, each of its entries is compared as a whole. Entries are ordered
// by their elements in row-major order. values then has x's other dimensions, and inverse is a
// vector.
//
// 0 and -0 are equal, and the first of them is returned. NaN equals no other NaN. The number of
// distinct elements, which decides the shapes, is copied to the host, so the op waits for the work
// queued so far. There is no gradient.
func (x *Tensor) Unique(o UniqueOptions, dim ...int) (values, inverse, counts *Tensor) {
	return x.unique("unique", false, o, dim)
}

// UniqueConsecutive does what [Tensor.Unique] does, but only removes elements that equal the
// previous one, and keeps the order.
func (x *Tensor) UniqueConsecutive(o UniqueOptions, dim ...int) (values, inverse, counts *Tensor) {
	return x.unique("unique_consecutive", true, o, dim)
}
