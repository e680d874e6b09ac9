package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// The functions of this file compute quotients that are whole numbers, and remainders. There are
// separate ops for floats and integers. The ops for floats use an exact fmod, and the ops for
// integers compute in int64. A tensor of integer divisors may contain 0, but no error can be raised
// without waiting for the device. So on every device a division by 0 has the quotient 0, and its
// remainder is the dividend.

// quotient returns ⌊x/y⌋ and x - y·⌊x/y⌋ for integers, exactly, in int64. It first divides in
// float64, with an error of less than 2¹², and computes the remainder in wrapping arithmetic. This
// remainder is so small that dividing it in float64 again leaves an error of at most 1.
func quotient(x, y *expr.Expr) (q, r *expr.Expr) {
	x, y = x.Cvt(dtype.I64), y.Cvt(dtype.I64)
	divide := func(a *expr.Expr) *expr.Expr {
		return a.Cvt(dtype.F64).Div(y.Cvt(dtype.F64)).Trunc().Cvt(dtype.I64)
	}
	zero, one := expr.Bits(dtype.I64, 0), expr.Bits(dtype.I64, 1)
	negative := y.Lt(zero)
	q = divide(x)
	r = x.Sub(q.Mul(y))
	more := divide(r)
	q, r = q.Add(more), r.Sub(more.Mul(y))
	below := negative.Select(r.Gt(zero), r.Lt(zero)) // true if r and y have different signs
	above := negative.Select(r.Le(y), r.Ge(y))
	q = below.Select(q.Sub(one), above.Select(q.Add(one), q))
	r = below.Select(r.Add(y), above.Select(r.Sub(y), r))
	none := y.Eq(zero)
	return none.Select(zero, q), none.Select(x, r)
}

// truncated returns the quotient and remainder of x/y rounded towards zero.
func truncated(x, y *expr.Expr) (q, r *expr.Expr) {
	q, r = quotient(x, y)
	x, y = x.Cvt(dtype.I64), y.Cvt(dtype.I64)
	zero, one := expr.Bits(dtype.I64, 0), expr.Bits(dtype.I64, 1)
	up := r.Ne(zero).And(y.Ne(zero)).And(x.Lt(zero).Xor(y.Lt(zero)))
	return up.Select(q.Add(one), q), up.Select(r.Sub(y), r)
}

// floored returns torch's ⌊x/y⌋ for floats. It computes the quotient from the exact remainder, so
// that quotient and remainder always fit together. For y = 0 it returns x/y. The derivative is 0
// there too.
func floored(x, y *expr.Expr) *expr.Expr {
	mod := x.Fmod(y)
	div := x.Sub(mod).Div(y)
	div = mod.Ne(expr.C(0)).And(y.Lt(expr.C(0)).Xor(mod.Lt(expr.C(0)))).Select(div.Sub(unit), div)
	low := div.Floor()
	low = div.Sub(low).Gt(expr.C(0.5)).Select(low.Add(unit), low)
	sign := x.Div(y).Floor()
	low = div.Eq(expr.C(0)).Select(expr.C(0).CopySign(sign), low)
	return y.Eq(expr.C(0)).Select(sign, low) // x/0 is infinite or NaN
}

// remainder returns the remainder of x/y that has the sign of y.
func remainder(x, y *expr.Expr) *expr.Expr {
	mod := x.Fmod(y)
	return mod.Ne(expr.C(0)).And(y.Lt(expr.C(0)).Xor(mod.Lt(expr.C(0)))).Select(mod.Add(y), mod)
}

// flooredRef, remainderRef and truncatedRef are the references with which tests compare the ops.
// For integer ops they get the integers as float64.
func flooredRef(a, b float64) float64 { return math.RoundToEven((a - remainderRef(a, b)) / b) }

func remainderRef(a, b float64) float64 {
	m := math.Mod(a, b)
	if m != 0 && (m < 0) != (b < 0) {
		m += b
	}
	return m
}

func truncatedRef(a, b float64) float64 { return math.Trunc(a / b) }

// division is one function of a dividend and a divisor. It is declared four times: for floats and
// for integers, with a tensor and with a number as the divisor.
type division struct{ float, integer, floatScalar, integerScalar *Elementwise }

// declareDivision declares the four ops of a division. dx is the derivative with respect to x, and
// negDy is the negative of the derivative with respect to y. A nil derivative means 0.
func declareDivision(name string, float func(x, y *expr.Expr) *expr.Expr, integer func(x, y *expr.Expr) *expr.Expr,
	ref func(a, b float64) float64, dx *expr.Expr, negDy func(x, y *expr.Expr) *expr.Expr) division {
	whole := expr.Param(0, dtype.I64)
	// Tests draw x and y from these ranges, so that tests of gradients can avoid the jumps.
	by := [][2]float64{{-3.9, 3.9}, {0.5, 3.9}}
	first := func(g *expr.Expr) *expr.Expr {
		if dx == nil {
			return expr.C(0)
		}
		return g
	}
	second := func(g *expr.Expr) *expr.Expr {
		if negDy == nil {
			return expr.C(0)
		}
		return g.Neg().Mul(negDy(x0, x1))
	}
	return division{
		Declare(&Elementwise{Name: name, Arity: 2, Result: FixedFloat, Expr: float(x0, x1), Ref: ref2(ref), Domain: by, Grad: []*expr.Expr{first(x2), second(x2)}}),
		Declare(&Elementwise{Name: name + "_integer", Arity: 2, Result: Integral, Expr: integer(x0, x1), Ref: ref2(ref), Domain: by, NoBool: true, NoGrad: true}),
		Declare(&Elementwise{Name: name + "_scalar", Arity: 1, Result: FixedFloat, Expr: float(x0, p0), Ref: refP(ref), Domain: by, Params: []float64{2.5}, Grad: []*expr.Expr{first(x1)}}),
		Declare(&Elementwise{Name: name + "_integer_scalar", Arity: 1, Result: Integral, Expr: integer(x0, whole), Ref: refP(ref), Domain: by, Params: []float64{-3}, NoBool: true, NoGrad: true}),
	}
}

var (
	floorDivide = declareDivision("floor_divide", floored, func(x, y *expr.Expr) *expr.Expr { q, _ := quotient(x, y); return q }, flooredRef, nil, nil)
	truncDivide = declareDivision("trunc_divide", func(x, y *expr.Expr) *expr.Expr { return x.Div(y).Trunc() },
		func(x, y *expr.Expr) *expr.Expr { q, _ := truncated(x, y); return q }, truncatedRef, nil, nil)
	remainders = declareDivision("remainder", remainder, func(x, y *expr.Expr) *expr.Expr { _, r := quotient(x, y); return r }, remainderRef, unit, floored)
	fmods      = declareDivision("fmod", (*expr.Expr).Fmod, func(x, y *expr.Expr) *expr.Expr { _, r := truncated(x, y); return r }, math.Mod, unit,
		func(x, y *expr.Expr) *expr.Expr { return x.Div(y).Trunc() })
)

func (d division) apply(x, y *Tensor) *Tensor {
	in := []*Tensor{x, y}
	youngest(d.float.Name, in)
	if t, _ := (&Elementwise{Name: d.float.Name}).resultType(in); t.IsFloat() {
		return d.float.Apply(in)
	}
	return d.integer.Apply(in)
}

// number divides x by v. As in torch an integer tensor keeps its type if v is a whole number.
func (d division) number(x *Tensor, v float64) *Tensor {
	x.use(d.float.Name)
	switch {
	case x.dtype.IsFloat():
		return d.floatScalar.Apply([]*Tensor{x}, v)
	case v != math.Trunc(v) || math.Abs(v) >= 1<<53:
		return d.floatScalar.Apply([]*Tensor{x.Float()}, v)
	case v == 0: // torch fails too; the host knows the number, so the check needs no wait
		fail(d.float.Name, ErrValue, []*Tensor{x}, "integers are divided by 0")
	case x.dtype == boolType:
		x = x.Long()
	}
	return d.integerScalar.Apply([]*Tensor{x}, v)
}

func (d division) numberInPlace(x *Tensor, v float64) *Tensor {
	x.mustHold(d.float.Name, v)
	if x.dtype.IsFloat() {
		return x.inPlace(d.floatScalar, []*Tensor{x}, v)
	}
	if v == 0 {
		fail(d.float.Name, ErrValue, []*Tensor{x}, "integers are divided by 0")
	}
	return x.inPlace(d.integerScalar, []*Tensor{x}, v)
}

// FloorDivide returns ⌊x/y⌋, as torch's floor_divide and Python's // do. The operands are broadcast
// to a common shape. For integers the result is an integer, which is exact for int64 too. An
// integer divided by 0 is 0, where torch raises an error on the CPU. The gradient is 0.
//
//tensor:forms Scalar RScalar
func (x *Tensor) FloorDivide(y *Tensor) *Tensor { return floorDivide.apply(x, y) }

// TruncDivide returns x/y rounded towards zero, as torch's div with rounding_mode="trunc" does. The
// operands are broadcast to a common shape. Integers are treated as by FloorDivide. The gradient is
// 0.
//
//tensor:forms Scalar
func (x *Tensor) TruncDivide(y *Tensor) *Tensor { return truncDivide.apply(x, y) }

// Remainder returns x - y·⌊x/y⌋. The operands are broadcast to a common shape. The result has the
// sign of y, like Python's %. It is exact. For a float y of 0 it is NaN. For an integer y of 0 it
// is x, where torch raises an error on the CPU.
//
//tensor:forms Scalar RScalar ScalarInPlace
func (x *Tensor) Remainder(y *Tensor) *Tensor { return remainders.apply(x, y) }

// Fmod returns x - y·trunc(x/y). The operands are broadcast to a common shape. The result has the
// sign of x, like C's fmod. It is exact. For a float y of 0 it is NaN. For an integer y of 0 it is
// x, where torch raises an error on the CPU.
//
//tensor:forms Scalar
func (x *Tensor) Fmod(y *Tensor) *Tensor { return fmods.apply(x, y) }
