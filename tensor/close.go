package tensor

import (
	"math"
	"slices"
)

var (
	// The parameters p0 and p1 are the relative and the absolute tolerance. Equal infinities are
	// close.
	isCloseOp = Declare(&Elementwise{Name: "isclose", Arity: 2, Result: Truth, Domain: wide, Params: []float64{0.5, 0.1}, NoGrad: true,
		Expr: x0.Eq(x1).Or(x0.Sub(x1).Abs().Lt(infinity).And(x0.Sub(x1).Abs().Le(p1.Add(x1.Mul(p0).Abs())))),
		Ref: func(x, p []float64) float64 {
			if d := math.Abs(x[0] - x[1]); x[0] == x[1] || d < math.Inf(1) && d <= p[1]+math.Abs(p[0]*x[1]) {
				return 1
			}
			return 0
		}})
)

// A CloseOption changes which elements [Tensor.IsClose] and [Tensor.AllClose] consider close.
type CloseOption uint8

// EqualNaN makes NaN close to NaN, as torch's equal_nan=True does.
const EqualNaN CloseOption = 1

// IsClose returns a bool tensor that is true where |x-y| ≤ atol + rtol·|y| or x = y. The operands
// are broadcast to a common shape. torch's defaults are rtol 1e-5 and atol 1e-8. Integers are
// compared as float64. NaN is close to nothing, unless [EqualNaN] is given.
func (x *Tensor) IsClose(y *Tensor, rtol, atol float64, o ...CloseOption) *Tensor {
	in := []*Tensor{x, y}
	youngest("isclose", in)
	if !(rtol >= 0 && atol >= 0) {
		fail("isclose", ErrValue, in, "tolerances %v and %v, they must not be negative", rtol, atol)
	}
	if t, _ := isCloseOp.resultType(in); !t.IsFloat() {
		in = []*Tensor{x.Double(), y.Double()}
	}
	if !slices.Contains(o, EqualNaN) {
		return isCloseOp.Apply(in, rtol, atol)
	}
	return within(youngest("isclose", in), func(c *Scope) *Tensor {
		return isCloseOp.Apply([]*Tensor{in[0].In(c), in[1]}, rtol, atol).LogicalOr(in[0].In(c).IsNaN().LogicalAnd(in[1].IsNaN()))
	})
}

// AllClose returns whether all elements of x and y are close; see [Tensor.IsClose]. On a GPU it
// waits for the work queued so far.
func (x *Tensor) AllClose(y *Tensor, rtol, atol float64, o ...CloseOption) bool {
	return x.IsClose(y, rtol, atol, o...).LogicalNot().Sum().Item() == 0
}
