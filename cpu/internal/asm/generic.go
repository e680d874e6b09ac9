package asm

import (
	"math"
	"math/bits"

	"github.com/flambeau-go/flambeau/dtype"
)

type float interface{ float32 | float64 }
type signed interface{ int32 | int64 }
type unsigned interface{ uint32 | uint64 }
type number interface{ float | signed | unsigned }

func add[T number](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func sub[T number](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

func mul[T number](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func div[T float](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] / b[i]
	}
}

// least computes minima with Go's min, which handles NaN and -0 as the package comment requires.
func least[T number](dst, a, b []T) {
	for i := range dst {
		dst[i] = min(a[i], b[i])
	}
}

func greatest[T number](dst, a, b []T) {
	for i := range dst {
		dst[i] = max(a[i], b[i])
	}
}

func fmaF32(dst, a, b, c []float32) {
	for i := range dst {
		dst[i] = fma32(a[i], b[i], c[i])
	}
}

func fmaF64(dst, a, b, c []float64) {
	for i := range dst {
		dst[i] = math.FMA(a[i], b[i], c[i])
	}
}

// fma32 returns a·b + c, rounded once. The product of two float32 is exact in float64. The float64
// sum is rounded to odd: towards zero, with the last bit set if the sum was not exact. The second
// rounding, to float32, then gives the correctly rounded result, because 53 bits are more than 24+2
// (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
func fma32(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	z := float64(c)
	s := p + z
	t := s - p
	// Knuth's two-sum gives the rounding error of s exactly; it is NaN if s is not finite
	lost := (p - (s - t)) + (z - t)
	if u := math.Float64bits(s); u&1 == 0 && (lost > 0 || lost < 0) {
		if (lost > 0) == (s > 0) {
			u++
		} else {
			u--
		}
		s = math.Float64frombits(u)
	}
	return float32(s)
}

func negF32(dst, a []float32) {
	for i := range dst {
		dst[i] = math.Float32frombits(math.Float32bits(a[i]) ^ 1<<31)
	}
}

func negF64(dst, a []float64) {
	for i := range dst {
		dst[i] = math.Float64frombits(math.Float64bits(a[i]) ^ 1<<63)
	}
}

func absF32(dst, a []float32) {
	for i := range dst {
		dst[i] = math.Float32frombits(math.Float32bits(a[i]) &^ (1 << 31))
	}
}

func absF64(dst, a []float64) {
	for i := range dst {
		dst[i] = math.Abs(a[i])
	}
}

// sqrt computes square roots in float64. A float32 result is still correctly rounded, because the
// float64 root has more than twice as many bits.
func sqrt[T float](dst, a []T) {
	for i := range dst {
		dst[i] = T(math.Sqrt(float64(a[i])))
	}
}

func floor[T float](dst, a []T) {
	for i := range dst {
		dst[i] = T(math.Floor(float64(a[i])))
	}
}

func ceil[T float](dst, a []T) {
	for i := range dst {
		dst[i] = T(math.Ceil(float64(a[i])))
	}
}

func trunc[T float](dst, a []T) {
	for i := range dst {
		dst[i] = T(math.Trunc(float64(a[i])))
	}
}

func roundEven[T float](dst, a []T) {
	for i := range dst {
		dst[i] = T(math.RoundToEven(float64(a[i])))
	}
}

func and[T unsigned](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] & b[i]
	}
}

func or[T unsigned](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] | b[i]
	}
}

func xor[T unsigned](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] ^ b[i]
	}
}

func shl[T unsigned](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] << b[i]
	}
}

func shr[T unsigned](dst, a, b []T) {
	for i := range dst {
		dst[i] = a[i] >> b[i]
	}
}

func shrI32(dst, a, b []int32) {
	for i := range dst {
		dst[i] = a[i] >> uint32(b[i])
	}
}

func shrI64(dst, a, b []int64) {
	for i := range dst {
		dst[i] = a[i] >> uint64(b[i])
	}
}

func mulHiU32(dst, a, b []uint32) {
	for i := range dst {
		dst[i] = uint32(uint64(a[i]) * uint64(b[i]) >> 32)
	}
}

func mulHiU64(dst, a, b []uint64) {
	for i := range dst {
		dst[i], _ = bits.Mul64(a[i], b[i])
	}
}

func neg[T unsigned](dst, a []T) {
	for i := range dst {
		dst[i] = -a[i]
	}
}

func not[T unsigned](dst, a []T) {
	for i := range dst {
		dst[i] = ^a[i]
	}
}

func absI[T signed](dst, a []T) {
	for i := range dst {
		dst[i] = max(a[i], -a[i])
	}
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

func eq[T number](dst []uint32, a, b []T) {
	for i := range dst {
		dst[i] = bit(a[i] == b[i])
	}
}

func ne[T number](dst []uint32, a, b []T) {
	for i := range dst {
		dst[i] = bit(a[i] != b[i])
	}
}

func lt[T number](dst []uint32, a, b []T) {
	for i := range dst {
		dst[i] = bit(a[i] < b[i])
	}
}

func le[T number](dst []uint32, a, b []T) {
	for i := range dst {
		dst[i] = bit(a[i] <= b[i])
	}
}

func choose[T unsigned](dst []T, m []uint32, a, b []T) {
	for i := range dst {
		if m[i] != 0 {
			dst[i] = a[i]
		} else {
			dst[i] = b[i]
		}
	}
}

// cvt converts numbers with Go's conversion. It is for pairs of types for which Go's conversion
// does what the package comment requires: round to nearest even, extend or wrap.
func cvt[D, S interface {
	number | int8 | int16 | uint8 | uint16
}](dst []D, a []S) {
	for i := range dst {
		dst[i] = D(a[i])
	}
}

// saturate converts floats to integers. It rounds towards zero and limits results to [lo, hi],
// where hi is the greatest value of type D. The argument limit is hi+1 as a float64, for example
// 2³¹. Values from limit on become hi, and NaN becomes 0.
func saturate[D signed | unsigned, S float](dst []D, a []S, lo, hi D, limit float64) {
	for i := range dst {
		x := float64(a[i])
		switch {
		case x >= limit:
			dst[i] = hi
		case x <= float64(lo):
			dst[i] = lo
		case x == x:
			dst[i] = D(x)
		default:
			dst[i] = 0
		}
	}
}

func cvtToI32[S float](dst []int32, a []S) { saturate(dst, a, math.MinInt32, math.MaxInt32, 1<<31) }
func cvtToU32[S float](dst []uint32, a []S) {
	saturate(dst, a, 0, math.MaxUint32, 1<<32)
}
func cvtToI64[S float](dst []int64, a []S) { saturate(dst, a, math.MinInt64, math.MaxInt64, 1<<63) }
func cvtToU64[S float](dst []uint64, a []S) {
	saturate(dst, a, 0, math.MaxUint64, 1<<64)
}

func cvtF16ToF32(dst []float32, a []uint16) {
	for i := range dst {
		dst[i] = dtype.Float16(a[i]).Float32()
	}
}

func cvtF32ToF16(dst []uint16, a []float32) {
	for i := range dst {
		dst[i] = uint16(dtype.ToFloat16(a[i]))
	}
}

func cvtBF16ToF32(dst []float32, a []uint16) {
	for i := range dst {
		dst[i] = dtype.BFloat16(a[i]).Float32()
	}
}

func cvtF32ToBF16(dst []uint16, a []float32) {
	for i := range dst {
		dst[i] = uint16(dtype.ToBFloat16(a[i]))
	}
}

// generic holds the kernels in plain Go. They run on every machine, and define the results of all
// other variants.
var generic = kernels{
	addF32: add[float32], subF32: sub[float32], mulF32: mul[float32], divF32: div[float32],
	minF32: least[float32], maxF32: greatest[float32], fmaF32: fmaF32,
	negF32: negF32, absF32: absF32, sqrtF32: sqrt[float32],
	floorF32: floor[float32], ceilF32: ceil[float32], truncF32: trunc[float32], roundEvenF32: roundEven[float32],

	addF64: add[float64], subF64: sub[float64], mulF64: mul[float64], divF64: div[float64],
	minF64: least[float64], maxF64: greatest[float64], fmaF64: fmaF64,
	negF64: negF64, absF64: absF64, sqrtF64: sqrt[float64],
	floorF64: floor[float64], ceilF64: ceil[float64], truncF64: trunc[float64], roundEvenF64: roundEven[float64],

	addU32: add[uint32], subU32: sub[uint32], mulU32: mul[uint32], mulHiU32: mulHiU32,
	andU32: and[uint32], orU32: or[uint32], xorU32: xor[uint32], notU32: not[uint32], negU32: neg[uint32],
	shlU32: shl[uint32], shrU32: shr[uint32], shrI32: shrI32, absI32: absI[int32],
	minI32: least[int32], maxI32: greatest[int32], minU32: least[uint32], maxU32: greatest[uint32],

	addU64: add[uint64], subU64: sub[uint64], mulU64: mul[uint64], mulHiU64: mulHiU64,
	andU64: and[uint64], orU64: or[uint64], xorU64: xor[uint64], notU64: not[uint64], negU64: neg[uint64],
	shlU64: shl[uint64], shrU64: shr[uint64], shrI64: shrI64, absI64: absI[int64],
	minI64: least[int64], maxI64: greatest[int64], minU64: least[uint64], maxU64: greatest[uint64],

	eqF32: eq[float32], neF32: ne[float32], ltF32: lt[float32], leF32: le[float32],
	eqF64: eq[float64], neF64: ne[float64], ltF64: lt[float64], leF64: le[float64],
	eqU32: eq[uint32], neU32: ne[uint32], ltU32: lt[uint32], leU32: le[uint32], ltI32: lt[int32], leI32: le[int32],
	eqU64: eq[uint64], neU64: ne[uint64], ltU64: lt[uint64], leU64: le[uint64], ltI64: lt[int64], leI64: le[int64],
	selectU32: choose[uint32], selectU64: choose[uint64],

	cvtF32ToF64: cvt[float64, float32], cvtF64ToF32: cvt[float32, float64],
	cvtI32ToF32: cvt[float32, int32], cvtU32ToF32: cvt[float32, uint32],
	cvtI64ToF32: cvt[float32, int64], cvtU64ToF32: cvt[float32, uint64],
	cvtI32ToF64: cvt[float64, int32], cvtU32ToF64: cvt[float64, uint32],
	cvtI64ToF64: cvt[float64, int64], cvtU64ToF64: cvt[float64, uint64],
	cvtF32ToI32: cvtToI32[float32], cvtF32ToU32: cvtToU32[float32], cvtF32ToI64: cvtToI64[float32],
	cvtF64ToI32: cvtToI32[float64], cvtF64ToU32: cvtToU32[float64], cvtF64ToI64: cvtToI64[float64], cvtF64ToU64: cvtToU64[float64],
	cvtI32ToI64: cvt[int64, int32], cvtU32ToU64: cvt[uint64, uint32], cvtU64ToU32: cvt[uint32, uint64],
	cvtU8ToU32: cvt[uint32, uint8], cvtI8ToI32: cvt[int32, int8], cvtI16ToI32: cvt[int32, int16],
	cvtU32ToU8: cvt[uint8, uint32], cvtU32ToU16: cvt[uint16, uint32], cvtU8ToF32: cvt[float32, uint8],
	cvtF16ToF32: cvtF16ToF32, cvtF32ToF16: cvtF32ToF16, cvtBF16ToF32: cvtBF16ToF32, cvtF32ToBF16: cvtF32ToBF16,

	sumF32: sumF32, sumF64: sumF64, dotF32: dotF32, dotF64: dotF64,
	reduceMinF32: reduceMin[float32], reduceMinF64: reduceMin[float64],
	reduceMaxF32: reduceMax[float32], reduceMaxF64: reduceMax[float64],
}

// fold adds the upper half of the lanes to the lower half, until one lane is left.
func fold[T float](acc []T) T {
	for n := len(acc) / 2; n > 0; n /= 2 {
		for j := range acc[:n] {
			acc[j] += acc[j+n]
		}
	}
	return acc[0]
}

func sumF32(a []float32) float32 {
	var acc [64]float32
	for ; len(a) >= 64; a = a[64:] {
		for j, x := range a[:64] {
			acc[j] += x
		}
	}
	// the other lanes would add +0, which changes only -0, and no lane holds -0
	for j, x := range a {
		acc[j] += x
	}
	return fold(acc[:])
}

func sumF64(a []float64) float64 {
	var acc [32]float64
	for ; len(a) >= 32; a = a[32:] {
		for j, x := range a[:32] {
			acc[j] += x
		}
	}
	for j, x := range a {
		acc[j] += x
	}
	return fold(acc[:])
}

func dotF32(a, b []float32) float32 {
	var acc [64]float32
	for ; len(a) >= 64; a, b = a[64:], b[64:] {
		for j := range acc {
			acc[j] = fma32(a[j], b[j], acc[j])
		}
	}
	if len(a) > 0 {
		for j := range a {
			acc[j] = fma32(a[j], b[j], acc[j])
		}
		// These lanes may hold -0 from a product that underflowed. Add the +0 of the missing
		// elements, which changes -0 to +0.
		for j := len(a); j < len(acc); j++ {
			acc[j] += 0
		}
	}
	return fold(acc[:])
}

func dotF64(a, b []float64) float64 {
	var acc [32]float64
	for ; len(a) >= 32; a, b = a[32:], b[32:] {
		for j := range acc {
			acc[j] = math.FMA(a[j], b[j], acc[j])
		}
	}
	if len(a) > 0 {
		for j := range a {
			acc[j] = math.FMA(a[j], b[j], acc[j])
		}
		for j := len(a); j < len(acc); j++ {
			acc[j] += 0
		}
	}
	return fold(acc[:])
}

func reduceMin[T float](a []T) T {
	r := T(math.Inf(1))
	for _, x := range a {
		r = min(r, x)
	}
	return r
}

func reduceMax[T float](a []T) T {
	r := T(math.Inf(-1))
	for _, x := range a {
		r = max(r, x)
	}
	return r
}
