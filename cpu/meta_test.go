package cpu

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// workOf is a tracer that sums the work of the reported kernels.
type workOf struct {
	device.Tracer
	work    device.Work
	kernels []string
	memory  int
}

func (w *workOf) Wants() device.TraceWants    { return device.TraceWants{Memory: true} }
func (w *workOf) Memory(m device.MemoryEvent) { w.memory++ }
func (w *workOf) Copy(device.CopyEvent)       {}
func (w *workOf) Kernel(k device.KernelEvent) {
	w.work, w.kernels = w.work.Add(k.Work), append(w.kernels, k.Primitive)
}

// TestMeta runs the same program on a device without memory and on the CPU. Both must count the
// same work and memory.
func TestMeta(t *testing.T) {
	count := func(d device.Device) (w workOf, peak int) {
		if !device.SetTracer(&w) {
			t.Fatal("another tracer is set")
		}
		defer device.SetTracer(nil)
		d.ResetPeak()
		before := d.Stats().Allocated
		vector := func(typ dtype.Type, dims ...int) device.View {
			l := shape.Dense(shape.Of(dims...))
			b, err := d.Alloc(l.Shape.Size()*typ.Size(), d.DefaultStream(), device.Origin{Op: "test", Type: typ})
			if err != nil {
				t.Fatal(err)
			}
			return device.View{Buf: b, Type: typ, Layout: l}
		}
		s := d.DefaultStream()
		x, y, z := vector(dtype.F32, 300, 200), vector(dtype.F32, 300, 200), vector(dtype.F32, 300, 200)
		add := expr.MustLower([]*expr.Expr{expr.X(0).Add(expr.X(1))}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32, dtype.F32}, -1)
		zero := expr.MustLower([]*expr.Expr{expr.C(0)}, []dtype.Type{dtype.F32}, nil, -1)
		index := vector(dtype.I64, 10, 200)
		rows := vector(dtype.F32, 10, 200)
		must(t, d.Upload(s, index.Buf, 0, make([]byte, 8*2000)))
		half := [3]device.View{vector(dtype.BF16, 3, 200, 300), vector(dtype.BF16, 3, 200, 100), vector(dtype.BF16, 1, 100, 300)}
		half[2].Shape, half[2].Strides = half[2].Shape.With(0, 3), half[2].Strides.With(0, 0)
		table, picked := vector(dtype.F16, 300, 200), vector(dtype.F16, 10, 200)
		// as returns a view on the buffer of v, with another type, offset and shape.
		as := func(v device.View, typ dtype.Type, offset int, dims ...int) device.View {
			l := shape.Dense(shape.Of(dims...))
			l.Offset = offset
			return device.View{Buf: v.Buf, Type: typ, Layout: l}
		}
		pool := device.Window{Rank: 1, Kernel: [3]int{4}, Stride: [3]int{4}, Dilation: [3]int{1}}
		line := func(v device.View) device.View { return as(v, dtype.F32, 0, 1, 60, 1000) }
		stat := func(k int) device.View { return as(rows, dtype.F32, 20*k, 20) }
		block := func(v device.View) device.View { return as(v, dtype.F32, 0, 300, 20, 10) }
		conv := func(kind device.ConvKind, x, w, y device.View) *device.Convolution {
			return &device.Convolution{Kind: kind, X: line(x), W: as(w, dtype.F32, 0, 60, 60, 1), Y: line(y), Rank: 1, Groups: 1, Stride: [3]int{1}, Dilation: [3]int{1}}
		}
		for _, op := range []device.Op{
			&device.MatMul{Out: half[0], A: half[1], B: half[2]},
			&device.Scatter{Kind: device.ScatterAdd, Dst: table, Src: picked, Index: index}, &device.Scatter{Dst: table, Src: picked, Index: index},
			&device.Scan{Out: as(y, dtype.F32, 0, 1, 300, 200), Ins: views(as(x, dtype.F32, 0, 1, 300, 200))},
			mapOf(zero, x), mapOf(zero, y), mapOf(add, z, x, y),
			&device.Softmax{Out: z, X: x, Log: true}, &device.SoftmaxGrad{DX: z, Y: y, G: x, Log: true},
			&device.Gather{Out: rows, Src: x, Index: index}, &device.Scatter{Kind: device.ScatterAdd, Dst: x, Src: rows, Index: index},
			conv(device.ConvForward, x, z, y), conv(device.ConvData, x, z, y), conv(device.ConvWeight, x, z, y),
			&device.SumWindows{Y: as(z, dtype.F32, 0, 300, 50), X: x, Window: pool},
			&device.Fold{Y: as(x, dtype.F32, 0, 300, 1, 200), X: as(z, dtype.F32, 0, 300, 1, 4, 50), Window: pool},
			&device.MaxPoolGrad{DX: x, G: as(z, dtype.F32, 0, 300, 50), Near: as(index, dtype.U8, 0, 300, 50), Window: pool},
			&device.ChannelNorm{Out: block(y), Mean: stat(0), Variance: stat(1), Rstd: stat(2), X: block(x), Weight: stat(3), Eps: 1},
			&device.ChannelNormGrad{DX: block(z), Sum: stat(4), Product: stat(5), G: block(y), X: block(x), Mean: stat(0), Rstd: stat(2), Weight: stat(3)},
		} {
			if !d.Supports(op) {
				t.Errorf("%v does not support %s", d, op.Name())
			}
			do(t, d, op)
		}
		for i, err := range []error{d.CopyFrom(s, z.Buf, 0, x.Buf, 0, 400), d.Synchronize()} {
			if err != nil {
				t.Fatalf("%d: %v", i, err)
			}
		}
		for _, v := range []device.View{x, y, z, index, rows, half[0], half[1], half[2], table, picked} {
			v.Buf.Free()
		}
		if d.Stats().Allocated != before {
			t.Error("memory stays")
		}
		return w, d.Stats().AllocatedPeak - before
	}
	d, err := device.OpenMeta("cpu", device.MetaConfig{Memory: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	got, peak := count(d)
	want, wantPeak := count(Get())
	if !slices.Equal(got.kernels, want.kernels) || got.work != want.work || got.memory != want.memory || peak != wantPeak || peak < 3*300*200*4 {
		t.Errorf("%v %v, %d events and %d bytes of memory, want %v %v, %d and %d", got.kernels, got.work, got.memory, peak, want.kernels, want.work, want.memory, wantPeak)
	}

	s := d.DefaultStream()
	b, err := d.Alloc(6<<20, s, device.Origin{})
	if err != nil || b.Host() != nil || !d.Info().Meta || d.Info().Memory != 8<<20 {
		t.Fatal(err, d.Info())
	}
	if _, err := d.Alloc(6<<20, s, device.Origin{}); !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("12 MiB of 8: %v", err)
	}
	if err := d.Download(s, make([]byte, 4), b, 0); !errors.Is(err, device.ErrNoValues) {
		t.Errorf("a value: %v", err)
	}
	var v *device.OperandError
	large := device.View{Buf: b, Type: dtype.F32, Layout: shape.Dense(shape.Of(2048, 2048))}
	for name, err := range map[string]error{
		"beside": d.Upload(s, b, 6<<20, []byte{1}), "foreign": d.Download(s, make([]byte, 4), &buffer{dev: Get(), mem: make([]byte, 8)}, 0),
		"copy": d.CopyFrom(s, b, 0, b, 6<<20-1, 2),
		"map":  device.Run(d, s, mapOf(castProgram(dtype.F32, dtype.F32), large, large)),
	} {
		if !errors.As(err, &v) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.Free()
	if err := d.Upload(s, b, 0, []byte{1}); !errors.As(err, &v) {
		t.Errorf("a freed buffer: %v", err)
	}
	if _, err := device.OpenMeta("cpu", device.MetaConfig{Memory: -1}); err == nil {
		t.Error("negative memory is taken")
	}
}

// TestMetaSatisfiesWhatTheProcessorDoes checks that the device without memory implements every
// interface that the CPU implements. A program then behaves in the same way on both devices.
func TestMetaSatisfiesWhatTheProcessorDoes(t *testing.T) {
	apart := map[string]string{
		"Borrow": "there is no memory", "SetMemoryLimit": "it is opened with one",
		"SetWorkers": "no work is done", "Workers": "no work is done", "Parallel": "no work is done",
		"RecordMemoryHistory": "a debugging aid", "StopMemoryHistory": "a debugging aid", "MemorySnapshot": "a debugging aid",
	}
	own, all := reflect.TypeFor[*meta](), reflect.TypeFor[*Device]()
	for i := range all.NumMethod() {
		m := all.Method(i)
		n, ok := own.MethodByName(m.Name)
		switch {
		case apart[m.Name] != "":
		case !ok:
			t.Errorf("%s is missing", m.Name)
		default:
			a, b := m.Type, n.Type
			same := a.NumIn() == b.NumIn() && a.NumOut() == b.NumOut()
			for k := 1; same && k < a.NumIn(); k++ { // argument 0 is the receiver
				same = a.In(k) == b.In(k)
			}
			if !same {
				t.Errorf("%s is %v, want %v", m.Name, b, a)
			}
		}
	}
}

// TestMetaCopiesFromAnother copies from one device without memory to another. This must work, as it
// does between ranks of the CPU.
func TestMetaCopiesFromAnother(t *testing.T) {
	var b [2]device.Buffer
	var d [2]device.Device
	for i := range d {
		var err error
		if d[i], err = device.OpenMeta("cpu", device.MetaConfig{}); err != nil {
			t.Fatal(err)
		}
		if b[i], err = d[i].Alloc(64, nil, device.Origin{Op: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	must(t, d[0].CopyFrom(d[0].DefaultStream(), b[0], 0, b[1], 32, 32))
	if err := d[0].CopyFrom(d[0].DefaultStream(), b[0], 0, b[1], 33, 32); err == nil {
		t.Error("32 bytes at offset 33 of 64 are copied")
	}
	if err := d[0].CopyFrom(d[0].DefaultStream(), b[1], 0, b[0], 0, 32); err == nil {
		t.Error("a device writes to another one's memory")
	}
}
