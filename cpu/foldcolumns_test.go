package cpu

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// TestColumnsOfPairs sums over the middle dimension of shape [n, r, c], with loops and with
// kernels. Both must give the same bits. Every operand is broadcast along one dimension, as for
// distances between all pairs of rows.
func TestColumnsOfPairs(t *testing.T) {
	d := Get()
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.I32, dtype.U8} {
		for _, s := range [][3]int{{3, 2, 8}, {5, 33, 16}, {4, 600, 20}, {2, 17, 1500}, {3, 40, 7}} {
			n, r, c := s[0], s[1], s[2]
			strides := [][3]int{{r, 1, 0}, {0, c, 1}, {c, 0, 1}}
			var ins []device.View
			for i, size := range []int{n * r, r * c, n * c} {
				v := newView(t, d, typ, size)
				for k := range size {
					b := expr.Store(typ, expr.Encode(typ.Compute(), float64(rnd.IntN(2000))/64))
					writeBits(unsafe.Add(pointer(&v), k*typ.Size()), typ.Size(), b)
				}
				v.Layout = shape.Layout{Shape: shape.Of(n, r, c), Strides: shape.Of(strides[i][:]...)}
				ins = append(ins, v)
			}
			x, y, z := expr.X(0), expr.X(1), expr.X(2)
			p := expr.MustLower([]*expr.Expr{x.Mul(y.Sub(z))}, []dtype.Type{typ}, []dtype.Type{typ, typ, typ}, -1)
			for kind := device.Sum; kind <= device.Min; kind++ {
				var want []byte
				inEachWay(func() {
					out := newView(t, d, typ, n, 1, c)
					do(t, d, &device.Reduce{Reduction: &device.Reduction{Kind: kind, Map: p}, Out: out, Ins: ins})
					if want == nil {
						want = bytes.Clone(out.Buf.Host())
					} else if !bytes.Equal(want, out.Buf.Host()) {
						t.Errorf("%v of shape %v, kind %d: the bits differ", typ, s, kind)
					}
				})
			}
		}
	}
}
