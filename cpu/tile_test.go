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

// TestTiles runs maps and copies on transposed operands. The bits must be the same as for
// contiguous operands. Some results use the memory of another operand.
func TestTiles(t *testing.T) {
	d := Get()
	rnd := rand.New(rand.NewPCG(7, 8))
	x := expr.X(0)
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.U8} {
		types := []dtype.Type{typ, typ}
		add := expr.MustLower([]*expr.Expr{x.Add(expr.X(1))}, types[:1], types, -1)
		for _, s := range [][2]int{{8, 8}, {16, 32}, {33, 47}, {40, 9}, {100, 130}, {9, 300}} {
			rows, n := s[0], s[1]
			random := func(dims ...int) device.View {
				v := newView(t, d, typ, dims...)
				for i := range v.Buf.Host() {
					v.Buf.Host()[i] = byte(rnd.IntN(63))
				}
				return v
			}
			turned, other := random(n, rows), random(rows, n)
			plain := newView(t, d, typ, rows, n)
			size := typ.Size()
			for r := range rows {
				for i := range n {
					copy(plain.Buf.Host()[(r*n+i)*size:][:size], turned.Buf.Host()[(i*rows+r)*size:])
				}
			}
			turned.Layout = shape.Layout{Shape: shape.Of(rows, n), Strides: shape.Of(1, rows)}
			row, second := random(n), random(rows, 2*n)
			row.Layout = shape.Layout{Shape: shape.Of(rows, n), Strides: shape.Of(0, 1)}
			second.Layout = shape.Layout{Shape: shape.Of(rows, n), Strides: shape.Of(2*n, 2)}
			run := func(in device.View) (results [][]byte) {
				keep := func(v device.View) { results = append(results, bytes.Clone(v.Buf.Host())) }
				out, wide := newView(t, d, typ, rows, n), random(rows, n+3)
				for _, y := range views(other, row, second, in) {
					do(t, d, mapOf(add, out, in, y))
					keep(out)
				}
				do(t, d, mapOf(castProgram(typ, typ), out, in))
				keep(out)
				// in place: each element is read before it is written
				do(t, d, mapOf(add, out, in, out))
				keep(out)
				clear(wide.Buf.Host())
				wide.Layout = shape.Layout{Shape: shape.Of(rows, n), Strides: shape.Of(n+3, 1), Offset: 1}
				do(t, d, mapOf(castProgram(typ, typ), wide, in))
				keep(wide)
				return results
			}
			want := run(plain)
			way := 0
			inEachWay(func() {
				for i, got := range run(turned) {
					if !bytes.Equal(got, want[i]) {
						t.Errorf("%v, %d rows of %d: result %d differs in way %d", typ, rows, n, i, way)
					}
				}
				way++
			})
		}
	}
}
