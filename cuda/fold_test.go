package cuda_test

import (
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// foldGradients lists ops whose gradients have overlapping windows, with the shapes of their
// operands.
var foldGradients = []struct {
	name   string
	shapes [][]int
	f      func(in []*tensor.Tensor) *tensor.Tensor
}{
	{"conv1d", [][]int{{2, 3, 40}, {4, 3, 5}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Conv1d(in[1], nil, tensor.ConvOptions{Padding: []int{2}, Dilation: []int{2}})
	}},
	{"conv2d", [][]int{{3, 4, 9, 8}, {6, 2, 3, 3}, {6}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Conv2d(in[1], in[2], tensor.ConvOptions{Padding: []int{1}, Stride: []int{2, 1}, Groups: 2})
	}},
	{"conv2d of many places", [][]int{{2, 2, 24, 25}, {3, 2, 3, 3}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Conv2d(in[1], nil, tensor.ConvOptions{Padding: []int{1}})
	}},
	{"conv2d in bands", [][]int{{1, 2, 50, 50}, {1, 2, 7, 7}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Conv2d(in[1], nil, tensor.ConvOptions{Padding: []int{9, 3}})
	}},
	{"conv2d of single elements", [][]int{{2, 3, 6, 7}, {4, 3, 1, 1}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Conv2d(in[1], nil, tensor.ConvOptions{Padding: []int{2}})
	}},
	{"conv3d", [][]int{{2, 2, 4, 5, 6}, {3, 2, 2, 3, 2}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Conv3d(in[1], nil, tensor.ConvOptions{Stride: []int{1, 2, 1}, Padding: []int{1}})
	}},
	{"depthwise", [][]int{{2, 5, 9, 9}, {5, 1, 3, 3}, {5}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Conv2d(in[1], in[2], tensor.ConvOptions{Padding: []int{1}, Stride: []int{2}, Groups: 5})
	}},
	{"transposed", [][]int{{2, 4, 5, 4}, {4, 3, 3, 3}, {3}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].ConvTranspose2d(in[1], in[2], tensor.ConvTransposeOptions{Stride: []int{2}, Padding: []int{1}, OutputPadding: []int{1}})
	}},
	{"means", [][]int{{2, 3, 9, 8}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].AvgPool2d(tensor.AvgPoolOptions{Kernel: []int{3}, Stride: []int{2}, Padding: []int{1}})
	}},
	{"maxima", [][]int{{2, 3, 9, 8}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].MaxPool2d(tensor.MaxPoolOptions{Kernel: []int{3}, Stride: []int{2}, Padding: []int{1}})
	}},
	{"maxima, dilated", [][]int{{2, 3, 40}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].MaxPool1d(tensor.MaxPoolOptions{Kernel: []int{4}, Stride: []int{1}, Dilation: []int{3}, Padding: []int{2}})
	}},
	{"maxima of single windows", [][]int{{2, 2, 4, 6, 4}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].MaxPool3d(tensor.MaxPoolOptions{Kernel: []int{2}})
	}},
	{"unfold", [][]int{{3, 17, 4}}, func(in []*tensor.Tensor) *tensor.Tensor { return in[0].Unfold(1, 5, 2) }},
	{"unfold2d", [][]int{{2, 3, 8, 7}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Unfold2d(tensor.FoldOptions{Kernel: []int{3, 2}, Padding: []int{1}, Dilation: []int{1, 2}, Stride: []int{2, 1}})
	}},
	{"fold", [][]int{{2, 12, 30}}, func(in []*tensor.Tensor) *tensor.Tensor {
		return in[0].Fold(6, 7, tensor.FoldOptions{Kernel: []int{2}})
	}},
}

// TestFoldGradients checks the kernel that adds overlapping windows to an image. Its result must
// have the same bits as a composition of ops, which adds the first elements of all windows, then
// the second elements, and so on. A captured gradient must have the same bits too.
func TestFoldGradients(t *testing.T) {
	dev := emulated(t, "256MiB")
	for i, c := range foldGradients {
		for _, typ := range []dtype.Type{dtype.F32, []dtype.Type{dtype.F64, dtype.F16, dtype.BF16}[i%3]} {
			root := tensor.Root().On(dev)
			var in, kept []*tensor.Tensor
			for _, dims := range c.shapes {
				in = append(in, root.Randn(dims...).Cast(typ))
			}
			gradients := func(s *tensor.Scope) []*tensor.Tensor {
				var leaves []*tensor.Tensor
				for _, x := range in {
					leaves = append(leaves, x.In(s).Clone().RequiresGrad())
				}
				y := c.f(leaves)
				return append(tensor.Gradients(y.Square().Sum(), leaves), y.Detach())
			}
			eager := func(o ...tensor.Option) (text []string) {
				tensor.Do(func(s *tensor.Scope) {
					for k, x := range gradients(s) {
						if text = append(text, bitsOf(x)); len(o) == 1 && len(kept) == k {
							kept = append(kept, root.Typed(x.Type()).Zeros(x.Shape().Slice()...))
						}
					}
				}, o...)
				return text
			}
			want := eager(tensor.On(dev))
			// for 16-bit floats, gradients of products are composed of other ops
			if !typ.IsHalf() || len(in) == 1 {
				same(t, c.name+", composed", typ, eager(tensor.On(dev), tensor.Composed()), want)
			}
			graph, err := tensor.Capture(dev, func(s *tensor.Scope) {
				for k, x := range gradients(s) {
					kept[k].In(s).Copy(x)
				}
			}, tensor.On(dev))
			if err != nil {
				t.Fatal(err)
			}
			if err := graph.Replay(); err != nil {
				t.Fatal(err)
			}
			var captured []string
			tensor.Do(func(s *tensor.Scope) {
				for _, x := range kept {
					captured = append(captured, bitsOf(x.In(s)))
				}
			})
			same(t, c.name+", captured", typ, captured, want)
			if err := graph.Close(); err != nil {
				t.Fatal(err)
			}
			for _, x := range append(in, kept...) {
				x.Free()
			}
		}
	}
}

func same(t *testing.T, what string, typ dtype.Type, got, want []string) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s of %v: result %d has other bits", what, typ, i)
		}
	}
}

// bitsOf returns the exact values of x as text.
func bitsOf(x *tensor.Tensor) string { return fmt.Sprint(tensor.Data[float64](x.Double())) }

// TestFoldIsOneLaunch checks that columns become an image in one launch, and an image becomes
// columns in one launch. The gradient of an op that reads windows must also be one launch.
func TestFoldIsOneLaunch(t *testing.T) {
	dev := emulated(t, "64MiB")
	tensor.Do(func(s *tensor.Scope) {
		o := tensor.FoldOptions{Kernel: []int{3}, Padding: []int{1}, Stride: []int{2}}
		images := s.Randn(2, 3, 9, 9).RequiresGrad()
		columns := images.Unfold2d(o)
		lines := s.Randn(4, 30).RequiresGrad()
		windows := lines.Unfold(1, 5, 2)
		g := windows.Detach().Contiguous()
		means := images.AvgPool2d(tensor.AvgPoolOptions{Kernel: []int{3}, Divisor: 1})
		for name, f := range map[string]func(){
			"columns":  func() { images.Detach().Unfold2d(o) },
			"fold":     func() { columns.Detach().Fold(9, 9, o) },
			"unfold2d": func() { tensor.Gradients(columns, []*tensor.Tensor{images}, tensor.GradOutput(columns.Detach())) },
			"unfold": func() {
				tensor.Gradients(windows, []*tensor.Tensor{lines}, tensor.GradOutput(g))
			},
		} {
			before := dev.Counters().Launches
			if f(); dev.Counters().Launches-before != 1 {
				t.Errorf("%s: %d launches", name, dev.Counters().Launches-before)
			}
		}
		// two launches: one divides the gradient by the number of averaged elements, and the other
		// adds the windows
		g = means.Detach().OnesLike()
		before := dev.Counters().Launches
		tensor.Gradients(means, []*tensor.Tensor{images}, tensor.GradOutput(g))
		if n := dev.Counters().Launches - before; n > 2 {
			t.Errorf("means: %d launches", n)
		}
	}, tensor.On(dev))
}
