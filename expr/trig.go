package expr

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// quadrant reduces a ≥ 0 to a = q·π/2 + r with |r.hi| ≤ π/4. q is an integer of the float's width.
// Only its low two bits matter.
//
// For moderate arguments it subtracts k·π/2 in three steps. The first step is exact because the
// product of k and the first part of π/2 has few enough bits after the binary point (W. Cody, W.
// Waite: Software Manual for the Elementary Functions, 1980; here with fused multiply-adds). For
// larger arguments it multiplies the integer mantissa by those bits of 2/π that affect the product
// modulo 4 (M. Payne, R. Hanek: Radian reduction for trigonometric functions, 1983).
func (f format) quadrant(a *Expr) (q *Expr, r pair) {
	c := pick(f, halfPix32, halfPix64)
	magic := C(math.Ldexp(1.5, f.mant))
	t := a.FMA(C(2/math.Pi), magic)
	k := t.Sub(magic)
	r1 := k.FMA(C(-c[0]), a)
	p := product(k, C(c[1]))
	r.hi = r1.Sub(p.hi) // exact, because r1 is a multiple of ulp(p)
	r.lo = k.FMA(C(-c[2]), r1.Sub(r.hi).Sub(p.hi).Sub(p.lo))
	q = t.Bitcast(f.u)

	near := a.Lt(C(pick(f, 0x1p16, 0x1p30)))
	qBig, rBig := f.largeQuadrant(a)
	rBig.lo = rBig.lo.Add(a.Sub(a)) // this gives NaN for infinities
	return near.Select(q, qBig), pair{near.Select(r.hi, rBig.hi), near.Select(r.lo, rBig.lo)}
}

// largeQuadrant is [format.quadrant] for large a: from 2¹⁶ on for float32, and from 2³⁰ on for
// float64. Let a be M·2ᵏ, where M is the integer mantissa. W is three words of the bits of 2ᵏ·2/π,
// beginning with the bit that has the value 2. Earlier bits are left out, because their products
// with M are multiples of 4. The formula computes M·W modulo the size of the three words. The upper
// two bits of this product are the quadrant, and the other bits are a fraction of a quadrant. The
// lower half of the product of M and the last word is not needed.
func (f format) largeQuadrant(a *Expr) (q *Expr, r pair) {
	width := float64(pick(f, 32, 64))
	first, table := pick(f, 16, 30), pick(f, twoOverPi32, twoOverPi64)
	word := func(v float64) *Expr { return C(v) }
	bits := a.Bitcast(f.u)
	mant := bits.And(f.word(1<<f.mant - 1)).Or(f.word(1 << f.mant))
	// index of W's first bit in the table
	start := bits.Shr(word(float64(f.mant))).Sub(word(float64(f.bias + first)))
	w := make([]*Expr, len(table))
	for i, v := range table {
		w[i] = f.word(v)
	}
	for skip := pick(f, 2, 8); skip > 0; skip /= 2 {
		on := start.And(word(width * float64(skip))).Ne(word(0))
		next := make([]*Expr, len(w)-skip)
		for i := range next {
			next[i] = on.Select(w[i+skip], w[i])
		}
		w = next
	}
	sh := start.And(word(width - 1))
	rest := word(width).Sub(sh)
	for i := range 3 {
		w[i] = w[i].Shl(sh).Or(w[i+1].Shr(rest))
	}
	carryIn := f.mulHi(mant, w[2])
	p1 := mant.Mul(w[1]).Add(carryIn)
	p0 := mant.Mul(w[0]).Add(f.mulHi(mant, w[1])).Add(p1.Lt(carryIn).Select(word(1), word(0)))

	// From here on, p1 is a signed number. If its upper bit is set, p0 must be greater by 1.
	p0 = p0.Add(p1.Shr(word(width - 1)))
	q = p0.Add(f.word(1 << pick(f, 29, 61))).Shr(word(width - 2))
	signed := pick(f, dtype.I32, dtype.I64)
	s := p0.Sub(q.Shl(word(width - 2))).Bitcast(signed)
	hi := s.Cvt(f.t)
	lo := p1.Bitcast(signed).Cvt(f.t).FMA(C(math.Ldexp(1, -int(width))), s.Sub(hi.Cvt(signed)).Cvt(f.t))
	unit := math.Ldexp(1, 2-int(width))
	c := pick(f, halfPix32, halfPix64)
	return q, pair{hi, lo}.times(pair{C(c[0] * unit), C(c[1] * unit)})
}

// mulHi returns the upper half of the product of a mantissa and a word.
func (f format) mulHi(m, w *Expr) *Expr {
	if f.t == dtype.F32 {
		return m.MulHi(w)
	}
	half, low := C(32), C(1<<32-1)
	mh, ml, wh, wl := m.Shr(half), m.And(low), w.Shr(half), w.And(low)
	a := mh.Mul(wl).Add(ml.Mul(wl).Shr(half))
	b := ml.Mul(wh).Add(a.And(low))
	return mh.Mul(wh).Add(a.Shr(half)).Add(b.Shr(half))
}

// sinCos returns the sine and the cosine of r by polynomials, for |r| ≤ π/4. r.lo may be nil.
func (f format) sinCos(r pair) (sin, cos *Expr) {
	z := r.hi.Mul(r.hi)
	sc, cc := poly(z, pick(f, sinCoef32, sinCoef64)), poly(z, pick(f, cosCoef32, cosCoef64))
	if r.lo == nil {
		return r.hi.Mul(z).FMA(sc, r.hi), z.FMA(z.FMA(cc, C(-0.5)), C(1))
	}
	sin = r.hi.Add(r.hi.Mul(z).FMA(sc, r.lo))
	h := z.Scale(0.5)
	one := C(1).Sub(h)
	tail := C(1).Sub(one).Sub(h) // the rounding error of the subtraction
	cos = one.Add(z.Mul(z).FMA(cc, r.hi.Neg().FMA(r.lo, tail)))
	return sin, cos
}

// selectQuadrant returns the sine or the cosine, depending on the quadrant q: the sine in quadrant
// 0 and the cosine in quadrant 1. Bit 1 of q gives the sign.
func (f format) selectQuadrant(q, sin, cos *Expr) *Expr {
	one := f.word(1)
	v := q.And(one).Eq(f.word(0)).Select(sin, cos)
	return v.Bitcast(f.u).Xor(q.And(f.word(2)).Shl(C(pick(f, 30.0, 62)))).Bitcast(f.t)
}

func init() {
	Define(Func{
		Name: "sin", Arity: 1,
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			q, r := f.quadrant(x[0].Abs())
			s, c := f.sinCos(r)
			return f.selectQuadrant(q, s, c).Bitcast(f.u).Xor(x[0].Bitcast(f.u).And(f.signBit())).Bitcast(f.t)
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{x[0].Cos()} },
		Ref:  func(x []float64) float64 { return math.Sin(x[0]) },
	})
	Define(Func{
		Name: "cos", Arity: 1,
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			q, r := f.quadrant(x[0].Abs())
			s, c := f.sinCos(r)
			return f.selectQuadrant(q.Add(f.word(1)), s, c)
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{x[0].Sin().Neg()} },
		Ref:  func(x []float64) float64 { return math.Cos(x[0]) },
	})
}

// Sin returns the sine of x radians, for arguments of any size.
func (x *Expr) Sin() *Expr { return Call("sin", x) }

// Cos returns the cosine of x radians, for arguments of any size.
func (x *Expr) Cos() *Expr { return Call("cos", x) }
