package dtype

import "math"

// Float16 is the bits of an IEEE 754 binary16 number: 1 sign, 5 exponent, 10 fraction bits.
type Float16 uint16

// BFloat16 is the upper half of the bits of a float32: 1 sign, 8 exponent, 7 fraction bits.
type BFloat16 uint16

// ToBFloat16 rounds x to the nearest bfloat16, ties to even. NaN stays a quiet NaN.
func ToBFloat16(x float32) BFloat16 {
	u := math.Float32bits(x)
	if u&0x7fffffff > 0x7f800000 {
		return BFloat16(u>>16 | 0x40)
	}
	return BFloat16((u + 0x7fff + u>>16&1) >> 16)
}

// Float32 converts h to float32, without rounding.
func (h BFloat16) Float32() float32 { return math.Float32frombits(uint32(h) << 16) }

// ToFloat16 rounds x to the nearest binary16, ties to even. Numbers beyond the range become ±Inf.
// NaN stays a quiet NaN.
func ToFloat16(x float32) Float16 {
	u := math.Float32bits(x)
	sign := uint16(u>>16) & 0x8000
	u &= 0x7fffffff
	switch {
	case u > 0x7f800000:
		return Float16(sign | 0x7e00 | uint16(u>>13)&0x3ff)
	case u >= 0x477ff000: // 65520, half way between the largest number and 2¹⁶
		return Float16(sign | 0x7c00)
	case u >= 0x38800000: // numbers from 2⁻¹⁴ on are normal
		return Float16(sign | uint16((u-0x38000000+0xfff+u>>13&1)>>13))
	case u < 0x33000000: // numbers below half of the smallest subnormal become 0
		return Float16(sign)
	}
	// A subnormal result is the fraction of x with its hidden bit, in units of 2⁻²⁴.
	shift := 126 - u>>23
	m := u&0x7fffff | 0x800000
	q := m >> shift
	rest, half := m&(1<<shift-1), uint32(1)<<(shift-1)
	if rest > half || rest == half && q&1 == 1 {
		q++
	}
	return Float16(sign | uint16(q))
}

// Float32 converts h to float32, without rounding.
func (h Float16) Float32() float32 {
	sign := uint32(h&0x8000) << 16
	e, m := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch {
	case e == 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | m<<13)
	case e != 0:
		return math.Float32frombits(sign | (e+112)<<23 | m<<13)
	}
	return math.Float32frombits(math.Float32bits(float32(m)*0x1p-24) | sign)
}
