package expr

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

// TestRounded compares Rounded with storing and loading. The bits must be equal for all numbers of
// each type, for the midpoints between neighbours, and for the float32 numbers next to the
// midpoints.
func TestRounded(t *testing.T) {
	for _, ty := range []dtype.Type{dtype.F16, dtype.BF16, dtype.F32} {
		p := MustLower([]*Expr{X(0).Rounded(ty)}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
		var out, params []uint64
		check := func(b uint32) {
			t.Helper()
			v := math.Float32frombits(b)
			want := math.Float32frombits(uint32(Load(ty, Store(ty, uint64(b)))))
			out = p.Eval(out[:0], []uint64{uint64(b)}, params, 0)
			got := math.Float32frombits(uint32(out[0]))
			if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
				t.Fatalf("%v: %v (%#x) is rounded to %v, want %v", ty, v, b, got, want)
			}
		}
		for i := range uint64(1) << 16 {
			a, b := uint32(Load(ty, i)), uint32(Load(ty, i+1))
			if ty == dtype.F32 {
				a, b = uint32(i<<16), uint32(i<<16)
			}
			middle := math.Float32bits((math.Float32frombits(a) + math.Float32frombits(b)) / 2)
			for _, c := range []uint32{a, middle} {
				check(c - 1)
				check(c)
				check(c + 1)
			}
		}
		for _, v := range []float32{65519.996, 65520, 65536, 1e30, math.MaxFloat32, 3.396e38, 3.3899e38, 0x1p-25, 0x1.8p-25, 0x1p-149, 0x1p-133} {
			check(math.Float32bits(v))
			check(math.Float32bits(-v))
		}
	}
}
