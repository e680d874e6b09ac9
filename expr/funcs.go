package expr

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// The named functions are formulas over the primitives, one for float32 and one for float64. So a
// result has the same bits on every device. A Select computes both branches, so a formula limits
// the argument of a branch that could overflow when it is not selected. The sign of a NaN is not
// defined. Unless the comment of a function says otherwise, errors are at most 2 units in the last
// place. This holds over the whole range of the type, including subnormal arguments and results.

// format describes a binary float type for the formulas.
type format struct {
	t, u  dtype.Type // the float type, and the unsigned integer type of the same width
	mant  int        // number of bits of the fraction field: 23 or 52
	bias  int        // bias of the exponent: 127 or 1023
	ln2   []float64
	log2e []float64
}

var (
	single = format{dtype.F32, dtype.U32, 23, 127, ln2x32, log2ex32}
	double = format{dtype.F64, dtype.U64, 52, 1023, ln2x64, log2ex64}
)

func formatOf(t dtype.Type) format {
	if t == dtype.F64 {
		return double
	}
	return single
}

// pick returns the float32 or the float64 form of a table or constant.
func pick[T any](f format, for32, for64 T) T {
	if f.t == dtype.F64 {
		return for64
	}
	return for32
}

// word returns an integer constant with the float's width.
func (f format) word(b uint64) *Expr { return Bits(f.u, b) }

func (f format) signBit() *Expr { return f.word(1 << pick(f, 31, 63)) }

// copySign returns a with the sign of x. a must not be negative.
func (f format) copySign(a, x *Expr) *Expr {
	return a.Bitcast(f.u).Or(x.Bitcast(f.u).And(f.signBit())).Bitcast(f.t)
}

// poly returns c[0] + c[1]·x + … by Horner's rule.
func poly(x *Expr, c []float64) *Expr {
	p := C(c[len(c)-1])
	for k := len(c) - 2; k >= 0; k-- {
		if k == len(c)-2 {
			p = x.FMA(p, C(c[k]))
		} else {
			p = p.FMA(x, C(c[k]))
		}
	}
	return p
}

// reduceExp returns r and n, where x = k·ln2 + r for an integer k, and |r| ≤ ln2/2. n is a bit
// pattern whose low part is k + off. To round x/ln2 to the integer k, reduceExp adds 1.5·2^mant: a
// float of that size has no fraction bits.
func (f format) reduceExp(x *Expr, off int) (r, n *Expr) {
	magic := C(math.Ldexp(1.5, f.mant) + float64(off))
	t := x.FMA(C(f.log2e[0]), magic)
	k := t.Sub(magic)
	return k.FMA(C(-f.ln2[1]), k.FMA(C(-f.ln2[0]), x)), t.Bitcast(f.u)
}

// residual returns 1 - (1+e)·r. It is near 0 if r approximates 1/(1+e).
func residual(e, r *Expr) *Expr { return e.Neg().FMA(r, C(1).Sub(r)) }

// inverse returns 1/(1+e). It starts from a polynomial with the coefficients c and makes the given
// number of Newton steps. A division would be slower, and would contain a branch.
func (f format) inverse(e *Expr, c []float64, steps int) *Expr {
	r := poly(e, c)
	for range steps {
		r = r.FMA(residual(e, r), r)
	}
	return r
}

// reduceHalf does what reduceExp does for the argument 2x, but returns r/2 instead of r.
func (f format) reduceHalf(x *Expr, off int) (r, n *Expr) {
	magic := C(math.Ldexp(1.5, f.mant) + float64(off))
	t := x.FMA(C(2*f.log2e[0]), magic)
	k := t.Sub(magic)
	return k.FMA(C(-f.ln2[1]/2), k.FMA(C(-f.ln2[0]/2), x)), t.Bitcast(f.u)
}

// scaled returns the coefficients of p(b·x), where p has the coefficients c and b is a power of
// two.
func scaled(c []float64, b float64) []float64 {
	list, s := make([]float64, len(c)), 1.0
	for k := range c {
		list[k], s = c[k]*s, s*b
	}
	return list
}

// power returns p ≈ eʳ and n, for the r and n of [format.reduceExp].
func (f format) power(x *Expr, off int) (p, n *Expr) {
	r, n := f.reduceExp(x, off)
	return poly(r, append([]float64{1, 1}, pick(f, expCoef32, expCoef64)...)), n
}

// exp2 returns 2^(x+lo). lo is much smaller than x, and may be nil. x may be slightly outside the
// range of exponents: the result then overflows or becomes 0.
func (f format) exp2(x, lo *Expr) *Expr {
	magic := C(math.Ldexp(1.5, f.mant) + float64(2*f.bias))
	t := x.Add(magic)
	r := x.Sub(t.Sub(magic))
	if lo != nil {
		r = r.Add(lo)
	}
	return f.scale(r.FMA(poly(r, pick(f, exp2Coef32, exp2Coef64)), C(1)), t.Bitcast(f.u))
}

// exp returns eˣ if the result is a normal number.
func (f format) exp(x *Expr) *Expr {
	p, n := f.power(x, f.bias)
	return p.Mul(n.Shl(C(float64(f.mant))).Bitcast(f.t))
}

// expFull returns eˣ for any x within the bounds of [format.expBounds]. It multiplies by two powers
// of two, one after the other. Only the second product can overflow or become subnormal.
func (f format) expFull(x *Expr) *Expr {
	p, n := f.power(x, 2*f.bias)
	return f.scale(p, n)
}

// scale returns p·2ᵏ. The lower bits of n hold k + 2·bias.
func (f format) scale(p, n *Expr) *Expr {
	m := C(float64(f.mant))
	half := n.Shr(C(1)).Shl(m)
	return p.Mul(half.Bitcast(f.t)).Mul(n.Shl(m).Sub(half).Bitcast(f.t))
}

// expBelow returns eˣ = p·2ᵏ for x ≤ 0. 2ᵏ may be subnormal, so expBelow multiplies by 2^(k+s) and
// then by 2^-s, where s is larger than the number of fraction bits. Only the second product can be
// subnormal.
func (f format) expBelow(x *Expr) *Expr {
	s := f.mant + 2
	p, n := f.power(x, f.bias+s)
	return p.Mul(n.Shl(C(float64(f.mant))).Bitcast(f.t)).Mul(C(math.Ldexp(1, -s)))
}

// expBounds returns bounds for arguments of [format.expFull]. Beyond them eˣ rounds to 0 or +Inf in
// the type. At the lower bound, one of the two factors of [format.scale] is 0. With a bound closer
// to 0, the product would underflow instead, which takes 16 times as long on many processors.
// Masked attention scores of -Inf would often cause such underflows.
func (f format) expBounds() (lo, hi *Expr) {
	return C(pick(f, -176.0, -1418)), C(pick(f, 89.0, 710))
}

// belowBound returns the lower bound for arguments of [format.expBelow]. Below it eˣ rounds to 0.
func (f format) belowBound() *Expr { return C(pick(f, -105.5, -746.5)) }

// exp2Bounds returns bounds for arguments of [format.exp2]. Beyond them 2ˣ rounds to 0 or +Inf.
func (f format) exp2Bounds() (lo, hi *Expr) {
	return C(float64(-2 * f.bias)), C(pick(f, 140.0, 1100))
}

func init() {
	Define(Func{
		Name: "exp", Arity: 1,
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			lo, hi := f.expBounds()
			return f.expFull(x[0].Max(lo).Min(hi))
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{y} },
		Ref:  func(x []float64) float64 { return math.Exp(x[0]) },
	})
	Define(Func{
		Name: "sigmoid", Arity: 1,
		// Let e be exp(-|x|), which cannot overflow. The result is 1/(1+e) for x ≥ 0, and e/(1+e)
		// otherwise. r approximates 1/(1+e), and the residual 1 - (1+e)·r corrects the roundings of
		// 1+e and r.
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			e := f.expBelow(x[0].Abs().Neg().Max(f.belowBound()))
			r := f.inverse(e, pick(f, oneCoef32, oneCoef64), pick(f, 1, 2))
			y := x[0].Lt(C(0)).Select(e, C(1)).Mul(r)
			return y.FMA(residual(e, r), y)
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{y.Mul(C(1).Sub(y))} },
		Ref: func(x []float64) float64 {
			if x[0] < 0 {
				e := math.Exp(x[0])
				return e / (1 + e)
			}
			return 1 / (1 + math.Exp(-x[0]))
		},
	})
	Define(Func{
		Name: "tanh", Arity: 1,
		// For |x| < 0.55, tanh is an odd polynomial. For larger |x| it is 1 - 2e/(1+e), where e is
		// exp(-2|x|).
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			a := x[0].Abs()
			z := a.Mul(a)
			near := z.Mul(poly(z, pick(f, tanhCoef32, tanhCoef64))).FMA(a, a)
			r, n := f.reduceHalf(a.Neg().Max(C(-20)), f.bias)
			// The variable e is exp(-2a).
			e := poly(r, scaled(append([]float64{1, 1}, pick(f, expCoef32, expCoef64)...), 2)).Mul(n.Shl(C(float64(f.mant))).Bitcast(f.t))
			far := e.Mul(f.inverse(e, pick(f, thirdCoef32, thirdCoef64), 1)).FMA(C(-2), C(1))
			return f.copySign(a.Lt(C(0.55)).Select(near, far), x[0])
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{C(1).Sub(y.Mul(y))} },
		Ref:  func(x []float64) float64 { return math.Tanh(x[0]) },
	})
	Define(Func{
		Name: "erf", Arity: 1,
		// For |x| < 0.9, erf is an odd polynomial. For larger |x| it is 1 - exp(p), where the
		// polynomial p approximates log(erfc |x|).
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			a := x[0].Abs()
			near := poly(a.Mul(a), pick(f, erfCoef32, erfCoef64)).FMA(a, a)
			l := poly(a.Min(C(pick(f, 4.0, 6))).Sub(C(1)), pick(f, erfcLog32, erfcLog64))
			far := C(1).Sub(f.exp(l))
			return f.copySign(a.Lt(C(0.9)).Select(near, far), x[0])
		},
		Diff: func(x []*Expr, y *Expr) []*Expr {
			return []*Expr{x[0].Mul(x[0]).Neg().Exp().Scale(2 / math.SqrtPi)}
		},
		Ref: func(x []float64) float64 { return math.Erf(x[0]) },
	})
}

func init() {
	Define(Func{
		Name: "exp2", Arity: 1,
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			lo, hi := f.exp2Bounds()
			return f.exp2(x[0].Max(lo).Min(hi), nil)
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{y.Scale(math.Ln2)} },
		Ref:  func(x []float64) float64 { return math.Exp2(x[0]) },
	})
	Define(Func{
		Name: "expm1", Arity: 1,
		// eˣ-1 is 2ᵏ·q + (2ᵏ-1), where x = k·ln2 + r and q = eʳ-1. The formula computes half of
		// this and doubles it, so that 2ᵏ does not overflow before the result does.
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			_, hi := f.expBounds()
			r, n := f.reduceExp(x[0].Max(C(-40)).Min(hi), f.bias-1)
			q := r.Mul(r).FMA(poly(r, pick(f, expCoef32, expCoef64)), r)
			half := n.Shl(C(float64(f.mant))).Bitcast(f.t)
			y := q.FMA(half, half.Sub(C(0.5)))
			return x[0].Abs().Lt(C(math.Ldexp(1, -f.mant-4))).Select(x[0], y.Add(y))
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{y.Add(C(1))} },
		Ref:  func(x []float64) float64 { return math.Expm1(x[0]) },
	})
	Define(Func{
		Name: "rsqrt", Arity: 1,
		Expand: func(t dtype.Type, x []*Expr) *Expr { return C(1).Div(x[0].Sqrt()) },
		Diff:   func(x []*Expr, y *Expr) []*Expr { return []*Expr{y.Mul(y).Mul(y).Scale(-0.5)} },
		Ref:    func(x []float64) float64 { return 1 / math.Sqrt(x[0]) },
	})
}

// Exp returns eˣ.
func (x *Expr) Exp() *Expr { return Call("exp", x) }

// Sigmoid returns 1/(1+e⁻ˣ). For very negative x the result is subnormal, not zero.
func (x *Expr) Sigmoid() *Expr { return Call("sigmoid", x) }

// Tanh returns the hyperbolic tangent of x.
func (x *Expr) Tanh() *Expr { return Call("tanh", x) }

// Erf returns the error function of x, 2/√π · ∫₀ˣ exp(-t²) dt.
func (x *Expr) Erf() *Expr { return Call("erf", x) }

// Exp2 returns 2ˣ.
func (x *Expr) Exp2() *Expr { return Call("exp2", x) }

// Expm1 returns eˣ-1, accurate near 0.
func (x *Expr) Expm1() *Expr { return Call("expm1", x) }

// Rsqrt returns 1/√x.
func (x *Expr) Rsqrt() *Expr { return Call("rsqrt", x) }
