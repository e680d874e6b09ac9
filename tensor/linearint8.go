package tensor

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// If the greatest absolute value of a row is below this bound, the row counts as zeros. The
// reciprocals of such small numbers may overflow.
const least = 0x1p-120

var (
	// scaleProgram computes two numbers from the greatest absolute value of a row: the scale, and
	// the factor by which the row's elements are multiplied. If the row counts as zeros, both are
	// 0. If the greatest value is not finite, the scale is not finite and the factor is 0.
	scaleProgram = expr.MustLower([]*expr.Expr{
		expr.X(0).Lt(expr.C(least)).Select(expr.C(0), expr.X(0).Div(expr.C(127))),
		expr.X(0).Ge(expr.C(least)).Select(expr.C(127).Div(expr.X(0)), expr.C(0)),
	}, []dtype.Type{dtype.F32, dtype.F32}, []dtype.Type{dtype.F32}, -1)

	quantizePrograms cache[dtype.Type, *expr.Program]
	scaledPrograms   cache[[3]dtype.Type, *expr.Program]
)

// quantizeProgram multiplies an element of type t by a factor, and rounds. NaN occurs only in a row
// that is not finite, and becomes 0.
func quantizeProgram(t dtype.Type) *expr.Program {
	return quantizePrograms.get(t, func() *expr.Program {
		v := expr.X(0).Cvt(dtype.F32).Mul(expr.X(1))
		q := v.Eq(v).Select(v.RoundEven(), expr.C(0)).Cvt(dtype.I32)
		return expr.MustLower([]*expr.Expr{q.Named("quantize_rows")}, []dtype.Type{dtype.I8}, []dtype.Type{t, dtype.F32}, -1)
	})
}

// scaledProgram multiplies an int32 by the scales of its row and its column and adds a bias, unless
// the bias's type is Invalid. The result has type t, and the columns' scales have type scale.
func scaledProgram(t, scale, bias dtype.Type) *expr.Program {
	return scaledPrograms.get([3]dtype.Type{t, scale, bias}, func() *expr.Program {
		y, in := expr.X(0).Cvt(dtype.F32).Mul(expr.X(1)).Mul(expr.X(2).Cvt(dtype.F32)), []dtype.Type{dtype.I32, dtype.F32, scale}
		if bias != dtype.Invalid {
			y, in = y.Add(expr.X(3).Cvt(dtype.F32)), append(in, bias)
		}
		return expr.MustLower([]*expr.Expr{y.Named("linear_int8")}, []dtype.Type{t}, in, -1)
	})
}

// quantizeRows returns the quantised rows of the matrix x and their scales, in scope s.
func (x *Tensor) quantizeRows(op string, s *Scope) (q, scale *Tensor) {
	rows := shape.Of(x.Dim(0), 1)
	q = alloc(op, s, x.st.dev, dtype.I8, x.layout.Shape)
	if x.Dim(1) == 0 {
		return q, s.On(x.st.dev).Typed(dtype.F32).Zeros(rows.Slice()...)
	}
	scale = alloc(op, s, x.st.dev, dtype.F32, rows)
	most := normMaxOp.Apply(x.detachedIn(s), 1, KeepDim).Cast(dtype.F32)
	defer most.Free()
	factor := alloc(op, s, x.st.dev, dtype.F32, rows)
	defer factor.Free()
	runMap(op, s, scaleProgram, []*Tensor{scale, factor}, []*Tensor{most}, nil)
	run(op, s, quantizeProgram(x.dtype), q, []*Tensor{x, factor}, nil)
	return q, scale
}

// QuantizeRows returns x as int8, with a float32 scale for each row along the last dimension: x is
// about q.Float().Mul(scale). A row's scale is its greatest absolute value divided by 127, and
// elements are rounded to nearest even (symmetric quantisation). So an error is at most half a
// scale. The scales keep the last dimension, with size 1. A row whose values are all below 2^-120
// has the scale 0. The scale of a row with an infinity or NaN is not finite, and its q has no
// meaning. The results have no gradient. [Tensor.LinearInt8] multiplies by such weights.
func (x *Tensor) QuantizeRows() (q, scale *Tensor) {
	const op = "quantize_rows"
	x.use(op)
	x.mustFloat(op)
	in := []*Tensor{x}
	if x.Rank() == 0 {
		fail(op, ErrShape, in, "a scalar has no rows")
	}
	if t := device.Tracing(); t != nil {
		defer t.End(tracedOp(t, device.SpanOp, op, nil, in))
	}
	n := x.Dim(-1)
	c := x.scope.child()
	defer c.recycle()
	q, scale = x.detachedIn(c).reshape(shape.Of(x.layout.Shape.Head(x.Rank()-1).Size(), n)).quantizeRows(op, c)
	q, scale = q.reshape(x.layout.Shape), scale.reshape(x.layout.Shape.With(x.Rank()-1, 1))
	c.close([]*Tensor{q, scale}, false)
	return q, scale
}

// linearInt8Func computes a linear layer with a weight of int8.
type linearInt8Func struct{}

func (linearInt8Func) Name() string { return "linear_int8" }

func (linearInt8Func) Forward(c *Context, in []*Tensor) *Tensor {
	const op = "linear_int8"
	s, x, w, scale := c.Scope(), in[0], in[1], in[2]
	out := shape.Of(x.Dim(0), w.Dim(0))
	q, rows := x.quantizeRows(op, s)
	defer q.Free()
	defer rows.Free()
	sums := alloc(op, s, x.st.dev, dtype.I32, out)
	defer sums.Free()
	multiplyInt8(op, s, sums, q, w.T())
	y := alloc(op, s, x.st.dev, x.dtype, out)
	operands, bias := []*Tensor{sums, rows, scale}, dtype.Invalid
	if len(in) > 3 {
		operands, bias = append(operands, in[3]), in[3].dtype
	}
	run(op, s, scaledProgram(x.dtype, scale.dtype, bias), y, operands, nil)
	return y
}

func (linearInt8Func) VJP(_ *Context, _ *Tensor) []*Tensor { return make([]*Tensor, 4) }

// LinearInt8 returns about x·(scale·weight)ᵀ + bias for an int8 weight of shape [out, in]. scale
// has a number for each row of the weight: [Tensor.QuantizeRows] returns both. scale and the bias,
// [out] or nil, are floating point. The rows of x are quantised too, by QuantizeRows, and the
// products are summed in int32 ([Tensor.IntMM]). The result has x's type. Scales and results are
// computed in float32. So only the rounding of x and of the weight makes the result differ from
// [Tensor.Linear] (dynamic quantisation), with two exceptions. A row of x with an infinity, NaN or
// a number beyond float32 gives NaN. A row whose numbers are all below 2^-120 counts as zeros.
//
// LinearInt8 is for inference. If an operand requires a gradient, it panics with an *[Error] of the
// kind ErrGrad, unless the scope is [NoGrad].
func (x *Tensor) LinearInt8(weight, scale, bias *Tensor) *Tensor {
	const op = "linear_int8"
	checkLinear(op, x, weight, bias, 1)
	scale.use(op)
	in := present(x, weight, scale, bias)
	s := youngest(op, in)
	sameDevice(op, in)
	switch {
	case weight.dtype != dtype.I8 || !scale.dtype.IsFloat() || !x.dtype.IsFloat():
		e := newError(op, ErrType, in, fmt.Sprintf("x is %v, the weight %v and the scale %v, want floating point, int8 and floating point", x.dtype, weight.dtype, scale.dtype))
		panic(e.hint("weight.QuantizeRows() returns an int8 weight and its scale"))
	case bias != nil && !bias.dtype.IsFloat():
		fail(op, ErrType, in, "the bias is %v, want floating point", bias.dtype)
	case scale.layout.Shape != shape.Of(weight.Dim(0)):
		e := newError(op, ErrShape, in, fmt.Sprintf("the scale has shape %v, want [%d]", scale.Shape(), weight.Dim(0)))
		if scale.layout.Shape == shape.Of(weight.Dim(0), 1) {
			e.hint("did you mean scale.Squeeze(-1)?")
		}
		panic(e)
	}
	if wantsGrad(op, s, in) {
		e := newError(op, ErrGrad, in, "a quantised layer has no gradient, and an operand requires one")
		panic(e.hint("call it in a scope with tensor.NoGrad(), as nn.Infer does"))
	}
	rows := x.layout.Shape.Head(x.Rank() - 1).Size()
	a := x.reshape(shape.Of(rows, x.Dim(-1)))
	in[0] = a
	return freeView(Apply(linearInt8Func{}, in...), a, x).reshaped(x.layout.Shape.With(x.Rank()-1, weight.Dim(0)))
}
