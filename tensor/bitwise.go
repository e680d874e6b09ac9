package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

func bits(f func(a, b int64) int64) func(a, b float64) float64 {
	return func(a, b float64) float64 { return float64(f(int64(a), int64(b))) }
}

func logical(f func(a, b bool) bool) func(x, p []float64) float64 {
	return truthOf(func(a, b float64) bool { return f(a != 0, b != 0) })
}

// declareBitwise declares two ops of integers: one of two tensors, and one of a tensor and a
// number.
func declareBitwise(name string, f func(a, b *expr.Expr) *expr.Expr, ref func(a, b int64) int64, second [2]float64, noBool bool) (pair, scalar *Elementwise) {
	domain := [][2]float64{{-100, 100}, second}
	pair = Declare(&Elementwise{Name: name, Arity: 2, Result: Integral, Expr: f(x0, x1), Ref: ref2(bits(ref)), Domain: domain, NoBool: noBool, NoGrad: true})
	scalar = Declare(&Elementwise{Name: name + "_scalar", Arity: 1, Result: Integral, Expr: f(x0, p0), Ref: refP(bits(ref)), Domain: domain, Params: []float64{5}, NoBool: noBool, NoGrad: true})
	return
}

func declareLogical(name string, f func(a, b *expr.Expr) *expr.Expr, ref func(a, b bool) bool) *Elementwise {
	return Declare(&Elementwise{Name: name, Arity: 2, Result: Truth, Expr: f(x0.Ne(expr.C(0)), x1.Ne(expr.C(0))), Ref: logical(ref), Domain: [][2]float64{{-1.4, 1.4}}, NoGrad: true})
}

var (
	andOp, andScalarOp = declareBitwise("bitwise_and", (*expr.Expr).And, func(a, b int64) int64 { return a & b }, [2]float64{-100, 100}, false)
	orOp, orScalarOp   = declareBitwise("bitwise_or", (*expr.Expr).Or, func(a, b int64) int64 { return a | b }, [2]float64{-100, 100}, false)
	xorOp, xorScalarOp = declareBitwise("bitwise_xor", (*expr.Expr).Xor, func(a, b int64) int64 { return a ^ b }, [2]float64{-100, 100}, false)
	// The table test shifts by at most 6 bits, which is less than the width of every type. The
	// float64 reference is wrong for larger shifts, so another test checks them.
	leftOp, leftScalarOp   = declareBitwise("bitwise_left_shift", (*expr.Expr).Shl, func(a, b int64) int64 { return a << b }, [2]float64{0, 6}, true)
	rightOp, rightScalarOp = declareBitwise("bitwise_right_shift", (*expr.Expr).Shr, func(a, b int64) int64 { return a >> b }, [2]float64{0, 6}, true)

	complementOp = Declare(&Elementwise{Name: "bitwise_not", Arity: 1, Result: Integral, Expr: x0.Not(), Domain: [][2]float64{{-100, 100}}, NoGrad: true,
		NoBool: true, Ref: ref1(func(x float64) float64 { return float64(^int64(x)) })})

	bothOp   = declareLogical("logical_and", (*expr.Expr).And, func(a, b bool) bool { return a && b })
	eitherOp = declareLogical("logical_or", (*expr.Expr).Or, func(a, b bool) bool { return a || b })
	oddOp    = declareLogical("logical_xor", (*expr.Expr).Xor, func(a, b bool) bool { return a != b })
	notOp    = Declare(&Elementwise{Name: "logical_not", Arity: 1, Result: Truth, Expr: x0.Eq(expr.C(0)), Domain: wide, NoGrad: true,
		Ref: func(x, _ []float64) float64 {
			if x[0] == 0 {
				return 1
			}
			return 0
		}})
)

// whole applies op to x and the whole number v.
func (x *Tensor) whole(op *Elementwise, v int64) *Tensor {
	x.use(op.called())
	if v <= -1<<53 || v >= 1<<53 {
		fail(op.called(), ErrValue, []*Tensor{x}, "the number %d does not lie within ±2⁵³; use a tensor", v)
	}
	if x.dtype == boolType { // a whole number promotes bool to int64
		x = x.Long()
	}
	if low, high := limits(x.dtype); !x.dtype.IsFloat() && (float64(v) < low || float64(v) > high) {
		fail(op.called(), ErrValue, []*Tensor{x}, "the number %d is not one of %v", v, x.dtype)
	}
	return op.Apply([]*Tensor{x}, float64(v))
}

func limits(t dtype.Type) (low, high float64) {
	switch t {
	case dtype.Bool:
		return 0, 1
	case dtype.U8:
		return 0, 255
	}
	high = math.Ldexp(1, 8*t.Size()-1)
	return -high, high - 1
}

// BitwiseAnd returns x & y of integers or bools. The operands are broadcast to a common shape.
//
//tensor:forms Scalar:int64 InPlace
func (x *Tensor) BitwiseAnd(y *Tensor) *Tensor { return andOp.Apply([]*Tensor{x, y}) }

// BitwiseOr returns x | y of integers or bools. The operands are broadcast to a common shape.
//
//tensor:forms Scalar:int64 InPlace
func (x *Tensor) BitwiseOr(y *Tensor) *Tensor { return orOp.Apply([]*Tensor{x, y}) }

// BitwiseXor returns x ^ y of integers or bools. The operands are broadcast to a common shape.
//
//tensor:forms Scalar:int64 InPlace
func (x *Tensor) BitwiseXor(y *Tensor) *Tensor { return xorOp.Apply([]*Tensor{x, y}) }

// BitwiseNot returns the complement of integers, and the negation of bools.
func (x *Tensor) BitwiseNot() *Tensor {
	x.use("bitwise_not")
	if x.dtype == boolType {
		return x.LogicalNot()
	}
	return complementOp.Apply([]*Tensor{x})
}

// BitwiseLeftShift returns the integers x << y. A shift by a negative number, or by the type's
// width or more, returns 0. The operands are broadcast to a common shape.
//
//tensor:forms Scalar:int64 RScalar:int64
func (x *Tensor) BitwiseLeftShift(y *Tensor) *Tensor { return leftOp.Apply([]*Tensor{x, y}) }

// BitwiseRightShift returns the integers x >> y, and copies the sign. A shift by a negative number,
// or by the type's width or more, returns 0, or -1 for negative x. The operands are broadcast to a
// common shape.
//
//tensor:forms Scalar:int64 RScalar:int64
func (x *Tensor) BitwiseRightShift(y *Tensor) *Tensor { return rightOp.Apply([]*Tensor{x, y}) }

// LogicalAnd returns whether x and y are both nonzero. The operands are broadcast to a common
// shape.
func (x *Tensor) LogicalAnd(y *Tensor) *Tensor { return bothOp.Apply([]*Tensor{x, y}) }

// LogicalOr returns whether x or y is nonzero. The operands are broadcast to a common shape.
func (x *Tensor) LogicalOr(y *Tensor) *Tensor { return eitherOp.Apply([]*Tensor{x, y}) }

// LogicalXor returns whether exactly one of x and y is nonzero. The operands are broadcast to a
// common shape.
func (x *Tensor) LogicalXor(y *Tensor) *Tensor { return oddOp.Apply([]*Tensor{x, y}) }

// LogicalNot returns whether x is zero.
func (x *Tensor) LogicalNot() *Tensor { return notOp.Apply([]*Tensor{x}) }
