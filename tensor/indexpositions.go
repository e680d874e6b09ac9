package tensor

import (
	"encoding/binary"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

var positionPrograms cache[[shape.MaxRank]dtype.Type, *expr.Program]

// positionProgram returns the program that computes a row-major position from an index of each
// type in the list. Param(2k) is the size of the dimension of index k, and Param(2k+1) its stride.
// If an index is out of range, the position is -1.
func positionProgram(types []dtype.Type) *expr.Program {
	var key [shape.MaxRank]dtype.Type
	copy(key[:], types)
	return positionPrograms.get(key, func() *expr.Program {
		var sum, bad *expr.Expr
		for k := range types {
			n, i := expr.Param(2*k, dtype.I64), expr.X(k).Cvt(dtype.I64)
			i = i.Lt(expr.C(0)).Select(i.Add(n), i)
			outside, part := i.Lt(expr.C(0)).Or(i.Ge(n)), i.Mul(expr.Param(2*k+1, dtype.I64))
			if k == 0 {
				sum, bad = part, outside
			} else {
				sum, bad = sum.Add(part), bad.Or(outside)
			}
		}
		return expr.MustLower([]*expr.Expr{bad.Select(expr.C(-1), sum)}, []dtype.Type{dtype.I64}, types, -1)
	})
}

// positions does the work of the method combine for several index tensors in one launch. The host
// then looks for indices that are out of range. positions returns nil if the host cannot read the
// positions immediately, or if an index is out of range. Then combine does the work without
// positions, and finds the wrong index.
func (p *indexPlan) positions(c *Scope) *Tensor {
	dev := p.x.st.dev
	if !isHost(dev) || c.modes.composed || c.route(p.op, dev).graph != nil || p.common.Size() == 0 || p.extent() == 0 {
		return nil
	}
	in, types := make([]*Tensor, len(p.parts)), make([]dtype.Type, len(p.parts))
	params := make([]float64, 2*len(in))
	stride := 1
	for k := len(in) - 1; k >= 0; k-- {
		q := p.parts[k]
		in[k], types[k] = q.index, q.index.dtype
		n := p.shape.Tail(q.dim).Head(q.rank).Size()
		params[2*k], params[2*k+1] = float64(n), float64(stride)
		stride *= n
	}
	y := alloc(p.op, c, dev, dtype.I64, p.common)
	run(p.op, c, positionProgram(types), y, in, params)
	host := y.st.buf.Host()
	for k := range y.Size() {
		if int64(binary.NativeEndian.Uint64(host[8*k:])) < 0 {
			y.Free()
			return nil
		}
	}
	return y
}
