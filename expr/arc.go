package expr

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// halfPiMinus returns π/2 - r for 0 ≤ r ≤ π/2.
func (f format) halfPiMinus(r *Expr) *Expr {
	c := pick(f, halfPix32, halfPix64)
	return C(c[0]).Sub(r.Sub(C(c[1])))
}

func (f format) piMinus(r *Expr) *Expr {
	c := pick(f, halfPix32, halfPix64)
	return C(2 * c[0]).Sub(r.Sub(C(2 * c[1])))
}

// asinParts works on a ≥ 0. big reports whether a > 0.57. If big is true, r is asin(√((1-a)/2)),
// which equals acos(a)/2. Otherwise r is asin(a).
func (f format) asinParts(a *Expr) (big, r *Expr) {
	big = a.Gt(C(0.57))
	z := C(-0.5).FMA(a, C(0.5))
	s := big.Select(z.Sqrt(), a)
	z = big.Select(z, a.Mul(a))
	return big, z.Mul(poly(z, pick(f, asinCoef32, asinCoef64))).FMA(s, s)
}

func init() {
	Define(Func{
		Name: "tan", Arity: 1,
		// If x is q·π/2 + r with an odd q, the tangent of x is -1/tan(r).
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			q, r := f.quadrant(x[0].Abs())
			z := r.hi.Mul(r.hi)
			p := poly(z, pick(f, tanCoef32, tanCoef64))
			v := r.hi.Add(z.Mul(r.hi).FMA(p, z.Add(C(1)).Mul(r.lo)))
			v = q.And(f.word(1)).Eq(f.word(0)).Select(v, C(-1).Div(v))
			return v.Bitcast(f.u).Xor(x[0].Bitcast(f.u).And(f.signBit())).Bitcast(f.t)
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{y.FMA(y, C(1))} },
		Ref:  func(x []float64) float64 { return math.Tan(x[0]) },
	})
	Define(Func{
		Name: "atan", Arity: 1,
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			a := x[0].Abs()
			big := a.Gt(C(1))
			r := oddPoly(big.Select(C(1).Div(a), a), pick(f, atanCoef32, atanCoef64))
			return f.copySign(big.Select(f.halfPiMinus(r), r), x[0])
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{C(1).Div(x[0].FMA(x[0], C(1)))} },
		Ref:  func(x []float64) float64 { return math.Atan(x[0]) },
	})
	Define(Func{
		Name: "atan2", Arity: 2,
		// The formula computes the angle in the first octant, and then reflects it at the diagonal
		// and at the axes if necessary.
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			ay, ax := x[0].Abs(), x[1].Abs()
			ratio := ay.Min(ax).Div(ay.Max(ax))
			// 0/0 counts as 0, and ∞/∞ as 1
			ratio = ay.Eq(ax).Select(ay.Eq(C(0)).Select(C(0), C(1)), ratio)
			r := oddPoly(ratio, pick(f, atanCoef32, atanCoef64))
			r = ay.Gt(ax).Select(f.halfPiMinus(r), r)
			left := x[1].Bitcast(f.u).And(f.signBit()).Ne(f.word(0))
			return f.copySign(left.Select(f.piMinus(r), r), x[0])
		},
		Diff: func(x []*Expr, y *Expr) []*Expr {
			n := x[0].FMA(x[0], x[1].Mul(x[1]))
			return []*Expr{x[1].Div(n), x[0].Neg().Div(n)}
		},
		Ref: func(x []float64) float64 { return math.Atan2(x[0], x[1]) },
	})
	Define(Func{
		Name: "asin", Arity: 1,
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			big, r := f.asinParts(x[0].Abs())
			return f.copySign(big.Select(f.halfPiMinus(r.Add(r)), r), x[0])
		},
		Diff: func(x []*Expr, y *Expr) []*Expr {
			return []*Expr{C(1).Div(C(1).Sub(x[0]).Mul(C(1).Add(x[0])).Sqrt())}
		},
		Ref: func(x []float64) float64 { return math.Asin(x[0]) },
	})
	Define(Func{
		Name: "acos", Arity: 1,
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			big, r := f.asinParts(x[0].Abs())
			twice := r.Add(r)
			negative := x[0].Lt(C(0))
			return big.Select(negative.Select(f.piMinus(twice), twice), f.halfPiMinus(f.copySign(r, x[0])))
		},
		Diff: func(x []*Expr, y *Expr) []*Expr {
			return []*Expr{C(-1).Div(C(1).Sub(x[0]).Mul(C(1).Add(x[0])).Sqrt())}
		},
		Ref: func(x []float64) float64 { return math.Acos(x[0]) },
	})
}

// Tan returns the tangent of x radians, for arguments of any size.
func (x *Expr) Tan() *Expr { return Call("tan", x) }

// Atan returns the angle between -π/2 and π/2 whose tangent is x.
func (x *Expr) Atan() *Expr { return Call("atan", x) }

// Atan2 returns the angle of the point with ordinate x and abscissa u, between -π and π.
func (x *Expr) Atan2(u *Expr) *Expr { return Call("atan2", x, u) }

// Asin returns the angle between -π/2 and π/2 whose sine is x, NaN for |x| > 1.
func (x *Expr) Asin() *Expr { return Call("asin", x) }

// Acos returns the angle between 0 and π whose cosine is x, NaN for |x| > 1.
func (x *Expr) Acos() *Expr { return Call("acos", x) }
