package devicetest

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

var indexTypes = []dtype.Type{dtype.I64, dtype.I32}

type indexCase struct {
	table, index shape.Dims
	axis         int
}

func (r *rig) indexCases() []indexCase {
	c := []indexCase{
		{shape.Of(5), shape.Of(9), 0}, {shape.Of(4, 3), shape.Of(6, 3), 0}, {shape.Of(4, 3), shape.Of(4, 7), 1}, {shape.Of(4, 5), shape.Of(2, 5), 0},
		{shape.Of(3, 4, 5), shape.Of(3, 6, 5), 1}, {shape.Of(2, 3, 2, 3), shape.Of(2, 3, 5, 2), 2}, {shape.Of(4, 3), shape.Of(0, 3), 0},
	}
	if r.large {
		c = append(c, indexCase{shape.Of(50, 70), shape.Of(300, 70), 0}, indexCase{shape.Of(3, 1000), shape.Of(3, 2000), 1}, indexCase{shape.Of(10, 7, 130), shape.Of(10, 40, 130), 1})
	}
	return c
}

// source returns, for each index, the storage offset of the selected element of the table, or -1 if
// the index is outside the axis.
func source(index *array, table shape.Dims, axis int) []int {
	bound := table.At(axis)
	dense := shape.Layout{Shape: index.v.Shape, Strides: table.Contiguous()}
	along := dense.Strides.At(axis)
	dense.Strides = dense.Strides.With(axis, 0)
	at := offsets(dense)
	for p, b := range index.bits() {
		i := int(int64(b))
		if index.v.Type == dtype.I32 {
			i = int(int32(b))
		}
		if i < 0 || i >= bound {
			at[p] = -1
		} else {
			at[p] += i * along
		}
	}
	return at
}

func (r *rig) indices(t dtype.Type, c indexCase, f form) *array {
	return r.array(t, c.index, f, func(int) uint64 { return uint64(r.rnd.IntN(c.table.At(c.axis))) })
}

func testGather(r *rig) {
	n := 0
	for _, c := range r.indexCases() {
		for _, t := range dtype.Types() {
			n++
			idx := r.indices(indexTypes[n%2], c, inForms[n%len(inForms)])
			src := r.random(t, c.table, inForms[n/2%len(inForms)])
			out := r.empty(t, c.index, outForms[n%len(outForms)])
			what := fmt.Sprintf("gather of %v of %v along %d by %v of %v, operands %s and %s", t, c.table, c.axis, idx.v.Type, c.index, src.form, idx.form)
			r.run(what, &device.Gather{Out: out.v, Src: src.v, Index: idx.v, Axis: c.axis})
			want := make([]uint64, c.index.Size())
			v := src.bits()
			for p, e := range source(idx, c.table, c.axis) {
				want[p] = v[e]
			}
			out.equal(what, want)
			r.end()
		}
	}
	for _, bad := range []int64{-1, 4, 1 << 40} {
		for _, t := range indexTypes {
			if t == dtype.I32 && bad > 1<<31 {
				continue
			}
			c := indexCase{shape.Of(4, 3), shape.Of(5, 3), 0}
			idx := r.indices(t, c, transposed)
			spoil(idx, 7, bad)
			spoil(idx, 11, bad)
			r.must(r.dev.Upload(r.s, idx.v.Buf, 0, idx.host), "Upload")
			src, out := r.random(dtype.F32, c.table, contiguous), r.empty(dtype.F32, c.index, contiguous)
			r.checkIndexError(fmt.Sprintf("gather with %v index %d", t, bad), &device.Gather{Out: out.v, Src: src.v, Index: idx.v, Tag: 77}, bad, 7, 11)
			want := make([]uint64, c.index.Size())
			for p, e := range source(idx, c.table, 0) {
				if e >= 0 {
					want[p] = src.bits()[e]
				}
			}
			out.equal("gather with an index outside", want)
		}
	}
	r.checkMap("map after an index error", lower(expr.X(0).Neg(), dtype.F32, dtype.F32), []*array{r.empty(dtype.F32, shape.Of(3), contiguous)}, []*array{r.small(dtype.F32, shape.Of(3), contiguous)}, nil)
}

func spoil(a *array, element int, v int64) {
	setBits(a.host, a.v.Type, a.at[element], uint64(v))
}

// checkIndexError runs op and checks that op, or the next wait, returns an index error. The error
// must name an axis of size 4, the index bad, and one of the given positions. Several positions are
// allowed because a parallel kernel may report any of several bad indices.
func (r *rig) checkIndexError(what string, op device.Op, bad int64, positions ...int64) {
	r.Helper()
	err := device.Run(r.dev, r.s, op)
	if err == nil {
		err = r.s.Synchronize()
	}
	var e *device.IndexError
	if !errors.As(err, &e) {
		r.Errorf("%s: error %v, want an IndexError", what, err)
		return
	}
	if e.Tag != 77 || e.Index != bad || e.Bound != 4 || !slices.Contains(positions, e.Position) {
		r.Errorf("%s: %+v, want tag 77, index %d, bound 4, a position of %v", what, *e, bad, positions)
	}
}

// checkRows selects rows of a table, as an embedding does: all elements of a result's row have the
// same index. If bad is true, one index is outside the axis.
func (r *rig) checkRows(t dtype.Type, rows, width, n int, bad bool) {
	r.Helper()
	c := indexCase{shape.Of(rows, width), shape.Of(n, width), 0}
	idx := r.array(dtype.I64, shape.Of(n, 1), contiguous, func(int) uint64 { return uint64(r.rnd.IntN(rows)) })
	if bad {
		spoil(idx, 3, int64(rows))
		r.must(r.dev.Upload(r.s, idx.v.Buf, 0, idx.host), "Upload")
	}
	idx.v.Layout = shape.Layout{Shape: c.index, Strides: shape.Of(1, 0)}
	idx.at = offsets(idx.v.Layout)
	what := fmt.Sprintf("rows of %v, %v by %d", t, c.table, n)
	table, src, out := r.random(t, c.table, contiguous), r.small(t, c.index, contiguous), r.empty(t, c.index, offset)
	want := make([]uint64, c.index.Size())
	sum, terms := make([]float64, c.table.Size()), make([]float64, c.table.Size())
	x, v := table.bits(), src.floats()
	for p, e := range source(idx, c.table, 0) {
		if e >= 0 {
			want[p] = x[e]
			sum[e] += v[p]
			terms[e]++
		}
	}
	check := func(op device.Op) {
		r.Helper()
		err := device.Run(r.dev, r.s, op)
		if !bad {
			r.must(err, what)
			return
		}
		if err == nil {
			err = r.s.Synchronize()
		}
		var e *device.IndexError
		if !errors.As(err, &e) || *e != (device.IndexError{Tag: 5, Index: int64(rows), Bound: int64(rows), Position: int64(3 * width)}) {
			r.Errorf("%s: error %v, want an IndexError at position %d", what, err, 3*width)
		}
	}
	check(&device.Gather{Out: out.v, Src: table.v, Index: idx.v, Tag: 5})
	out.equal("gather of "+what, want)
	grad := r.array(t, c.table, offset, func(int) uint64 { return 0 })
	check(&device.Scatter{Kind: device.ScatterAdd, Dst: grad.v, Src: src.v, Index: idx.v, Tag: 5})
	for i := range sum {
		if t.IsInteger() {
			sum[i] = wrap(t, sum[i])
		}
	}
	grad.close("scatter-add of "+what, sum, func(i int) float64 { return terms[i] * 4 * (terms[i] + 1) * epsilon(t) })
}

// combined returns the new value of an element whose old value is a, after a scatter of the given
// kind has combined it with b.
func combined(kind device.ScatterKind, t dtype.Type, a, b float64) float64 {
	switch kind {
	case device.ScatterSet:
		return b
	case device.ScatterMax:
		return max(a, b)
	case device.ScatterMin:
		return min(a, b)
	case device.ScatterProd:
		a *= b
	default:
		a += b
	}
	switch {
	case t == dtype.Bool:
		return min(a, 1)
	case t.IsInteger():
		return wrap(t, a)
	}
	return a
}

// checkScatter compares a scatter with the result of a simple loop. A second run of the same
// scatter must give the same bits.
func (r *rig) checkScatter(kind device.ScatterKind, c indexCase, idx, dst, src *array) {
	r.Helper()
	t := dst.v.Type
	what := fmt.Sprintf("scatter-%v of %v of %v along %d by %v of %v, operands %s and %s", kind, t, c.table, c.axis, idx.v.Type, c.index, src.form, idx.form)
	want, size := dst.floats(), make([]float64, c.table.Size())
	start := dst.bits()
	terms, x := make([]float64, len(want)), src.floats()
	for i, v := range want {
		size[i] = math.Abs(v)
	}
	for p, e := range source(idx, c.table, c.axis) {
		want[e] = combined(kind, t, want[e], x[p])
		if kind == device.ScatterProd {
			size[e] *= math.Abs(x[p])
		} else {
			size[e] += math.Abs(x[p])
		}
		terms[e]++
	}
	r.run(what, &device.Scatter{Kind: kind, Dst: dst.v, Src: src.v, Index: idx.v, Axis: c.axis})
	rounds := kind == device.ScatterAdd || kind == device.ScatterProd
	ok := dst.close(what, want, func(i int) float64 {
		if !rounds || !t.IsFloat() {
			return 0
		}
		return (terms[i] + 1) * epsilon(t) * size[i]
	})
	// run the scatter again: its bits must not change, even in another layout
	if ok && t.IsFloat() {
		again := r.array(t, c.table, contiguous, func(i int) uint64 { return start[i] })
		r.run(what, &device.Scatter{Kind: kind, Dst: again.v, Src: src.v, Index: idx.v, Axis: c.axis})
		again.equal(what+", a second time", dst.fetch(what))
	}
}

// rowIndex returns an array of indices in which all indices of a row are equal.
func (r *rig) rowIndex(c indexCase) *array {
	idx := r.array(dtype.I64, shape.Of(c.index.At(0), 1), contiguous, func(int) uint64 { return uint64(r.rnd.IntN(c.table.At(0))) })
	idx.v.Layout = shape.Layout{Shape: c.index, Strides: shape.Of(1, 0)}
	idx.at = offsets(idx.v.Layout)
	return idx
}

var scatterKinds = []device.ScatterKind{device.ScatterSet, device.ScatterProd, device.ScatterMax, device.ScatterMin}

func testScatter(r *rig) {
	for _, t := range []dtype.Type{dtype.F32, dtype.BF16, dtype.I64} {
		r.checkRows(t, 7, 33, 20, false)
		r.checkRows(t, 7, 33, 20, true)
		if r.large {
			r.checkRows(t, 60, 200, 90, false)
			r.checkRows(t, 60, 200, 90, true)
		}
		r.end()
	}
	// Operands contain special values, such as NaN. For a scatter that rounds its results, all
	// values are ordinary numbers.
	operand := func(kind device.ScatterKind, t dtype.Type, s shape.Dims, f form) *array {
		if kind == device.ScatterAdd || kind == device.ScatterProd {
			return r.small(t, s, f)
		}
		return r.random(t, s, f)
	}
	for _, kind := range scatterKinds {
		for _, t := range []dtype.Type{dtype.F32, dtype.F16, dtype.I8, dtype.Bool} {
			c := indexCase{shape.Of(5, 33), shape.Of(20, 33), 0}
			r.checkScatter(kind, c, r.rowIndex(c), operand(kind, t, c.table, offset), operand(kind, t, c.index, contiguous))
		}
		r.end()
	}
	n := 0
	types := dtype.Types()
	for k, t := range types { // the elements of src have different targets
		kind := device.ScatterKind(k % 5)
		src, dst := operand(kind, t, shape.Of(4, 5), inForms[k%len(inForms)]), operand(kind, t, shape.Of(9, 5), outForms[k%len(outForms)])
		idx := r.array(dtype.I64, src.v.Shape, contiguous, func(i int) uint64 { return uint64((i/5*7 + i%5) % 9) })
		want, x := dst.floats(), src.floats()
		for p, e := range source(idx, dst.v.Shape, 0) {
			want[e] = combined(kind, t, want[e], x[p])
		}
		what := fmt.Sprintf("scatter-%v of %v to places that differ", kind, t)
		r.run(what, &device.Scatter{Kind: kind, Dst: dst.v, Src: src.v, Index: idx.v, Distinct: true})
		dst.close(what, want, func(i int) float64 { return 2 * epsilon(t) * math.Abs(want[i]) })
		r.end()
	}
	for _, c := range r.indexCases() {
		for _, t := range types {
			n++
			for _, kind := range []device.ScatterKind{device.ScatterAdd, scatterKinds[(n+n/len(types))%len(scatterKinds)]} {
				r.checkScatter(kind, c, r.indices(indexTypes[n%2], c, inForms[n%len(inForms)]), operand(kind, t, c.table, outForms[n%len(outForms)]),
					operand(kind, t, c.index, inForms[n/2%len(inForms)]))
				r.end()
			}
		}
	}
	for k, bad := range []int64{-1, 4, -1, 4, 1 << 40} {
		kind := device.ScatterKind(k)
		c := indexCase{shape.Of(4, 3), shape.Of(5, 3), 0}
		idx := r.indices(dtype.I64, c, contiguous)
		spoil(idx, 7, bad)
		spoil(idx, 11, bad)
		r.must(r.dev.Upload(r.s, idx.v.Buf, 0, idx.host), "Upload")
		src, dst := r.small(dtype.F32, c.index, contiguous), r.small(dtype.F32, c.table, offset)
		want := dst.floats()
		for p, e := range source(idx, c.table, 0) {
			if e >= 0 {
				want[e] = combined(kind, dtype.F32, want[e], src.floats()[p])
			}
		}
		r.checkIndexError(fmt.Sprintf("scatter-%v with index %d", kind, bad), &device.Scatter{Kind: kind, Dst: dst.v, Src: src.v, Index: idx.v, Tag: 77}, bad, 7, 11)
		dst.close(fmt.Sprintf("scatter-%v with an index outside", kind), want, func(int) float64 { return 1e-5 })
	}
}
