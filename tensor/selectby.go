package tensor

import (
	"sync"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// Ops such as padding and resizing select entries by an index that a formula gives. One launch
// computes such an index, because on small tensors the number of launches decides the time.

// indexBy returns a function that returns the program for an index by the formula e. The program is
// made at the first call.
func indexBy(e *expr.Expr) func() *expr.Program {
	return sync.OnceValue(func() *expr.Program {
		return expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.I64}, nil, -1)
	})
}

// selectBy returns m entries of axis a of x. Program p computes their positions from expr.Index and
// the numbers in params. Intermediate tensors belong to scope c.
func (x *Tensor) selectBy(op string, c *Scope, a, m int, p *expr.Program, params ...float64) *Tensor {
	index := alloc(op, c, x.st.dev, dtype.I64, onesOf(x.Rank()).With(a, m))
	run(op, c, p, index, nil, params)
	return x.selectAlong(op, a, index)
}

// selectAlong returns the entries of axis a of x at the positions in index. index has x's rank, and
// only its axis a may have a size other than 1.
func (x *Tensor) selectAlong(op string, a int, index *Tensor) *Tensor {
	return Apply(gatherFunc{a, op}, x, index.expand(x.layout.Shape.With(a, index.Size())))
}
