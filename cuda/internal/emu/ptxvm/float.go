package ptxvm

import (
	"math"
	"math/bits"
)

// rounding is a PTX rounding modifier.
type rounding uint8

const (
	rn  rounding = iota // nearest, ties to even
	rz                  // towards zero
	rm                  // towards -inf
	rp                  // towards +inf
	rna                 // nearest, ties away from zero
)

// format describes a binary interchange format of at most 64 bits.
type format struct {
	// prec is the number of bits of the significand, including the hidden one.
	prec  int
	ebits int // number of bits of the exponent
	low   int // number of unused low bits (tf32)
	nan   uint64
}

var formats = map[Type]*format{
	F16:  {prec: 11, ebits: 5, nan: 0x7fff},
	BF16: {prec: 8, ebits: 8, nan: 0x7fff},
	TF32: {prec: 11, ebits: 8, low: 13, nan: 0x7fffffff},
	F32:  {prec: 24, ebits: 8, nan: 0x7fffffff},
	F64:  {prec: 53, ebits: 11, nan: 0x7fffffffffffffff},
}

var (
	fmtF16  = formats[F16]
	fmtBF16 = formats[BF16]
	fmtF32  = formats[F32]
)

// round rounds (-1)^neg · mant · 2^exp once to format f and returns the bits. If sticky is true,
// the exact magnitude is slightly larger.
func (f *format) round(neg bool, mant uint64, exp int, sticky bool, mode rounding) uint64 {
	var sign uint64
	if neg {
		sign = 1 << (f.prec + f.ebits - 1)
	}
	if mant == 0 {
		return sign << f.low
	}
	emax := 1<<(f.ebits-1) - 1
	emin := 1 - emax
	lz := bits.LeadingZeros64(mant)
	mant <<= lz
	exp -= lz
	// the value is mant·2^exp with the top bit of mant set, so its exponent is e = exp+63
	e := exp + 63
	keep := f.prec
	if e < emin {
		keep -= emin - e
	}
	// q is the significand after rounding. cut has the bits that were cut off, left-aligned.
	var q, cut uint64
	switch {
	case keep >= 1:
		q = mant >> (64 - keep)
		cut = mant << keep
	case keep == 0:
		cut = mant
	default:
		cut, sticky = 1, true
	}
	if cut != 0 || sticky {
		up := false
		const half = 1 << 63
		switch mode {
		case rn:
			up = cut > half || cut == half && (sticky || q&1 == 1)
		case rna:
			up = cut >= half
		case rp:
			up = !neg
		case rm:
			up = neg
		}
		if up {
			q++
		}
	}
	var biased uint64
	if e >= emin {
		biased = uint64(e+emax)<<(f.prec-1) + q - 1<<(f.prec-1)
	} else {
		biased = q // a carry out of the fraction already gives the bits of the smallest normal number
	}
	inf := uint64(1<<f.ebits-1) << (f.prec - 1)
	if biased >= inf {
		biased = inf
		if mode == rz || mode == rm && !neg || mode == rp && neg {
			biased = inf - 1
		}
	}
	return (sign | biased) << f.low
}

// fromF64 rounds x once to format f and returns the bits.
func (f *format) fromF64(x float64, mode rounding) uint64 {
	b := math.Float64bits(x)
	neg, e, m := b>>63 != 0, int(b>>52&0x7ff), b&(1<<52-1)
	switch e {
	case 0x7ff:
		if m != 0 {
			return f.nan
		}
		v := uint64(1<<f.ebits-1) << (f.prec - 1)
		if neg {
			v |= 1 << (f.prec + f.ebits - 1)
		}
		return v << f.low
	case 0:
		return f.round(neg, m, -1074, false, mode)
	}
	return f.round(neg, m|1<<52, e-1075, false, mode)
}

// fromInt rounds an integer once to format f and returns the bits.
func (f *format) fromInt(v uint64, signed bool, mode rounding) uint64 {
	if signed && int64(v) < 0 {
		return f.round(true, -v, 0, false, mode)
	}
	return f.round(false, v, 0, false, mode)
}

func f32(u uint64) float32     { return math.Float32frombits(uint32(u)) }
func u32(f float32) uint64     { return uint64(math.Float32bits(f)) }
func f64(u uint64) float64     { return math.Float64frombits(u) }
func u64(f float64) uint64     { return math.Float64bits(f) }
func bf16(u uint64) float32    { return math.Float32frombits(uint32(u) << 16) }
func toBF16(f float32) uint64  { return roundBF16(math.Float32bits(f)) }
func tf32(u uint64) float32    { return math.Float32frombits(uint32(u) &^ 0x1fff) }
func isNaN32(f float32) bool   { return f != f }
func nan32() float32           { return math.Float32frombits(0x7fffffff) }
func signBit32(f float32) bool { return math.Float32bits(f)>>31 != 0 }

// roundBF16 rounds float32 bits to bfloat16, nearest even.
func roundBF16(b uint32) uint64 {
	if b&0x7fffffff > 0x7f800000 {
		return 0x7fff
	}
	return uint64((b + 0x7fff + b>>16&1) >> 16)
}

// f16 converts IEEE half bits to float32, exactly.
func f16(u uint64) float32 {
	h := uint32(u)
	s, e, m := h>>15&1<<31, h>>10&31, h&0x3ff
	switch e {
	case 0:
		f := float32(m) * 0x1p-24
		return math.Float32frombits(math.Float32bits(f) | s)
	case 31:
		return math.Float32frombits(s | 0x7f800000 | m<<13)
	}
	return math.Float32frombits(s | (e+112)<<23 | m<<13)
}

// toF16 rounds a float32 to IEEE half bits, nearest even.
func toF16(f float32) uint64 {
	b := math.Float32bits(f)
	s, a := uint64(b>>16&0x8000), b&0x7fffffff
	switch {
	case a > 0x7f800000:
		return 0x7fff
	case a >= 0x477ff000: // at least 65520
		return s | 0x7c00
	case a >= 0x38800000: // normal
		a -= 112 << 23
		return s | uint64((a+0xfff+a>>13&1)>>13)
	}
	// subnormal: adding 0.5 makes the hardware round at 2^-24
	return s | uint64(math.Float32bits(math.Float32frombits(a)+0.5)-0x3f000000)
}

// ftz32 replaces a subnormal by a zero with its sign.
func ftz32(f float32) float32 {
	b := math.Float32bits(f)
	if b&0x7f800000 == 0 {
		return math.Float32frombits(b & (1 << 31))
	}
	return f
}

// addOdd returns x+y, rounded to odd at 53 bits: if the sum is not exact, its last bit is 1.
// Rounding it once more, to at most 51 bits, gives the correctly rounded sum.
func addOdd(x, y float64) float64 {
	s := x + y
	if math.IsInf(s, 0) || s != s {
		return s
	}
	t := s - x
	e := (x - (s - t)) + (y - t)
	if b := math.Float64bits(s); e != 0 && b&1 == 0 {
		if (e > 0) == (s > 0) {
			b++
		} else {
			b--
		}
		return math.Float64frombits(b)
	}
	return s
}

// divOdd returns x/y rounded to odd at 53 bits.
func divOdd(x, y float64) float64 {
	q := x / y
	if q != q || math.IsInf(q, 0) || q == 0 || math.IsInf(y, 0) {
		return q
	}
	r := math.FMA(-q, y, x) // exact for quotients of float32 values
	if b := math.Float64bits(q); r != 0 && b&1 == 0 {
		// The condition is true if the exact quotient is further from zero than q.
		if (r > 0) == (y > 0) == (q > 0) {
			b++
		} else {
			b--
		}
		return math.Float64frombits(b)
	}
	return q
}

// fma32 returns a·b+c rounded once. The product of two float32 is exact in float64. If the sum in
// float64 lies halfway between two float32, rounding it again could be wrong, so the sum is
// computed more slowly. Sums in the subnormal range may lie halfway too, so they are all computed
// in this way.
func fma32(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	s := p + float64(c)
	if sb := math.Float64bits(s); sb&0x1fffffff == 0x10000000 || sb>>52&0x7ff < 1023-125 {
		s = addOdd(p, float64(c))
	}
	return float32(s)
}

// fmaNarrow returns a·b+c rounded once to format f, for a, b, c of at most 11 significant bits.
func fmaNarrow(f *format, a, b, c float32) uint64 {
	return f.fromF64(addOdd(float64(a)*float64(b), float64(c)), rn)
}

// toInt converts a float of type st to an integer of type t: it rounds to an integral value and
// saturates. For NaN it returns 0, unless the source is .f64 or the result has 64 bits. In these
// cases it returns an integer with only the highest bit set (PTX ISA, cvt).
func toInt(x float64, st, t Type, mode rounding) uint64 {
	if x != x {
		if st == F64 || t.Size() == 8 {
			return t.mask()>>1 + 1
		}
		return 0
	}
	switch mode {
	case rn:
		x = math.RoundToEven(x)
	case rz:
		x = math.Trunc(x)
	case rm:
		x = math.Floor(x)
	case rp:
		x = math.Ceil(x)
	}
	m := t.mask()
	if t.signed() {
		// the sum is exact, except for 64 bits, where it rounds to 2^63 in any case
		hi := float64(m>>1) + 1
		switch {
		case x >= hi:
			return m >> 1
		case x <= -hi:
			return m>>1 + 1
		}
		return uint64(int64(x)) & m
	}
	switch {
	case x <= 0:
		return 0
	case x >= 0x1p63:
		if m>>63 == 0 || x >= 0x1p64 {
			return m
		}
		return uint64(int64(x-0x1p63)) | 1<<63
	}
	return min(uint64(int64(x)), m)
}

// roundIntegral rounds to an integral value in the format's own type.
func roundIntegral(x float64, mode rounding) float64 {
	switch mode {
	case rz:
		return math.Trunc(x)
	case rm:
		return math.Floor(x)
	case rp:
		return math.Ceil(x)
	}
	return math.RoundToEven(x)
}
