package ptxvm

import "math"

// Floating-point operations on the lanes of a warp. Each result is rounded once to its type.
// Products are converted explicitly, so that Go never fuses them with additions.

func addF32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = u32(canon(f32(a[l]) + f32(b[l])))
	}
}
func subF32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = u32(canon(f32(a[l]) - f32(b[l])))
	}
}
func mulF32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = u32(canon(f32(a[l]) * f32(b[l])))
	}
}
func fmaF32(d, a, b, c *lanes) {
	for l := range d {
		p := float64(f32(a[l])) * float64(f32(b[l]))
		s := p + float64(f32(c[l]))
		if sb := math.Float64bits(s); sb&0x1fffffff == 0x10000000 || sb>>52&0x7ff < 1023-125 {
			s = addOdd(p, float64(f32(c[l])))
		}
		d[l] = u32(canon(float32(s)))
	}
}
func addF64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = u64(f64(a[l]) + f64(b[l]))
	}
}
func subF64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = u64(f64(a[l]) - f64(b[l]))
	}
}
func mulF64(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = u64(float64(f64(a[l]) * f64(b[l])))
	}
}
func fmaF64(d, a, b, c *lanes) {
	for l := range d {
		d[l] = u64(math.FMA(f64(a[l]), f64(b[l]), f64(c[l])))
	}
}
func divF32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = u32(canon(f32(a[l]) / f32(b[l])))
	}
}
func maxF32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = u32(max32(f32(a[l]), f32(b[l])))
	}
}
func minF32(d, a, b, _ *lanes) {
	for l := range d {
		d[l] = u32(min32(f32(a[l]), f32(b[l])))
	}
}

// max32 returns the larger operand. If one operand is NaN, it returns the other one. It treats +0
// as larger than -0, and returns the canonical NaN for two NaNs.
func max32(x, y float32) float32 {
	switch {
	case x > y:
		return x
	case x < y:
		return y
	case x != x:
		return canon(y)
	case y != y:
		return x
	case signBit32(x):
		return y
	}
	return x
}

type f32Op func(a, b, c float32) float32

func min32(x, y float32) float32 {
	if x != x && y != y {
		return nan32()
	}
	return -max32(-x, -y)
}

var f32Ops = map[string]f32Op{
	"add": func(a, b, _ float32) float32 { return a + b },
	"sub": func(a, b, _ float32) float32 { return a - b },
	"mul": func(a, b, _ float32) float32 { return a * b },
	"fma": fma32,
	"div": func(a, b, _ float32) float32 { return a / b },
	"min": func(a, b, _ float32) float32 { return min32(a, b) },
	"max": func(a, b, _ float32) float32 { return max32(a, b) },
	"abs": func(a, _, _ float32) float32 { return math.Float32frombits(math.Float32bits(a) &^ (1 << 31)) },
	"neg": func(a, _, _ float32) float32 { return -a },

	"minNaN": nanAware(func(a, b, _ float32) float32 { return min32(a, b) }),
	"maxNaN": nanAware(func(a, b, _ float32) float32 { return max32(a, b) }),
}

type f64Op func(a, b, c float64) float64

var f64Ops = map[string]f64Op{
	"div": func(a, b, _ float64) float64 { return a / b },
	"min": func(a, b, _ float64) float64 { return minMax64(a, b, false) },
	"max": func(a, b, _ float64) float64 { return minMax64(a, b, true) },
}

func minMax64(a, b float64, wantMax bool) float64 {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	case wantMax:
		return math.Max(a, b)
	}
	return math.Min(a, b)
}

// liftF32 returns the operation of f on lanes, with flushing of subnormals if ftz is true, and with
// saturation if sat is true.
func liftF32(f f32Op, ftz, sat bool) laneFn {
	return func(d, a, b, c *lanes) {
		for l := range d {
			x, y, z := f32(a[l]), f32(b[l]), f32(c[l])
			if ftz {
				x, y, z = ftz32(x), ftz32(y), ftz32(z)
			}
			r := canon(f(x, y, z))
			if ftz {
				r = ftz32(r)
			}
			if sat {
				r = sat32(r)
			}
			d[l] = u32(r)
		}
	}
}

// signF32 returns the operation of abs or neg on lanes. The operation changes only the sign bit,
// even of a NaN.
func signF32(name string, ftz bool) laneFn {
	return lift1(func(a uint64) uint64 {
		if ftz {
			a = u32(ftz32(f32(a)))
		}
		if name == "abs" {
			return a &^ (1 << 31)
		}
		return a ^ 1<<31
	})
}

// sat32 clamps to [+0, 1]. NaN becomes +0.
func sat32(x float32) float32 {
	switch {
	case x >= 1:
		return 1
	case x > 0:
		return x
	}
	return 0
}

func liftF64(f f64Op) laneFn {
	return func(d, a, b, c *lanes) {
		for l := range d {
			d[l] = u64(f(f64(a[l]), f64(b[l]), f64(c[l])))
		}
	}
}

// narrowFloat describes arithmetic of a 16-bit float format. The arithmetic is done in float32.
// Except for fma, rounding the float32 result to 8 or 11 bits gives the correctly rounded result,
// because 24 ≥ 2p+2 for p = 8 and for p = 11.
type narrowFloat struct {
	f    *format
	to   func(uint64) float32
	from func(float32) uint64
}

var (
	halfFloat  = narrowFloat{fmtF16, f16, toF16}
	brainFloat = narrowFloat{fmtBF16, bf16, toBF16}
)

func (n narrowFloat) op(name string, ftz, sat, relu bool) func(a, b, c uint64) uint64 {
	f := f32Ops[name]
	sub := n.f.prec - 1 // a value is subnormal, or zero, if its exponent field is zero
	flush := func(v uint64) uint64 {
		if ftz && v>>sub&(1<<n.f.ebits-1) == 0 {
			return v & 0x8000
		}
		return v
	}
	return func(a, b, c uint64) uint64 {
		x, y, z := n.to(flush(a&0xffff)), n.to(flush(b&0xffff)), n.to(flush(c&0xffff))
		var r uint64
		switch name {
		case "fma":
			r = fmaNarrow(n.f, x, y, z)
		case "neg":
			r = flush(a&0xffff) ^ 0x8000
			return r
		case "abs":
			r = flush(a&0xffff) &^ 0x8000
			return r
		default:
			r = n.from(f(x, y, z))
		}
		r = flush(r)
		v := n.to(r)
		if sat {
			r = n.from(sat32(v))
		}
		if relu && !(v > 0) && v == v {
			r = 0
		}
		return r
	}
}

// pair applies a 16-bit operation to both halves of 32-bit operands.
func pair(f func(a, b, c uint64) uint64) func(a, b, c uint64) uint64 {
	return func(a, b, c uint64) uint64 {
		return f(a&0xffff, b&0xffff, c&0xffff) | f(a>>16&0xffff, b>>16&0xffff, c>>16&0xffff)<<16
	}
}

// nanAware makes min and max return the canonical NaN if an operand is NaN.
func nanAware(f f32Op) f32Op {
	return func(a, b, c float32) float32 {
		if a != a || b != b {
			return nan32()
		}
		return f(a, b, c)
	}
}
