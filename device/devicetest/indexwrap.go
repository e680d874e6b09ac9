package devicetest

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// testIndexWrap checks negative indices, which count from the end of an axis of size n. Index -k
// selects the same element as n-k. An index below -n is an error.
func testIndexWrap(r *rig) {
	if !r.dev.Supports(&device.Gather{Wrap: true}) || !r.dev.Supports(&device.Scatter{Wrap: true}) {
		r.Logf("%s does not count indices from the end: nothing to test", r.dev.Name())
		return
	}
	n := 0
	for _, c := range r.indexCases() {
		for _, t := range dtype.Types() {
			n++
			idx := r.indices(indexTypes[n%2], c, inForms[n%len(inForms)])
			src, out := r.random(t, c.table, inForms[n/2%len(inForms)]), r.empty(t, c.index, outForms[n%len(outForms)])
			what := fmt.Sprintf("of %v of %v along %d by %v of %v from the end, operands %s and %s", t, c.table, c.axis, idx.v.Type, c.index, src.form, idx.form)
			want, v := make([]uint64, c.index.Size()), src.bits()
			for p, e := range source(idx, c.table, c.axis) {
				want[p] = v[e]
			}
			kind := device.ScatterKind(n % 5)
			nothing := func(int) uint64 { return 0 }
			part, plain := r.small(t, c.index, inForms[n/3%len(inForms)]), r.array(t, c.table, contiguous, nothing)
			ended := r.array(t, c.table, outForms[n/2%len(outForms)], nothing)
			o := device.Scatter{Kind: kind, Dst: plain.v, Src: part.v, Index: idx.v, Axis: c.axis}
			r.run("scatter "+what, &o)
			r.fromEnd(idx, c, n)
			o.Dst, o.Wrap = ended.v, true
			r.run("scatter "+what, &o)
			ended.equal("scatter "+what, plain.fetch("scatter"))
			r.run("gather "+what, &device.Gather{Out: out.v, Src: src.v, Index: idx.v, Axis: c.axis, Wrap: true})
			out.equal("gather "+what, want)
			r.end()
		}
	}
	for _, bad := range []int64{-5, 4, -1 << 40} {
		c := indexCase{shape.Of(4, 3), shape.Of(5, 3), 0}
		idx := r.indices(dtype.I64, c, transposed)
		spoil(idx, 7, bad)
		r.must(r.dev.Upload(r.s, idx.v.Buf, 0, idx.host), "Upload")
		x, y := r.small(dtype.F32, c.table, contiguous), r.small(dtype.F32, c.index, contiguous)
		r.checkIndexError("gather from the end", &device.Gather{Out: y.v, Src: x.v, Index: idx.v, Tag: 77, Wrap: true}, bad, 7)
		r.checkIndexError("scatter from the end", &device.Scatter{Dst: x.v, Src: y.v, Index: idx.v, Tag: 77, Wrap: true}, bad, 7)
	}
}

// fromEnd changes about half of the indices so that they count from the end of the axis.
func (r *rig) fromEnd(idx *array, c indexCase, n int) {
	r.Helper()
	for i, b := range idx.bits() {
		if i%3 != n%2 {
			spoil(idx, i, int64(b)-int64(c.table.At(c.axis)))
		}
	}
	r.must(r.dev.Upload(r.s, idx.v.Buf, 0, idx.host), "Upload")
}
