package expr

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// oddPoly returns a + a·z·P(z) with z = a² and the coefficients c of P.
func oddPoly(a *Expr, c []float64) *Expr {
	z := a.Mul(a)
	return z.Mul(poly(z, c)).FMA(a, a)
}

// halfExp returns eᵃ/2 for a ≥ 0. It overflows only if the result does.
func (f format) halfExp(a *Expr) *Expr {
	p, n := f.power(a.Min(C(pick(f, 90.0, 711))), 2*f.bias-1)
	return f.scale(p, n)
}

// log1pUnit returns log(1+e) for 0 ≤ e ≤ 1.
func (f format) log1pUnit(e *Expr) *Expr {
	big := e.Gt(C(math.Sqrt2 - 1))
	return f.natural(big.Select(C(1), C(0)), big.Select(e.FMA(C(0.5), C(-0.5)), e))
}

// log1pExpNeg returns log(1+e^-a) for a ≥ 0.
func (f format) log1pExpNeg(a *Expr) *Expr {
	lo, _ := f.expBounds()
	return f.log1pUnit(f.expFull(a.Neg().Max(lo)))
}

func init() {
	Define(Func{
		Name: "softplus", Arity: 1,
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			return x[0].Max(C(0)).Add(formatOf(t).log1pExpNeg(x[0].Abs()))
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{x[0].Sigmoid()} },
		Ref:  func(x []float64) float64 { return math.Max(x[0], 0) + math.Log1p(math.Exp(-math.Abs(x[0]))) },
	})
	Define(Func{
		Name: "logsigmoid", Arity: 1,
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			return x[0].Min(C(0)).Sub(formatOf(t).log1pExpNeg(x[0].Abs()))
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{x[0].Neg().Sigmoid()} },
		Ref:  func(x []float64) float64 { return math.Min(x[0], 0) - math.Log1p(math.Exp(-math.Abs(x[0]))) },
	})
	Define(Func{
		Name: "logaddexp", Arity: 2,
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			// without this case, two equal infinities would differ by NaN instead of 0
			d := x[0].Eq(x[1]).Select(C(0), x[0].Sub(x[1]).Abs())
			return x[0].Max(x[1]).Add(formatOf(t).log1pExpNeg(d))
		},
		Diff: func(x []*Expr, y *Expr) []*Expr {
			return []*Expr{accurateSigmoid(x[0].Sub(x[1])), accurateSigmoid(x[1].Sub(x[0]))}
		},
		Ref: func(x []float64) float64 {
			if x[0] == x[1] {
				return x[0] + math.Ln2
			}
			return math.Max(x[0], x[1]) + math.Log1p(math.Exp(-math.Abs(x[0]-x[1])))
		},
	})
	Define(Func{
		Name: "sinh", Arity: 1,
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			a := x[0].Abs()
			e := f.halfExp(a)
			far := e.Sub(C(0.25).Div(e))
			return f.copySign(a.Lt(C(1)).Select(oddPoly(a, pick(f, sinhCoef32, sinhCoef64)), far), x[0])
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{x[0].Cosh()} },
		Ref:  func(x []float64) float64 { return math.Sinh(x[0]) },
	})
	Define(Func{
		Name: "cosh", Arity: 1,
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			e := formatOf(t).halfExp(x[0].Abs())
			return e.Add(C(0.25).Div(e))
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{x[0].Sinh()} },
		Ref:  func(x []float64) float64 { return math.Cosh(x[0]) },
	})
	Define(Func{
		Name: "asinh", Arity: 1,
		// asinh is an odd polynomial for a < 1. For larger a it is log(a + √(a²+1)), and from 2⁴⁰
		// on it is log 2a.
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			a := x[0].Abs()
			moderate := a.Lt(C(0x1p40))
			u := fastSum(a.FMA(a, C(1)).Sqrt(), a)
			e, m := f.splitBits(moderate.Select(u.hi, a).Bitcast(f.u))
			d := m.Sub(C(1)).Add(moderate.Select(u.lo.Mul(m).Div(u.hi), C(0)))
			far := f.natural(e.Add(moderate.Select(C(0), C(1))), d)
			far = a.Lt(C(math.Inf(1))).Select(far, a)
			return f.copySign(a.Lt(C(1)).Select(oddPoly(a, pick(f, asinhCoef32, asinhCoef64)), far), x[0])
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{C(1).Div(x[0].FMA(x[0], C(1)).Sqrt())} },
		Ref:  func(x []float64) float64 { return math.Asinh(x[0]) },
	})
	Define(Func{
		Name: "acosh", Arity: 1,
		// acosh is log(1 + (t + √(t·(t+2)))), where t = x-1 and sums are computed as pairs. From
		// 2⁴⁰ on it is log 2x.
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			d := x[0].Sub(C(1)).Min(C(0x1p40))
			p := product(d, d.Add(C(2)))
			p.lo = p.lo.Add(d.Mul(C(2).Sub(d.Add(C(2)).Sub(d)))) // add the rounding error of t+2
			s := p.hi.Sqrt()
			sl := s.Neg().FMA(s, p.hi).Add(p.lo).Div(s.Add(s))
			sl = d.Eq(C(0)).Select(C(0), sl)
			w := d.Add(s)
			wl := twoSumError(d, s, w).Add(sl)

			u := w.Add(C(1))
			ul := twoSumError(w, C(1), u).Add(wl)
			near := x[0].Lt(C(0x1p40))
			e, m := f.splitBits(near.Select(u, x[0]).Bitcast(f.u))
			// 1+w is 2ᵉ·(1+g). If e = 0, then g is w itself.
			zero := e.Eq(C(0))
			g := zero.Select(w, m.Sub(C(1)))
			rest := near.Select(zero.Select(wl, ul).Div(u), C(0))
			y := f.natural(e.Add(near.Select(C(0), C(1))), g).Add(rest)
			y = x[0].Lt(C(math.Inf(1))).Select(y, x[0])
			return x[0].Lt(C(1)).Select(C(math.NaN()), y)
		},
		Diff: func(x []*Expr, y *Expr) []*Expr {
			return []*Expr{C(1).Div(x[0].Sub(C(1)).Sqrt().Mul(x[0].Add(C(1)).Sqrt()))}
		},
		Ref: func(x []float64) float64 { return math.Acosh(x[0]) },
	})
	Define(Func{
		Name: "atanh", Arity: 1,
		// atanh is an odd polynomial for a < ½, and ½·log((1+a)/(1-a)) for a ≥ ½.
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			a := x[0].Abs()
			u := C(1).Add(a).Div(C(1).Sub(a))
			e, m := f.splitBits(u.Bitcast(f.u))
			far := logDomain(u, f.natural(e, m.Sub(C(1)))).Scale(0.5)
			return f.copySign(a.Lt(C(0.5)).Select(oddPoly(a, pick(f, atanhCoef32, atanhCoef64)), far), x[0])
		},
		Diff: func(x []*Expr, y *Expr) []*Expr {
			return []*Expr{C(1).Div(C(1).Sub(x[0]).Mul(C(1).Add(x[0])))}
		},
		Ref: func(x []float64) float64 { return math.Atanh(x[0]) },
	})
}

// twoSumError returns the rounding error of s = a + b (D. Knuth: The Art of Computer Programming,
// vol. 2, 4.2.2).
func twoSumError(a, b, s *Expr) *Expr {
	bb := s.Sub(a)
	return a.Sub(s.Sub(bb)).Add(b.Sub(bb))
}

// Softplus returns log(1+eˣ). For very negative x the result is subnormal, not zero.
func (x *Expr) Softplus() *Expr { return Call("softplus", x) }

// LogSigmoid returns -log(1+e⁻ˣ).
func (x *Expr) LogSigmoid() *Expr { return Call("logsigmoid", x) }

// LogAddExp returns log(eˣ+eʸ). If the result is near 0, the error is small relative to x and y,
// but not relative to the result.
func (x *Expr) LogAddExp(y *Expr) *Expr { return Call("logaddexp", x, y) }

// Sinh returns the hyperbolic sine of x.
func (x *Expr) Sinh() *Expr { return Call("sinh", x) }

// Cosh returns the hyperbolic cosine of x.
func (x *Expr) Cosh() *Expr { return Call("cosh", x) }

// Asinh returns the inverse hyperbolic sine of x.
func (x *Expr) Asinh() *Expr { return Call("asinh", x) }

// Acosh returns the inverse hyperbolic cosine of x, NaN below 1.
func (x *Expr) Acosh() *Expr { return Call("acosh", x) }

// Atanh returns the inverse hyperbolic tangent of x, ±Inf at ±1, NaN beyond.
func (x *Expr) Atanh() *Expr { return Call("atanh", x) }

// accurateSigmoid returns 1/(1+e⁻ᵈ), like Sigmoid. But its derivative is accurate even if the
// result y is near 1, because it does not compute 1 - y.
func accurateSigmoid(d *Expr) *Expr {
	low := d.Lt(C(0))
	e := low.Select(d, d.Neg()).Exp()
	return low.Select(e, C(1)).Div(e.Add(C(1)))
}
