package expr

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// Philox returns the block of Philox4x32-10 for a counter of four words and a key of two words. The
// lowest word comes first (J. Salmon, M. Moraes, R. Dror, D. Shaw: Parallel random numbers: as easy
// as 1, 2, 3, SC 2011). Blocks for different counters or keys are statistically independent. They
// are not cryptographically secure.
func Philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	c0, c1, c2, c3 := counter[0], counter[1], counter[2], counter[3]
	k0, k1 := key[0], key[1]
	for range PhiloxRounds {
		p, q := uint64(PhiloxM0)*uint64(c0), uint64(PhiloxM1)*uint64(c2)
		c0, c1, c2, c3 = uint32(q>>32)^c1^k0, uint32(q), uint32(p>>32)^c3^k1, uint32(p)
		k0, k1 = k0+PhiloxW0, k1+PhiloxW1
	}
	return [4]uint32{c0, c1, c2, c3}
}

// The constants of Philox4x32-10: the multipliers, and the numbers added to the key after each
// round.
const (
	PhiloxRounds = 10
	PhiloxM0     = 0xd2511f53
	PhiloxM1     = 0xcd9e8d57
	PhiloxW0     = 0x9e3779b9
	PhiloxW1     = 0xbb67ae85
)

// A Draw says which word of a sequence of Philox blocks an element uses. The number of the word is
//
//	index<<Shift &^ Clear | Add
//
// For a U64, this word is the lower half, and the next word is the upper half. Several elements may
// use words of the same block.
type Draw struct{ Shift, Clear, Add uint8 }

// Draw returns the [Draw] in the field Imm of an OpPhilox.
func (c Instr) Draw() Draw { return Draw{uint8(c.Imm), uint8(c.Imm >> 8), uint8(c.Imm >> 16)} }

// Word returns the number of the word that the element with this index uses.
func (d Draw) Word(index int64) uint64 {
	return uint64(index)<<d.Shift&^uint64(d.Clear) | uint64(d.Add)
}

// Value returns the word for a seed, an offset and an index. The upper half of the result is the
// next word in the block.
func (d Draw) Value(seed, offset uint64, index int64) uint64 {
	n := d.Word(index)
	at := offset + n/4
	w := Philox([4]uint32{uint32(at), uint32(at >> 32)}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return uint64(w[n%4|1])<<32 | uint64(w[n%4])
}

// word returns the drawn word as an expression of type U32 or U64. The first word of a U64 has an
// even number.
func (d Draw) word(t dtype.Type, seed, offset, index *Expr) *Expr {
	e := node(OpPhilox, seed, offset, index)
	e.typ = t
	e.bits = uint64(d.Shift) | uint64(d.Clear)<<8 | uint64(d.Add)<<16
	return e
}

// RandomBits returns a random U32 for an element: word index%4 of the Philox block whose key is the
// seed and whose counter is offset + index/4. seed and offset are I64 (a [Param]). index is an I64
// or U32 (an [Index]). Two ops with the same seed are independent if the first op has n elements
// and the second op adds n to the offset.
func RandomBits(seed, offset, index *Expr) *Expr {
	return Draw{}.word(dtype.U32, seed, offset, index)
}

// RandomKeeps reports whether dropout keeps an element. Each element is dropped with a probability
// p. The argument limit is a U32, the [DropLimit] of p. RandomKeeps compares the element's
// [RandomBits] with it.
func RandomKeeps(seed, offset, index, limit *Expr) *Expr {
	return RandomBits(seed, offset, index).Gt(limit)
}

// DropLimit returns the limit for [RandomKeeps]. The probability p, in (0, 1], is rounded up to a
// multiple of 2⁻³².
func DropLimit(p float64) uint32 { return uint32(math.Ceil(p*(1<<32)) - 1) }

// RandomUniform returns a random number in [0, 1) for the arguments of [RandomBits]. An F32
// consists of the upper 24 bits of a word. An F64 consists of the upper 53 bits of two words, so
// one block is enough for two F64. Every multiple of 2⁻²⁴ (or 2⁻⁵³) is equally likely.
func RandomUniform(t dtype.Type, seed, offset, index *Expr) *Expr {
	w, unused := RandomBits(seed, offset, index), 32-24
	// A signed conversion gives the same number, because the upper bits of the shifted word are 0.
	as := dtype.I32
	if t == dtype.F64 {
		w, unused, as = Draw{Shift: 1}.word(dtype.U64, seed, offset, index), 64-53, dtype.I64
	}
	bits := w.Shr(C(float64(unused))).Bitcast(as).Cvt(t)
	return bits.Mul(C(math.Ldexp(1, unused-8*t.Size()))).Named("random")
}

// RandomNormal returns a random number of the standard normal distribution as an F32 or F64, for
// the arguments of [RandomBits] (G. Box, M. Muller, 1958). For an even index it is √(-2·log u)·cos
// 2πv. The next index, which is odd, uses the same u and v, and sin instead of cos. For F32, u and
// v have 32 bits, and the results reach ±6.7. For F64, they have 64 bits, and the results reach
// ±9.5.
func RandomNormal(t dtype.Type, seed, offset, index *Expr) *Expr {
	f := formatOf(t)
	size := pick(f, 32, 64)
	// Two neighbouring elements share two words of a block (F32), or all four words (F64).
	d := pick(f, Draw{Clear: 1}, Draw{Shift: 1, Clear: 2})
	// adding half a unit makes u positive, so that its logarithm is finite
	u := d.word(f.u, seed, offset, index).Cvt(t).FMA(C(math.Ldexp(1, -size)), C(math.Ldexp(1, -size-1)))
	d.Add = pick[uint8](f, 1, 2)
	angle := d.word(f.u, seed, offset, index)
	e, m := f.splitBits(u.Bitcast(f.u))
	radius := f.natural(e, m.Sub(C(1))).Scale(-2).Sqrt()

	// The random word is the angle as a fraction of a full turn. Its upper two bits are the
	// quadrant. The remaining bits are a signed fraction of a quadrant.
	shift := C(float64(size - 2))
	q := angle.Add(f.word(1 << (size - 3))).Shr(shift)
	rest := angle.Sub(q.Shl(shift)).Bitcast(pick(f, dtype.I32, dtype.I64)).Cvt(t)
	s, c := f.sinCos(pair{hi: rest.Scale(math.Ldexp(math.Pi/2, 2-size))})
	even := index.Cvt(f.u).And(f.word(1)).Xor(f.word(1))
	return radius.Mul(f.selectQuadrant(q.Add(even), s, c)).Named("normal")
}
