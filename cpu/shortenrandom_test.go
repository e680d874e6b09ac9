package cpu

import (
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
	older []device.View // tensors that were allocated before the recording
	live  []device.View // tensors that were allocated in the recording
	all   [][]byte      // all memory of the recording, including freed memory
}

var listTypes = []dtype.Type{dtype.F32, dtype.F32, dtype.BF16, dtype.F16, dtype.I64, dtype.Bool, dtype.U8}

func newRandomList(t *testing.T, d *Device, seed uint64) *randomList {
	w := &randomList{t: t, d: d, rand: rand.New(rand.NewPCG(seed, 5))}
	w.shape = shape.Of(1+w.rand.IntN(5), 1+w.rand.IntN(5), 1+w.rand.IntN(40))
	rec, err := d.NewRecording()
	must(t, err)
	w.r, w.s = rec.(*recording), rec.Stream()
	for range 4 {
		w.older = append(w.older, w.dense(nil, listTypes[w.rand.IntN(len(listTypes))], w.shape))
	}
	return w
}

// dense returns a contiguous view of new memory.
func (w *randomList) dense(s device.Stream, typ dtype.Type, dims shape.Dims) device.View {
	b, err := w.d.Alloc(max(1, dims.Size()*typ.Size()), s, device.Origin{Op: "test"})
	must(w.t, err)
	if s != nil {
		w.all = append(w.all, b.(*buffer).mem)
	}
	return device.View{Buf: b, Type: typ, Layout: shape.Dense(dims)}
}

// source picks a random tensor that has been written, and returns a random view of it with shape
// dims.
func (w *randomList) source(dims shape.Dims) device.View {
	list := slices.Concat(w.older, w.live, w.live)
	for range 20 {
		v := list[w.rand.IntN(len(list))]
		switch w.rand.IntN(5) {
		case 0:
			v.Layout = v.Transpose(w.rand.IntN(3), w.rand.IntN(3))
		case 1:
			k := w.rand.IntN(3)
			v.Layout = v.Narrow(k, 0, 1, 1)
		case 2:
			k := w.rand.IntN(3)
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
	for _, v := range w.older {
		if l, ok := v.Expand(dims); ok {
			v.Layout = l
			return v
		}
	}
	return w.filled(dims)
}

// filled returns a new tensor of ones.
func (w *randomList) filled(dims shape.Dims) device.View {
	v := w.dense(w.s, dtype.F32, dims)
	w.run(&device.Map{Program: expr.MustLower([]*expr.Expr{expr.C(1)}, []dtype.Type{dtype.F32}, nil, -1), Outs: []device.View{v}})
	w.live = append(w.live, v)
	return v
}

func (w *randomList) run(op device.Op) { must(w.t, device.Run(w.d, w.s, op)) }

// program returns a random program for these operands. The values stay small.
func (w *randomList) program(outs []dtype.Type, ins []device.View) *expr.Program {
	types := make([]dtype.Type, len(ins))
	for i := range ins {
		types[i] = ins[i].Type
	}
	for {
		list := make([]*expr.Expr, len(outs))
		for k := range list {
			x := expr.X(w.rand.IntN(len(ins)))
			y := expr.X(len(ins) - 1)
			list[k] = []*expr.Expr{x, x, x.Add(y).Mul(expr.C(0.5)), x.Max(y), x.Min(y), x.Mul(expr.C(0.75)).Add(expr.C(1)),
				x.Lt(y).Select(y, x), x.Sub(y).Mul(expr.C(0.25)), x.Mul(expr.Param(0)), x.Ne(y), x.Max(expr.C(0)),
				x.Add(expr.Index(dtype.I64).Cvt(dtype.F32).Mul(expr.C(0.125)))}[w.rand.IntN(12)]
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

func (w *randomList) step() {
	switch w.rand.IntN(12) {
	case 0: // free
		if n := len(w.live); n > 0 {
			k := w.rand.IntN(n)
			w.live[k].Buf.Free()
			w.live = slices.Delete(w.live, k, k+1)
		}
	case 1: // copy bytes
		v := w.older[w.rand.IntN(len(w.older))]
		to := w.dense(w.s, v.Type, v.Shape)
		must(w.t, w.d.CopyFrom(w.s, to.Buf, 0, v.Buf, 0, v.Size()*v.Type.Size()))
		w.live = append(w.live, to)
	case 2: // reduce
		in := w.source(w.shape)
		dims := w.shape
		for k := range 3 {
			if w.rand.IntN(2) == 0 {
				dims = dims.With(k, 1)
			}
		}
		p := w.program([]dtype.Type{dtype.F32}, []device.View{in})
		out := w.dense(w.s, dtype.F32, dims)
		w.run(&device.Reduce{Reduction: &device.Reduction{Kind: device.ReduceKind(w.rand.IntN(4)), Map: p}, Out: out, Ins: []device.View{in}, Params: w.params(p)})
		out = w.halved(out)
		w.live = append(w.live, out)
	case 3, 4: // map in place, also on a part of a tensor
		list := slices.Concat(w.older, w.live)
		out := list[w.rand.IntN(len(list))]
		if w.rand.IntN(2) == 0 {
			k := w.rand.IntN(3)
			n := out.Shape.At(k)
			out.Layout = out.Narrow(k, n/2, n-n/2, 1)
		}
		ins := []device.View{out, w.source(out.Shape)}
		if worklist.SpanOf(&ins[1]).Meets(worklist.SpanOf(&out)) && !worklist.SameView(&ins[1], &out) {
			ins[1] = out
		}
		p := w.program([]dtype.Type{out.Type}, ins)
		w.run(&device.Map{Program: p, Outs: []device.View{out}, Ins: ins, Params: w.params(p)})
	case 5: // repeat an earlier op
		if i := len(w.r.items) - 1 - w.rand.IntN(4); i >= 0 {
			if m, ok := w.r.items[i].op.(*device.Map); ok && !slices.ContainsFunc(slices.Concat(m.Outs, m.Ins), func(v device.View) bool { return v.Buf.(*buffer).freed.Load() }) {
				w.run(m)
			}
		}
	default:
		dims := w.shape
		if w.rand.IntN(5) == 0 {
			dims = shape.Of(dims.At(2), dims.At(0), dims.At(1))
		}
		var ins, outs []device.View
		for range 1 + w.rand.IntN(2) {
			ins = append(ins, w.source(dims))
		}
		if n := len(w.live); n > 0 && w.rand.IntN(2) == 0 { // read the newest tensor
			if v := w.live[n-1]; v.Shape == dims {
				ins[0] = v
			}
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

// halved records a map that clamps the values of v to [-4, 4], so that they stay small. v is the
// result of a reduction. halved frees v.
func (w *randomList) halved(v device.View) device.View {
	p := expr.MustLower([]*expr.Expr{expr.X(0).Max(expr.C(-4)).Min(expr.C(4))}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
	out := w.dense(w.s, dtype.F32, v.Shape)
	w.run(&device.Map{Program: p, Outs: []device.View{out}, Ins: []device.View{v}})
	v.Buf.Free()
	return out
}

// visible returns the bytes of all tensors that the program can read after a replay.
func (w *randomList) visible() (all []byte) {
	for _, v := range slices.Concat(w.older, w.live) {
		all = append(all, v.Buf.(*buffer).mem...)
	}
	return all
}

// ownerOf describes the tensor to which byte i of the result of visible belongs.
func (w *randomList) ownerOf(i int) string {
	for _, v := range slices.Concat(w.older, w.live) {
		if n := len(v.Buf.(*buffer).mem); i >= n {
			i -= n
			continue
		}
		return fmt.Sprintf("%x %v at byte %d", worklist.SpanOf(&v), v.Type, i)
	}
	return "none"
}

// begin sets the older tensors to random values, and all memory of the recording to random bytes.
func (w *randomList) begin(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 9))
	for _, v := range w.older {
		size := v.Type.Size()
		for i := range v.Size() {
			x := float64(r.IntN(64)-20) / 16
			if !v.Type.IsFloat() {
				x = float64(r.IntN(2))
			}
			writeBits(pointer(&device.View{Buf: v.Buf, Type: v.Type, Layout: shape.Layout{Offset: i}}), size, expr.Store(v.Type, expr.Encode(v.Type.Compute(), x)))
		}
	}
	for _, b := range w.all {
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	}
}

// compare ends the recording. It compares replays of the whole list with replays of the shortened
// list, and returns the savings.
func (w *randomList) compare(seed uint64) worklist.Savings {
	t := w.t
	t.Helper()
	whole := &replayer{r: w.r, d: w.r.d, items: slices.Clone(w.r.items)}
	rec, err := w.r.Finish()
	must(t, err)
	g := rec.(*replayer)
	s := g.saved
	if g.Recorded() != len(whole.items) || g.Operations() != g.Recorded()-s.All() {
		t.Fatalf("seed %d: %d of %d items are left after %+v", seed, g.Operations(), g.Recorded(), s)
	}
	for k := range uint64(2) {
		w.begin(2*seed + k)
		must(t, whole.Replay(nil))
		want := w.visible()
		w.begin(2*seed + k)
		for _, b := range w.all { // the results must not depend on the old contents of the memory
			clear(b)
		}
		must(t, g.Replay(nil))
		got := w.visible()
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("seed %d: byte %d of %s is %#x, not %#x\nwhole list:\n%sshortened:\n%s",
					seed, i, w.ownerOf(i), got[i], want[i], listing(whole.items), listing(g.items))
			}
		}
	}
	must(t, g.Close())
	return s
}

// TestShortenedRandomly replays random lists, shortened and whole. Both must leave the same bits in
// all memory that the program can read.
func TestShortenedRandomly(t *testing.T) {
	was := unfused
	defer func() { unfused = was }()
	var sum worklist.Savings
	devices := [2]*Device{newDevice(1), newDevice(2)}
	const seeds = 800
	for seed := range uint64(seeds) {
		unfused = seed%4 == 3
		w := newRandomList(t, devices[seed%2], seed)
		for range 4 + w.rand.IntN(24) {
			w.step()
		}
		got := w.compare(seed)
		sum.Merged, sum.Repeated, sum.Unread = sum.Merged+got.Merged, sum.Repeated+got.Repeated, sum.Unread+got.Unread
	}
	if sum.Merged < seeds || sum.Repeated < seeds/20 || sum.Unread < seeds/8 {
		t.Errorf("too little was saved: %+v", sum)
	}
}

// listing describes the items as text.
func listing(items []item) (text string) {
	for i := range items {
		it := &items[i]
		if it.op == nil {
			text += fmt.Sprintf("%d copy %x from %x\n", i, bytesSpan(it.dst), bytesSpan(it.src))
			continue
		}
		text += fmt.Sprintf("%d %s", i, it.op.Name())
		for k := 0; it.op.Operand(k).View != nil; k++ {
			o := it.op.Operand(k)
			text += fmt.Sprintf(" %s=%x %v%v%v", o.Name, worklist.SpanOf(o.View), o.View.Type, o.View.Shape, o.View.Strides)
		}
		text += "\n"
		if m, ok := it.op.(*device.Map); ok {
			text += m.Program.String()
		}
	}
	return text
}
