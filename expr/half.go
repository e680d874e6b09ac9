package expr

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// Rounded returns the float32 x, rounded to the nearest number of type t, ties to even. The result
// is the same as if x were stored as t and loaded again. For types other than 16-bit floats it
// returns x. The bits of a NaN are kept.
func (x *Expr) Rounded(t dtype.Type) *Expr {
	bits := func(v uint32) *Expr { return Bits(dtype.U32, uint64(v)) }
	b := x.Bitcast(dtype.U32)
	// to(n) rounds the bits of x to a multiple of 2ⁿ. A carry goes into the exponent.
	to := func(n uint32) *Expr {
		odd := b.Shr(bits(n)).And(bits(1))
		return b.Add(bits(1<<(n-1) - 1)).Add(odd).And(bits(^uint32(0) << n)).Bitcast(dtype.F32)
	}
	switch t {
	case dtype.BF16:
		return x.Ne(x).Select(x, to(16))
	case dtype.F16:
		// Below 2⁻¹⁴ all float16 numbers are multiples of 2⁻²⁴. This is also the unit in the
		// last place of float32 numbers between 0.5 and 1, so adding 0.5 rounds correctly.
		size := x.Abs()
		small := single.copySign(size.Add(C(0.5)).Sub(C(0.5)), x)
		// large is ±Inf. It is the result for |x| ≥ 65520, which is halfway between 65504 and 2¹⁶.
		large := x.Mul(C(math.Inf(1)))
		r := size.Lt(C(0x1p-14)).Select(small, size.Lt(C(65520)).Select(to(13), large))
		return x.Ne(x).Select(x, r)
	}
	return x
}
