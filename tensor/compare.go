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

// compareScalar compares x with v. If v is not a whole number, integers are compared as float32.
func (x *Tensor) compareScalar(op *Elementwise, v float64) *Tensor {
	x.use(op.called())
	switch {
	case x.dtype.IsFloat():
	case v != math.Trunc(v) || math.Abs(v) > math.MaxInt64:
		x = x.Float()
	case x.dtype != dtype.I64: // x's type may be unable to hold the number
		if p := expr.Encode(x.dtype.Compute(), v); x.dtype == boolType || expr.Decode(x.dtype.Compute(), p) != v {
			x = x.Long()
		}
	}
	return op.Apply([]*Tensor{x}, v)
}
