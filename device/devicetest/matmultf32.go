package devicetest

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// testMatMulTF32 tests products with the flag TF32. A device may use the exact factors, or round
// all factors to ten bits of mantissa. In both cases it must sum in float32.
func (r *rig) testMatMulTF32() {
	sizes := [][4]int{{1, 1, 1, 1}, {2, 7, 5, 63}, {1, 65, 7, 65}, {1, 16, 40, 129}, {0, 3, 4, 5}, {2, 3, 0, 6}, {1, 5, 300, 9}, {1, 1, 90, 17}, {2, 19, 70, 1}}
	if r.large {
		sizes = append(sizes, [][4]int{{1, 129, 127, 127}, {3, 64, 64, 64}, {1, 256, 2000, 72}, {1, 300, 300, 300}}...)
	}
	forms := []form{contiguous, transposed, strided, offset}
	for n, z := range sizes {
		for step := range 4 {
			t := dtype.F32
			a, b := r.small(t, shape.Of(z[0], z[1], z[2]), forms[(n+step)%4]), r.small(t, shape.Of(z[0], z[2], z[3]), forms[(n/2+3*step)%4])
			y := r.empty(t, shape.Of(z[0], z[1], z[3]), forms[(n/3+step)%4])
			what := fmt.Sprintf("matmul of %s %v by %s %v, tf32 permitted", a.form, a.v.Shape, b.form, b.v.Shape)
			r.run(what, &device.MatMul{Out: y.v, A: a.v, B: b.v, TF32: true})
			y.fetch(what)
			whole, rounded := y.nearProduct(z, a.floats(), b.floats()), y.nearProduct(z, tf32(a), tf32(b))
			if whole != "" && rounded != "" {
				r.Errorf("%s: %s; with rounded factors %s", what, whole, rounded)
			}
		}
		r.end()
	}
}

// tf32 returns the elements of a, rounded to ten bits of mantissa, ties away from zero. All
// elements must be finite.
func tf32(a *array) []float64 {
	var list []float64
	for _, v := range a.bits() {
		list = append(list, float64(math.Float32frombits((uint32(v)+0x1000)&^0x1fff)))
	}
	return list
}

// nearProduct compares y with the float64 product of matrices a (m×k) and b (k×n). It describes the
// first element of y that is not close, or returns "" if all are close. The sizes z are batch, m, k
// and n.
func (y *array) nearProduct(z [4]int, a, b []float64) string {
	for at, v := range y.floats() {
		row, column := at/z[3], at%z[3]
		sum, size := 0.0, 0.0
		for e := range z[2] {
			p := a[row*z[2]+e] * b[(row/z[1]*z[2]+e)*z[3]+column]
			sum, size = sum+p, size+math.Abs(p)
		}
		if bound := (float64(z[2])/4+4)*epsilon(dtype.F32)*size + epsilon(y.v.Type)*math.Abs(sum); !(math.Abs(v-sum) <= bound) {
			return fmt.Sprintf("element %d is %v, want %v within %v", at, v, sum, bound)
		}
	}
	return ""
}
