package cuda

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
)

// normaliseSource returns the PTX text to which NVIDIA's compiler (NVRTC 12.4, sm_80) translated
// testdata/normalise.cu.
func normaliseSource(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("testdata/normalise.ptx")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// foreignKernel makes a kernel of PTX text that another compiler has produced.
func foreignKernel(t *testing.T, text string) *Kernel {
	t.Helper()
	k, err := NewKernel(&ptx.Kernel{Name: "normalise", Text: text, Version: 84, Target: 80, ParamSize: 24, Params: []ptx.Param{
		{Name: "y", Type: ptx.U64, Size: 8, Align: 8, Offset: 0, Elem: ptx.F32}, {Name: "x", Type: ptx.U64, Size: 8, Align: 8, Offset: 8, Elem: ptx.F32},
		{Name: "columns", Type: ptx.U32, Size: 4, Align: 4, Offset: 16}, {Name: "least", Type: ptx.F32, Size: 4, Align: 4, Offset: 20}}},
		KernelConfig{Block: [3]int{64}, Shared: 64 * 4})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestForeignKernel runs PTX text of another compiler, with a function call, through the public
// API. Errors in the text must be reported.
func TestForeignKernel(t *testing.T) {
	list, err := Emulate("emulate,mem=16MiB")
	if err != nil {
		t.Fatal(err)
	}
	d := list[0]
	const rows, columns, least = 3, 100, 0.25
	view := func() device.View {
		b, err := d.Alloc(rows*columns*4, d.DefaultStream(), device.Origin{Op: "test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Free)
		return device.View{Buf: b, Type: dtype.F32, Layout: shape.Dense(shape.Of(rows, columns))}
	}
	x, y := view(), view()
	raw := make([]byte, rows*columns*4)
	values := make([]float32, rows*columns)
	for i := range values {
		values[i] = float32(i%7-3) / 8
		v := math.Float32bits(values[i])
		raw[4*i], raw[4*i+1], raw[4*i+2], raw[4*i+3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
	}
	if err := d.Upload(nil, x.Buf, 0, raw); err != nil {
		t.Fatal(err)
	}
	launch := func(text string, n int) error {
		if err := d.Launch(nil, foreignKernel(t, text), [3]int{rows}, y, x, n, float32(least)); err != nil {
			return err
		}
		return d.DefaultStream().Synchronize()
	}
	good := normaliseSource(t)
	if err := launch(good, columns); err != nil {
		t.Fatal(err)
	}
	if err := d.Download(nil, raw, y.Buf, 0); err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		sum := 0.0
		for _, w := range values[i/columns*columns : (i/columns+1)*columns] {
			if w >= 0 {
				sum += max(float64(w), least)
			} else {
				sum -= float64(w)
			}
		}
		got := math.Float32frombits(uint32(raw[4*i]) | uint32(raw[4*i+1])<<8 | uint32(raw[4*i+2])<<16 | uint32(raw[4*i+3])<<24)
		if math.Abs(float64(got)-float64(v)/sum) > 1e-7 {
			t.Fatalf("element %d is %g, want %g", i, got, float64(v)/sum)
		}
	}
	for _, c := range []struct{ name, from, to, want string }{
		{"an instruction that does not exist", "selp.f32", "select.f32", "unknown or unsupported instruction select.f32"},
		{"one of tensor memory", "\tneg.f32 \t%f3, %f1;", "\twgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned"},
		{"another entry", "entry normalise(", "entry normalize(", "normalise"},
		{"a newer version", ".version 8.4", ".version 9.2", "9.2"},
		{"another target", ".target sm_80", ".target sm_100", "sm_100"},
		{"no PTX", ".version 8.4", "int main", "line 9"},
	} {
		err := launch(strings.Replace(good, c.from, c.to, 1), columns)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "normalise") {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	// With too many columns the kernel accesses memory beyond its buffer. The fault names the line
	// of the kernel's text.
	err = launch(good, columns+1)
	var fault *device.Fault
	if !errors.As(err, &fault) || !strings.Contains(err.Error(), "ld.global.f32") || !strings.Contains(err.Error(), "PTX line") {
		t.Errorf("out of bounds: %v", err)
	}
}
