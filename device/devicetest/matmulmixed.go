package devicetest

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// testMatMulMixed tests products of a float32 factor and a 16-bit factor, if the device supports
// them. The results must be close to a float64 product of the same factors, both rounded to 16
// bits.
func (r *rig) testMatMulMixed() {
	sizes := [][4]int{{1, 1, 1, 1}, {2, 7, 5, 63}, {1, 65, 7, 65}, {1, 16, 40, 72}, {0, 3, 4, 5}, {2, 3, 0, 6}, {1, 5, 300, 9}, {1, 1, 90, 17}, {2, 19, 70, 1}}
	if r.large {
		sizes = append(sizes, [][4]int{{1, 33, 127, 127}, {1, 16, 2000, 72}}...)
	}
	forms := []form{contiguous, transposed, strided, offset}
	for n, z := range sizes {
		for step := range 8 {
			low := []dtype.Type{dtype.BF16, dtype.F16}[step%2]
			types := [2]dtype.Type{low, dtype.F32}
			if step%4 > 1 {
				types = [2]dtype.Type{dtype.F32, low}
			}
			a, b := r.small(types[0], shape.Of(z[0], z[1], z[2]), forms[(n+step)%4]), r.small(types[1], shape.Of(z[0], z[2], z[3]), forms[(n/2+step/2)%4])
			out := []dtype.Type{low, dtype.F32}[(n+step/4)%2]
			y := r.empty(out, shape.Of(z[0], z[1], z[3]), forms[(n+step/2)%4])
			o := &device.MatMul{Out: y.v, A: a.v, B: b.v}
			if !r.dev.Supports(o) {
				continue
			}
			what := fmt.Sprintf("matmul of %v %s %v by %v %s %v", types[0], a.form, a.v.Shape, types[1], b.form, b.v.Shape)
			r.run(what, o)
			y.fetch(what)
			if bad := y.nearProduct(z, roundedTo(a, low), roundedTo(b, low)); bad != "" {
				r.Errorf("%s: %s", what, bad)
			}
		}
		r.end()
	}
}

// roundedTo returns the elements of a, rounded to type t.
func roundedTo(a *array, t dtype.Type) []float64 {
	list := a.floats()
	for i, v := range list {
		list[i] = expr.Decode(t, expr.Encode(t, v))
	}
	return list
}
