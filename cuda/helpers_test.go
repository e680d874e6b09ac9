package cuda

import (
	"encoding/binary"
	"math"
	"os"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// emulated creates an emulated driver and returns its first device.
func emulated(t testing.TB, spec string) *Device {
	t.Helper()
	list, err := Emulate(spec)
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

// hardware returns the first GPU, or nil if there is none. If FLAMBEAU_TEST_GPU=1 is set and there
// is no GPU, it fails the test.
func hardware(t testing.TB) *Device {
	t.Helper()
	d, err := Open(0)
	if err == nil && !d.Info().Emulated {
		return d
	}
	if os.Getenv("FLAMBEAU_TEST_GPU") == "1" {
		if err == nil {
			t.Fatal("FLAMBEAU_TEST_GPU=1, but there is an emulated GPU only: unset FLAMBEAU_CUDA")
		}
		t.Fatalf("FLAMBEAU_TEST_GPU=1, but there is no GPU: %v", err)
	}
	return nil
}

// onBoth runs a test on an emulated device, and on hardware if there is a GPU.
func onBoth(t *testing.T, spec string, f func(t *testing.T, d *Device)) {
	t.Run("emulated", func(t *testing.T) { f(t, emulated(t, spec)) })
	if d := hardware(t); d != nil {
		t.Run("hardware", func(t *testing.T) { f(t, d) })
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func lower(e *expr.Expr, ins int) *expr.Program {
	in := make([]dtype.Type, ins)
	for i := range in {
		in[i] = dtype.F32
	}
	return expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.F32}, in, -1)
}

var (
	double = lower(expr.X(0).Mul(expr.C(2)), 1)
	next   = lower(expr.X(0).Add(expr.C(1)), 1)
	plus   = lower(expr.X(0).Add(expr.X(1)), 2)
)

func views(v ...device.View) []device.View { return v }

func apply(d *Device, s device.Stream, p *expr.Program, outs, ins []device.View) error {
	return device.Run(d, s, &device.Map{Program: p, Outs: outs, Ins: ins})
}

// empty returns an uninitialised float32 vector.
func empty(t testing.TB, d *Device, s device.Stream, n int) device.View {
	t.Helper()
	b, err := d.Alloc(4*n, s, device.Origin{Op: "test", Shape: shape.Of(n), Type: dtype.F32})
	must(t, err)
	return device.View{Buf: b, Type: dtype.F32, Layout: shape.Dense(shape.Of(n))}
}

// floats returns a float32 vector of the given values.
func floats(t testing.TB, d *Device, s device.Stream, values ...float32) device.View {
	t.Helper()
	v := empty(t, d, s, len(values))
	must(t, d.Upload(s, v.Buf, 0, bytesOf(values)))
	return v
}

func bytesOf(values []float32) []byte {
	var b []byte
	for _, x := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// fill returns a slice of n elements with the value x.
func fill(x float32, n int) []float32 {
	f := make([]float32, n)
	for i := range f {
		f[i] = x
	}
	return f
}

// longs returns an int64 vector of the given values.
func longs(t testing.TB, d *Device, s device.Stream, values ...int64) device.View {
	t.Helper()
	var data []byte
	for _, x := range values {
		data = binary.LittleEndian.AppendUint64(data, uint64(x))
	}
	b, err := d.Alloc(len(data), s, device.Origin{Op: "test"})
	must(t, err)
	must(t, d.Upload(s, b, 0, data))
	return device.View{Buf: b, Type: dtype.I64, Layout: shape.Dense(shape.Of(len(values)))}
}

// check downloads a vector and compares its elements with want.
func check(t testing.TB, d *Device, s device.Stream, v device.View, want ...float32) {
	t.Helper()
	got := make([]byte, 4*len(want))
	must(t, d.Download(s, got, v.Buf, 0))
	for i, w := range want {
		if g := math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])); g != w {
			t.Fatalf("element %d is %v, want %v", i, g, w)
		}
	}
}
