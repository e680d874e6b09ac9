package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// randomLayout returns a view of the given sizes, whose dimensions are in a random order in memory.
// Some views repeat their elements. If s is nil, the memory is allocated outside the recording.
func (w *randomList) randomLayout(s device.Stream, typ dtype.Type, dims shape.Dims) device.View {
	i, j := w.rand.IntN(3), w.rand.IntN(3)
	v := w.dense(s, typ, dims.With(i, dims.At(j)).With(j, dims.At(i)))
	if s == nil {
		w.older = append(w.older, v)
	}
	v.Layout = v.Transpose(i, j)
	if w.rand.IntN(4) == 0 {
		v.Layout = v.Narrow(w.rand.IntN(3), 0, 1, 1)
		v.Layout, _ = v.Expand(dims)
	}
	return v
}

// mapThenReduce records a map of random operands and a reduction of its result. It then frees the
// result of the map.
func (w *randomList) mapThenReduce(dims shape.Dims) {
	r := w.rand
	some := func() dtype.Type { return listTypes[r.IntN(len(listTypes))] }
	a, typ := w.randomLayout(nil, some(), dims), some()
	ins := []device.View{a}
	if r.IntN(2) == 0 {
		ins = append(ins, w.randomLayout(nil, listTypes[r.IntN(3)], dims))
	}
	y := w.dense(w.s, typ, dims)
	if !a.Contiguous() && !a.Overlaps() && r.IntN(2) == 0 {
		y.Layout = a.Layout
		y.Offset = 0
	}
	p := w.program([]dtype.Type{typ}, ins)
	w.run(&device.Map{Program: p, Outs: []device.View{y}, Ins: ins, Params: w.params(p)})
	list, kept, kind := []device.View{y}, dims, device.ReduceKind(r.IntN(6))
	if r.IntN(3) > 0 {
		list = append(list, w.randomLayout(nil, dtype.F32, dims))
		if r.IntN(2) == 0 {
			list[0], list[1] = list[1], list[0]
		}
	}
	for k := range 3 {
		if r.IntN(2) == 0 {
			kept = kept.With(k, 1)
		}
	}
	value := some()
	q := w.program([]dtype.Type{value}, list)
	if r.IntN(2) == 0 {
		list = []device.View{y}
		q = expr.MustLower([]*expr.Expr{expr.X(0)}, []dtype.Type{value}, []dtype.Type{typ}, -1)
	}
	result := value.Compute()
	if kind >= device.ArgMax {
		result = dtype.I64
	}
	out := w.dense(w.s, result, kept)
	w.run(&device.Reduce{Reduction: &device.Reduction{Kind: kind, Map: q}, Out: out, Ins: list, Params: w.params(q)})
	y.Buf.Free()
	w.live = append(w.live, out)
}

// TestShortenedReductions merges maps into the reductions of their results. The bits must not
// change, for all layouts and kinds of reductions. A second operand may have its dimensions in any
// order. If the map would store 16-bit values, the merged reduction must round to 16 bits.
func TestShortenedReductions(t *testing.T) {
	d, merged, lists := newDevice(2), 0, uint64(300)
	if testing.Short() {
		lists = 60
	}
	defer func() { unfused = false }()
	for seed := range lists {
		unfused = seed%4 == 3
		rec, err := d.NewRecording()
		must(t, err)
		w := &randomList{t: t, d: d, rand: rand.New(rand.NewPCG(seed, 5)), r: rec.(*recording), s: rec.Stream()}
		dims := shape.Of(1+w.rand.IntN(5), 1+w.rand.IntN(60), 1+w.rand.IntN(300))
		for range 3 {
			w.mapThenReduce(dims)
		}
		merged += w.compare(seed).Merged
	}
	if merged < int(lists)/10 {
		t.Errorf("%d maps of %d lists were merged", merged, lists)
	}
}

// TestShortenedReductionsInOrder checks two kinds of maps that must not be merged into a reduction.
// The first uses the position, and the reduction reads its result in another order: merging would
// change the order of additions. The second rounds to 16 bits, which the merged reduction would not
// do.
func TestShortenedReductionsInOrder(t *testing.T) {
	f := []dtype.Type{dtype.F32}
	position := expr.X(0).Mul(expr.C(1.1)).Add(expr.Index(dtype.I64).Cvt(dtype.F32).Mul(expr.C(1e-5)))
	for name, c := range map[string]struct {
		value *expr.Expr
		typ   dtype.Type
	}{"a position": {position, dtype.F32}, "halves": {expr.X(0).Mul(expr.C(1.1)), dtype.BF16}} {
		d, typ := newDevice(1), []dtype.Type{c.typ}
		rec, err := d.NewRecording()
		must(t, err)
		w := &randomList{t: t, d: d, rand: rand.New(rand.NewPCG(1, 2)), r: rec.(*recording), s: rec.Stream()}
		a := w.dense(nil, dtype.F32, shape.Of(9, 70, 300))
		w.older = append(w.older, a)
		y := w.dense(w.s, c.typ, shape.Of(9, 70, 300))
		turnedA, turnedY := a, y
		if c.typ == dtype.F32 {
			turnedA.Layout, turnedY.Layout = a.Transpose(1, 2), y.Transpose(1, 2)
		}
		w.run(&device.Map{Program: expr.MustLower([]*expr.Expr{c.value}, typ, f, -1), Outs: []device.View{turnedY}, Ins: []device.View{turnedA}})
		out := w.dense(w.s, dtype.F32, shape.Of(9, 1, 1))
		sum := &device.Reduction{Map: expr.MustLower([]*expr.Expr{expr.X(0)}, typ, typ, -1)}
		w.run(&device.Reduce{Reduction: sum, Out: out, Ins: []device.View{turnedY}})
		y.Buf.Free()
		w.live = append(w.live, out)
		if got := w.compare(1); got.Merged != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
