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
		half := [3]device.View{vector(dtype.BF16, 3, 200, 300), vector(dtype.BF16, 3, 200, 100), vector(dtype.BF16, 1, 100, 300)}
		half[2].Shape, half[2].Strides = half[2].Shape.With(0, 3), half[2].Strides.With(0, 0)
		table, picked := vector(dtype.F16, 300, 200), vector(dtype.F16, 10, 200)
		// as is the memory of v in another shape.
		as := func(v device.View, typ dtype.Type, offset int, dims ...int) device.View {
			l := shape.Dense(shape.Of(dims...))
			l.Offset = offset
			return device.View{Buf: v.Buf, Type: typ, Layout: l}
		}
		conv, pool := device.Convolution{Rank: 1, Groups: 1, Stride: [3]int{1}, Dilation: [3]int{1}}, device.Window{Rank: 1, Kernel: [3]int{4}, Stride: [3]int{4}, Dilation: [3]int{1}}
		line := func(v device.View) device.View { return as(v, dtype.F32, 0, 1, 60, 1000) }
		stat := func(k int) device.View { return as(rows, dtype.F32, 20*k, 20) }
		block := func(v device.View) device.View { return as(v, dtype.F32, 0, 300, 20, 10) }
		for i, err := range []error{
			d.MatMul(s, half[0], half[1], half[2]), d.Scatter(s, device.ScatterAdd, table, picked, index, 0, 0), d.Scatter(s, device.ScatterSet, table, picked, index, 0, 0),
			d.(device.Scanner).Scan(s, device.ScanSum, device.View{Buf: y.Buf, Type: y.Type, Layout: shape.Dense(shape.Of(1, 300, 200))}, []device.View{{Buf: x.Buf, Type: x.Type, Layout: shape.Dense(shape.Of(1, 300, 200))}}, false),
			d.Upload(s, index.Buf, 0, ones),
			d.Map(s, zero, []device.View{x}, nil, nil), d.Map(s, zero, []device.View{y}, nil, nil), d.Map(s, add, []device.View{z}, []device.View{x, y}, nil),
			d.(device.Softmaxer).Softmax(s, z, x, true), d.(device.Softmaxer).SoftmaxGrad(s, z, y, x, true),
			d.Gather(s, rows, x, index, 0, 0), d.Scatter(s, device.ScatterAdd, x, rows, index, 0, 0),
			d.(device.Convolver).Convolve(s, line(y), line(x), as(z, dtype.F32, 0, 60, 60, 1), conv),
			d.(device.Convolver).ConvolveData(s, line(x), line(y), as(z, dtype.F32, 0, 60, 60, 1), conv),
			d.(device.Convolver).ConvolveWeight(s, as(z, dtype.F32, 0, 60, 60, 1), line(x), line(y), conv),
			d.(device.Pooler).SumWindows(s, as(z, dtype.F32, 0, 300, 50), x, pool), d.(device.Pooler).AddWindows(s, x, as(z, dtype.F32, 0, 300, 50), pool),
			d.(device.Pooler).MaxPoolGrad(s, x, as(z, dtype.F32, 0, 300, 50), as(index, dtype.U8, 0, 300, 50), pool),
			d.(device.ChannelNormer).ChannelNorm(s, block(y), stat(0), stat(1), stat(2), block(x), stat(3), device.View{}, device.ChannelNorm{Eps: 1}),
			d.(device.ChannelNormer).ChannelNormGrad(s, block(z), stat(4), stat(5), block(y), block(x), stat(0), stat(2), stat(3)),
			d.CopyFrom(s, z.Buf, 0, x.Buf, 0, 400), d.Synchronize(),
		} {
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

// Whatever the processor can do beyond the contract, its form without memory can too, so that a program takes the same paths on both.
func TestMetaSatisfiesWhatTheProcessorDoes(t *testing.T) {
	apart := map[string]string{
		"Borrow": "there is no memory", "SetMemoryLimit": "it is opened with one",
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
			for k := 1; same && k < a.NumIn(); k++ { // 0 is the receiver
				same = a.In(k) == b.In(k)
			}
			if !same {
				t.Errorf("%s is %v, want %v", m.Name, b, a)
			}
		}
	}
}
