package expr

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// Philox returns the four words of Philox4x32-10 for a counter of four and a key of two U32 words, lowest first
// (J. Salmon, M. Moraes, R. Dror, D. Shaw: Parallel random numbers: as easy as 1, 2, 3, SC 2011). Words of different
// counters or keys are independent for every statistical purpose; they are not secrets.
func Philox(counter [4]*Expr, key [2]*Expr) [4]*Expr {
	word := func(v uint64) *Expr { return Bits(dtype.U32, v) }
	m0, m1 := word(0xd2511f53), word(0xcd9e8d57)
	c := counter
	for round := range uint64(10) {
		k0 := key[0].Add(word(uint64(uint32(round * 0x9e3779b9))))
		k1 := key[1].Add(word(uint64(uint32(round * 0xbb67ae85))))
		c = [4]*Expr{
			m1.MulHi(c[2]).Xor(c[1]).Xor(k0), m1.Mul(c[2]),
			m0.MulHi(c[0]).Xor(c[3]).Xor(k1), m0.Mul(c[0]),
		}
	}
	return c
}

// RandomBits returns four random U32 words for an element: Philox with key seed and counter offset + index, both 64 bits.
// seed and offset are I64 (a [Param]), index is an I64 or U32 (an [Index]). An op over n elements uses n counters: the
// next one with the same seed continues at offset + n.
func RandomBits(seed, offset, index *Expr) [4]*Expr {
	halves := func(v *Expr) (lo, hi *Expr) { return v.Cvt(dtype.U32), v.Shr(C(32)).Cvt(dtype.U32) }
	lo, hi := halves(offset.Add(index.Cvt(dtype.I64)))
	k0, k1 := halves(seed)
	zero := Bits(dtype.U32, 0)
	return Philox([4]*Expr{lo, hi, zero, zero}, [2]*Expr{k0, k1})
}

// RandomUniform returns a random number in [0, 1), an F32 with 24 bits or an F64 with 53, for the arguments of
// [RandomBits]. Every multiple of 2⁻²⁴ (2⁻⁵³) is equally likely.
func RandomUniform(t dtype.Type, seed, offset, index *Expr) *Expr {
	w := RandomBits(seed, offset, index)
	top := func(w *Expr, bits int) *Expr { // as a float, by way of an I32 that is not negative
		return w.Shr(C(float64(32 - bits))).Bitcast(dtype.I32).Cvt(t)
	}
	if t == dtype.F64 {
		return top(w[0], 27).FMA(C(1<<26), top(w[1], 26)).Mul(C(0x1p-53)).Named("random")
	}
	return top(w[0], 24).Mul(C(0x1p-24)).Named("random")
}

// RandomNormal returns a random number of the standard normal distribution as an F32 or F64, for the arguments of
// [RandomBits]: √(-2·log u)·cos 2πv (G. Box, M. Muller, 1958). u and v have 32 bits in F32, whose values reach ±6.7, and
// 64 in F64, which reach ±9.5.
func RandomNormal(t dtype.Type, seed, offset, index *Expr) *Expr {
	w := RandomBits(seed, offset, index)
	f := formatOf(t)
	u := w[0].Cvt(t).FMA(C(0x1p-32), C(0x1p-33)) // never 0
	angle := w[1]
	if t == dtype.F64 {
		u = w[0].Cvt(t).FMA(C(0x1p-32), w[1].Cvt(t).FMA(C(0x1p-64), C(0x1p-65)))
		angle = w[2].Cvt(dtype.U64).Shl(C(32)).Or(w[3].Cvt(dtype.U64))
	}
	e, m := f.splitBits(u.Bitcast(f.u))
	radius := f.natural(e, m.Sub(C(1))).Scale(-2).Sqrt()

	// The word is the angle in turns: two bits of quadrant, and a signed fraction of it.
	size := pick(f, 32, 64)
	shift := C(float64(size - 2))
	q := angle.Add(f.word(1 << (size - 3))).Shr(shift)
	rest := angle.Sub(q.Shl(shift)).Bitcast(pick(f, dtype.I32, dtype.I64)).Cvt(t)
	s, c := f.sinCos(pair{hi: rest.Scale(math.Ldexp(math.Pi/2, 2-size))})
	return radius.Mul(f.turn(q.Add(f.word(1)), s, c)).Named("normal")
}
