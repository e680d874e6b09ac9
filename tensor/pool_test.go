package tensor_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func TestPoolMistakes(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(2, 3, 6, 6)
		most := func(x *tensor.Tensor, o tensor.MaxPoolOptions) func() { return func() { x.MaxPool2d(o) } }
		avg := func(x *tensor.Tensor, o tensor.AvgPoolOptions) func() { return func() { x.AvgPool2d(o) } }
		two := []int{2}
		holdWindowMistakes(t, []windowMistake{
			{"rank", tensor.ErrShape, most(s.Ones(6, 6), tensor.MaxPoolOptions{Kernel: two}), []string{"max_pool2d", "4 dimensions, or 3 without a batch", "[6, 6]"}},
			{"no kernel", tensor.ErrValue, most(x, tensor.MaxPoolOptions{}), []string{"kernel"}},
			{"kernel", tensor.ErrValue, most(x, tensor.MaxPoolOptions{Kernel: []int{0}}), []string{"kernel [0]"}},
			{"sizes", tensor.ErrValue, most(x, tensor.MaxPoolOptions{Kernel: []int{1, 2, 3}}), []string{"3 sizes of kernel for 2 dimensions"}},
			{"padding", tensor.ErrValue, most(x, tensor.MaxPoolOptions{Kernel: two, Padding: two}), []string{"padding of 2", "half of the kernel, 2"}},
			{"too large", tensor.ErrShape, most(x, tensor.MaxPoolOptions{Kernel: []int{4}, Dilation: []int{3}}), []string{"a window of 10", "kernel 4, dilation 3", "input of 6"}},
			{"nothing in it", tensor.ErrShape, most(s.Ones(1, 1, 2, 2), tensor.MaxPoolOptions{Kernel: two, Padding: []int{1}, Dilation: []int{3}}), []string{"no element"}},
			{"empty", tensor.ErrShape, most(s.Ones(1, 1, 0, 2), tensor.MaxPoolOptions{Kernel: []int{1}}), []string{"input of 0"}},
			{"bool", tensor.ErrType, most(x.Cast(dtype.Bool), tensor.MaxPoolOptions{Kernel: two}), []string{"bool"}},
			{"integers", tensor.ErrType, avg(x.Cast(dtype.I32), tensor.AvgPoolOptions{Kernel: two}), []string{"avg_pool2d", "int32", "use Float or Long"}},
			{"no channels", tensor.ErrShape, most(s.Ones(2, 0, 4, 4), tensor.MaxPoolOptions{Kernel: two}), []string{"max_pool2d", "no channels", "[2, 0, 4, 4]"}},
			{"adaptive integers", tensor.ErrType, func() { x.Long().AdaptiveAvgPool2d(1) }, []string{"int64"}},
			{"adaptive max of integers", tensor.ErrType, func() { x.Long().AdaptiveMaxPool2d(1) }, []string{"int64"}},
			{"adaptive size", tensor.ErrValue, func() { x.AdaptiveAvgPool2d(-2) }, []string{"-2"}},
			{"adaptive without a size", tensor.ErrValue, func() { x.AdaptiveAvgPool2d() }, []string{"no size"}},
			{"adaptive empty", tensor.ErrShape, func() { s.Ones(1, 0).AdaptiveMaxPool1d(1) }, []string{"no elements"}},
			{"adaptive rank", tensor.ErrShape, func() { x.AdaptiveAvgPool1d(1) }, []string{"3 dimensions"}},
			{"norm of order 0", tensor.ErrValue, func() { x.LPPool2d(0, tensor.AvgPoolOptions{Kernel: two}) }, []string{"order 0"}},
			{"norm with padding", tensor.ErrValue, func() { x.LPPool2d(2, tensor.AvgPoolOptions{Kernel: two, Padding: []int{1}}) }, []string{"pad before"}},
			{"windows too large", tensor.ErrShape, func() { x.Unfold2d(tensor.FoldOptions{Kernel: []int{7}}) }, []string{"unfold2d", "a window of 7"}},
			{"number of columns", tensor.ErrShape, func() { s.Ones(1, 8, 3).Fold(3, 3, tensor.FoldOptions{Kernel: two}) }, []string{"fold", "3", "4 windows"}},
			{"size of columns", tensor.ErrShape, func() { s.Ones(1, 7, 4).Fold(3, 3, tensor.FoldOptions{Kernel: two}) }, []string{"7 elements"}},
			{"rank of columns", tensor.ErrShape, func() { s.Ones(4).Fold(3, 3, tensor.FoldOptions{Kernel: two}) }, []string{"3 dimensions, or 2"}},
			{"fold of bool", tensor.ErrType, func() { s.Ones(4, 4).Cast(dtype.Bool).Fold(3, 3, tensor.FoldOptions{Kernel: two}) }, []string{"bool"}},
			{"fold without a kernel", tensor.ErrValue, func() { s.Ones(4, 4).Fold(3, 3, tensor.FoldOptions{}) }, []string{"kernel"}},
		})
	})
}

// TestMaxPoolIntegers checks maximum pools of integers of every width. A maximum may be the least
// number of the type. Among equal maxima the pool finds the first.
func TestMaxPoolIntegers(t *testing.T) {
	least := map[dtype.Type]int64{dtype.I64: -1 << 63, dtype.I32: -1 << 31, dtype.I16: -1 << 15, dtype.I8: -1 << 7, dtype.U8: 0}
	for ty, low := range least {
		tensor.Do(func(s *tensor.Scope) {
			x := s.From([]int64{low, low, 3, 3, low, 1}).Cast(ty).Reshape(1, 6)
			v, at := x.MaxPool1dIndices(tensor.MaxPoolOptions{Kernel: []int{2}, Padding: []int{1}})
			if want := s.From([]int64{low, 3, 3, 1}).Cast(ty).Floats(); v.Type() != ty || !slices.Equal(v.Floats(), want) || !slices.Equal(at.Floats(), []float64{0, 2, 3, 5}) {
				t.Errorf("%v: %v at %v", ty, v, at)
			}
		})
	}
}

// TestMaxPoolLarge compares two methods that find maxima, with and without a gradient. Values and
// positions must be equal. The gradient must reach one element of each window.
func TestMaxPoolLarge(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Randn(2, 3, 30, 20)
		o := tensor.MaxPoolOptions{Kernel: []int{15, 10}}
		plain, at := x.MaxPool2dIndices(o)
		x.RequiresGrad()
		v, at2 := x.MaxPool2dIndices(o)
		a, at3 := x.AdaptiveMaxPool2d(2)
		for i, w := range plain.Floats() {
			if v.Floats()[i] != w || a.Floats()[i] != w || at.Floats()[i] != at2.Floats()[i] || at.Floats()[i] != at3.Floats()[i] {
				t.Fatalf("window %d: %v, %v, %v", i, plain, v, a)
			}
		}
		g := tensor.Gradients(v.Sum(), []*tensor.Tensor{x})[0]
		if n := g.Sum().Item(); n != 24 || g.CountNonzero().Item() != 24 {
			t.Errorf("the gradient has the sum %v", n)
		}
		picked := x.Detach().Flatten(2, 3).Gather(2, at.Flatten(2, 3))
		if !slices.Equal(picked.Floats(), plain.Floats()) {
			t.Error("the places are not those of the values")
		}
	})
}

func ExampleTensor_MaxPool2d() {
	x := tensor.From([]float32{1, 5, 2, 0, 3, 4, 9, 1}).Reshape(1, 1, 2, 4)
	fmt.Println(x.MaxPool2d(tensor.MaxPoolOptions{Kernel: []int{2}}))
	v, at := x.MaxPool2dIndices(tensor.MaxPoolOptions{Kernel: []int{1, 3}, Stride: []int{1}, Padding: []int{0, 1}})
	fmt.Println(v.Shape(), at.Flatten(0, -1))
	// Output:
	// tensor([[[[5., 9.]]]])
	// [1, 1, 2, 4] tensor([1, 1, 1, 2, 5, 6, 6, 6])
}

func ExampleTensor_AdaptiveAvgPool2d() {
	features := tensor.Ones(8, 512, 7, 7)
	fmt.Println(features.AdaptiveAvgPool2d(1).Shape(), features.AdaptiveAvgPool2d(3, -1).Shape())
	// Output:
	// [8, 512, 1, 1] [8, 512, 3, 7]
}

// Fold adds up the windows of Unfold2d: each element is counted once for each window that covers
// it.
func ExampleTensor_Fold() {
	x := tensor.Ones(1, 1, 3, 3)
	o := tensor.FoldOptions{Kernel: []int{2}}
	columns := x.Unfold2d(o)
	fmt.Println(columns.Shape())
	fmt.Println(columns.Fold(3, 3, o))
	// Output:
	// [1, 4, 4]
	// tensor([[[[1., 2., 1.],
	//           [2., 4., 2.],
	//           [1., 2., 1.]]]])
}
