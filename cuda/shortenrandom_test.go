package cuda

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/internal/worklist"
	"github.com/flambeau-go/flambeau/shape"
)

// randomList records a random list of maps, reductions and copies.
type randomList struct {
	t     *testing.T
	rand  *rand.Rand
	d     *Device
	r     *recording
	s     device.Stream
	shape shape.Dims
	older []device.View // tensors that exist before the recording
	live  []device.View // tensors that the recording allocated
}

var listTypes = []dtype.Type{dtype.F32, dtype.F32, dtype.BF16, dtype.F16, dtype.I64, dtype.Bool, dtype.U8}

func newRandomList(t *testing.T, d *Device, seed uint64) *randomList {
	w := &randomList{t: t, d: d, rand: rand.New(rand.NewPCG(seed, 5))}
	w.shape = shape.Of(1+w.rand.IntN(4), 1+w.rand.IntN(4), []int{1, 3, 16, 33, 64}[w.rand.IntN(5)])
	for range 4 {
		w.older = append(w.older, w.dense(nil, listTypes[w.rand.IntN(len(listTypes))], w.shape))
	}
	rec, err := d.NewRecording()
	must(t, err)
	w.r, w.s = rec.(*recording), rec.Stream()
	return w
}

// dense returns a contiguous view of new memory.
func (w *randomList) dense(s device.Stream, typ dtype.Type, dims shape.Dims) device.View {
	b, err := w.d.Alloc(max(1, dims.Size()*typ.Size()), s, device.Origin{Op: "test"})
	must(w.t, err)
	return device.View{Buf: b, Type: typ, Layout: shape.Dense(dims)}
}

// source returns a random view, with the shape dims, of a random tensor that has a value.
func (w *randomList) source(dims shape.Dims) device.View {
	list := slices.Concat(w.older, w.live, w.live)
	for range 20 {
		v := list[w.rand.IntN(len(list))]
		switch k := w.rand.IntN(3); w.rand.IntN(5) {
		case 0:
			v.Layout = v.Transpose(k, w.rand.IntN(3))
		case 1:
			v.Layout = v.Narrow(k, 0, 1, 1)
		case 2:
			if n := v.Shape.At(k); n > 1 {
				v.Layout = v.Narrow(k, n-n/2, n/2, 1)
			}
		}
		if l, ok := v.Expand(dims); ok {
			v.Layout = l
			return v
		}
		if v.Contiguous() && v.Size() == dims.Size() {
			v.Layout = shape.Layout{Offset: v.Offset, Shape: dims, Strides: dims.Contiguous()}
			return v
		}
	}
	v := w.dense(w.s, dtype.F32, dims)
	w.run(&device.Map{Program: expr.MustLower([]*expr.Expr{expr.C(1)}, []dtype.Type{dtype.F32}, nil, -1), Outs: views(v)})
	w.live = append(w.live, v)
	return v
}

func (w *randomList) run(op device.Op) { w.t.Helper(); must(w.t, device.Run(w.d, w.s, op)) }

// program returns a random program for these operands. Its values stay small.
func (w *randomList) program(outs []dtype.Type, ins []device.View) *expr.Program {
	types := make([]dtype.Type, len(ins))
	for i := range ins {
		types[i] = ins[i].Type
	}
	for {
		list := make([]*expr.Expr, len(outs))
		for k := range list {
			x, y := expr.X(w.rand.IntN(len(ins))), expr.X(len(ins)-1)
			list[k] = []*expr.Expr{x, x.Add(y).Mul(expr.C(0.5)), x.Max(y), x.Mul(expr.C(0.75)).Add(expr.C(1)), x.Lt(y).Select(y, x),
				x.Mul(expr.Param(0)), x.Max(expr.C(0)), x.Add(expr.Index(dtype.I64).Cvt(dtype.F32).Mul(expr.C(0.125)))}[w.rand.IntN(8)]
		}
		if p, err := expr.Lower(list, outs, types, -1); err == nil {
			return p
		}
	}
}

func (w *randomList) params(p *expr.Program) (v []uint64) {
	for _, t := range p.Params {
		if v = append(v, 0); t != dtype.Invalid {
			v[len(v)-1] = expr.Encode(t, float64(w.rand.IntN(3))/2)
		}
	}
	return v
}

// step records a random op.
func (w *randomList) step() {
	switch w.rand.IntN(12) {
	case 0, 1: // frees a tensor
		if n := len(w.live); n > 0 {
			k := w.rand.IntN(n)
			w.live[k].Buf.Free()
			w.live = slices.Delete(w.live, k, k+1)
		}
	case 2: // copies bytes
		v := w.older[w.rand.IntN(len(w.older))]
		to := w.dense(w.s, v.Type, v.Shape)
		must(w.t, w.d.CopyFrom(w.s, to.Buf, 0, v.Buf, 0, v.Size()*v.Type.Size()))
		w.live = append(w.live, to)
	case 3, 4: // a reduction
		in, dims := w.source(w.shape), w.shape
		if n := len(w.live); n > 0 && w.live[n-1].Shape == dims {
			in = w.live[n-1]
		}
		for k := range 3 {
			if w.rand.IntN(2) == 0 {
				dims = dims.With(k, 1)
			}
		}
		p := w.program([]dtype.Type{dtype.F32}, views(in))
		sum, out := w.dense(w.s, dtype.F32, dims), w.dense(w.s, dtype.F32, dims)
		w.run(&device.Reduce{Reduction: &device.Reduction{Kind: device.ReduceKind(w.rand.IntN(4)), Map: p}, Out: sum, Ins: views(in), Params: w.params(p)})
		// makes the values small again
		w.run(&device.Map{Program: lower(expr.X(0).Max(expr.C(-4)).Min(expr.C(4)), 1), Outs: views(out), Ins: views(sum)})
		sum.Buf.Free()
		w.live = append(w.live, out)
	case 5, 6: // writes in place, to a whole tensor or to a part of one
		list := slices.Concat(w.older, w.live)
		out := list[w.rand.IntN(len(list))]
		if w.rand.IntN(2) == 0 {
			k := w.rand.IntN(3)
			n := out.Shape.At(k)
			out.Layout = out.Narrow(k, n/2, n-n/2, 1)
		}
		ins := views(out, w.source(out.Shape))
		if worklist.SpanOf(&ins[1]).Meets(worklist.SpanOf(&out)) && !worklist.SameView(&ins[1], &out) {
			ins[1] = out
		}
		p := w.program([]dtype.Type{out.Type}, ins)
		w.run(&device.Map{Program: p, Outs: views(out), Ins: ins, Params: w.params(p)})
	default:
		dims := w.shape
		if w.rand.IntN(5) == 0 {
			dims = shape.Of(dims.At(2), dims.At(0), dims.At(1))
		}
		var ins, outs []device.View
		for range 1 + w.rand.IntN(2) {
			ins = append(ins, w.source(dims))
		}
		if n := len(w.live); n > 0 && w.live[n-1].Shape == dims {
			ins[0] = w.live[n-1]
		}
		var types []dtype.Type
		for range 1 + w.rand.IntN(2) {
			types = append(types, listTypes[w.rand.IntN(len(listTypes))])
			outs = append(outs, w.dense(w.s, types[len(types)-1], dims))
		}
		p := w.program(types, ins)
		w.run(&device.Map{Program: p, Outs: outs, Ins: ins, Params: w.params(p)})
		w.live = append(w.live, outs...)
	}
}

// begin sets the tensors that exist before the recording to random values.
func (w *randomList) begin(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 9))
	for _, v := range w.older {
		var b []byte
		for range v.Size() {
			x := 4*r.Float64() - 1.3 // sums of these values depend on the order of the additions
			if !v.Type.IsFloat() {
				x = float64(r.IntN(2))
			}
			bits := expr.Store(v.Type, expr.Encode(v.Type.Compute(), x))
			for i := range v.Type.Size() {
				b = append(b, byte(bits>>(8*i)))
			}
		}
		must(w.t, w.d.Upload(w.s, v.Buf, 0, b))
	}
}

// visible returns all bytes that a program could read after a replay.
func (w *randomList) visible() (all [][]byte) {
	for _, v := range slices.Concat(w.older, w.live) {
		b := make([]byte, v.Size()*v.Type.Size())
		must(w.t, w.d.Download(w.s, b, v.Buf, 0))
		all = append(all, b)
	}
	return all
}

// compare ends the recording. It compares replays of the recorded list with replays of the
// shortened list, and returns both numbers of operations.
func (w *randomList) compare(seed uint64) (whole, short int) {
	t, r := w.t, w.r
	t.Helper()
	r.finish()
	list, why, err := r.shortened()
	if err != nil || why != "" {
		t.Fatalf("seed %d: no shorter list: %s, %v", seed, why, err)
	}
	graphs := [2]*replayer{{r: r}, {r: r}}
	must(t, graphs[0].build(r.nodes))
	must(t, graphs[1].build(list))
	for k := range uint64(2) {
		var got [2][][]byte
		for i, g := range graphs {
			w.begin(2*seed + k)
			must(t, g.Replay(nil))
			got[i] = w.visible()
		}
		for i := range got[0] {
			if !bytes.Equal(got[0][i], got[1][i]) {
				t.Fatalf("seed %d: tensor %d is\n%x\nnot\n%x\nwhole list:\n%sshortened:\n%s", seed, i, got[1][i], got[0][i], listing(r.nodes), listing(list))
			}
		}
	}
	for _, v := range slices.Concat(w.older, w.live) {
		v.Buf.Free()
	}
	graphs[0].destroy()
	must(t, graphs[1].Close())
	return graphs[0].ops, graphs[1].ops
}

func listing(list []recorded) (text string) {
	for i := range list {
		w := &list[i]
		text += fmt.Sprintf("%d kind %d, %x %x %d", i, w.kind, w.dst, w.src, w.n)
		for k := 0; w.op != nil && w.op.Operand(k).View != nil; k++ {
			o := w.op.Operand(k)
			text += fmt.Sprintf(" %s=%x %v%v%v", o.Name, worklist.SpanOf(o.View), o.View.Type, o.View.Shape, o.View.Strides)
		}
		text += "\n"
		if m, ok := w.op.(*device.Map); ok {
			text += m.Program.String()
		}
	}
	return text
}

// TestShortenedRandomly records random lists. Replays of the shortened list must give the same bits
// as replays of the recorded list, in all memory that the program can read. The emulator checks
// that no work uses a block too early or too late.
func TestShortenedRandomly(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() {
		seeds = 12
	}
	all, left := 0, 0
	for seed := range seeds {
		w := newRandomList(t, emulated(t, fmt.Sprintf("emulate,mem=16MiB,seed=%d", seed%3)), seed)
		for range 4 + w.rand.IntN(24) {
			w.step()
		}
		whole, short := w.compare(seed)
		all, left = all+whole, left+short
	}
	if t.Logf("%d operations of %d are left", left, all); left > all*4/5 {
		t.Errorf("%d operations of %d are left", left, all)
	}
}
