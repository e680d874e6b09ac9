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

// least is Go's min, whose treatment of NaN and of -0 is the contract's.
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

// fma32 returns a·b + c rounded once. The product of two float32 is exact in float64; the float64 sum is rounded to odd
// (towards zero, then the last bit set if anything was lost), after which the rounding to float32 cannot go wrong: 53 bits
// are more than 24+2 (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
func fma32(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	z := float64(c)
	s := p + z
	t := s - p
	lost := (p - (s - t)) + (z - t) // exact, by Knuth's two-sum; NaN if s is not finite
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

// sqrt through float64 is correctly rounded for float32 too: the float64 root has more than twice its bits.
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

// cvt is every conversion in which Go's own rounds to nearest even, extends or wraps as the contract says.
func cvt[D, S interface {
	number | int8 | int16 | uint8 | uint16
}](dst []D, a []S) {
	for i := range dst {
		dst[i] = D(a[i])
	}
}

// saturate converts towards zero within [lo, hi], hi being the greatest D and above the limit exactly when it is reached
// (2³¹ and so on: what D's greatest plus one is in float64). NaN becomes 0.
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
