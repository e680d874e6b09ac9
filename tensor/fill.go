package tensor

import (
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

var maskedFillOp = Declare(&Elementwise{Name: "masked_fill", Arity: 2, Expr: x1.Select(p0, x0), Fixed: 2, Domain: wide, Params: []float64{-3},
	Ref: func(x, p []float64) float64 {
		if x[1] != 0 {
			return p[0]
		}
		return x[0]
	},
	Grad: []*expr.Expr{x1.Select(expr.C(0), x2), nil}})

// MaskedFill returns x with v wherever the bool tensor mask is true. An integer type must be able
// to hold v, as for [Tensor.Fill].
func (x *Tensor) MaskedFill(mask *Tensor, v float64) *Tensor {
	mask.use("masked_fill")
	if mask.dtype != boolType {
		e := newError("masked_fill", ErrType, []*Tensor{x, mask}, "the mask is "+mask.dtype.String()+", it must be bool")
		panic(e.hint("NeScalar(0) is true where it is not 0"))
	}
	return maskedFillOp.Apply([]*Tensor{x, mask}, x.fittedNumber("masked_fill", v))
}

// MaskedFillInPlace sets x to v where the bool tensor mask is true; see [Tensor.MaskedFill].
func (x *Tensor) MaskedFillInPlace(mask *Tensor, v float64) *Tensor {
	v = x.fittedNumber("masked_fill", v)
	mask.use("masked_fill")
	if mask.dtype != boolType {
		fail("masked_fill", ErrType, []*Tensor{x, mask}, "the mask is %v, it must be bool", mask.dtype)
	}
	return x.inPlace(maskedFillOp, []*Tensor{x, mask}, v)
}

// filledWith checks the tensor that holds the fill value, and returns it in x's type.
func (x *Tensor) filledWith(op string, in []*Tensor, v *Tensor) *Tensor {
	youngest(op, in)
	sameDevice(op, in)
	if v.Rank() != 0 {
		fail(op, ErrShape, in, "the value must have rank 0, its shape is %v", v.Shape())
	}
	return v.Cast(x.dtype)
}

// MaskedFillBy is [Tensor.MaskedFill] with the value of v, a tensor of rank 0. The gradient of v is
// the sum of the gradients of the filled elements. v is cast to x's type. torch refuses a number
// that the type cannot hold. This op does not check the number, because the number would have to be
// copied to the host.
func (x *Tensor) MaskedFillBy(mask, v *Tensor) *Tensor {
	const op = "masked_fill"
	x.masked(op, mask, v)
	return x.maskedFillBy(op, mask, v)
}

func (x *Tensor) maskedFillBy(op string, mask, v *Tensor) *Tensor {
	in := []*Tensor{x, mask, v}
	return within(youngest(op, in), func(c *Scope) *Tensor {
		return Where(mask.In(c), x.filledWith(op, in, v), x)
	})
}

// MaskedFillByInPlace is [Tensor.MaskedFillBy] in place, torch's masked_fill_. mask must broadcast
// to x's shape.
func (x *Tensor) MaskedFillByInPlace(mask, v *Tensor) *Tensor {
	const op = "masked_fill"
	if s := x.masked(op, mask, v); s != x.layout.Shape {
		fail(op, ErrShape, []*Tensor{x, mask, v}, "the result has shape %v, the tensor changed in place %v", s, x.layout.Shape)
	}
	return x.maskedFillByInPlace(op, mask, v)
}

func (x *Tensor) maskedFillByInPlace(op string, mask, v *Tensor) *Tensor {
	return x.change(op, []*Tensor{mask, v}, func() *Tensor { return x.maskedFillBy(op, mask, v) }, func(s *Scope) {
		y := x.maskedFillBy(op, mask, v)
		x.store(op, s, y)
		y.Free()
	})
}

// selectedMask returns a bool tensor that is true at the entries of dimension dim that index
// selects. Its shape broadcasts to x's.
func (x *Tensor) selectedMask(op string, dim int, index, v *Tensor) *Tensor {
	in := []*Tensor{x, index, v}
	s := youngest(op, in)
	checkIndex(op, x, index)
	sameDevice(op, in)
	a := x.axis(op, dim)
	return within(s, func(c *Scope) *Tensor {
		n := padTo(x.layout.Shape, 1).At(a)
		y := c.On(x.st.dev).Typed(boolType).Zeros(n).IndexFill(0, index, 1)
		if x.Rank() == 0 {
			return y.reshape(shape.Dims{})
		}
		return y.reshape(onesOf(x.Rank()).With(a, n))
	})
}

// IndexFillBy is [Tensor.IndexFill] with the value of v; see [Tensor.MaskedFillBy]. An entry that
// index selects twice counts once in v's gradient.
func (x *Tensor) IndexFillBy(dim int, index, v *Tensor) *Tensor {
	const op = "index_fill"
	mask := x.selectedMask(op, dim, index, v)
	defer mask.Free()
	return x.maskedFillBy(op, mask, v)
}

// IndexFillByInPlace is [Tensor.IndexFillBy] in place, torch's index_fill_.
func (x *Tensor) IndexFillByInPlace(dim int, index, v *Tensor) *Tensor {
	const op = "index_fill"
	mask := x.selectedMask(op, dim, index, v)
	defer mask.Free()
	return x.maskedFillByInPlace(op, mask, v)
}
