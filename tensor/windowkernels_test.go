package tensor_test

import (
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/cpu"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestWindowKernels checks that the CPU's kernels give the same results and gradients as the
// compositions.
func TestWindowKernels(t *testing.T) {
	type tt = tensor.Tensor
	ints := func(v ...int) []int { return v }
	conv := func(o tensor.ConvOptions) func(in []*tt) *tt {
		return func(in []*tt) *tt {
			switch in[0].Rank() {
			case 3:
				return in[0].Conv1d(in[1], in[2], o)
			case 4:
				return in[0].Conv2d(in[1], in[2], o)
			}
			return in[0].Conv3d(in[1], in[2], o)
		}
	}
	mostOf := func(o tensor.MaxPoolOptions) func(in []*tt) *tt {
		return func(in []*tt) *tt { return in[0].MaxPool2d(o) }
	}
	meanOf := func(o tensor.AvgPoolOptions) func(in []*tt) *tt {
		return func(in []*tt) *tt { return in[0].AvgPool2d(o) }
	}
	for _, c := range []struct {
		name   string
		shapes [][]int
		f      func(in []*tt) *tt
	}{
		{"conv", [][]int{{5, 6, 13, 14}, {10, 6, 3, 3}, {10}}, conv(tensor.ConvOptions{Padding: ints(1)})},
		{"conv, strided", [][]int{{3, 8, 15, 9}, {12, 4, 3, 2}, {12}}, conv(tensor.ConvOptions{Stride: ints(2, 1), Dilation: ints(1, 2), Groups: 2})},
		{"conv1d", [][]int{{2, 3, 2100}, {4, 3, 7}, {4}}, conv(tensor.ConvOptions{Stride: ints(2), Padding: ints(3)})},
		{"conv3d", [][]int{{2, 3, 5, 6, 7}, {4, 3, 2, 3, 2}, {4}}, conv(tensor.ConvOptions{Padding: ints(1, 0, 1)})},
		{"depthwise", [][]int{{3, 7, 21, 20}, {7, 1, 3, 3}, {7}}, conv(tensor.ConvOptions{Padding: ints(1), Groups: 7})},
		{"same", [][]int{{2, 3, 9, 9}, {4, 3, 4, 2}, {4}}, conv(tensor.ConvOptions{Same: true})},
		{"transposed", [][]int{{2, 6, 5, 6}, {6, 4, 3, 3}, {8}}, func(in []*tt) *tt {
			return in[0].ConvTranspose2d(in[1], in[2], tensor.ConvTransposeOptions{Stride: ints(2), Padding: ints(1), OutputPadding: ints(1), Groups: 2})
		}},
		{"maxima", [][]int{{3, 4, 12, 10}}, mostOf(tensor.MaxPoolOptions{Kernel: ints(2)})},
		{"maxima, padded", [][]int{{3, 4, 33, 34}}, mostOf(tensor.MaxPoolOptions{Kernel: ints(5, 3), Stride: ints(2), Padding: ints(2, 1)})},
		{"maxima, cut off", [][]int{{3, 4, 13, 14}}, mostOf(tensor.MaxPoolOptions{Kernel: ints(3), Stride: ints(2), CeilMode: true})},
		{"means", [][]int{{3, 4, 12, 10}}, meanOf(tensor.AvgPoolOptions{Kernel: ints(2)})},
		{"means, overlapping", [][]int{{3, 4, 12, 40}}, meanOf(tensor.AvgPoolOptions{Kernel: ints(3), Stride: ints(1), Padding: ints(1), ExcludePadding: true})},
		{"means, large", [][]int{{3, 4, 20, 45}}, meanOf(tensor.AvgPoolOptions{Kernel: ints(8, 7), Stride: ints(3), Padding: ints(1, 2)})},
		{"means, global", [][]int{{3, 4, 50, 40}}, func(in []*tt) *tt { return in[0].AdaptiveAvgPool2d(1) }},
		{"norm", [][]int{{9, 20, 7, 6}, {20}, {20}}, func(in []*tt) *tt { return in[0].BatchNorm(nil, nil, in[1], in[2], true, 0.1, 1e-5) }},
		{"norm, plain", [][]int{{3, 2, 40, 60}}, func(in []*tt) *tt { return in[0].BatchNorm(nil, nil, nil, nil, true, 0.1, 1e-5) }},
	} {
		for _, typ := range []dtype.Type{dtype.F32, dtype.BF16} {
			tensor.Do(func(s *tensor.Scope) {
				var in []*tt
				for _, dims := range c.shapes {
					in = append(in, s.Randn(dims...).Cast(typ))
				}
				g := c.f(in).RandnLike()
				results := func(o ...tensor.Option) (list []*tt) {
					s.Do(func(r *tensor.Scope) {
						var leaves []*tt
						for _, x := range in {
							leaves = append(leaves, x.In(r).Clone().RequiresGrad())
						}
						y := c.f(leaves)
						list = append(tensor.Gradients(y, leaves, tensor.GradOutput(g)), y.Detach())
						for i := range list {
							list[i] = list[i].Float()
						}
						r.Close(list...)
					}, o...)
					return list
				}
				fast, composed := results(), results(tensor.Composed())
				bound := 3e-6
				if typ == dtype.BF16 {
					bound = 1e-2
				}
				for i, y := range fast {
					most := composed[i].Abs().Amax().Item()
					if d := y.Sub(composed[i]).Abs().Amax().Item(); !(d <= bound*(1+most)) {
						t.Errorf("%s of %v: result %d is off by %v of %v", c.name, typ, i, d, most)
					}
				}
			})
		}
	}
}

// TestConvTakesNoColumns checks that a convolution allocates about as much memory as its result.
// With a loss and the backward pass it allocates four times as much. The columns of the input would
// need more memory than that.
func TestConvTakesNoColumns(t *testing.T) {
	d := cpu.Get()
	tensor.Do(func(s *tensor.Scope) {
		x, w := s.Randn(16, 32, 40, 40).RequiresGrad(), s.Randn(32, 32, 3, 3).RequiresGrad()
		one := 4 * x.Size() // size of the result in bytes
		for _, step := range []struct {
			name string
			most int
			f    func(c *tensor.Scope)
		}{
			{"forward", one, func(c *tensor.Scope) { x.In(c).Detach().Conv2d(w.Detach(), nil, tensor.ConvOptions{Padding: []int{1}}) }},
			// the memory of four tensors: the result, its squares, and the gradients of both
			{"gradients", 4 * one, func(c *tensor.Scope) {
				tensor.Gradients(x.In(c).Conv2d(w, nil, tensor.ConvOptions{Padding: []int{1}}).Square().Sum(), []*tensor.Tensor{x, w})
			}},
		} {
			before := d.Stats().Allocated
			d.ResetPeak()
			s.Do(step.f)
			if took := d.Stats().AllocatedPeak - before; took > step.most+step.most/8 {
				t.Errorf("%s took %d bytes, the input has %d", step.name, took, one)
			}
		}
	})
}

// TestConvBits checks that a convolution and its gradients have the same bits in five runs. Work
// may be divided among workers in another way in each run.
func TestConvBits(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, w := s.Randn(8, 16, 14, 14).RequiresGrad(), s.Randn(24, 16, 3, 3).RequiresGrad()
		var first string
		for i := range 5 {
			s.Do(func(c *tensor.Scope) {
				y := x.In(c).Conv2d(w, nil, tensor.ConvOptions{Padding: []int{1}})
				grads := tensor.Gradients(y.Square().Sum(), []*tensor.Tensor{x, w})
				text := fmt.Sprint(tensor.Data[float32](y.Detach()), tensor.Data[float32](grads[0]), tensor.Data[float32](grads[1]))
				if i == 0 {
					first = text
				} else if text != first {
					t.Fatal("other bits")
				}
			})
		}
	})
}
