package expr

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

func init() {
	Define(Func{
		Name: "erfc", Arity: 1,
		// Let a be |x|. For a < ½, erfc(x) is 1 - erf(x). For a ≥ ½, erfc(a) is e^(-a²)·g/(2a+1),
		// where g is a polynomial in (a-2)/(a+2). The formula for erfc(a) computes with pairs of
		// floats, which keep the rounding errors of a², 2a+1, the quotient and the product. For x ≤
		// -½, erfc(x) is 2 - erfc(a).
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			near := C(1).Sub(poly(x[0].Mul(x[0]), pick(f, erfCoef32, erfCoef64)).FMA(x[0], x[0]))
			a := x[0].Abs()
			c := a.Min(C(pick(f, 10.1, 27.3)))
			sq := product(c, c)
			r, n := f.reduceExp(sq.hi.Neg(), 2*f.bias)
			e := fastSum(C(1), r.Mul(r).FMA(poly(r, pick(f, expCoef32, expCoef64)), r))
			e.lo = sq.lo.Neg().FMA(e.hi, e.lo)

			g := poly(c.Sub(C(2)).Div(c.Add(C(2))), pick(f, erfcCoef32, erfcCoef64))
			// fastSum needs 2c ≥ 1. For a smaller c the result is the variable near, which was
			// computed above.
			d := fastSum(c.Add(c), C(1))
			inv := C(1).Div(d.hi)
			v := pair{hi: g.Mul(inv)}
			v.lo = v.hi.Neg().FMA(d.lo, v.hi.Neg().FMA(d.hi, g)).Mul(inv)
			v = e.times(v)
			far := f.scale(v.hi.Add(v.lo), n)
			far = x[0].Lt(C(0)).Select(C(2).Sub(far), far)
			return a.Lt(C(0.5)).Select(near, far)
		},
		Diff: func(x []*Expr, y *Expr) []*Expr {
			return []*Expr{x[0].Mul(x[0]).Neg().Exp().Scale(-2 / math.SqrtPi)}
		},
		Ref: func(x []float64) float64 { return math.Erfc(x[0]) },
	})
	Define(Func{
		Name: "erfinv", Arity: 1,
		// The inverse of erf is x plus x times a polynomial in w = -log(1-x²), or in √w for large
		// w. The method is M. Giles: Approximating the erfinv function, GPU Computing Gems, 2011.
		// The coefficients are our own.
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			w := C(1).Sub(x[0]).Mul(C(1).Add(x[0])).Log().Neg()
			s := w.Sqrt()
			var p *Expr
			if t == dtype.F32 {
				p = w.Lt(C(5)).Select(poly(w, erfinvCoef32A), poly(s.Sub(C(3)), erfinvCoef32B))
			} else {
				p = w.Lt(C(6.25)).Select(poly(w, erfinvCoef64A),
					s.Lt(C(4)).Select(poly(s.Sub(C(3.25)), erfinvCoef64B), poly(s.Sub(C(5)), erfinvCoef64C)))
			}
			p = x[0].Abs().Eq(C(1)).Select(C(math.Inf(1)), p)
			a := x[0].Abs()
			return f.copySign(p.FMA(a, a), x[0])
		},
		Diff: func(x []*Expr, y *Expr) []*Expr {
			return []*Expr{y.Mul(y).Exp().Scale(math.Sqrt(math.Pi) / 2)}
		},
		Ref: func(x []float64) float64 { return math.Erfinv(x[0]) },
	})
}

// Erfc returns 1 - erf(x). It is accurate even if the result is small.
func (x *Expr) Erfc() *Expr { return Call("erfc", x) }

// Erfinv returns the y for which erf(y) = x: ±Inf at ±1, NaN for |x| > 1.
func (x *Expr) Erfinv() *Expr { return Call("erfinv", x) }
