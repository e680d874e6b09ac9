package cuda

import (
	"errors"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/internal/worklist"
	"github.com/flambeau-go/flambeau/shape"
)

// fixedList records lists of operations that a test specifies.
type fixedList struct{ *randomList }

func newFixedList(t *testing.T) fixedList {
	w := fixedList{newRandomList(t, emulated(t, "emulate,mem=16MiB"), 1)}
	w.shape = shape.Of(4, 2048)
	w.older = nil
	return w
}

// old returns a tensor that exists before the recording.
func (w *fixedList) old(typ dtype.Type) device.View {
	v := w.dense(nil, typ, w.shape)
	w.older = append(w.older, v)
	return v
}

// made records a map. Its result is in new memory, and has the shape of the first operand.
func (w *fixedList) made(typ dtype.Type, e *expr.Expr, ins ...device.View) device.View {
	out := w.dense(w.s, typ, ins[0].Shape)
	var types []dtype.Type
	for _, v := range ins {
		types = append(types, v.Type)
	}
	p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{typ}, types, -1)
	w.run(&device.Map{Program: p, Outs: views(out), Ins: ins})
	return out
}

// sum records a sum of the rows of v. Its result can be read after a replay.
func (w *fixedList) sum(v device.View) {
	out := w.dense(w.s, dtype.F32, v.Shape.With(1, 1))
	w.run(&device.Reduce{Reduction: &device.Reduction{Kind: device.Sum, Map: lower(expr.X(0), 1)}, Out: out, Ins: views(v)})
	w.keep(out)
}

// keep makes the test compare the contents of v.
func (w *fixedList) keep(v device.View) { w.live = append(w.live, v) }

// TestShortenedLists shortens several lists. Each must lose exactly the operations that can be
// merged or dropped.
func TestShortenedLists(t *testing.T) {
	x, y := expr.X(0), expr.X(1)
	double, add := x.Mul(expr.C(2.3)), x.Add(y)
	for name, c := range map[string]struct {
		record      func(w *fixedList)
		whole, left int
	}{
		"a chain": {func(w *fixedList) {
			a := w.made(dtype.F32, double, w.old(dtype.F32))
			b := w.made(dtype.F32, add, a, w.old(dtype.F32))
			a.Buf.Free()
			w.keep(w.made(dtype.F32, x.Max(expr.C(0)), b)) // the result uses the memory of a
			b.Buf.Free()
		}, 3, 1},
		"rounded between": {func(w *fixedList) {
			a := w.made(dtype.BF16, double, w.old(dtype.F32))
			w.keep(w.made(dtype.F32, add, a, w.old(dtype.F32)))
			a.Buf.Free()
		}, 2, 1},
		"a product and a sum are rounded one by one": {func(w *fixedList) {
			a := w.made(dtype.F32, x.Mul(y), w.old(dtype.F32), w.old(dtype.F32))
			w.keep(w.made(dtype.F32, add, a, w.old(dtype.F32)))
			a.Buf.Free()
		}, 2, 1},
		"the program sees the first result too": {func(w *fixedList) {
			a := w.made(dtype.F32, double, w.old(dtype.F32))
			w.keep(w.made(dtype.F32, add, a, a))
			w.keep(a)
		}, 2, 1},
		"the result has the memory of an operand": {func(w *fixedList) {
			v, from := w.dense(w.s, dtype.F32, w.shape), w.old(dtype.F32)
			must(w.t, w.d.CopyFrom(w.s, v.Buf, 0, from.Buf, 0, v.Buf.Size()))
			a := w.made(dtype.F32, double, v)
			v.Buf.Free()
			b := w.made(dtype.F32, add, a, from)
			if b.Buf.Addr() != v.Buf.Addr() {
				w.t.Error("freed memory was not used again")
			}
			a.Buf.Free()
			w.keep(b)
		}, 3, 2},
		"the result has memory that is still read": {func(w *fixedList) {
			a := w.made(dtype.F32, double, w.old(dtype.F32))
			w.sum(a)
			b := w.made(dtype.F32, double, a)
			a.Buf.Free()
			w.keep(w.made(dtype.F32, add, b, b)) // the result uses the memory of a
			b.Buf.Free()
		}, 4, 3},
		"nobody reads it": {func(w *fixedList) {
			w.made(dtype.F32, double, w.old(dtype.F32)).Buf.Free()
			w.keep(w.made(dtype.F32, double, w.old(dtype.F32)))
		}, 2, 1},
		"an operand is written between": {func(w *fixedList) {
			v := w.old(dtype.F32)
			a := w.made(dtype.F32, double, v)
			must(w.t, w.d.CopyFrom(w.s, v.Buf, 0, w.old(dtype.F32).Buf, 0, v.Buf.Size()))
			w.keep(w.made(dtype.F32, add, a, v))
			a.Buf.Free()
		}, 3, 3},
		"within a sum": {func(w *fixedList) {
			a := w.made(dtype.F32, double, w.old(dtype.F32))
			w.sum(a)
			a.Buf.Free()
		}, 2, 1},
		"within a sum whose order would change": {func(w *fixedList) {
			a := w.made(dtype.F32, double, w.old(dtype.BF16))
			w.sum(a)
			a.Buf.Free()
		}, 2, 2},
		"within a sum whose scratch memory has the memory of an operand": {func(w *fixedList) {
			w.shape = shape.Of(1, 8192)
			v, from := w.dense(w.s, dtype.F32, w.shape), w.old(dtype.F32)
			must(w.t, w.d.CopyFrom(w.s, v.Buf, 0, from.Buf, 0, v.Buf.Size()))
			a, out := w.made(dtype.F32, double, v), w.dense(w.s, dtype.F32, shape.Of(1, 1))
			v.Buf.Free()
			w.run(&device.Reduce{Reduction: &device.Reduction{Kind: device.Sum, Map: lower(x, 1)}, Out: out, Ins: views(a)})
			if s := w.r.nodes[len(w.r.nodes)-2].scratch; len(s) != 1 || !s[0].Meets(worklist.SpanOf(&v)) {
				w.t.Error("freed memory was not used again")
			}
			a.Buf.Free()
			w.keep(out)
		}, 4, 4},
		"repeated after its memory was freed": {func(w *fixedList) {
			from := w.old(dtype.F32)
			a := w.made(dtype.F32, double, from)
			w.sum(a)
			a.Buf.Free()
			b := w.made(dtype.F32, double, from)
			if b.Buf.Addr() != a.Buf.Addr() {
				w.t.Error("freed memory was not used again")
			}
			w.sum(b)
			b.Buf.Free()
		}, 4, 3},
		"launches of unknown memory between": {func(w *fixedList) {
			a := w.made(dtype.F32, double, w.old(dtype.F32))
			b := w.dense(w.s, dtype.F32, w.shape)
			list, err := (&scratch{d: w.d, s: w.r.s, op: "test"}).plan(&device.Map{Program: lower(double, 1), Outs: views(b), Ins: views(a)})
			must(w.t, err)
			must(w.t, w.d.queue(w.r.s, list))
			w.keep(b)
			w.keep(w.made(dtype.F32, double, a))
			a.Buf.Free()
		}, 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixedList(t)
			c.record(&w)
			if whole, left := w.compare(1); whole != c.whole || left != c.left {
				t.Errorf("%d operations of %d, want %d of %d", left, whole, c.left, c.whole)
			}
		})
	}
}

// TestUnshortened makes graphs of several streams or devices. They must keep all operations and
// return the reason.
func TestUnshortened(t *testing.T) {
	list, err := Emulate("emulate:2,mem=16MiB")
	must(t, err)
	d := list[0]
	x := floats(t, d, nil, 1, 2)
	for want, record := range map[string]func() device.Recording{
		"streams": func() device.Recording {
			r, err := d.NewRecording()
			must(t, err)
			_, err = r.Fork(d)
			must(t, err)
			return r
		},
		"devices": func() device.Recording {
			r, err := d.NewRecording(list[1])
			must(t, err)
			return r
		},
	} {
		r := record()
		for range 2 {
			must(t, apply(d, r.Stream(), double, views(x), views(x)))
		}
		g, err := r.Finish()
		must(t, err)
		if why := g.(*replayer).Unshortened(); g.Operations() != 2 || !strings.Contains(why, want) {
			t.Errorf("%d operations, %q, want 2 because of %s", g.Operations(), why, want)
		}
		must(t, g.Close())
	}
}

// picky is a driver that refuses all new kernels.
type picky struct{ *emu.Driver }

func (picky) ModuleLoadData([]byte, cu.JITOptions) (cu.Module, error) {
	return 0, &cu.Error{Call: "cuModuleLoadData", Result: cu.ErrInvalidPTX}
}

// TestShortenedKernelsRefused makes the driver refuse a kernel of the shortened list. Replays must
// then run the recorded list, and Unshortened must return the reason.
func TestShortenedKernelsRefused(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB")
	x := floats(t, d, nil, 1, 2)
	must(t, apply(d, nil, double, views(x), views(x))) // loads the kernel of the recorded list
	d.api = picky{d.api.(*emu.Driver)}
	r, err := d.NewRecording()
	must(t, err)
	for range 2 {
		must(t, apply(d, r.Stream(), double, views(x), views(x)))
	}
	g, err := r.Finish()
	must(t, err)
	if why := g.(*replayer).Unshortened(); g.Operations() != 2 || !strings.Contains(why, "PTX") {
		t.Errorf("%d operations, %q", g.Operations(), why)
	}
	must(t, g.Replay(nil))
	check(t, d, r.Stream(), x, 8, 16)
	must(t, g.Close())
}

// fullOnce is a driver that has no memory for the first graph.
type fullOnce struct {
	*emu.Driver
	refused *int
}

func (f fullOnce) GraphInstantiate(g cu.Graph) (cu.GraphExec, error) {
	if *f.refused++; *f.refused > 1 {
		return f.Driver.GraphInstantiate(g)
	}
	return 0, &cu.Error{Call: "cuGraphInstantiate", Result: cu.ErrOutOfMemory}
}

// TestShortenedFails checks that Finish uses the recorded list only if the driver refuses a
// merged kernel. After any other error, Finish must return that error.
func TestShortenedFails(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB")
	refused := 0
	x := floats(t, d, nil, 1, 2)
	d.api = fullOnce{d.api.(*emu.Driver), &refused}
	r, err := d.NewRecording()
	must(t, err)
	for range 2 {
		must(t, apply(d, r.Stream(), double, views(x), views(x)))
	}
	if _, err := r.Finish(); !errors.Is(err, cu.ErrOutOfMemory) || refused != 1 {
		t.Errorf("%v after %d graphs", err, refused)
	}
}
