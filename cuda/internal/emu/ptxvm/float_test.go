package ptxvm

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestNarrowFloats converts every float16 and bfloat16 value to float32 and back. The value
// must not change, unless it is NaN. Near all these values, the fast conversions must agree
// with the general rounding.
func TestNarrowFloats(t *testing.T) {
	for u := range uint64(1 << 16) {
		if h := f16(u); h == h && toF16(h) != u {
			t.Fatalf("f16 %#x: %v comes back as %#x", u, h, toF16(h))
		}
		if b := bf16(u); b == b && toBF16(b) != u {
			t.Fatalf("bf16 %#x: %v comes back as %#x", u, b, toBF16(b))
		}
		mid := math.Float32bits(f16(u))
		// offsets around the middle between this value and the next one
		for _, half := range []uint32{0, 0xfff, 0x1000, 0x1001, 0x1fff} {
			x := math.Float32frombits(mid + half)
			if got, want := toF16(x), fmtF16.fromF64(float64(x), rn); got != want {
				t.Fatalf("toF16(%v) = %#x, want %#x", x, got, want)
			}
		}
		for _, low := range []uint32{0, 0x7fff, 0x8000, 0x8001, 0xffff} {
			x := math.Float32frombits(uint32(u)<<16 | low)
			if got, want := toBF16(x), fmtBF16.fromF64(float64(x), rn); got != want {
				t.Fatalf("toBF16(%#x) = %#x, want %#x", math.Float32bits(x), got, want)
			}
		}
	}
}

// TestRoundingAgainstHardware compares the general rounding with the processor's conversion from
// float64 to float32, in all ranges.
func TestRoundingAgainstHardware(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 500000 {
		x := math.Float64frombits(r.Uint64())
		if r.IntN(2) == 0 {
			x = math.Ldexp(r.Float64()+1, r.IntN(300)-160)
		}
		want := u32(canon(float32(x)))
		if got := fmtF32.fromF64(x, rn); got != want {
			t.Fatalf("round %v: %#x, want %#x", x, got, want)
		}
		if x != x {
			continue
		}
		down, up := float64(f32(fmtF32.fromF64(x, rm))), float64(f32(fmtF32.fromF64(x, rp)))
		if down > x || up < x || down != up && math.Nextafter32(float32(down), float32(math.Inf(1))) != float32(up) {
			t.Fatalf("round %v: down %v, up %v", x, down, up)
		}
		if z := float64(f32(fmtF32.fromF64(x, rz))); z != down && z != up || math.Abs(z) > math.Abs(x) {
			t.Fatalf("round %v to zero: %v", x, z)
		}
	}
}

// TestApproximationBounds compares the errors of the approximations with the bounds of the PTX ISA.
func TestApproximationBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	uniform := func(lo, hi float64) float32 { return float32(lo + (hi-lo)*r.Float64()) }
	wide := func() float32 { return float32(math.Ldexp(r.Float64()+1, r.IntN(200)-100)) }
	ulp := func(x float64) float64 {
		f := float32(math.Abs(x))
		return float64(math.Nextafter32(f, math.MaxFloat32)) - float64(f)
	}
	for _, c := range []struct {
		name  string
		f     func(float32) float32
		ref   func(float64) float64
		in    func() float32
		bound func(x, y float64) float64
	}{
		{"ex2", ex2Approx, math.Exp2, func() float32 { return uniform(-125, 127) }, func(_, y float64) float64 { return 2 * ulp(y) }},
		{"lg2 near 1", lg2Approx, math.Log2, func() float32 { return uniform(.5, 2) }, func(_, _ float64) float64 { return 0x1p-22 }},
		{"lg2", lg2Approx, math.Log2, func() float32 { return uniform(2, 1e30) }, func(_, y float64) float64 { return 0x1p-22 * math.Abs(y) }},
		{"rcp", rcpApprox, func(x float64) float64 { return 1 / x }, wide, func(_, y float64) float64 { return ulp(y) }},
		{"rsqrt", rsqrtApprox, func(x float64) float64 { return 1 / math.Sqrt(x) }, wide, func(_, y float64) float64 { return 1.2e-7 * y }},
		{"sqrt", sqrtApprox, math.Sqrt, wide, func(_, y float64) float64 { return 0x1p-23 * y }},
		{"sin", sinApprox, math.Sin, func() float32 { return uniform(-2*math.Pi, 2*math.Pi) }, func(_, _ float64) float64 { return math.Pow(2, -20.5) }},
		{"sin far", sinApprox, math.Sin, func() float32 { return uniform(-100*math.Pi, 100*math.Pi) }, func(_, _ float64) float64 { return math.Pow(2, -14.7) }},
		{"cos", cosApprox, math.Cos, func() float32 { return uniform(-2*math.Pi, 2*math.Pi) }, func(_, _ float64) float64 { return math.Pow(2, -20.5) }},
		{"cos far", cosApprox, math.Cos, func() float32 { return uniform(-100*math.Pi, 100*math.Pi) }, func(_, _ float64) float64 { return math.Pow(2, -14.7) }},
		{"tanh", tanhApprox, math.Tanh, func() float32 { return uniform(-8, 8) }, func(_, y float64) float64 { return 0x1p-11 * math.Abs(y) }},
		{"div", func(x float32) float32 { return divApprox(x, 3.7) }, func(x float64) float64 { return x / float64(float32(3.7)) }, wide, func(_, y float64) float64 { return 2 * ulp(y) }},
	} {
		worst := 0.0
		for range 50000 {
			x := c.in()
			want := c.ref(float64(x))
			if e := math.Abs(float64(c.f(x))-want) / c.bound(float64(x), want); e > worst {
				worst = e
				if e > 1 {
					t.Fatalf("%s(%v) = %v, want %v: %.2f times the bound", c.name, x, c.f(x), want, e)
				}
			}
		}
	}
}
