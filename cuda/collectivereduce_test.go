package cuda

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// TestConnectEmulated checks that Connect returns an error for emulated GPUs, which have no NCCL.
func TestConnectEmulated(t *testing.T) {
	d := emulated(t, "emulate")
	var u *device.UnavailableError
	if _, err := d.Connect([]device.Device{d}); !errors.As(err, &u) || u.Name != "nccl" || u.Reason != "the GPUs are emulated, and NCCL works on hardware" {
		t.Errorf("%v", err)
	}
}

// TestEncode checks the bits that encode returns for each type, and the weights that it refuses.
func TestEncode(t *testing.T) {
	for _, c := range []struct {
		t    dtype.Type
		x    float64
		bits uint64
		ok   bool
	}{
		{dtype.F64, 0.1, math.Float64bits(0.1), true}, {dtype.F32, 0.1, 0x3dcccccd, true}, {dtype.F16, 1.5, 0x3e00, true}, {dtype.BF16, -2, 0xc000, true},
		{dtype.F32, 1e39, 0, false}, {dtype.F16, 65504, 0x7bff, true}, {dtype.F16, 65520, 0, false}, {dtype.F16, 1e-9, 0, false}, {dtype.BF16, 1e39, 0, false},
		{dtype.F64, math.NaN(), 0, false}, {dtype.F64, math.Inf(-1), 0, false}, {dtype.F32, 0, 0, true},
		{dtype.I8, -128, 0xffffffffffffff80, true}, {dtype.I8, 128, 0, false}, {dtype.U8, 255, 255, true}, {dtype.U8, -1, 0, false}, {dtype.I32, 2.5, 0, false},
		{dtype.I64, 1 << 62, 1 << 62, true}, {dtype.I64, 1 << 63, 0, false}, {dtype.I64, -1 << 63, 1 << 63, true},
	} {
		if bits, ok := encode(c.t, c.x); ok != c.ok || ok && bits != c.bits {
			t.Errorf("%v of %v: %#x, %v", c.x, c.t, bits, ok)
		}
	}
}

// TestFill fills memory with elements of each size. The halves of an element of 8 bytes may be
// equal or differ, because fill treats these two cases differently.
func TestFill(t *testing.T) {
	d := emulated(t, "emulate,seed=2")
	s := d.main
	for _, n := range []int{1, 2, 3, 17, 64} {
		for size, list := range map[int][]uint64{1: {0, 0x80}, 2: {0, 0x3c00}, 4: {0, 0x80000000}, 8: {0, 0x8000000000000000, 0x3ff0000000000000, 0x0101010101010101}} {
			for _, bits := range list {
				b, err := d.Alloc(size*n, s, device.Origin{Op: "test"})
				must(t, err)
				must(t, d.fill(s, uint64(b.Addr()), bits, size, n))
				got := make([]byte, size*n)
				must(t, d.Download(s, got, b, 0))
				for i := range n {
					var e [8]byte
					copy(e[:], got[i*size:][:size])
					if v := binary.LittleEndian.Uint64(e[:]); v != bits {
						t.Fatalf("element %d of %d of %d bytes is %#x, want %#x", i, n, size, v, bits)
					}
				}
				b.Free()
			}
		}
	}
}

// TestNeutral checks that combining a value with the neutral element returns the value.
func TestNeutral(t *testing.T) {
	for _, c := range []struct {
		combine device.Combine
		t       dtype.Type
		want    uint64
	}{
		{device.CombineSum, dtype.F32, 0}, {device.CombineMean, dtype.F64, 0}, {device.CombineProduct, dtype.BF16, 0x3f80}, {device.CombineProduct, dtype.F64, 0x3ff0000000000000},
		{device.CombineProduct, dtype.I32, 1}, {device.CombineMax, dtype.U8, 0}, {device.CombineMin, dtype.Bool, 255}, {device.CombineMax, dtype.I64, 1 << 63},
		{device.CombineMin, dtype.I64, 1<<63 - 1}, {device.CombineMin, dtype.I8, 127},
	} {
		if got := neutral(c.combine, c.t); got != c.want {
			t.Errorf("%v of %v: %#x, want %#x", c.combine, c.t, got, c.want)
		}
	}
}
