package devicetest

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// testMatMulInt8 tests products of int8 factors with int32 sums, if the device supports them. The
// results must be exact, also for extreme values. At the last size the sums overflow and wrap.
func (r *rig) testMatMulInt8() {
	sizes := [][4]int{{1, 1, 1, 1}, {2, 7, 5, 63}, {1, 65, 7, 65}, {1, 16, 64, 72}, {0, 3, 4, 5}, {2, 3, 0, 6}, {1, 5, 300, 9}, {1, 1, 90, 17}, {2, 19, 70, 1}, {3, 33, 66, 34}, {1, 2, 1<<17 + 3, 2}}
	if r.large {
		sizes = append(sizes, [][4]int{{1, 129, 127, 127}, {1, 64, 2000, 72}, {3, 64, 64, 64}, {1, 300, 256, 300}}...)
	}
	forms := []form{contiguous, transposed, strided, offset}
	for n, z := range sizes {
		for step := range 8 {
			if step > 1 && z[2] > 10_000 {
				continue
			}
			draw := func(int) uint64 { return expr.Encode(dtype.I8, float64(r.rnd.IntN(256)-128)) }
			if step%2 == 1 {
				draw = func(int) uint64 { return expr.Encode(dtype.I8, -128) }
			}
			a := r.array(dtype.I8, shape.Of(z[0], z[1], z[2]), forms[(n+step)%4], draw)
			b := r.array(dtype.I8, shape.Of(z[0], z[2], z[3]), forms[(n/2+step/2)%4], draw)
			r.checkMatMul(a, b, nil, r.empty(dtype.I32, shape.Of(z[0], z[1], z[3]), forms[(n+step/4)%4]))
		}
		r.end()
	}
}
