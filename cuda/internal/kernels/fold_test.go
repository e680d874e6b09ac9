package kernels

import (
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// foldCases have windows of one to three dimensions, for each way in which a kernel finds the
// windows that cover an element.
var foldCases = []struct {
	from, to dtype.Type
	y, out   []int
	w        device.Window
	weighted bool
	add      bool
}{
	{dtype.F32, dtype.F32, []int{2, 3, 9, 11}, []int{9, 11}, device.Window{Rank: 2, Kernel: [3]int{3, 3}, Stride: [3]int{1, 1}, Dilation: [3]int{1, 1}, Before: [3]int{1, 1}}, false, false},
	{dtype.F32, dtype.BF16, []int{2, 2, 12, 7}, []int{6, 7}, device.Window{Rank: 2, Kernel: [3]int{5, 2}, Stride: [3]int{2, 1}, Dilation: [3]int{1, 1}, Before: [3]int{2, 0}}, false, false},
	{dtype.F16, dtype.F16, []int{1, 4, 12, 9}, []int{4, 4}, device.Window{Rank: 2, Kernel: [3]int{3, 3}, Stride: [3]int{3, 2}, Dilation: [3]int{2, 1}, Before: [3]int{1, 0}}, true, false},
	{dtype.F64, dtype.F64, []int{3, 2, 300}, []int{90}, device.Window{Rank: 1, Kernel: [3]int{7}, Stride: [3]int{3}, Dilation: [3]int{1}, Before: [3]int{2}}, false, true},
	{dtype.F32, dtype.F32, []int{2, 1, 5, 6, 4}, []int{3, 4, 4}, device.Window{Rank: 3, Kernel: [3]int{2, 3, 2}, Stride: [3]int{1, 1, 1}, Dilation: [3]int{2, 1, 1}, Before: [3]int{0, 0, 1}}, true, true},
	{dtype.I64, dtype.I64, []int{1, 2, 5, 5, 5}, []int{3, 3, 3}, device.Window{Rank: 3, Kernel: [3]int{2, 2, 2}, Stride: [3]int{2, 2, 2}, Dilation: [3]int{1, 1, 1}, Before: [3]int{1, 1, 1}}, false, false},
	{dtype.U8, dtype.U8, []int{1, 1, 20}, []int{19}, device.Window{Rank: 1, Kernel: [3]int{4}, Stride: [3]int{1}, Dilation: [3]int{1}, Before: [3]int{3}}, false, true},
	{dtype.F32, dtype.F32, []int{2, 2, 6}, []int{0}, device.Window{Rank: 1, Kernel: [3]int{2}, Stride: [3]int{1}, Dilation: [3]int{1}}, false, false},
	// the last elements are after all windows, and the first windows are in the padding
	{dtype.F32, dtype.F32, []int{1, 1, 17, 3}, []int{4, 2}, device.Window{Rank: 2, Kernel: [3]int{2, 1}, Stride: [3]int{3, 3}, Dilation: [3]int{1, 1}, Before: [3]int{3, 1}}, false, false},
}

// TestFold checks that a fold is one launch. Its results must have the bits of additions in the
// documented order, with 32-bit and with 64-bit indices.
func TestFold(t *testing.T) {
	defer func(n int) { narrowLimit = n }(narrowLimit)
	for range 2 {
		for i, c := range foldCases {
			m := newMachine(t)
			r := c.w.Rank
			windows := append(append(append([]int{}, c.y[:2]...), c.w.Kernel[:r]...), c.out...)
			y, x := m.random(m.tensor(c.to, dense(c.y...), i%2)), m.tensor(c.from, dense(windows...), 0)
			if i%3 == 0 { // in this layout, a product of several samples writes the windows
				x = m.tensor(c.from, shape.Dense(x.Shape.With(0, c.y[1]).With(1, c.y[0])).Transpose(0, 1), 1)
			}
			m.random(x)
			var w Operand
			var weights []float64
			if c.weighted {
				w = m.random(m.tensor(c.from, dense(append([]int{c.y[1]}, c.w.Kernel[:r]...)...), 0))
				weights = m.decode(w)
			}
			want := foldSums(m.decode(y), m.decode(x), weights, c.y, c.out, c.w, c.to.Compute(), c.add)
			list, err := Fold(y, x, w, c.w, c.add)
			if len(list) != 1 {
				t.Fatalf("case %d: %d launches, %v", i, len(list), err)
			}
			m.run(list, err)
			m.compare(fmt.Sprintf("fold %d, %s", i, list[0].Kernel.Name), y, func(i int) uint64 { return expr.Encode(c.to, want[i]) })
		}
		narrowLimit = 0
	}
}

// foldSums adds the elements of windows one after the other, and rounds each sum to type t.
func foldSums(y, x, w []float64, dims, out []int, win device.Window, t dtype.Type, add bool) []float64 {
	r := win.Rank
	plane, taps, places := shape.Of(dims[2:]...).Size(), shape.Of(win.Kernel[:r]...).Size(), shape.Of(out...).Size()
	for i := range y {
		if !add {
			y[i] = 0
		}
	}
	for i := range dims[0] * dims[1] {
		for k := range taps {
			for p := range places {
				at, size, inside, k0, p0 := 0, 1, true, k, p
				for d := r - 1; d >= 0; d-- {
					v := p0%out[d]*win.Stride[d] + k0%win.Kernel[d]*win.Dilation[d] - win.Before[d]
					inside = inside && v >= 0 && v < dims[2+d]
					at, size, k0, p0 = at+v*size, size*dims[2+d], k0/win.Kernel[d], p0/out[d]
				}
				if !inside {
					continue
				}
				v := x[(i*taps+k)*places+p]
				if w != nil { // a product of two float32 numbers is exact in float64
					v *= w[i%dims[1]*taps+k]
				}
				y[i*plane+at] = expr.Decode(t, expr.Encode(t, y[i*plane+at]+v))
			}
		}
	}
	return y
}

func TestFoldPTX(t *testing.T) {
	one, two := [3]int{1, 1, 1}, [3]int{2, 2, 2}
	kernel, before := [3]int{3, 3, 3}, [3]int{1, 1, 1}
	y, x := fake(dtype.F32, 8, 64, 56, 56), fake(dtype.F32, 8, 64, 3, 3, 56, 56)
	list, err := Fold(y, x, Operand{}, device.Window{Rank: 2, Kernel: kernel, Stride: one, Dilation: one, Before: before}, false)
	golden(t, "fold_unit", list, err)
	list, err = Fold(y, fake(dtype.F32, 8, 64, 3, 3, 28, 28), Operand{}, device.Window{Rank: 2, Kernel: kernel, Stride: two, Dilation: one, Before: before}, true)
	golden(t, "fold_strided", list, err)
	list, err = Fold(fake(dtype.BF16, 8, 64, 8, 8, 8), fake(dtype.BF16, 8, 64, 3, 3, 3, 4, 4, 4), fake(dtype.BF16, 64, 3, 3, 3),
		device.Window{Rank: 3, Kernel: kernel, Stride: two, Dilation: two, Before: before}, false)
	golden(t, "fold_weighted", list, err)
	defer func(n int) { narrowLimit = n }(narrowLimit)
	narrowLimit = 0
	list, err = Fold(fake(dtype.F64, 8, 64, 8, 8, 8), fake(dtype.F64, 8, 64, 3, 3, 3, 4, 4, 4), Operand{},
		device.Window{Rank: 3, Kernel: kernel, Stride: two, Dilation: two, Before: before}, true)
	golden(t, "fold_wide", list, err)
}
