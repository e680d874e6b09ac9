package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// RoPEOptions are what [Tensor.RoPE] may be told; the zero value turns all features by the positions 0, 1, 2 … with the base 10000, in
// halves.
type RoPEOptions struct {
	Base float64 // of the frequencies; 0 stands for 10000
	// Interleaved takes neighbouring features for the two parts of a number, as GPT-J and the paper do; otherwise they are one of the
	// first half and one of the second, as in GPT-NeoX and Llama. A model must use the form that it was trained with.
	Interleaved bool
	Dims        int     // how many of the features are turned, the first of them, an even number; 0: all
	Offset      int     // the position of the first entry, for a cache that is longer than the input
	Positions   *Tensor // int64 or int32 positions instead, broadcast with the input's shape without the features
}

// The two parts of a number X(0) + i·X(1), turned by the angle of cosine X(2) and sine X(3), there and back.
var ropeOps = [2][2]*Elementwise{
	{{Name: "rope", Arity: 4, Expr: x0.Mul(x2).Sub(x1.Mul(x3))}, {Name: "rope", Arity: 4, Expr: x1.Mul(x2).Add(x0.Mul(x3))}},
	{{Name: "rope", Arity: 4, Expr: x0.Mul(x2).Add(x1.Mul(x3))}, {Name: "rope", Arity: 4, Expr: x1.Mul(x2).Sub(x0.Mul(x3))}},
}

// ropeFunc turns the first dims features of its first operand by the angles of which the others are the cosines and sines.
type ropeFunc struct {
	dims        int
	interleaved bool
	back        bool
}

func (*ropeFunc) Name() string { return "rope" }

func (f *ropeFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x, cos, sin := in[0], in[1], in[2]
	if c.Needs(0) {
		c.Save(cos, sin)
	}
	s, last := c.scope, x.Rank()-1
	y := alloc("rope", s, x.st.dev, x.dtype, x.layout.Shape)
	part := func(t *Tensor, i int) *Tensor {
		start, step := i*(f.dims/2), 1
		if f.interleaved {
			start, step = i, 2
		}
		return t.handle("rope", s, t.layout.Narrow(last, start, f.dims/2, step))
	}
	operands := []*Tensor{part(x, 0), part(x, 1), cos, sin}
	ops := ropeOps[0]
	if f.back {
		ops = ropeOps[1]
	}
	for i, op := range ops {
		run("rope", s, op.program(operands, cos.dtype, x.dtype), part(y, i), operands, nil)
	}
	if n := x.Dim(-1) - f.dims; n > 0 {
		rest := func(t *Tensor) *Tensor { return t.handle("rope", s, t.layout.Narrow(last, f.dims, n, 1)) }
		run("rope", s, castProgram(x.dtype, x.dtype), rest(y), []*Tensor{rest(x)}, nil)
	}
	return y
}

func (f *ropeFunc) VJP(c *Context, g *Tensor) []*Tensor {
	back := &ropeFunc{f.dims, f.interleaved, !f.back}
	return []*Tensor{Apply(back, g, c.Saved(0), c.Saved(1)), nil, nil}
}

// RoPE returns x, [..., length, features], with pairs of its features turned by angles that grow with the position: pair k of n by
// position·base^(-k/n) (J. Su et al., arXiv:2104.09864). So the product of a query and a key depends on the distance of their positions;
// both are turned before attention, values are not. Angles, cosines and sines are computed in float64 and rounded to the type in which x is
// computed, where most implementations do so in float32 and lose exactness at far positions. The gradient is turned back. There is no
// scaling of positions or frequencies for contexts longer than those of training.
func (x *Tensor) RoPE(o RoPEOptions) *Tensor {
	const op = "rope"
	in := []*Tensor{x}
	if o.Positions != nil {
		in = append(in, o.Positions)
	}
	s := youngest(op, in)
	sameDevice(op, in)
	x.mustFloat(op)
	if x.Rank() < 2 {
		fail(op, ErrShape, in, "the input is [..., length, features], its shape is %v", x.Shape())
	}
	dims := o.Dims
	if dims == 0 {
		dims = x.Dim(-1)
	}
	if dims < 0 || dims > x.Dim(-1) || dims%2 != 0 {
		fail(op, ErrShape, in, "%d of %d features (dimension -1) are turned: that must be an even number of them", dims, x.Dim(-1))
	}
	if far := 1 << 53; o.Offset > far-x.Dim(-2) || o.Offset < -far {
		fail(op, ErrValue, in, "the offset is %d; positions are computed in float64, which has no numbers for all of those", o.Offset)
	}
	base := o.Base
	if base == 0 {
		base = 10000
	}
	if !(base > 0) || math.IsInf(base, 1) {
		fail(op, ErrValue, in, "the base is %v, it must be a positive number", base)
	}
	if p := o.Positions; p != nil {
		if o.Offset != 0 {
			fail(op, ErrValue, in, "both positions and an offset are given")
		}
		if p.dtype != dtype.I64 && p.dtype != dtype.I32 {
			e := newError(op, ErrType, in, "positions must be int64 or int32, they are "+p.dtype.String())
			panic(e.hint("use Cast(dtype.I64)"))
		}
		if _, ok := p.layout.Expand(x.layout.Shape.Head(x.Rank() - 1)); !ok {
			e := newError(op, ErrShape, in, "positions of shape "+p.layout.Shape.String()+" do not broadcast to "+x.layout.Shape.Head(x.Rank()-1).String()+", the input's shape without the features")
			if x.Rank() == 4 && p.Rank() == 2 {
				e.hint("for heads in dimension 1 use Positions.Unsqueeze(1)")
			}
			panic(e)
		}
	}
	if x.Size() == 0 || dims == 0 {
		return x
	}
	return within(s, func(c *Scope) *Tensor {
		x := x.In(c)
		m := c.On(x.st.dev).Typed(dtype.F64)
		position := o.Positions
		if position == nil {
			position = m.ArangeStep(float64(o.Offset), float64(o.Offset+x.Dim(-2)), 1)
		}
		frequency := m.Arange(dims / 2).MulScalar(-2 / float64(dims)).RPowScalar(base)
		angle := position.In(c).Cast(dtype.F64).Unsqueeze(-1).Mul(frequency)
		t := x.dtype.Compute()
		return Apply(&ropeFunc{dims, o.Interleaved, false}, x, angle.Cos().Cast(t), angle.Sin().Cast(t))
	})
}
