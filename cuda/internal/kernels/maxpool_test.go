package kernels

import (
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestMaxPoolGrad computes the gradient of max pooling. The gradient must take one launch, with
// 32-bit and with 64-bit indices. The gradients of several windows must be added to an element in
// the order of the windows.
func TestMaxPoolGrad(t *testing.T) {
	defer func(n int) { narrowLimit = n }(narrowLimit)
	w := device.Window{Rank: 2, Kernel: [3]int{3, 4}, Stride: [3]int{2, 1}, Dilation: [3]int{1, 2}, Before: [3]int{1, 2}}
	for range 2 {
		for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16} {
			for _, nt := range []dtype.Type{dtype.U8, dtype.I16, dtype.I32} {
				const planes, rows, columns, across, down = 3, 11, 9, 7, 5
				m := newMachine(t)
				dx, g := m.tensor(typ, dense(planes, rows, columns), 1), m.random(m.tensor(typ, dense(planes, down, across), 0))
				want, grads, k := make([]float64, planes*rows*columns), m.decode(g), 0
				near := m.tensor(nt, dense(planes, down, across), 1)
				at := make([]uint64, planes*down*across)
				for plane := range planes {
					for y := range down {
						for x := range across { // the maximum of each window is in its middle
							dy, dx := 1, 2+2*(k%2)
							row, column := y*2+dy-1, x+dx-2
							at[k] = uint64(dy*columns + dx)
							to := &want[(plane*rows+row)*columns+column]
							*to = expr.Decode(typ.Compute(), expr.Encode(typ.Compute(), *to+grads[k]))
							k++
						}
					}
				}
				m.fill(near, func(i int) uint64 { return at[i] })
				list, err := MaxPoolGrad(dx, g, near, w)
				if len(list) != 1 {
					t.Fatalf("%d launches, %v", len(list), err)
				}
				m.run(list, err)
				m.compare(fmt.Sprintf("gradient of maxima of %v at %v", typ, nt), dx, func(i int) uint64 { return expr.Encode(typ, want[i]) })
			}
		}
		narrowLimit = 0
	}
}

func TestMaxPoolGradPTX(t *testing.T) {
	w := device.Window{Rank: 2, Kernel: [3]int{3, 3}, Stride: [3]int{2, 2}, Dilation: [3]int{1, 1}, Before: [3]int{1, 1}}
	list, err := MaxPoolGrad(fake(dtype.F32, 512, 112, 112), fake(dtype.F32, 512, 56, 56), fake(dtype.I16, 512, 56, 56), w)
	golden(t, "maxpool_grad", list, err)
}
