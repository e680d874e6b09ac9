package cpu

import (
	"errors"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// workOf is a tracer that adds up what is told of kernels.
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

// The processor without memory counts what the processor does.
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
		ones := make([]byte, 8*2000)
		for i, err := range []error{
			d.Upload(s, index.Buf, 0, ones),
			d.Map(s, zero, []device.View{x}, nil, nil), d.Map(s, zero, []device.View{y}, nil, nil), d.Map(s, add, []device.View{z}, []device.View{x, y}, nil),
			d.(device.Softmaxer).Softmax(s, z, x, true), d.(device.Softmaxer).SoftmaxGrad(s, z, y, x, true),
			d.Gather(s, rows, x, index, 0, 0), d.Scatter(s, device.ScatterAdd, x, rows, index, 0, 0),
			d.CopyFrom(s, z.Buf, 0, x.Buf, 0, 400), d.Synchronize(),
		} {
			if err != nil {
				t.Fatalf("%d: %v", i, err)
			}
		}
		for _, v := range []device.View{x, y, z, index, rows} {
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
	if len(got.kernels) != len(want.kernels) || got.work != want.work || got.memory != want.memory || peak != wantPeak || peak < 3*300*200*4 {
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
	var v *ViewError
	for name, err := range map[string]error{
		"beside": d.Upload(s, b, 6<<20, []byte{1}), "foreign": d.Download(s, make([]byte, 4), &buffer{dev: Get(), mem: make([]byte, 8)}, 0),
		"copy":    d.CopyFrom(s, b, 0, b, 6<<20-1, 2),
		"product": d.MatMul(s, device.View{Buf: b, Type: dtype.F32, Layout: shape.Dense(shape.Of(1, 2048, 2048))}, device.View{}, device.View{}),
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
