package asm

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

var nan32, inf32, negZero = float32(math.NaN()), float32(math.Inf(1)), float32(math.Copysign(0, -1))

// TestFMA32 compares the fused multiply-add with exact arithmetic of math/big, rounded once. The
// operands cause cancellation, ties and underflow.
func TestFMA32(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	one := func(spread int) float32 {
		if r.IntN(3) == 0 { // numbers with few bits, for which ties occur
			return math.Float32frombits(r.Uint32()&0x80700001&^0x7f800000 | uint32(127+r.IntN(2*spread+1)-spread)<<23)
		}
		return math.Float32frombits(r.Uint32()&^0x7f800000 | uint32(127+r.IntN(2*spread+1)-spread)<<23)
	}
	var exact, product, sum big.Float
	exact.SetPrec(600)
	product.SetPrec(600)
	for i := range 200000 {
		a, b, c := one(30), one(30), one(40)
		switch i % 4 {
		case 1:
			c = -a * b // c cancels a·b up to the rounding error
		case 2:
			a, b, c = a*0x1p-63, b*0x1p-63, c*0x1p-110 // make the results subnormal
		case 3:
			c = math.Float32frombits(r.Uint32()&0x807fffff | uint32(r.IntN(3))<<23)
			a, b = a*0x1p-50, b*0x1p-50
		}
		got := fma32(a, b, c)
		product.Mul(sum.SetFloat64(float64(a)), exact.SetFloat64(float64(b)))
		exact.Add(&product, sum.SetFloat64(float64(c)))
		want, _ := exact.Float32()
		if got != want {
			t.Fatalf("fma(%x, %x, %x) = %x, want %x", a, b, c, got, want)
		}
	}
	for _, c := range [][4]float32{{inf32, 1, -inf32, nan32}, {inf32, 0, 1, nan32}, {1, inf32, 3, inf32}, {math.MaxFloat32, 2, 0, inf32},
		{math.MaxFloat32, 2, -math.MaxFloat32, math.MaxFloat32}, {1, 1, inf32, inf32}} {
		if got := fma32(c[0], c[1], c[2]); got != c[3] && (got == got || c[3] == c[3]) {
			t.Errorf("fma(%v, %v, %v) = %v, want %v", c[0], c[1], c[2], got, c[3])
		}
	}
}

// TestSaturation compares conversions of generic Go with expected values. TestVariants compares the
// other variants with generic Go.
func TestSaturation(t *testing.T) {
	a := []float32{nan32, inf32, -inf32, 1.9, -1.9, 0x1p31, -0x1p31, 0x1p31 - 128, 0x1p40, -0.5}
	i := make([]int32, len(a))
	CvtF32ToI32(i, a)
	for k, want := range []int32{0, math.MaxInt32, math.MinInt32, 1, -1, math.MaxInt32, math.MinInt32, 0x7fffff80, math.MaxInt32, 0} {
		if i[k] != want {
			t.Errorf("int32(%v) = %d, want %d", a[k], i[k], want)
		}
	}
	u := make([]uint32, len(a))
	CvtF32ToU32(u, a)
	for k, want := range []uint32{0, math.MaxUint32, 0, 1, 0, 1 << 31, 0, 0x7fffff80, math.MaxUint32, 0} {
		if u[k] != want {
			t.Errorf("uint32(%v) = %d, want %d", a[k], u[k], want)
		}
	}
	d := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1.9, -1.9, 0x1p63, -0x1p63, 0x1p63 - 1024, 0x1p70, -0.5}
	l := make([]int64, len(d))
	CvtF64ToI64(l, d)
	for k, want := range []int64{0, math.MaxInt64, math.MinInt64, 1, -1, math.MaxInt64, math.MinInt64, 1<<63 - 1024, math.MaxInt64, 0} {
		if l[k] != want {
			t.Errorf("int64(%v) = %d, want %d", d[k], l[k], want)
		}
	}
}

func TestMinMaxOrder(t *testing.T) {
	a := []float32{0, negZero, nan32, 1, -inf32, inf32}
	b := []float32{negZero, 0, 1, nan32, nan32, 2}
	lo, hi := make([]float32, len(a)), make([]float32, len(a))
	MinF32(lo, a, b)
	MaxF32(hi, a, b)
	for i := range 2 {
		if !math.Signbit(float64(lo[i])) || math.Signbit(float64(hi[i])) {
			t.Errorf("min(%v, %v) = %v, max = %v", a[i], b[i], lo[i], hi[i])
		}
	}
	for i := 2; i < 5; i++ {
		if lo[i] == lo[i] || hi[i] == hi[i] {
			t.Errorf("min(%v, %v) = %v, max = %v", a[i], b[i], lo[i], hi[i])
		}
	}
	if lo[5] != 2 || hi[5] != inf32 {
		t.Errorf("min, max of 2 and +Inf: %v, %v", lo[5], hi[5])
	}
}

// TestHalves converts all 65536 values of both 16-bit types to float32 and back, on every variant.
func TestHalves(t *testing.T) {
	h := make([]uint16, 1<<16)
	for i := range h {
		h[i] = uint16(i)
	}
	f, back := make([]float32, len(h)), make([]uint16, len(h))
	for _, name := range Variants() {
		restore := Use(name)
		CvtF16ToF32(f, h)
		CvtF32ToF16(back, f)
		for i := range h {
			if x := f[i]; x != dtype.Float16(h[i]).Float32() && x == x || x == x && back[i] != h[i] || x != x && back[i]&0x7e00 != 0x7e00 {
				t.Fatalf("%s: binary16 %#04x is %v is %#04x", name, h[i], f[i], back[i])
			}
		}
		CvtBF16ToF32(f, h)
		CvtF32ToBF16(back, f)
		for i := range h {
			if x := f[i]; x == x && back[i] != h[i] || x != x && back[i]&0x7fc0 != 0x7fc0 {
				t.Fatalf("%s: bfloat16 %#04x is %v is %#04x", name, h[i], f[i], back[i])
			}
		}
		restore()
	}
}

// TestSumOrder compares sums with a simple implementation of the order that the package comment
// specifies.
func TestSumOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{0, 1, 63, 64, 65, 200, 1000} {
		a := make([]float32, n)
		for i := range a {
			a[i] = float32(r.NormFloat64())
		}
		var lanes [64]float32
		for i, x := range a {
			lanes[i%64] += x
		}
		for half := 32; half > 0; half /= 2 {
			for j := range half {
				lanes[j] += lanes[j+half]
			}
		}
		if got := SumF32(a); got != lanes[0] {
			t.Errorf("sum of %d = %v, want %v", n, got, lanes[0])
		}
	}
	if got := ReduceMaxF32(nil); got != -inf32 {
		t.Errorf("maximum of nothing = %v", got)
	}
}

// TestFillIota checks the two kernels that exist only in Go.
func TestFillIota(t *testing.T) {
	for n := range 1300 {
		f, u, l := make([]float32, n), make([]uint32, n), make([]int64, n)
		FillF32(f, 2.5)
		IotaU32(u, math.MaxUint32-3)
		IotaI64(l, -7)
		for i := range n {
			if f[i] != 2.5 || u[i] != math.MaxUint32-3+uint32(i) || l[i] != int64(i)-7 {
				t.Fatalf("element %d of %d: %v %v %v", i, n, f[i], u[i], l[i])
			}
		}
	}
}
