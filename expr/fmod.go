package expr

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// reduceBy returns the remainder of r/y, or this remainder minus y. y must be positive, and the
// number n of steps must be large enough. Each step replaces r by r - q·y, where q is r/y rounded
// to 53 bits and truncated. Let u be the smaller of two units in the last place: that of r and that
// of y. Then r, y and the new r are multiples of u, and the new r is smaller, so the fused
// multiply-add is exact. Each step divides the quotient by about 2⁵³.
func reduceBy(r, y *Expr, n int) *Expr {
	for range n {
		r = r.Div(y).Trunc().Neg().FMA(y, r)
	}
	return r
}

// fmod returns x - y·trunc(x/y) without any rounding, in float64. The quotient of two float32
// numbers is at most 2²⁷⁸, which takes 6 steps. The quotient of two float64 numbers may overflow if
// y is small. Then fmod first takes the remainders by y·2¹⁴⁰⁰ and y·2⁷⁰⁰.
func fmod(x, y *Expr, wide bool) *Expr {
	r, a := x.Abs(), y.Abs()
	if wide {
		up := a.Scale(0x1p700)
		second := a.Lt(C(0x1p300)).Select(up, a)
		first := a.Lt(C(0x1p-400)).Select(up.Scale(0x1p700), second)
		r = reduceBy(reduceBy(r, first, 14), second, 14)
		r = reduceBy(r, a, 14)
	} else {
		r = reduceBy(r, a, 6)
	}
	r = r.Lt(C(0)).Select(r.Add(a), r) // r is negative if the last quotient was rounded up
	// A finite number modulo infinity is the number itself.
	inf := C(math.Inf(1))
	return a.Eq(inf).And(x.Abs().Lt(inf)).Select(x.Abs(), r)
}

func init() {
	Define(Func{
		Name: "copysign", Arity: 2,
		Expand: func(t dtype.Type, x []*Expr) *Expr { return formatOf(t).copySign(x[0].Abs(), x[1]) },
		// As in torch, the derivative of copysign(x, y) with respect to x is 0 at x = 0. The
		// derivative with respect to y is 0, because only the sign of y matters.
		Diff: func(x []*Expr, y *Expr) []*Expr {
			return []*Expr{x[0].Eq(C(0)).Select(C(0), y.Div(x[0])), C(0)}
		},
		Ref: func(x []float64) float64 { return math.Copysign(x[0], x[1]) },
	})
	Define(Func{
		Name: "fmod", Arity: 2,
		// The result of fmod is exact, like that of C's fmod. For float32 it is computed in
		// float64.
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			r := fmod(x[0].Cvt(dtype.F64), x[1].Cvt(dtype.F64), t == dtype.F64).Cvt(t)
			return f.copySign(r, x[0])
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{C(1), x[0].Div(x[1]).Trunc().Neg()} },
		Ref:  func(x []float64) float64 { return math.Mod(x[0], x[1]) },
	})
	Define(Func{
		Name: "hypot", Arity: 2,
		// Hypot of float32 is computed in float64, where no square overflows. For float64, the
		// operands are first scaled by a power of two.
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			a, b := x[0].Abs(), x[1].Abs()
			inf := C(math.Inf(1))
			var h *Expr
			if t == dtype.F32 {
				u, v := a.Cvt(dtype.F64), b.Cvt(dtype.F64)
				h = u.FMA(u, v.Mul(v)).Sqrt().Cvt(dtype.F32)
			} else {
				m := a.Max(b)
				s := m.Gt(C(0x1p500)).Select(C(0x1p-600), m.Lt(C(0x1p-450)).Select(C(0x1p600), C(1)))
				back := m.Gt(C(0x1p500)).Select(C(0x1p600), m.Lt(C(0x1p-450)).Select(C(0x1p-600), C(1)))
				u, v := a.Mul(s), b.Mul(s)
				h = u.FMA(u, v.Mul(v)).Sqrt().Mul(back)
			}
			return a.Eq(inf).Or(b.Eq(inf)).Select(inf, h)
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{x[0].Div(y), x[1].Div(y)} },
		Ref:  func(x []float64) float64 { return math.Hypot(x[0], x[1]) },
	})
}

// CopySign returns |x| with the sign bit of y.
func (x *Expr) CopySign(y *Expr) *Expr { return Call("copysign", x, y) }

// Fmod returns the exact remainder of x divided by y, with the sign of x. It is NaN for y = 0.
func (x *Expr) Fmod(y *Expr) *Expr { return Call("fmod", x, y) }

// Hypot returns √(x²+y²) without intermediate overflow. It is infinite if x or y is.
func (x *Expr) Hypot(y *Expr) *Expr { return Call("hypot", x, y) }
