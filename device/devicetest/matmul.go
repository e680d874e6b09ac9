package devicetest

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

func testMatMul(r *rig) {
	sizes := [][3]int{{1, 1, 1}, {2, 3, 4}, {5, 7, 3}, {17, 16, 19}, {1, 20, 9}, {9, 20, 1}, {3, 0, 2}, {0, 3, 2}, {3, 2, 0}}
	if r.large {
		sizes = append(sizes, [][3]int{{64, 64, 64}, {33, 130, 65}, {1, 300, 257}, {257, 300, 1}, {130, 5, 129}, {15, 513, 33}}...)
	}
	forms := []form{contiguous, transposed, strided, offset}
	n := 0
	for _, t := range dtype.Types() {
		for _, mkn := range sizes {
			for batch := range 4 {
				n++
				s := [3]int{batch, 1, 2}
				m, k, c := mkn[0], mkn[1], mkn[2]
				if batch == 0 && m*k*c > 100 || batch == 3 && m*k*c > 20_000 {
					continue
				}
				if t != dtype.F32 && batch != 1 && m*k*c > 10_000 || batch == 2 && m*k*c > 200_000 {
					continue
				}
				as, bs := shape.Of(s[0], m, k), shape.Of(s[0], k, c)
				a, b := r.small(t, as, forms[n%4]), r.small(t, bs, forms[n/4%4])
				if batch == 3 { // one matrix for all
					b = r.small(t, shape.Of(1, k, c), forms[n/4%4])
					b.v.Layout, _ = b.v.Layout.Expand(bs)
					b.v.Strides = b.v.Strides.With(0, 0)
					b.at = offsets(b.v.Layout)
				}
				r.checkMatMul(t, a, b, r.empty(t, shape.Of(s[0], m, c), forms[n/16%4]))
			}
			r.end()
		}
	}
}

func (r *rig) checkMatMul(t dtype.Type, a, b, out *array) {
	r.Helper()
	what := fmt.Sprintf("matmul of %v, %s %v by %s %v", t, a.form, a.v.Shape, b.form, b.v.Shape)
	if err := device.Run(r.dev, r.s, &device.MatMul{Out: out.v, A: a.v, B: b.v}); err != nil {
		r.Errorf("%s: %v", what, err)
		return
	}
	fa, fb := a.floats(), b.floats()
	batch, m, k, n := a.v.Shape.At(0), a.v.Shape.At(1), a.v.Shape.At(2), b.v.Shape.At(2)
	want, bound := make([]float64, batch*m*n), make([]float64, batch*m*n)
	for i := range batch {
		for j := range m {
			for c := range n {
				var sum, mag float64
				for e := range k {
					p := fa[(i*m+j)*k+e] * fb[(i*k+e)*n+c]
					sum += p
					mag += math.Abs(p)
				}
				o := (i*m+j)*n + c
				switch {
				case t == dtype.Bool:
					sum = math.Min(sum, 1)
				case t.IsInteger():
					sum = wrap(t, sum)
				default:
					bound[o] = float64(k+2)*epsilon(t.Compute())*mag + epsilon(t)*math.Abs(sum)
				}
				want[o] = sum
			}
		}
	}
	out.near(what, want, func(i int) float64 { return bound[i] })
}
