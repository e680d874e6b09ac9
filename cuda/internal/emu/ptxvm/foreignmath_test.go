package ptxvm

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestForeignMaths compares CUDA's mathematical functions with Go's. The errors must not exceed the
// errors that CUDA documents. For functions that use approximate instructions, these are the
// errors of the instructions. For all other functions, CUDA documents the errors in units in the
// last place.
func TestForeignMaths(t *testing.T) {
	n := 500
	if testing.Short() {
		n = 100
	}
	lgamma := func(x float64) float64 { v, _ := math.Lgamma(x); return v }
	second := func(f func(x float64) float64) func(a, b float64) float64 {
		return func(_, b float64) float64 { return f(b) }
	}
	first := func(f func(x float64) float64) func(a, b float64) float64 {
		return func(a, _ float64) float64 { return f(a) }
	}
	type function struct {
		name string
		f    func(a, b float64) float64
		ulps float64
		abs  float64 // an additional absolute error that is allowed
	}
	single := []function{
		{"__expf", first(math.Exp), 14, 0}, {"exp2f", first(math.Exp2), 2, 0}, {"__logf", second(math.Log), 3, 0x1p-21}, {"__log2f", second(math.Log2), 2, 0x1p-22},
		{"__sinf", first(math.Sin), 0, 0x1p-19}, {"__cosf", first(math.Cos), 0, 0x1p-19}, {"rsqrtf", second(func(x float64) float64 { return 1 / math.Sqrt(x) }), 2, 0},
		{"__fdividef", func(a, b float64) float64 { return a / b }, 2, 0}, {"__powf", func(a, b float64) float64 { return math.Pow(b, a) }, 200, 0},
		{"expf", first(math.Exp), 1, 0}, {"logf", second(math.Log), 1, 0}, {"log1pf", second(math.Log1p), 1, 0}, {"expm1f", first(math.Expm1), 1, 0}, {"sinf", first(math.Sin), 2, 0},
		{"cosf", first(math.Cos), 2, 0}, {"tanf", first(math.Tan), 4, 0}, {"tanhf", first(math.Tanh), 2, 0}, {"powf", func(a, b float64) float64 { return math.Pow(b, a) }, 4, 0},
		{"cbrtf", first(math.Cbrt), 1, 0}, {"erff", first(math.Erf), 2, 0}, {"atan2f", math.Atan2, 3, 0}, {"hypotf", math.Hypot, 3, 0}, {"lgammaf", second(lgamma), 6, 0x1p-21},
		{"rcbrtf", second(func(x float64) float64 { return 1 / math.Cbrt(x) }), 1, 0},
	}
	// Go's own functions are within about one unit of the true value. So the test allows one unit
	// more than CUDA documents. It allows more for pow and lgamma, because Go's functions are less
	// accurate than CUDA's.
	double := []function{
		{"exp", first(math.Exp), 2, 0}, {"log", second(math.Log), 2, 0}, {"sin", first(math.Sin), 3, 0}, {"cos", first(math.Cos), 3, 0}, {"tanh", first(math.Tanh), 3, 0},
		{"pow", func(a, b float64) float64 { return math.Pow(b, a) }, 12, 0}, {"cbrt", first(math.Cbrt), 2, 0}, {"erf", first(math.Erf), 3, 0},
		{"rsqrt", second(func(x float64) float64 { return 1 / math.Sqrt(x) }), 2, 0}, {"atan2", math.Atan2, 3, 0}, {"lgamma", second(lgamma), 40, 0x1p-42}, {"fmod", math.Mod, 0, 0},
	}
	r := rand.New(rand.NewPCG(6, 6))
	var rows, rows64 [][]uint64
	for range n {
		a, b := 20*r.Float64()-10, math.Exp(6*r.Float64()-3)
		rows = append(rows, []uint64{u32(float32(a)), u32(float32(b))})
		rows64 = append(rows64, []uint64{u64(a), u64(b)})
	}
	for _, sm := range nvidiaTargets {
		table(t, "maths."+sm, "approx", 4, rows, func(j int, got, want uint64) bool {
			g, w := float64(f32(got)), f64(want)
			ulp := math.Ldexp(1, math.Ilogb(w)-23)
			return math.Abs(g-w) <= (single[j].ulps+0.5)*ulp+single[j].abs
		}, func(row []uint64) (out []uint64) {
			for _, f := range single {
				out = append(out, u64(f.f(float64(f32(row[0])), float64(f32(row[1])))))
			}
			return out
		})
		table(t, "maths."+sm, "precise", 8, rows64, func(j int, got, want uint64) bool {
			g, w := f64(got), f64(want)
			return math.Abs(g-w) <= double[j].ulps*math.Ldexp(1, math.Ilogb(w)-52)+double[j].abs
		}, func(row []uint64) (out []uint64) {
			for _, f := range double {
				out = append(out, u64(f.f(f64(row[0]), f64(row[1]))))
			}
			return out
		})
		// These arguments need hundreds of bits of 2/pi for their reduction.
		var big [][]uint64
		for range n / 4 {
			big = append(big, []uint64{u32(float32(math.Exp(60 * r.Float64())))})
		}
		table(t, "maths."+sm, "big", 4, big, func(j int, got, want uint64) bool {
			g := f64(got)
			if j < 2 {
				g = float64(f32(got))
			}
			return math.Abs(g-f64(want)) <= []float64{0x1p-22, 0x1p-22, 0x1p-50}[j]
		}, func(row []uint64) []uint64 {
			x := float64(f32(row[0]))
			return []uint64{u64(math.Sin(x)), u64(math.Cos(x)), u64(math.Sin(x * 1e30))}
		})
	}
}
