package tensor

import (
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// combine makes one index out of all index tensors. For each entry of the tensors' common shape,
// this index holds the row-major position in the indexed dimensions. combine copies to the host how
// many elements of each mask are true. operands are the operands of the op whose gradient may need
// the index.
func (p *indexPlan) combine(c *Scope, operands ...*Tensor) *Tensor {
	for k := range p.parts {
		switch q := &p.parts[k]; {
		case q.mask != nil:
			q.index, q.known = q.mask.In(c).truePositions(p.op), true
		case q.list != nil:
			q.index, q.known = c.On(p.x.st.dev).Typed(dtype.I64).From(q.list, len(q.list)), true
		}
	}
	p.join()
	sizes := func(q indexPart) int { return p.shape.Tail(q.dim).Head(q.rank).Size() }
	flat := shape.Of(p.common.Size())
	if len(p.parts) == 1 {
		q := p.parts[0]
		index := q.index.In(c)
		if !q.known {
			index, p.wrap = index.fromEnd(p.op, c, sizes(q), operands...)
		}
		return index.reshape(flat)
	}
	if y := p.positions(c); y != nil {
		return y.reshape(flat)
	}
	m := c.On(p.x.st.dev).Typed(dtype.I64)
	var sum *Tensor
	stride := 1
	for k := len(p.parts) - 1; k >= 0; k-- {
		q := p.parts[k]
		n, index := sizes(q), q.index.In(c)
		by := max(stride, 1) // stride is 0 for an empty tensor, where only the range check matters
		if q.known {
			index = index.Cast(dtype.I64).MulScalar(float64(by))
		} else {
			// Look up the position of each entry in a table, so that every index is checked against
			// the size of its own dimension.
			table := m.ArangeStep(0, float64(n*by), float64(by))
			index = table.indexSelect(p.op, 0, index.wrapped(p.op, n).reshape(shape.Of(index.Size()))).reshape(index.layout.Shape)
		}
		if sum == nil {
			sum = index
		} else {
			sum = sum.Add(index)
		}
		stride *= n
	}
	return sum.expand(p.common).reshape(flat)
}

// join computes the common shape of the index tensors, and its position in the result.
func (p *indexPlan) join() {
	var covered []int // all indexed dimensions
	var dims []int    // the dimensions that are indexed by tensors of rank 1 or more
	scalars := map[int]bool{}
	p.axis, p.place = 0, 0 // join may be called twice
	for k, q := range p.parts {
		for i := range q.rank {
			if covered = append(covered, q.dim+i); q.index.Rank() == 0 {
				scalars[q.dim] = true
			} else {
				dims = append(dims, q.dim+i)
			}
		}
		if k == 0 {
			p.common = q.index.layout.Shape
			continue
		}
		s, _, ok := shape.Broadcast(p.common, q.index.layout.Shape)
		if !ok {
			var list []*Tensor
			for _, q := range p.parts {
				list = append(list, q.index)
			}
			fail(p.op, ErrShape, append([]*Tensor{p.x}, list...), "the index tensors of shapes %s do not broadcast together", shapes(list))
		}
		p.common = s
	}
	adjacent := func(list []int, skip map[int]bool) bool {
		for i := 1; i < len(list); i++ {
			for d := list[i-1] + 1; d < list[i]; d++ {
				if !skip[d] {
					return false
				}
			}
		}
		return true
	}
	p.n = len(covered)
	rest := p.shape.Rank() - p.n
	if rest+p.common.Rank() > shape.MaxRank {
		fail(p.op, ErrShape, p.operands(p.x), "the result has %d dimensions, at most %d are supported", rest+p.common.Rank(), shape.MaxRank)
	}
	if adjacent(covered, nil) {
		p.axis, p.place = covered[0], covered[0]
	} else if len(dims) > 0 && adjacent(dims, scalars) {
		for d := range dims[0] {
			if !scalars[d] {
				p.place++
			}
		}
	}
	p.order = slices.Clone(covered)
	for d := range p.shape.Rank() {
		if !slices.Contains(covered, d) {
			at := len(p.order)
			if d < p.axis {
				at = d
			}
			p.order = slices.Insert(p.order, at, d)
		}
	}
}

// merged returns the shape of the view in the order of the plan. The indexed dimensions are joined
// into one dimension of the given size.
func (p *indexPlan) merged(size int) shape.Dims {
	var s shape.Dims
	for k, d := range p.order {
		switch {
		case k == p.axis:
			s = s.Append(size)
		case k < p.axis || k >= p.axis+p.n:
			s = s.Append(p.shape.At(d))
		}
	}
	return s
}

// extent returns the number of entries in the indexed dimensions.
func (p *indexPlan) extent() int {
	n := 1
	for _, d := range p.order[p.axis : p.axis+p.n] {
		n *= p.shape.At(d)
	}
	return n
}

func (p *indexPlan) result() shape.Dims {
	if len(p.parts) == 0 {
		return p.shape
	}
	return p.merged(1).Remove(p.axis).Insert(p.place, p.common.Slice()...)
}

// apply applies the plan to x. index is the plan's combined index, or nil.
func (p *indexPlan) apply(x, index *Tensor) *Tensor {
	v := x
	if index == nil || !p.isAll(x.layout.Shape) {
		v = p.view(x)
	}
	if index == nil {
		return v
	}
	if !slices.IsSorted(p.order) {
		v = v.Permute(p.order...)
	}
	y := v.reshape(p.merged(p.extent())).indexSelectBy(p.op, p.axis, index, index, p.wrap)
	if p.axis != p.place {
		y = y.MoveAxis(p.axis, p.place)
	}
	return y.reshape(p.result())
}
