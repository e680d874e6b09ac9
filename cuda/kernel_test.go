package cuda

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
)

// everyType returns a kernel with parameters of many types. The kernel stores the values that it
// receives, so that a test can compare them.
func everyType(t *testing.T) *Kernel {
	t.Helper()
	b := ptx.New("every_type")
	out := b.Pointer("out", ptx.F64)
	a, c, d := b.Param("a", ptx.U32), b.Param("b", ptx.F32), b.Param("c", ptx.S64)
	e, f := b.Param("d", ptx.F64), b.Param("e", ptx.S32)
	bytes := b.ParamBytes("f", 12, 4).As(ptx.U32)
	for i, v := range []ptx.Value{a.Cvt(ptx.F64), c.Cvt(ptx.F64), d.Cvt(ptx.F64), e, f.Cvt(ptx.F64), bytes.At(ptx.Int(2)).Load().Cvt(ptx.F64)} {
		out.At(b.U32(uint32(i))).Store(v)
	}
	return finished(t, b, KernelConfig{})
}

func finished(t *testing.T, b *ptx.Builder, c KernelConfig) *Kernel {
	t.Helper()
	built, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	k, err := NewKernel(built, c)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestLaunchArguments(t *testing.T) {
	list, err := Emulate("emulate:2,mem=16MiB")
	if err != nil {
		t.Fatal(err)
	}
	d := list[0]
	s := d.DefaultStream()
	view := func(d *Device, ty dtype.Type, dims ...int) device.View {
		b, err := d.Alloc(shape.Of(dims...).Size()*ty.Size(), d.DefaultStream(), device.Origin{Op: "test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Free)
		return device.View{Buf: b, Type: ty, Layout: shape.Dense(shape.Of(dims...))}
	}
	k, out := everyType(t), view(d, dtype.F64, 6)
	packed := []byte{1, 0, 0, 0, 2, 0, 0, 0, 44, 1, 0, 0}
	var none *device.OperandError
	if err := d.Launch(s, nil, [3]int{}); !errors.As(err, &none) {
		t.Errorf("no kernel: %v", err)
	}
	if err := d.Launch(s, k, [3]int{}, out, uint32(7), float32(1.5), -3, 2.25, int32(-9), packed); err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, 48)
	if err := d.Download(s, raw, out.Buf, 0); err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{7, 1.5, -3, 2.25, -9, 300} {
		bits := uint64(0)
		for j := range 8 {
			bits |= uint64(raw[8*i+j]) << (8 * j)
		}
		if got := math.Float64frombits(bits); got != want {
			t.Errorf("argument %d arrives as %v, want %v", i+1, got, want)
		}
	}

	turned := view(d, dtype.F64, 2, 3)
	turned.Layout = turned.Layout.Transpose(0, 1)
	args := func(at int, v any) []any {
		a := []any{out, uint32(7), float32(1.5), int64(-3), 2.25, int32(-9), packed}
		a[at] = v
		return a
	}
	freed := view(d, dtype.F64, 5)
	gone := freed
	buf, err := d.Alloc(40, s, device.Origin{Op: "test"})
	if err != nil {
		t.Fatal(err)
	}
	gone.Buf = buf
	buf.Free()
	outside := out
	outside.Layout = outside.Layout.Narrow(0, 0, 5, 1)
	outside.Layout.Offset = 3
	for _, c := range []struct {
		name string
		grid [3]int
		args []any
		says string
	}{
		{"too few", [3]int{1}, []any{out}, "1 are given, the kernel takes 7"},
		{"no view", [3]int{1}, args(0, 5), "argument 0 (out): int, want a device.View"},
		{"type of elements", [3]int{1}, args(0, view(d, dtype.F32, 10)), "a view of float32, the kernel reads f64"},
		{"another device", [3]int{1}, args(0, view(list[1], dtype.F64, 5)), "cuda:1"},
		{"freed", [3]int{1}, args(0, gone), "freed"},
		{"out of the buffer", [3]int{1}, args(0, outside), "do not lie in a buffer"},
		{"strides", [3]int{1}, args(0, turned), "Strided"},
		{"type of a scalar", [3]int{1}, args(2, 1.5), "argument 2 (b): float64, the kernel takes f32"},
		{"int for a float", [3]int{1}, args(4, 3), "int, the kernel takes f64"},
		{"int out of range", [3]int{1}, args(1, 1<<32), "4294967296 is not a value of u32"},
		{"negative", [3]int{1}, args(1, -1), "-1 is not a value of u32"},
		{"fewer bytes", [3]int{1}, args(6, packed[1:]), "[]uint8 of 11 bytes, the kernel takes 12 bytes"},
		{"no bytes", [3]int{1}, args(6, 1), "int of 0 bytes"},
		{"nothing", [3]int{1}, args(1, nil), "the kernel takes u32"},
		{"grid", [3]int{1, 70000}, args(1, 1), "grid: [1 70000 0] blocks"},
		{"negative grid", [3]int{-1}, args(1, 1), "grid"},
	} {
		before := d.Counters().Launches
		err := d.Launch(s, k, c.grid, c.args...)
		var e *device.OperandError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "every_type") {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
		if d.Counters().Launches != before {
			t.Errorf("%s: it was launched", c.name)
		}
	}
	if err := d.Launch(list[1].DefaultStream(), k, [3]int{}, args(1, 1)...); err == nil {
		t.Error("a stream of another device is taken")
	}
	if err := d.Launch(nil, k, [3]int{}, args(0, Strided(turned))...); err != nil {
		t.Errorf("a strided view: %v", err)
	}
	if err := d.Synchronize(); err != nil {
		t.Error(err)
	}
}

// TestNewKernel checks which launch shapes NewKernel accepts.
func TestNewKernel(t *testing.T) {
	built := func(threads int) *ptx.Kernel {
		b := ptx.New("shaped")
		b.MaxThreads(threads)
		b.Pointer("x", ptx.U32).Store(b.U32(1))
		k, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	for _, c := range []KernelConfig{{Block: [3]int{2048}}, {Block: [3]int{256}}, {Block: [3]int{-1}}, {Block: [3]int{1, 1, 65}}, {Block: [3]int{64}, Shared: -1}} {
		_, err := NewKernel(built(128), c)
		var e *KernelError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "shaped") {
			t.Errorf("%v: %v", c, err)
		}
	}
	if _, err := NewKernel(built(1024), KernelConfig{Block: [3]int{64, 1, 1}}); err != nil {
		t.Error(err)
	}
}

// TestLaunchShared launches a kernel that reverses the elements of a block in dynamic shared
// memory.
func TestLaunchShared(t *testing.T) {
	list, err := Emulate("emulate,mem=16MiB")
	if err != nil {
		t.Fatal(err)
	}
	d := list[0]
	b := ptx.New("turned")
	b.MaxThreads(32)
	x := b.Pointer("x", ptx.U32)
	room := b.DynamicShared("room", ptx.U32)
	i := b.ThreadID(0)
	room.At(i).Store(x.At(i).Load())
	b.Barrier()
	x.At(i).Store(room.At(b.U32(31).Sub(i)).Load())
	k := finished(t, b, KernelConfig{Block: [3]int{32}, Shared: 128})
	buf, err := d.Alloc(128, d.DefaultStream(), device.Origin{Op: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Free()
	raw := make([]byte, 128)
	for i := range 32 {
		raw[4*i] = byte(i)
	}
	if err := d.Upload(d.DefaultStream(), buf, 0, raw); err != nil {
		t.Fatal(err)
	}
	if err := d.Launch(nil, k, [3]int{1}, device.View{Buf: buf, Type: dtype.U32, Layout: shape.Dense(shape.Of(32))}); err != nil {
		t.Fatal(err)
	}
	if err := d.Download(d.DefaultStream(), raw, buf, 0); err != nil {
		t.Fatal(err)
	}
	for i := range 32 {
		if raw[4*i] != byte(31-i) {
			t.Fatalf("element %d is %d", i, raw[4*i])
		}
	}
}
