package expr

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// A pair is the unevaluated sum hi + lo of two floats, with |lo| ≤ ulp(hi).
type pair struct{ hi, lo *Expr }

// fastSum returns a + b as a pair, for |a| ≥ |b| or a = 0 (T. J. Dekker: A floating-point technique
// for extending the available precision, 1971).
func fastSum(a, b *Expr) pair {
	s := a.Add(b)
	return pair{s, a.Sub(s).Add(b)}
}

// product returns a·b as a pair.
func product(a, b *Expr) pair {
	p := a.Mul(b)
	return pair{p, a.FMA(b, p.Neg())}
}

// times returns p·q as a pair, without the product of the two low parts.
func (p pair) times(q pair) pair {
	r := product(p.hi, q.hi)
	return pair{r.hi, p.hi.FMA(q.lo, p.lo.FMA(q.hi, r.lo))}
}

func constPair(c []float64) pair { return pair{C(c[0]), C(c[1])} }

// log2Pair returns log2 of a positive finite x, with a relative error of about 2^-33 (float32) or
// 2^-64 (float64). It computes log2(m) = s·(2/ln2 + s²·(2/(3·ln2) + s²·P(s²))) with s =
// (m-1)/(m+1). All terms except P are pairs.
func (f format) log2Pair(x *Expr) pair {
	e, m := f.logParts(x)
	d := m.Sub(C(1))
	den := fastSum(C(2), d)
	inv := C(1).Div(den.hi)
	s := pair{hi: d.Mul(inv)}
	s.lo = s.hi.Neg().FMA(den.lo, s.hi.Neg().FMA(den.hi, d)).Mul(inv)
	z := s.times(s)
	c0, c1 := constPair(pick(f, twoLog2ex32, twoLog2ex64)), constPair(pick(f, twoThirdsLog2ex32, twoThirdsLog2ex64))
	r := fastSum(c1.hi, z.hi.Mul(poly(z.hi, pick(f, powCoef32, powCoef64))))
	r.lo = r.lo.Add(c1.lo)
	t := z.times(r)
	w := fastSum(c0.hi, t.hi)
	w.lo = w.lo.Add(t.lo.Add(c0.lo))
	l := s.times(w)
	sum := fastSum(e, l.hi)
	return pair{sum.hi, sum.lo.Add(l.lo)}
}

// pow returns x^(y+low) with the special values of C99's annex F for xʸ. low is much smaller than
// y, and may be nil.
func (f format) pow(x, y, low *Expr) *Expr {
	a := x.Abs()
	finite := a.Lt(C(math.Inf(1)))
	l := f.log2Pair(a)
	l.hi = a.Eq(C(0)).Select(C(math.Inf(-1)), finite.Select(l.hi, a))
	p := product(y, l.hi)
	p.lo = y.FMA(l.lo, p.lo)
	if low != nil {
		p.lo = low.FMA(l.hi, p.lo)
	}
	p.lo = p.hi.Abs().Lt(C(4096)).Select(p.lo, C(0))
	lo, hi := f.exp2Bounds()
	r := f.exp2(p.hi.Max(lo).Min(hi), p.lo)

	h := y.Scale(0.5)
	whole := y.Trunc().Eq(y)
	odd := whole.And(h.Trunc().Ne(h))
	sign := odd.Select(x.Bitcast(f.u).And(f.signBit()), f.word(0))
	r = r.Bitcast(f.u).Or(sign).Bitcast(f.t)
	r = x.Lt(C(0)).And(finite).And(whole.Not()).Select(C(math.NaN()), r)
	one := y.Eq(C(0)).Or(x.Eq(C(1))).Or(x.Eq(C(-1)).And(y.Abs().Eq(C(math.Inf(1)))))
	return one.Select(C(1), r)
}

// powRef is math.Pow, corrected for subnormal bases: there Go 1.26 is wrong, and Pow(5e-324, 0.25)
// returns 1e-77 instead of 2^-268.5.
func powRef(x []float64) float64 {
	if a := math.Abs(x[0]); a > 0 && a < 0x1p-1022 {
		return math.Pow(math.Ldexp(x[0], 60), x[1]) * math.Exp2(-60*x[1])
	}
	return math.Pow(x[0], x[1])
}

func init() {
	Define(Func{
		Name: "pow", Arity: 2,
		Expand: func(t dtype.Type, x []*Expr) *Expr { return formatOf(t).pow(x[0], x[1], nil) },
		Diff: func(x []*Expr, y *Expr) []*Expr {
			base, exponent := x[0], x[1]
			zero := C(0)
			return []*Expr{
				exponent.Eq(zero).Select(zero, exponent.Mul(base.Pow(exponent.Sub(C(1))))),
				base.Eq(zero).And(exponent.Ge(zero)).Select(zero, y.Mul(base.Log())),
			}
		},
		Ref: powRef,
	})
	Define(Func{
		Name: "powsum", Arity: 3,
		Expand: func(t dtype.Type, x []*Expr) *Expr { return formatOf(t).pow(x[0], x[1], x[2]) },
		Diff: func(x []*Expr, y *Expr) []*Expr {
			base, exponent, rest := x[0], x[1], x[2]
			zero := C(0)
			less := exponent.Sub(C(1))
			back := less.Sub(exponent)
			// add the rounding error of the subtraction exponent - 1 (D. E. Knuth, The Art of
			// Computer Programming, vol. 2, 4.2.2)
			lost := exponent.Sub(less.Sub(back)).Sub(back.Add(C(1)))
			by := base.Eq(zero).And(exponent.Ge(zero)).Select(zero, y.Mul(base.Log()))
			return []*Expr{exponent.Eq(zero).Select(zero, exponent.Mul(base.PowSum(less, rest.Add(lost)))), by, by}
		},
		Ref: func(x []float64) float64 { return powRef([]float64{x[0], x[1] + x[2]}) },
	})
}

// Pow returns xʸ with the special values of C99: x⁰ and 1ʸ are 1 even for NaN. For negative x and a
// y that is not an integer the result is NaN. As in torch, the derivative with respect to y is 0 if
// x = 0 and y ≥ 0. The derivative with respect to x is 0 if y = 0.
func (x *Expr) Pow(y *Expr) *Expr { return Call("pow", x, y) }

// PowSum returns x^(y+low). Use it for an exponent that is known more precisely than its type
// allows: low is at most half a unit in the last place of y. The special values are those of xʸ.
func (x *Expr) PowSum(y, low *Expr) *Expr { return Call("powsum", x, y, low) }
