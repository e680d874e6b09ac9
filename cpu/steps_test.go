package cpu

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// TestSteps runs copies, maps and sums on strided operands: every second element, reversed
// elements, or repeated elements. The bits must be the same as for contiguous copies of the
// operands.
func TestSteps(t *testing.T) {
	d := Get()
	rnd := rand.New(rand.NewPCG(5, 6))
	word := []dtype.Type{dtype.F32}
	x := expr.X(0)
	add := expr.MustLower([]*expr.Expr{x.Add(expr.X(1))}, word, []dtype.Type{dtype.F32, dtype.F32}, -1)
	square := expr.MustLower([]*expr.Expr{x.Mul(x)}, word, word, -1)
	for _, s := range [][2]int{{1, 64}, {3, 8}, {5, 17}, {4, 63}, {7, 100}, {2, 1500}, {2, 20000}} {
		rows, n := s[0], s[1]
		all := newView(t, d, dtype.F32, rows, 2*n)
		for i := range all.Size() {
			float32s(all)[i] = rnd.Float32() - 0.5
		}
		for _, layout := range []shape.Layout{
			{Shape: shape.Of(rows, n), Strides: shape.Of(2*n, 2), Offset: 1},
			{Shape: shape.Of(rows, n), Strides: shape.Of(2*n, -1), Offset: n - 1},
			{Shape: shape.Of(rows, n), Strides: shape.Of(-2*n, -1), Offset: (rows-1)*2*n + n},
			{Shape: shape.Of(rows, n), Strides: shape.Of(2*n, -2), Offset: 2*n - 1},
			{Shape: shape.Of(rows, n), Strides: shape.Of(-2*n, 1), Offset: (rows - 1) * 2 * n},
			{Shape: shape.Of(rows, n), Strides: shape.Of(2*n, 0), Offset: 3},
		} {
			steps := all
			steps.Layout = layout
			plain := newView(t, d, dtype.F32, rows, n)
			for r := range rows {
				for i := range n {
					float32s(plain)[r*n+i] = float32s(all)[layout.Offset+r*layout.Strides.At(0)+i*layout.Strides.At(1)]
				}
			}
			run := func(in device.View) (results [][]byte) {
				copied, sum, total := newView(t, d, dtype.F32, rows, n), newView(t, d, dtype.F32, rows, n), newView(t, d, dtype.F32, rows, 1)
				own := newView(t, d, dtype.F32, rows, 1)
				do(t, d, mapOf(castProgram(dtype.F32, dtype.F32), copied, in))
				do(t, d, mapOf(add, sum, in, plain))
				do(t, d, &device.Reduce{Reduction: &device.Reduction{Kind: device.Sum, Map: square}, Out: total, Ins: views(in)})
				do(t, d, reduceOf(device.Sum, own, in))
				for _, v := range views(copied, sum, total, own) {
					results = append(results, bytes.Clone(v.Buf.Host()))
				}
				return results
			}
			want := run(plain)
			way := 0
			inEachWay(func() {
				for i, got := range run(steps) {
					if !bytes.Equal(got, want[i]) {
						t.Errorf("%d rows of %d, layout %v: result %d differs in way %d", rows, n, layout, i, way)
					}
				}
				way++
			})
		}
	}
}

// float32s returns the memory of a view of float32.
func float32s(v device.View) []float32 { return at[float32](pointer(&v), len(v.Buf.Host())/4) }
