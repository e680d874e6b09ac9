package expr

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// Rounded is x, a float32, rounded to the nearest even number of type t, what storing it as t and
// loading it again gives. Other types than 16-bit floats leave x as it is. The bits of a NaN stay.
func (x *Expr) Rounded(t dtype.Type) *Expr {
	bits := func(v uint32) *Expr { return Bits(dtype.U32, uint64(v)) }
	b := x.Bitcast(dtype.U32)
	// to rounds the bits to a multiple of 2ⁿ, which carries into the exponent.
	to := func(n uint32) *Expr {
		odd := b.Shr(bits(n)).And(bits(1))
		return b.Add(bits(1<<(n-1) - 1)).Add(odd).And(bits(^uint32(0) << n)).Bitcast(dtype.F32)
	}
	switch t {
	case dtype.BF16:
		return x.Ne(x).Select(x, to(16))
	case dtype.F16:
		// Below 2⁻¹⁴ all numbers are multiples of 2⁻²⁴, the last place of float32 from 0.5 to 1.
		size := x.Abs()
		small := single.copySign(size.Add(C(0.5)).Sub(C(0.5)), x)
		large := x.Mul(C(math.Inf(1))) // from the middle between 65504 and 2¹⁶ on
		r := size.Lt(C(0x1p-14)).Select(small, size.Lt(C(65520)).Select(to(13), large))
		return x.Ne(x).Select(x, r)
	}
	return x
}
