package expr

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// logParts returns e and m with x = 2ᵉ·m and √½ ≤ m < √2. x is positive and finite, and may be
// subnormal.
func (f format) logParts(x *Expr) (e, m *Expr) {
	minNormal := math.Ldexp(1, 1-f.bias)
	// A subnormal number is scaled by 2^up here, and up is later subtracted from its exponent.
	up := f.mant + 2
	low := x.Lt(C(minNormal))
	return f.splitBits(low.Select(x.Mul(C(math.Ldexp(1, up))).Bitcast(f.u).Sub(f.word(uint64(up)<<f.mant)), x.Bitcast(f.u)))
}

// splitBits is logParts for the bits of a normal x. For a subnormal x, the caller first multiplies
// x by a power of two. The caller also subtracts the exponent of this factor from the exponent
// field of bits.
func (f format) splitBits(bits *Expr) (e, m *Expr) {
	root := f.word(pick[uint64](f, 0x3f3504f3, 0x3fe6a09e667f3bcd)) // the bits of √½
	if f.t == dtype.F32 {
		d := bits.Sub(root)
		e = d.Bitcast(dtype.I32).Shr(C(23)).Cvt(dtype.F32)
		return e, d.And(f.word(1<<23 - 1)).Add(root).Bitcast(f.t)
	}
	// Without AVX-512, processors cannot convert vectors of I64. So put the exponent into the
	// fraction of a float near 2⁵², and subtract 2⁵² and off.
	const off = 1200
	d := bits.Sub(root).Add(f.word(off << 52))
	e = d.Shr(C(52)).Or(f.word(0x433 << 52)).Bitcast(f.t).Sub(C(1<<52 + off))
	return e, d.And(f.word(1<<52 - 1)).Add(root).Bitcast(f.t)
}

// logDomain returns y if 0 < x < ∞. For other x it returns the logarithm's special values: -Inf,
// +Inf or NaN.
func logDomain(x, y *Expr) *Expr {
	y = x.Lt(C(math.Inf(1))).Select(y, x)
	return x.Gt(C(0)).Select(y, x.Eq(C(0)).Select(C(math.Inf(-1)), C(math.NaN())))
}

// logTail returns log(1+d) - d for √½ ≤ 1+d < √2.
func (f format) logTail(d *Expr) *Expr {
	if f.t == dtype.F32 {
		return d.Mul(d).Mul(poly(d, logCoef32))
	}
	// use log(1+d) = 2·atanh(s) = d - d²/2 + s·(d²/2 + s²·R(s²)) with s = d/(2+d) and a polynomial
	// R
	s := d.Div(d.Add(C(2)))
	z := s.Mul(s)
	h := d.Mul(d).Scale(0.5)
	return s.FMA(z.FMA(poly(z, logCoef64), h), h.Neg())
}

// natural returns e·ln2 + log(1+d).
func (f format) natural(e, d *Expr) *Expr {
	if f.t == dtype.F32 { // the rounded ln2 is accurate enough for float32
		return e.FMA(C(f.ln2[0]), d.Mul(d).FMA(poly(d, logCoef32), d))
	}
	return e.FMA(C(f.ln2[0]), e.FMA(C(f.ln2[1]), f.logTail(d)).Add(d))
}

// logBase returns the logarithm of x to base b. The argument unit is 1/ln(b), and log2 is the
// logarithm of 2 to base b. Each is given as the sum of two numbers.
func (f format) logBase(x *Expr, unit, log2 []float64) *Expr {
	e, m := f.logParts(x)
	d := m.Sub(C(1))
	lo := d.FMA(C(unit[1]), f.logTail(d).Scale(unit[0]))
	if log2[1] != 0 {
		lo = e.FMA(C(log2[1]), lo)
	}
	return logDomain(x, e.FMA(C(log2[0]), d.FMA(C(unit[0]), lo)))
}

func init() {
	Define(Func{
		Name: "log", Arity: 1,
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			e, m := f.logParts(x[0])
			return logDomain(x[0], f.natural(e, m.Sub(C(1))))
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{C(1).Div(x[0])} },
		Ref:  func(x []float64) float64 { return math.Log(x[0]) },
	})
	Define(Func{
		Name: "log2", Arity: 1,
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			return f.logBase(x[0], f.log2e, []float64{1, 0})
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{C(1).Div(x[0].Scale(math.Ln2))} },
		Ref:  func(x []float64) float64 { return math.Log2(x[0]) },
	})
	Define(Func{
		Name: "log10", Arity: 1,
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			return f.logBase(x[0], pick(f, log10ex32, log10ex64), pick(f, log10of2x32, log10of2x64))
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{C(1).Div(x[0].Scale(math.Ln10))} },
		Ref:  func(x []float64) float64 { return math.Log10(x[0]) },
	})
	Define(Func{
		Name: "log1p", Arity: 1,
		// 1+x is 2ᵉ·(1+d), where e comes from the rounded sum. Then d is 2⁻ᵉ·x + (2⁻ᵉ-1). For e = 0
		// this is exactly x, so results near 0 are precise.
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			u := x[0].Add(C(1))
			e, _ := f.logParts(u)
			// The lower bits of n hold e - bias - 2.
			n := e.Add(C(math.Ldexp(1.5, f.mant) - float64(f.bias+2))).Bitcast(f.u)
			// The variable s is 2⁻ᵉ, which is subnormal for the largest x.
			s := n.Not().Add(C(1)).Shl(C(float64(f.mant))).Bitcast(f.t).Scale(0.25)
			y := logDomain(u, f.natural(e, s.FMA(x[0], s.Sub(C(1)))))
			return x[0].Eq(C(0)).Select(x[0], y) // this gives -0 for x = -0
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{C(1).Div(x[0].Add(C(1)))} },
		Ref:  func(x []float64) float64 { return math.Log1p(x[0]) },
	})
}

// Log returns the natural logarithm of x: -Inf at 0, NaN for negative x.
func (x *Expr) Log() *Expr { return Call("log", x) }

// Log2 returns the logarithm of x to base 2, exact for powers of 2.
func (x *Expr) Log2() *Expr { return Call("log2", x) }

// Log10 returns the logarithm of x to base 10.
func (x *Expr) Log10() *Expr { return Call("log10", x) }

// Log1p returns log(1+x), accurate near 0.
func (x *Expr) Log1p() *Expr { return Call("log1p", x) }
