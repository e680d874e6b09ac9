package cpu

import (
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/internal/worklist"
	"github.com/flambeau-go/flambeau/shape"
)

// fixedList records a list of given ops. Its tensors x and y are float32 and were allocated before
// the recording.
type fixedList struct {
	*randomList
	x, y device.View
}

func newFixedList(t *testing.T) *fixedList {
	w := &fixedList{randomList: newRandomList(t, newDevice(2), 1)}
	w.shape = shape.Of(4, 4, 8)
	w.x, w.y = w.dense(nil, dtype.F32, w.shape), w.dense(nil, dtype.F32, w.shape)
	w.older = []device.View{w.x, w.y}
	return w
}

// mapTo records a map into an existing result. The result and the operands have the same type.
func (w *fixedList) mapTo(out device.View, e *expr.Expr, ins ...device.View) {
	types := make([]dtype.Type, len(ins))
	for i := range ins {
		types[i] = ins[i].Type
	}
	p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{out.Type}, types, -1)
	w.run(&device.Map{Program: p, Outs: []device.View{out}, Ins: ins, Params: w.params(p)})
}

// newMap records a map into new memory, in the shape of the first operand.
func (w *fixedList) newMap(typ dtype.Type, e *expr.Expr, ins ...device.View) device.View {
	dims := w.shape
	if len(ins) > 0 {
		dims = ins[0].Shape
	}
	out := w.dense(w.s, typ, dims)
	w.mapTo(out, e, ins...)
	return out
}

// free frees tensors. A program can read all other tensors after a replay, so compare checks them.
func (w *fixedList) free(list ...device.View) {
	for _, v := range list {
		v.Buf.Free()
	}
}

// keep makes compare check the memory of tensor v.
func (w *fixedList) keep(v device.View) { w.live = append(w.live, v) }

func transposed(v device.View) device.View { v.Layout = v.Transpose(0, 1); return v }

func (w *fixedList) sum(v device.View) device.View {
	out := w.dense(w.s, dtype.F32, v.Shape.With(0, 1).With(2, 1))
	p := expr.MustLower([]*expr.Expr{expr.X(0)}, []dtype.Type{dtype.F32}, []dtype.Type{v.Type}, -1)
	w.run(&device.Reduce{Reduction: &device.Reduction{Kind: device.Sum, Map: p}, Out: out, Ins: []device.View{v}})
	return out
}

// TestShortenedLists records lists that package worklist can shorten. Each list must lose exactly
// the expected items, and the bits of the results must not change.
func TestShortenedLists(t *testing.T) {
	x, y := expr.X(0), expr.X(1)
	double, add := x.Mul(expr.C(2.3)), x.Add(y)
	for name, c := range map[string]struct {
		record func(w *fixedList)
		want   worklist.Savings
	}{
		"a chain": {func(w *fixedList) {
			a := w.newMap(dtype.F32, double, w.x)
			b := w.newMap(dtype.F32, add, a, w.y)
			w.free(a)
			w.keep(w.newMap(dtype.F32, x.Max(expr.C(0)), b))
			w.free(b)
		}, worklist.Savings{Merged: 2}},
		"rounded between": {func(w *fixedList) {
			a := w.newMap(dtype.BF16, double, w.x)
			w.keep(w.newMap(dtype.F32, add, a, w.y))
			w.free(a)
		}, worklist.Savings{Merged: 1}},
		"read later too": {func(w *fixedList) {
			a := w.newMap(dtype.F32, double, w.x)
			w.keep(w.newMap(dtype.F32, add, a, w.y))
			w.keep(a)
		}, worklist.Savings{Merged: 1}},
		"read transposed later too": {func(w *fixedList) {
			a := w.newMap(dtype.F32, x, w.x)
			w.keep(w.newMap(dtype.F32, add, transposed(a), w.y))
			w.keep(a)
		}, worklist.Savings{}},
		"in place": {func(w *fixedList) {
			a := w.newMap(dtype.F32, double, w.x)
			w.mapTo(a, add, a, w.y)
			w.mapTo(w.y, add, a, w.y)
			w.free(a)
		}, worklist.Savings{Merged: 2}},
		"the operand is written between, so the reader moves": {func(w *fixedList) {
			a := w.newMap(dtype.F32, double, w.x)
			w.mapTo(w.x, double, w.y)
			w.keep(w.newMap(dtype.F32, add, a, a))
			w.free(a)
		}, worklist.Savings{Merged: 1}},
		"the reader needs what is written between": {func(w *fixedList) {
			a := w.newMap(dtype.F32, double, w.x)
			must(w.t, w.d.CopyFrom(w.s, w.x.Buf, 0, w.y.Buf, 0, w.x.Buf.Size()))
			w.keep(w.newMap(dtype.F32, add, a, w.x))
			w.free(a)
		}, worklist.Savings{}},
		"what is written between is written by the new item": {func(w *fixedList) {
			a := w.newMap(dtype.F32, double, w.x)
			w.mapTo(w.x, add, w.x, w.y)
			w.keep(w.newMap(dtype.F32, add, a, w.x))
			w.free(a)
		}, worklist.Savings{Merged: 2}},
		"half of the result is overwritten by the reader": {func(w *fixedList) {
			a := w.newMap(dtype.F32, double, w.x)
			half := a
			half.Layout = a.Narrow(2, 0, 4, 1)
			w.mapTo(half, double, half)
			w.keep(a)
		}, worklist.Savings{}},
		"the reader writes around a result": {func(w *fixedList) {
			all := w.newMap(dtype.F32, expr.C(1))
			middle, around, from := all, all, w.x
			middle.Layout, from.Layout = all.Narrow(2, 2, 2, 1), from.Narrow(2, 0, 2, 1)
			around.Layout = all.Narrow(2, 0, 2, 7)
			a := w.dense(w.s, dtype.F32, from.Shape)
			p := expr.MustLower([]*expr.Expr{x, double}, []dtype.Type{dtype.F32, dtype.F32}, []dtype.Type{dtype.F32}, -1)
			w.run(&device.Map{Program: p, Outs: []device.View{a, middle}, Ins: []device.View{from}})
			w.mapTo(around, double, a)
			w.free(a)
			w.keep(all)
		}, worklist.Savings{}},
		"positions of a transposed result": {func(w *fixedList) {
			a := w.newMap(dtype.I64, expr.Index(dtype.I64))
			w.keep(w.newMap(dtype.F32, x.Cvt(dtype.F32).Add(y), transposed(a), w.y))
			w.free(a)
		}, worklist.Savings{}},
		"positions in order": {func(w *fixedList) {
			a := w.newMap(dtype.I64, expr.Index(dtype.I64))
			w.keep(w.newMap(dtype.F32, x.Cvt(dtype.F32).Add(y), a, w.y))
			w.free(a)
		}, worklist.Savings{Merged: 1}},
		"a transposing copy": {func(w *fixedList) {
			a := w.newMap(dtype.F32, x, transposed(w.x))
			w.keep(w.newMap(dtype.F32, add, a, w.y))
			w.free(a)
		}, worklist.Savings{Merged: 1}},
		"a cast, read transposed": {func(w *fixedList) {
			a := w.newMap(dtype.F16, x, w.x)
			w.keep(w.newMap(dtype.F16, x, transposed(a)))
			w.free(a)
		}, worklist.Savings{Merged: 1}},
		"a part of a copy": {func(w *fixedList) {
			a := w.newMap(dtype.F32, x, transposed(w.x))
			part := a
			part.Layout = a.Narrow(0, 1, 2, 1).Narrow(2, 3, 5, 1)
			w.keep(w.newMap(dtype.F32, double, part))
			w.free(a)
		}, worklist.Savings{Merged: 1}},
		"computed for each of many readers": {func(w *fixedList) {
			row := w.x
			row.Layout = row.Narrow(0, 1, 1, 1)
			a := w.newMap(dtype.F32, double, row)
			wide := a
			wide.Layout, _ = a.Expand(w.shape)
			w.keep(w.newMap(dtype.F32, add, wide, w.y))
			w.free(a)
		}, worklist.Savings{}},
		"a constant for each of many readers": {func(w *fixedList) {
			a := w.dense(w.s, dtype.F32, shape.Of(1))
			w.mapTo(a, expr.C(3))
			wide := a
			wide.Layout, _ = a.Expand(w.shape)
			w.keep(w.newMap(dtype.F32, add, wide, w.y))
			w.free(a)
		}, worklist.Savings{Merged: 1}},
		"a sum": {func(w *fixedList) {
			a := w.newMap(dtype.F32, x.Mul(y), w.x, w.y)
			w.keep(w.sum(a))
			w.free(a)
		}, worklist.Savings{Merged: 1}},
		"scalars of the map and of the sum": {func(w *fixedList) {
			one := []dtype.Type{dtype.F32}
			lower := func(e *expr.Expr) *expr.Program { return expr.MustLower([]*expr.Expr{e}, one, one, -1) }
			scaled := lower(x.Mul(expr.Param(0, dtype.F32)))
			of := func(v float64) []uint64 { return []uint64{expr.Encode(dtype.F32, v)} }
			a, out := w.dense(w.s, dtype.F32, w.shape), w.dense(w.s, dtype.F32, shape.Of(1, 4, 1))
			w.run(&device.Map{Program: scaled, Outs: []device.View{a}, Ins: []device.View{w.x}, Params: of(3)})
			w.run(&device.Reduce{Reduction: &device.Reduction{Kind: device.Sum, Map: lower(x), Finish: scaled}, Out: out, Ins: []device.View{a}, Params: of(0.25)})
			w.free(a)
			w.keep(out)
		}, worklist.Savings{Merged: 1}},
		"a sum in another order": {func(w *fixedList) {
			a := w.newMap(dtype.F32, x, transposed(w.x))
			w.keep(w.sum(a))
			w.free(a)
		}, worklist.Savings{}},
		"a repeated map": {func(w *fixedList) {
			a := w.newMap(dtype.F32, double, w.x)
			w.keep(w.sum(transposed(a)))
			w.free(a)
			b := w.newMap(dtype.F32, double, w.x)
			w.keep(b)
		}, worklist.Savings{Repeated: 1}},
		"nobody reads": {func(w *fixedList) {
			a := w.newMap(dtype.F32, double, w.x)
			b := w.newMap(dtype.F32, double, a)
			w.free(a, b)
			w.keep(w.newMap(dtype.F32, x, w.y))
		}, worklist.Savings{Merged: 1, Unread: 1}},
		"both results, in two orders": {func(w *fixedList) {
			a, b := w.dense(w.s, dtype.F32, w.shape), w.dense(w.s, dtype.F32, w.shape)
			p := expr.MustLower([]*expr.Expr{x, x}, []dtype.Type{dtype.F32, dtype.F32}, []dtype.Type{dtype.F32}, -1)
			w.run(&device.Map{Program: p, Outs: []device.View{a, b}, Ins: []device.View{w.x}})
			w.keep(w.newMap(dtype.F32, add, a, transposed(b)))
			w.free(a, b)
		}, worklist.Savings{}},
		"an op between that may fail": {func(w *fixedList) {
			w.mapTo(w.x, double, w.x)
			w.keep(w.sum(w.y))
			w.mapTo(w.x, double, w.x)
		}, worklist.Savings{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixedList(t)
			c.record(w)
			if got := w.compare(3); got != c.want {
				t.Errorf("saved %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestShortenedLong shortens lists of various lengths. The time must grow slowly with the length.
func TestShortenedLong(t *testing.T) {
	w := newFixedList(t)
	a := w.newMap(dtype.F32, expr.X(0).Mul(expr.C(0.5)), w.x)
	for range 3000 {
		b := w.newMap(dtype.F32, expr.X(0).Mul(expr.C(0.5)).Add(expr.X(1)), a, w.y)
		w.free(a)
		a = b
	}
	w.keep(a)
	if got := w.compare(2); got.Merged < 2000 || slices.Max([]int{got.Repeated, got.Unread}) > 0 {
		t.Errorf("saved %+v", got)
	}
}
