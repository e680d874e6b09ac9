package tensor

import (
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/expr"
)

func fmaxRef(a, b float64) float64 {
	if b != b || a >= b {
		return a
	}
	return b
}

func fminRef(a, b float64) float64 {
	if b != b || a <= b {
		return a
	}
	return b
}

// The conditions under which the first operand is the result.
var (
	firstIsMore = x1.Ne(x1).Or(x0.Ge(x1))
	firstIsLess = x1.Ne(x1).Or(x0.Le(x1))
)

// shared gives the gradient to the operand that is the result, and half of it to each on a tie.
func shared(first *expr.Expr) []*expr.Expr {
	tie, half := x0.Eq(x1), x2.Scale(0.5)
	return []*expr.Expr{tie.Select(half, first.Select(x2, zeroC)), tie.Select(half, first.Select(zeroC, x2))}
}

var (
	fmaxOp = Declare(&Elementwise{Name: "fmax", Arity: 2, Expr: firstIsMore.Select(x0, x1), Ref: ref2(fmaxRef), Domain: wide,
		Grad: shared(firstIsMore)})
	fminOp = Declare(&Elementwise{Name: "fmin", Arity: 2, Expr: firstIsLess.Select(x0, x1), Ref: ref2(fminRef), Domain: wide,
		Grad: shared(firstIsLess)})

	// Params: relative and absolute tolerance. Equal infinities are close.
	isCloseOp = Declare(&Elementwise{Name: "isclose", Arity: 2, Result: Truth, Domain: wide, Params: []float64{0.5, 0.1}, NoGrad: true,
		Expr: x0.Eq(x1).Or(x0.Sub(x1).Abs().Lt(infinity).And(x0.Sub(x1).Abs().Le(p1.Add(x1.Mul(p0).Abs())))),
		Ref: func(x, p []float64) float64 {
			if d := math.Abs(x[0] - x[1]); x[0] == x[1] || d < math.Inf(1) && d <= p[1]+math.Abs(p[0]*x[1]) {
				return 1
			}
			return 0
		}})

	// A number to the power of a tensor. The power of 0 is flat where it is not infinite.
	rpowScalarOp = Declare(&Elementwise{Name: "rpow_scalar", Autocast: AutocastHigh, Arity: 1, Result: Floating, Expr: p0.Pow(x0), Domain: wide, Params: []float64{1.5},
		Ref:  refP(func(x, base float64) float64 { return math.Pow(base, x) }),
		Grad: []*expr.Expr{x1.Mul(p0.Eq(zeroC).And(x0.Ge(zeroC)).Select(zeroC, expr.Y().Mul(p0.Log())))}})
)

// Fmax returns the greater of x and y, broadcast together, and the other one where one is NaN. On a tie the gradient goes half to each.
func (x *Tensor) Fmax(y *Tensor) *Tensor { return fmaxOp.Apply([]*Tensor{x, y}) }

// Fmin returns the lesser of x and y, broadcast together, and the other one where one is NaN. On a tie the gradient goes half to each.
func (x *Tensor) Fmin(y *Tensor) *Tensor { return fminOp.Apply([]*Tensor{x, y}) }

// A CloseOption changes what [Tensor.IsClose] and [Tensor.AllClose] take for close.
type CloseOption uint8

// EqualNaN takes NaN for close to NaN, torch's equal_nan=True.
const EqualNaN CloseOption = 1

// IsClose returns whether |x-y| ≤ atol + rtol·|y|, or x = y, broadcast together; torch's defaults are 1e-5 and 1e-8. Integers are compared as
// float64. NaN is close to nothing, unless [EqualNaN] is given.
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

// AllClose returns whether all elements of x and y are close; see [Tensor.IsClose]. On a GPU it waits for the work queued so far.
func (x *Tensor) AllClose(y *Tensor, rtol, atol float64, o ...CloseOption) bool {
	return x.IsClose(y, rtol, atol, o...).LogicalNot().Sum().Item() == 0
}
