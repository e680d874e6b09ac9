package dtype

import (
	"math"
	"testing"
)

// TestPromoteTable compares Promote with PyTorch's table of promote_types. Rows and columns are in
// the order of Types.
func TestPromoteTable(t *testing.T) {
	want := []string{
		"bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64",
		"uint8 uint8 int16 int16 int32 int64 float16 bfloat16 float32 float64",
		"int8 int16 int8 int16 int32 int64 float16 bfloat16 float32 float64",
		"int16 int16 int16 int16 int32 int64 float16 bfloat16 float32 float64",
		"int32 int32 int32 int32 int32 int64 float16 bfloat16 float32 float64",
		"int64 int64 int64 int64 int64 int64 float16 bfloat16 float32 float64",
		"float16 float16 float16 float16 float16 float16 float16 float32 float32 float64",
		"bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 float32 bfloat16 float32 float64",
		"float32 float32 float32 float32 float32 float32 float32 float32 float32 float64",
		"float64 float64 float64 float64 float64 float64 float64 float64 float64 float64",
	}
	for i, a := range Types() {
		row := ""
		for j, b := range Types() {
			if j > 0 {
				row += " "
			}
			row += Promote(a, b).String()
		}
		if row != want[i] {
			t.Errorf("%v: got %s want %s", a, row, want[i])
		}
	}
}

func TestOfAndParse(t *testing.T) {
	if Of[float32]() != F32 || Of[BFloat16]() != BF16 || Of[Float16]() != F16 || Of[bool]() != Bool || Of[int64]() != I64 {
		t.Fatal("Of")
	}
	for _, ty := range Types() {
		if got, err := Parse("torch." + ty.String()); err != nil || got != ty {
			t.Errorf("Parse(%v) = %v, %v", ty, got, err)
		}
	}
	if _, err := Parse("complex64"); err == nil {
		t.Fatal("complex64 must be refused")
	}
}

func TestHalfRoundTrip(t *testing.T) {
	for u := range 1 << 16 {
		h, b := Float16(u), BFloat16(u)
		if f := h.Float32(); f == f && ToFloat16(f) != h {
			t.Fatalf("float16 %#x -> %v -> %#x", u, f, ToFloat16(f))
		} else if f != f && ToFloat16(f) != h|0x200 {
			t.Fatalf("float16 NaN %#x -> %#x", u, ToFloat16(f))
		}
		if f := b.Float32(); f == f && ToBFloat16(f) != b {
			t.Fatalf("bfloat16 %#x", u)
		} else if f != f && ToBFloat16(f) != b|0x40 {
			t.Fatalf("bfloat16 NaN %#x", u)
		}
	}
}

// TestHalfRounding checks rounding to 16-bit floats. Each number must become the nearer of its two
// neighbours. A number halfway between them must become the even neighbour.
func TestHalfRounding(t *testing.T) {
	for u := range 0x7bff {
		lo, hi := Float16(u).Float32(), Float16(u+1).Float32()
		mid := (lo + hi) / 2
		even := Float16(u + u&1)
		if got := ToFloat16(mid); got != even {
			t.Fatalf("middle of %v and %v: %#x want %#x", lo, hi, got, even)
		}
		if got := ToFloat16(math.Nextafter32(mid, 0)); got != Float16(u) {
			t.Fatalf("below the middle of %v and %v: %#x", lo, hi, got)
		}
		if got := ToFloat16(math.Nextafter32(mid, hi)); got != Float16(u+1) {
			t.Fatalf("above the middle of %v and %v: %#x", lo, hi, got)
		}
	}
	if ToFloat16(65519.996) != 0x7bff || ToFloat16(65520) != 0x7c00 || ToFloat16(-65520) != 0xfc00 {
		t.Fatal("overflow")
	}
	if ToBFloat16(float32(math.Inf(-1))) != 0xff80 || ToBFloat16(math.MaxFloat32) != 0x7f80 {
		t.Fatal("bfloat16 overflow")
	}
}
