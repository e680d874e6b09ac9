package tensor

import "github.com/flambeau-go/flambeau/shape"

// Bilinear returns y[..., k] = Σ x[..., i]·weight[k, i, j]·z[..., j] + bias[k], as
// torch.nn.functional.bilinear does. x is [..., n], and z is [..., m] with the same leading
// dimensions. weight is [out, n, m]. bias is [out], or nil. The result is [..., out]. All operands
// have one type, and n and m are not 0.
func (x *Tensor) Bilinear(z, weight, bias *Tensor) *Tensor {
	if y := underAutocast("bilinear", AutocastWidest, func(in []*Tensor) *Tensor { return in[0].Bilinear(in[1], in[2], in[3]) }, x, z, weight, bias); y != nil {
		return y
	}
	const op = "bilinear"
	in := []*Tensor{x, z, weight}
	if bias != nil {
		in = append(in, bias)
	}
	s := youngest(op, in)
	sameDevice(op, in)
	if x.dtype == boolType {
		panic(newError(op, ErrType, in, "is not defined for bool").hint("use Float"))
	}
	for _, t := range in {
		if t.dtype != x.dtype {
			e := newError(op, ErrType, in, "operands are "+x.dtype.String()+" and "+t.dtype.String())
			panic(e.hint("Cast to one type"))
		}
	}
	if x.Rank() == 0 || x.Rank() != z.Rank() || x.layout.Shape.Head(x.Rank()-1) != z.layout.Shape.Head(z.Rank()-1) {
		fail(op, ErrShape, in, "operands are [..., n] and [..., m] with equal dimensions before; shapes are %s", shapes(in[:2]))
	}
	n, m := x.Dim(-1), z.Dim(-1)
	if n == 0 || m == 0 {
		fail(op, ErrShape, in, "an operand has no features; shapes are %s", shapes(in[:2]))
	}
	if weight.Rank() != 3 || weight.Dim(1) != n || weight.Dim(2) != m {
		fail(op, ErrShape, in, "the weight should be [out, %d, %d], it is %v", n, m, weight.Shape())
	}
	out := weight.Dim(0)
	if bias != nil && bias.layout.Shape != shape.Of(out) {
		fail(op, ErrShape, in, "the bias should be [%d], it is %v", out, bias.Shape())
	}
	return within(s, func(c *Scope) *Tensor {
		head := x.layout.Shape.Head(x.Rank() - 1)
		rows := head.Size()
		t := x.dtype.Compute() // compute in t, so that the product of three factors is rounded once
		w := weight.In(c).Cast(t).Permute(1, 0, 2).reshape(shape.Of(n, out*m))
		half := x.In(c).Cast(t).reshape(shape.Of(rows, n)).MatMul(w).reshape(shape.Of(rows, out, m))
		y := half.MatMul(z.In(c).Cast(t).reshape(shape.Of(rows, m, 1))).reshape(head.Append(out))
		if bias != nil {
			y = y.Add(bias.In(c).Cast(t))
		}
		return y.Cast(x.dtype)
	})
}
