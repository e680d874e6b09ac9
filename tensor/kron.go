package tensor

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Kron returns the Kronecker product: each element of x times all of y, laid out as blocks. Of ranks that differ, the smaller
// gets dimensions of size 1 in front.
func (x *Tensor) Kron(y *Tensor) *Tensor {
	const op = "kron"
	in := []*Tensor{x, y}
	s := youngest(op, in)
	sameDevice(op, in)
	rank := max(x.Rank(), y.Rank())
	a, b := padTo(x.layout.Shape, rank), padTo(y.layout.Shape, rank)
	var out, wide, tall shape.Dims
	for i := range rank {
		out = out.Append(a.At(i) * b.At(i))
	}
	if 2*rank > shape.MaxRank { // too many dimensions for blocks: repeat both
		return within(s, func(c *Scope) *Tensor {
			p, times := x.In(c).reshape(a), make([]int, rank)
			for i := range rank {
				p = p.RepeatInterleave(b.At(i), i)
				times[i] = a.At(i)
			}
			return p.Mul(y.In(c).reshape(b).Repeat(times...))
		})
	}
	for i := range rank {
		wide, tall = wide.Append(a.At(i), 1), tall.Append(1, b.At(i))
	}
	return within(s, func(c *Scope) *Tensor { return x.In(c).reshape(wide).Mul(y.In(c).reshape(tall)).reshape(out) })
}

// Trace returns the sum of the diagonal of a matrix; that of integers is int64, as torch.trace.
func (x *Tensor) Trace() *Tensor {
	x.use("trace")
	if x.Rank() != 2 {
		e := newError("trace", ErrShape, []*Tensor{x}, fmt.Sprintf("needs a matrix, this has shape %v", x.Shape()))
		panic(e.hint("x.Diagonal(0, -2, -1).Sum(-1) is that of each matrix of a batch"))
	}
	if x.dtype == boolType {
		fail("trace", ErrType, []*Tensor{x}, "is not defined for bool")
	}
	return within(x.scope, func(c *Scope) *Tensor {
		c.modes.autocast = dtype.Invalid // torch has a kernel of its own, which is not autocast
		return x.In(c).Diagonal(0, 0, 1).Sum()
	})
}

// Cross returns the cross products of the vectors of three elements along dim, as torch.linalg.cross: x and y have one rank and
// type, and broadcast. torch's dim is -1.
func (x *Tensor) Cross(y *Tensor, dim int) *Tensor {
	if y := underAutocast("cross", AutocastWidest, func(in []*Tensor) *Tensor { return in[0].Cross(in[1], dim) }, x, y); y != nil {
		return y
	}
	const op = "cross"
	in := []*Tensor{x, y}
	s := youngest(op, in)
	sameDevice(op, in)
	if x.Rank() != y.Rank() {
		fail(op, ErrShape, in, "operands have %d and %d dimensions", x.Rank(), y.Rank())
	}
	if x.dtype != y.dtype || x.dtype == boolType {
		fail(op, ErrType, in, "operands are %v and %v; both must have one type, not bool", x.dtype, y.dtype)
	}
	a := x.axis(op, dim)
	if x.Rank() == 0 || x.Dim(a) != 3 || y.Dim(a) != 3 {
		fail(op, ErrShape, in, "the vectors lie along dimension %d, which must have size 3; shapes are %s", dim, shapes(in))
	}
	full := broadcast(op, in)
	return within(s, func(c *Scope) *Tensor {
		p, q := x.In(c).expand(full), y.In(c).expand(full)
		turn := func(t *Tensor, by int) *Tensor { return t.Roll([]int{-by}, []int{a}) }
		return turn(p, 1).Mul(turn(q, 2)).Sub(turn(p, 2).Mul(turn(q, 1)))
	})
}
