package expr

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// logParts returns e and m with x = 2ᵉ·m and √½ ≤ m < √2, for positive finite x, denormal ones included.
func (f format) logParts(x *Expr) (e, m *Expr) {
	minNormal := math.Ldexp(1, 1-f.bias)
	up := f.mant + 2 // a denormal is scaled by 2^up, and its bits get the exponent that it would have
	low := x.Lt(C(minNormal))
	bits := low.Select(x.Mul(C(math.Ldexp(1, up))).Bitcast(f.u).Sub(f.word(uint64(up)<<f.mant)), x.Bitcast(f.u))
	root := f.word(pick[uint64](f, 0x3f3504f3, 0x3fe6a09e667f3bcd)) // √½
	if f.t == dtype.F32 {
		d := bits.Sub(root)
		e = d.Bitcast(dtype.I32).Shr(C(23)).Cvt(dtype.F32)
		return e, d.And(f.word(1<<23 - 1)).Add(root).Bitcast(f.t)
	}
	// No machine without AVX-512 converts vectors of I64: the exponent becomes the fraction of a float near 2⁵².
	const off = 1200
	d := bits.Sub(root).Add(f.word(off << 52))
	e = d.Shr(C(52)).Or(f.word(0x433 << 52)).Bitcast(f.t).Sub(C(1<<52 + off))
	return e, d.And(f.word(1<<52 - 1)).Add(root).Bitcast(f.t)
}

// logDomain returns y where 0 < x < ∞, and the logarithm's special values elsewhere.
func logDomain(x, y *Expr) *Expr {
	y = x.Lt(C(math.Inf(1))).Select(y, x)
	return x.Gt(C(0)).Select(y, x.Eq(C(0)).Select(C(math.Inf(-1)), C(math.NaN())))
}

// log1pNear returns log(1+d) + lo for √½ ≤ 1+d < √2, with a relative error that is small however small d is. lo is far
// below d or nil.
func (f format) log1pNear(d, lo *Expr) *Expr {
	if f.t == dtype.F32 {
		if lo != nil {
			return d.Mul(d).FMA(poly(d, logCoef32), lo).Add(d)
		}
		return d.Mul(d).FMA(poly(d, logCoef32), d)
	}
	// log(1+d) = 2·atanh(s) = d - d²/2 + s·(d²/2 + s²·R(s²)), s = d/(2+d)
	s := d.Div(d.Add(C(2)))
	z := s.Mul(s)
	h := d.Mul(d).Scale(0.5)
	tail := s.FMA(z.FMA(poly(z, logCoef64), h), h.Neg())
	if lo != nil {
		tail = tail.Add(lo)
	}
	return tail.Add(d)
}

func init() {
	Define(Func{
		Name: "log", Arity: 1,
		Expand: func(t dtype.Type, x []*Expr) *Expr {
			f := formatOf(t)
			e, m := f.logParts(x[0])
			var lo *Expr
			if t == dtype.F64 { // in float32 ln2 rounded is close enough
				lo = e.Scale(f.ln2[1])
			}
			return logDomain(x[0], e.FMA(C(f.ln2[0]), f.log1pNear(m.Sub(C(1)), lo)))
		},
		Diff: func(x []*Expr, y *Expr) []*Expr { return []*Expr{C(1).Div(x[0])} },
		Ref:  func(x []float64) float64 { return math.Log(x[0]) },
	})
}

// Log returns the natural logarithm of x: -Inf at 0, NaN below.
func (x *Expr) Log() *Expr { return Call("log", x) }
