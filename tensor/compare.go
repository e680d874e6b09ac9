package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

func truthOf(f func(a, b float64) bool) func(x, p []float64) float64 {
	return func(x, p []float64) float64 {
		b := 0.0
		if len(x) > 1 {
			b = x[1]
		} else {
			b = p[0]
		}
		if f(x[0], b) {
			return 1
		}
		return 0
	}
}

func declareCompare(name string, f func(a, b *expr.Expr) *expr.Expr, ref func(a, b float64) bool) (pair, scalar *Elementwise) {
	pair = Declare(&Elementwise{Name: name, Arity: 2, Result: Truth, Expr: f(x0, x1), Ref: truthOf(ref), Domain: [][2]float64{{-2, 2}}, NoGrad: true})
	scalar = Declare(&Elementwise{Name: name + "_scalar", Arity: 1, Result: Truth, Expr: f(x0, p0), Ref: truthOf(ref), Domain: [][2]float64{{-2, 2}}, Params: []float64{1}, NoGrad: true})
	return
}

var (
	eqOp, eqScalarOp = declareCompare("eq", (*expr.Expr).Eq, func(a, b float64) bool { return a == b })
	neOp, neScalarOp = declareCompare("ne", (*expr.Expr).Ne, func(a, b float64) bool { return a != b })
	ltOp, ltScalarOp = declareCompare("lt", (*expr.Expr).Lt, func(a, b float64) bool { return a < b })
	leOp, leScalarOp = declareCompare("le", (*expr.Expr).Le, func(a, b float64) bool { return a <= b })
	gtOp, gtScalarOp = declareCompare("gt", (*expr.Expr).Gt, func(a, b float64) bool { return a > b })
	geOp, geScalarOp = declareCompare("ge", (*expr.Expr).Ge, func(a, b float64) bool { return a >= b })

	whereOp = Declare(&Elementwise{Name: "where", Arity: 3, Expr: x0.Select(x1, x2), Fixed: 1, Domain: wide,
		Ref: func(x, _ []float64) float64 {
			if x[0] != 0 {
				return x[1]
			}
			return x[2]
		},
		Grad: []*expr.Expr{nil, x0.Select(expr.X(3), expr.C(0)), x0.Select(expr.C(0), expr.X(3))}})
	maskedFillOp = Declare(&Elementwise{Name: "masked_fill", Arity: 2, Expr: x1.Select(p0, x0), Fixed: 2, Domain: wide, Params: []float64{-3},
		Ref: func(x, p []float64) float64 {
			if x[1] != 0 {
				return p[0]
			}
			return x[0]
		},
		Grad: []*expr.Expr{x1.Select(expr.C(0), x2), nil}})
	notOp = Declare(&Elementwise{Name: "logical_not", Arity: 1, Result: Truth, Expr: x0.Eq(expr.C(0)), Domain: wide, NoGrad: true,
		Ref: func(x, _ []float64) float64 {
			if x[0] == 0 {
				return 1
			}
			return 0
		}})
)

// Eq returns x == y as bool.
//
//tensor:forms Scalar
func (x *Tensor) Eq(y *Tensor) *Tensor { return eqOp.Apply([]*Tensor{x, y}) }

// Ne returns x != y as bool.
//
//tensor:forms Scalar
func (x *Tensor) Ne(y *Tensor) *Tensor { return neOp.Apply([]*Tensor{x, y}) }

// Lt returns x < y as bool.
//
//tensor:forms Scalar
func (x *Tensor) Lt(y *Tensor) *Tensor { return ltOp.Apply([]*Tensor{x, y}) }

// Le returns x <= y as bool.
//
//tensor:forms Scalar
func (x *Tensor) Le(y *Tensor) *Tensor { return leOp.Apply([]*Tensor{x, y}) }

// Gt returns x > y as bool.
//
//tensor:forms Scalar
func (x *Tensor) Gt(y *Tensor) *Tensor { return gtOp.Apply([]*Tensor{x, y}) }

// Ge returns x >= y as bool.
//
//tensor:forms Scalar
func (x *Tensor) Ge(y *Tensor) *Tensor { return geOp.Apply([]*Tensor{x, y}) }

// compareScalar compares with v; integers are compared as float32 when v is not a whole number.
func (x *Tensor) compareScalar(op *Elementwise, v float64) *Tensor {
	x.use(op.called())
	switch {
	case x.dtype.IsFloat():
	case v != math.Trunc(v) || math.Abs(v) > math.MaxInt64:
		x = x.Float()
	case x.dtype != dtype.I64: // the number may lie outside of what x's type holds
		if p := expr.Encode(x.dtype.Compute(), v); x.dtype == boolType || expr.Decode(x.dtype.Compute(), p) != v {
			x = x.Long()
		}
	}
	return op.Apply([]*Tensor{x}, v)
}

// Where returns a where cond, a bool tensor, is true, and b elsewhere, broadcast together.
func Where(cond, a, b *Tensor) *Tensor {
	cond.use("where")
	if cond.dtype != boolType {
		e := newError("where", ErrType, []*Tensor{cond, a, b}, "the condition is "+cond.dtype.String()+", it must be bool")
		panic(e.hint("NeScalar(0) is true where it is not 0"))
	}
	return whereOp.Apply([]*Tensor{cond, a, b})
}

// MaskedFill returns x with v where mask, a bool tensor, is true; a type of integers must hold v as in [Tensor.Fill].
func (x *Tensor) MaskedFill(mask *Tensor, v float64) *Tensor {
	mask.use("masked_fill")
	if mask.dtype != boolType {
		e := newError("masked_fill", ErrType, []*Tensor{x, mask}, "the mask is "+mask.dtype.String()+", it must be bool")
		panic(e.hint("NeScalar(0) is true where it is not 0"))
	}
	return maskedFillOp.Apply([]*Tensor{x, mask}, x.takes("masked_fill", v))
}

// MaskedFillInPlace sets x to v where mask, a bool tensor, is true; see [Tensor.MaskedFill].
func (x *Tensor) MaskedFillInPlace(mask *Tensor, v float64) *Tensor {
	v = x.takes("masked_fill", v)
	mask.use("masked_fill")
	if mask.dtype != boolType {
		fail("masked_fill", ErrType, []*Tensor{x, mask}, "the mask is %v, it must be bool", mask.dtype)
	}
	return x.inPlace(maskedFillOp, []*Tensor{x, mask}, v)
}

// LogicalNot returns whether x is zero.
func (x *Tensor) LogicalNot() *Tensor { return notOp.Apply([]*Tensor{x}) }
