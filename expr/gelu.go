package expr

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// These activations have their own formulas, which need fewer operations than compositions of other
// functions.
func init() {
	Define(Func{
		Name: "gelu", Arity: 1,
		// x·Φ(x) is max(x, 0) - |x|·Φ(-|x|). A polynomial p gives Φ(-a) = 2^p(a). The absolute
		// error is at most 2⁻²⁴, in addition to the rounding of the result. The relative error is
		// 2⁻²¹ for x between -3 and 0, and 2⁻¹⁷ for x between -5.5 and -3. For x below -10, the
		// result is the result for x = -10, which is nearly 0. The formula for float64 uses the
		// error function.
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			if t == dtype.F64 {
				return x[0].Scale(0.5).Mul(C(1).Add(x[0].Scale(math.Sqrt2 / 2).Erf()))
			}
			a := x[0].Abs().Min(C(10))
			l := poly(a, tailLog32)
			magic := C(math.Ldexp(1.5, f.mant) + float64(f.bias))
			n := l.Add(magic)
			r := l.Sub(n.Sub(magic))
			tail := r.FMA(poly(r, exp2Coef32), C(1)).Mul(n.Bitcast(f.u).Shl(C(float64(f.mant))).Bitcast(f.t))
			y := a.Neg().FMA(tail, x[0].Max(C(math.Copysign(0, -1)))) // this gives -0 for x = -0
			// for x = -∞ the result is NaN, as with the error function, because -∞·0 is NaN
			return x[0].Eq(C(math.Inf(-1))).Select(C(math.NaN()), y)
		},
		// The derivative is Φ(x) + x·φ(x), where Φ is the normal distribution function and φ its
		// density.
		Diff: func(x []*Expr, y *Expr) []*Expr {
			return []*Expr{C(0.5).Mul(C(1).Add(x[0].Scale(math.Sqrt2 / 2).Erf())).Add(x[0].Mul(x[0].Mul(x[0]).Scale(-0.5).Exp()).Scale(1 / math.Sqrt(2*math.Pi)))}
		},
		Ref: func(x []float64) float64 { return 0.5 * x[0] * math.Erfc(-x[0]/math.Sqrt2) },
	})
	Define(Func{
		Name: "gelu_tanh", Arity: 1,
		// The definition ½·x·(1 + tanh(z)), with z = √(2/π)·(x + 0.044715·x³), equals x·σ(2z). σ is
		// the sigmoid.
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			return x[0].Mul(x[0].Mul(x[0].Mul(x[0]).FMA(C(2*geluScale*0.044715), C(2*geluScale))).Sigmoid())
		},
		// The derivative is σ(2z) + x·σ(2z)·(1-σ(2z))·2z', where z' is the derivative of z =
		// √(2/π)·(x + 0.044715·x³).
		Diff: func(x []*Expr, y *Expr) []*Expr {
			q := x[0].Mul(x[0])
			s := x[0].Mul(q.FMA(C(2*geluScale*0.044715), C(2*geluScale))).Sigmoid()
			return []*Expr{s.Add(x[0].Mul(s).Mul(C(1).Sub(s)).Mul(q.FMA(C(6*geluScale*0.044715), C(2*geluScale))))}
		},
		Ref: func(x []float64) float64 {
			return x[0] / (1 + math.Exp(-2*geluScale*(x[0]+0.044715*x[0]*x[0]*x[0])))
		},
	})
}

// geluScale is √(2/π), a constant of the tanh approximation of GELU (D. Hendrycks, K. Gimpel,
// arXiv:1606.08415).
const geluScale = 0.7978845608028653558798921198687637369517
