package tensor

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// intMatmulFunc computes the product of two matrices of int8, or of two equally large batches of
// matrices, with sums of int32.
type intMatmulFunc struct{}

var intProduct Function = intMatmulFunc{}

func (intMatmulFunc) Name() string { return "int_mm" }

func (intMatmulFunc) Forward(c *Context, in []*Tensor) *Tensor {
	a, b, s := in[0], in[1], c.Scope()
	out := a.layout.Shape.With(a.Rank()-1, b.layout.Shape.At(b.Rank()-1))
	y := alloc("int_mm", s, a.st.dev, dtype.I32, out)
	multiplyInt8("int_mm", s, y, a, b)
	return y
}

// multiplyInt8 writes the product of the int8 tensors a and b to y, an int32 tensor. If the device
// cannot do this in one op, the factors are converted to int32.
func multiplyInt8(op string, s *Scope, y, a, b *Tensor) {
	v := device.MatMul{}
	y.batchInto(&v.Out)
	a.batchInto(&v.A)
	b.batchInto(&v.B)
	if m := matmulOps.supported(s, y.st.dev, v); m != nil {
		launch(op, s, m, y, nil, nil, a, b)
		matmulOps.put(m)
		return
	}
	wide := [2]*Tensor{a.detachedIn(s).Cast(dtype.I32), b.detachedIn(s).Cast(dtype.I32)}
	multiply(op, s, y, wide[0], wide[1])
	for _, x := range wide {
		x.Free()
	}
}

func (intMatmulFunc) VJP(*Context, *Tensor) []*Tensor { return []*Tensor{nil, nil} }

// IntMM returns the matrix product x·y of int8 tensors as int32, as torch._int_mm does. Shapes are
// as in [Tensor.MatMul]: vectors and batches are allowed. A sum of up to 2^17 - 1 products is
// exact. A longer sum may leave the range of int32, and wraps then, as in torch. The result has the
// same bits on every device. It has no gradient. [Tensor.MatMul] of int8 tensors instead returns
// int8.
func (x *Tensor) IntMM(y *Tensor) *Tensor {
	in := []*Tensor{x, y}
	youngest("int_mm", in)
	sameDevice("int_mm", in)
	if x.dtype != dtype.I8 || y.dtype != dtype.I8 {
		e := newError("int_mm", ErrType, in, fmt.Sprintf("operands are %v and %v, want int8", x.dtype, y.dtype))
		if x.dtype.IsFloat() || y.dtype.IsFloat() {
			e.hint("MatMul multiplies floats")
		}
		panic(e)
	}
	return x.product("int_mm", y)
}
