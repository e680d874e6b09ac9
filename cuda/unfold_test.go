package cuda_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// unfoldCases are ops that copy the windows of an image to the columns of a matrix, with the shapes
// of their operands.
var unfoldCases = []struct {
	name   string
	shapes [][]int
	f      func(in []*tensor.Tensor) *tensor.Tensor
}{
	{"stride beyond the kernel", [][]int{{2, 3, 11, 10}, {4, 3, 2, 2}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Conv2d(in[1], nil, tensor.ConvOptions{Stride: []int{3}})
	}},
	{"padding beyond the kernel", [][]int{{1, 2, 5, 6}, {2, 2, 2, 2}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Conv2d(in[1], nil, tensor.ConvOptions{Padding: []int{5, 4}})
	}},
	{"bands in the padding", [][]int{{1, 2, 40, 40}, {1, 2, 7, 7}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Conv2d(in[1], nil, tensor.ConvOptions{Padding: []int{30, 3}})
	}},
	{"dilated groups", [][]int{{2, 4, 30}, {6, 2, 3}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Conv1d(in[1], nil, tensor.ConvOptions{Dilation: []int{3}, Padding: []int{4}, Groups: 2})
	}},
	{"three dimensions", [][]int{{2, 2, 4, 5, 6}, {3, 2, 2, 3, 2}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Conv3d(in[1], nil, tensor.ConvOptions{Stride: []int{1, 2, 1}, Padding: []int{1}})
	}},
	{"same", [][]int{{2, 3, 6, 7}, {4, 3, 2, 4}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Conv2d(in[1], nil, tensor.ConvOptions{Same: true})
	}},
	{"no samples", [][]int{{0, 2, 5, 5}, {3, 2, 3, 3}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Conv2d(in[1], nil, tensor.ConvOptions{Padding: []int{1}})
	}},
	{"transposed in memory", [][]int{{2, 3, 6, 9}, {4, 3, 3, 2}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Transpose(2, 3).Conv2d(in[1], nil, tensor.ConvOptions{Padding: []int{1}})
	}},
	{"columns", [][]int{{2, 3, 8, 7}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Transpose(0, 1).Unfold2d(tensor.FoldOptions{Kernel: []int{3, 2}, Padding: []int{4, 1}, Dilation: []int{1, 2}, Stride: []int{2, 1}})
	}},
	{"columns of no channels", [][]int{{2, 0, 5, 5}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Unfold2d(tensor.FoldOptions{Kernel: []int{3}, Padding: []int{1}})
	}},
}

// TestUnfoldBits compares the kernel that copies windows to columns with a composition of padding
// and copies. The columns must have the same bits. Results of products with them, and first and
// second gradients, must have the same bits too.
func TestUnfoldBits(t *testing.T) {
	dev := emulated(t, "256MiB")
	for _, c := range unfoldCases {
		types := []dtype.Type{dtype.F32, dtype.F64}
		if len(c.shapes) == 1 { // for 16-bit floats, gradients of products are composed of other ops
			types = append(types, dtype.F16, dtype.BF16)
		}
		for _, typ := range types {
			root := tensor.Root().On(dev)
			var in []*tensor.Tensor
			for _, dims := range c.shapes {
				in = append(in, root.Randn(dims...).Cast(typ))
			}
			bits := func(o ...tensor.Option) (text []string) {
				tensor.Do(func(s *tensor.Scope) {
					var leaves []*tensor.Tensor
					for _, x := range in {
						leaves = append(leaves, x.In(s).Clone().RequiresGrad())
					}
					y := c.f(leaves)
					first := tensor.Gradients(y.Square().Sum(), leaves, tensor.CreateGraph())
					sum := first[0].Square().Sum()
					for _, g := range first[1:] {
						sum = sum.Add(g.Square().Sum())
					}
					for _, x := range append(append(tensor.Gradients(sum, leaves), first...), y) {
						text = append(text, bitsOf(x.Detach()))
					}
				}, o...)
				return text
			}
			same(t, c.name, typ, bits(tensor.On(dev)), bits(tensor.On(dev), tensor.Composed()))
			for _, x := range in {
				x.Free()
			}
		}
	}
}
