package kernels

import (
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// unfoldCases lists images and windows of one to three dimensions.
var unfoldCases = []struct {
	t      dtype.Type
	x, out []int
	w      device.Window
}{
	{dtype.F32, []int{2, 3, 9, 11}, []int{9, 11}, device.Window{Rank: 2, Kernel: [3]int{3, 3}, Stride: [3]int{1, 1}, Dilation: [3]int{1, 1}, Before: [3]int{1, 1}}},
	{dtype.BF16, []int{2, 2, 12, 7}, []int{6, 7}, device.Window{Rank: 2, Kernel: [3]int{5, 2}, Stride: [3]int{2, 1}, Dilation: [3]int{1, 1}, Before: [3]int{2, 0}}},
	{dtype.F64, []int{3, 2, 300}, []int{90}, device.Window{Rank: 1, Kernel: [3]int{2}, Stride: [3]int{3}, Dilation: [3]int{2}, Before: [3]int{2}}},
	{dtype.U8, []int{1, 2, 5, 5, 5}, []int{3, 3, 3}, device.Window{Rank: 3, Kernel: [3]int{2, 3, 2}, Stride: [3]int{2, 1, 2}, Dilation: [3]int{1, 2, 1}, Before: [3]int{1, 1, 1}}},
	{dtype.Bool, []int{1, 1, 20}, []int{19}, device.Window{Rank: 1, Kernel: [3]int{4}, Stride: [3]int{1}, Dilation: [3]int{1}, Before: [3]int{9}}},
	{dtype.I64, []int{1, 2, 4, 3}, []int{4, 3}, device.Window{Rank: 2, Kernel: [3]int{1, 1}, Stride: [3]int{1, 1}, Dilation: [3]int{1, 1}}},
	// the last windows lie after the end of the image, and one image is empty
	{dtype.F32, []int{1, 2, 3}, []int{9}, device.Window{Rank: 1, Kernel: [3]int{2}, Stride: [3]int{2}, Dilation: [3]int{1}, Before: [3]int{1}}},
	{dtype.F32, []int{2, 2, 0, 3}, []int{2, 3}, device.Window{Rank: 2, Kernel: [3]int{2, 1}, Stride: [3]int{1, 1}, Dilation: [3]int{1, 1}, Before: [3]int{3, 0}}},
}

// TestUnfold copies windows to columns. It must be one launch, with 32-bit and with 64-bit indices.
// Elements outside of the image must be 0.
func TestUnfold(t *testing.T) {
	defer func(n int) { narrowLimit = n }(narrowLimit)
	for range 2 {
		for i, c := range unfoldCases {
			m := newMachine(t)
			r := c.w.Rank
			columns := append(append(append([]int{}, c.x[:2]...), c.w.Kernel[:r]...), c.out...)
			x, y := m.random(m.tensor(c.t, dense(c.x...), i%2)), m.tensor(c.t, dense(columns...), 0)
			if i%3 == 0 { // the layout in which a product of several samples reads columns
				y = m.tensor(c.t, shape.Dense(y.Shape.With(0, c.x[1]).With(1, c.x[0])).Transpose(0, 1), 1)
			}
			if i%3 == 1 {
				x = m.random(m.tensor(c.t, shape.Dense(x.Shape.With(2, c.x[1+r]).With(1+r, c.x[2])).Transpose(2, 1+r), 1))
			}
			want := unfolded(m.read(x), y.Shape, c.x, c.w)
			list, err := Unfold(y, x, c.w)
			if len(list) != 1 {
				t.Fatalf("case %d: %d launches, %v", i, len(list), err)
			}
			m.run(list, err)
			m.compare(fmt.Sprintf("unfold %d, %s", i, list[0].Kernel.Name), y, func(i int) uint64 { return want[i] })
		}
		narrowLimit = 0
	}
	if list, err := Unfold(fake(dtype.F32, 0, 2, 3, 4), fake(dtype.F32, 0, 2, 6), device.Window{Rank: 1, Kernel: [3]int{3}, Stride: [3]int{1}, Dilation: [3]int{1}}); len(list) != 0 || err != nil {
		t.Errorf("no samples: %d launches, %v", len(list), err)
	}
}

// unfolded returns the columns of an image x with the sizes dims, as a reference.
func unfolded(x []uint64, columns shape.Dims, dims []int, win device.Window) []uint64 {
	list, r := make([]uint64, columns.Size()), win.Rank
	for i := range list {
		at, size, inside, left := 0, 1, true, i
		index := make([]int, columns.Rank())
		for d := columns.Rank() - 1; d >= 0; d-- {
			index[d], left = left%columns.At(d), left/columns.At(d)
		}
		for d := r - 1; d >= 0; d-- {
			v := index[2+r+d]*win.Stride[d] + index[2+d]*win.Dilation[d] - win.Before[d]
			inside = inside && v >= 0 && v < dims[2+d]
			at, size = at+v*size, size*dims[2+d]
		}
		if inside {
			list[i] = x[(index[0]*dims[1]+index[1])*size+at]
		}
	}
	return list
}

// TestUnfoldWide uses offsets beyond 31 bits. The kernel must use 64-bit indices.
func TestUnfoldWide(t *testing.T) {
	one := [3]int{1, 1, 1}
	w := device.Window{Rank: 2, Kernel: [3]int{3, 3}, Stride: one, Dilation: one, Before: one}
	y, x := fake(dtype.F32, 2, 2, 3, 3, 4, 4), fake(dtype.F32, 2, 2, 4, 4)
	far, strided, padded := x, w, w
	far.Strides = far.Strides.With(0, 1<<31)
	strided.Stride[0], padded.Before[1] = 1<<30, 1<<31
	for i, c := range []struct {
		y, x Operand
		w    device.Window
		wide bool
	}{
		{y, x, w, false}, {y, far, w, true}, {y, x, strided, true}, {y, x, padded, true},
		{fake(dtype.F32, 1<<12, 1<<10, 3, 3, 16, 16), fake(dtype.F32, 1<<12, 1<<10, 16, 16), w, true},
	} {
		list, err := Unfold(c.y, c.x, c.w)
		want := "unfold2d_b32"
		if c.wide {
			want += "_w"
		}
		if err != nil || list[0].Kernel.Name != want {
			t.Errorf("case %d: %v, %v, want %s", i, list[0].Kernel.Name, err, want)
		}
	}
}

func TestUnfoldPTX(t *testing.T) {
	one, two := [3]int{1, 1, 1}, [3]int{2, 2, 2}
	kernel, before := [3]int{3, 3, 3}, [3]int{1, 1, 1}
	list, err := Unfold(fake(dtype.F32, 8, 64, 3, 3, 56, 56), fake(dtype.F32, 8, 64, 56, 56),
		device.Window{Rank: 2, Kernel: kernel, Stride: one, Dilation: one, Before: before})
	golden(t, "unfold_f32", list, err)
	list, err = Unfold(fake(dtype.U8, 8, 64, 3, 90), fake(dtype.U8, 8, 64, 90), device.Window{Rank: 1, Kernel: kernel, Stride: one, Dilation: one, Before: before})
	golden(t, "unfold_u8", list, err)
	list, err = Unfold(fake(dtype.BF16, 8, 64, 3, 3, 3, 4, 4, 4), fake(dtype.BF16, 8, 64, 8, 8, 8),
		device.Window{Rank: 3, Kernel: kernel, Stride: two, Dilation: two, Before: before})
	golden(t, "unfold_bf16", list, err)
	defer func(n int) { narrowLimit = n }(narrowLimit)
	narrowLimit = 0
	list, err = Unfold(fake(dtype.F64, 8, 64, 3, 3, 3, 4, 4, 4), fake(dtype.F64, 8, 64, 8, 8, 8),
		device.Window{Rank: 3, Kernel: kernel, Stride: two, Dilation: two, Before: before})
	golden(t, "unfold_wide", list, err)
}
