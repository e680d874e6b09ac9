package optest

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestConvolutionsInBands checks that a GPU makes the matrix of columns of a large image for a few
// rows of windows at a time. The CPU makes the whole matrix. Values and gradients must be equal,
// and the GPU must need less memory than the whole matrix.
func TestConvolutionsInBands(t *testing.T) {
	gpu := emulated(t)
	conv := func(o tensor.ConvOptions) func(x, w, b *tensor.Tensor) *tensor.Tensor {
		return func(x, w, b *tensor.Tensor) *tensor.Tensor { return x.Conv2d(w, b, o) }
	}
	two := func(a, b int) []int { return []int{a, b} }
	for _, c := range []struct {
		name    string
		x, w    []int
		outputs int
		columns int // number of elements of the columns of one sample
		f       func(x, w, b *tensor.Tensor) *tensor.Tensor
	}{
		{"padded, two samples", []int{2, 1, 66, 40}, []int{1, 1, 11, 11}, 1, 121 * 66 * 40, conv(tensor.ConvOptions{Padding: two(5, 5)})},
		{"strides and dilation", []int{1, 1, 75, 120}, []int{1, 1, 15, 15}, 1, 225 * 24 * 53, conv(tensor.ConvOptions{Stride: two(2, 2), Dilation: two(2, 1), Padding: two(1, 0)})},
		{"groups", []int{1, 2, 30, 41}, []int{2, 1, 11, 11}, 2, 2 * 121 * 30 * 41, conv(tensor.ConvOptions{Groups: 2, Padding: two(5, 5)})},
		{"transposed", []int{1, 1, 50, 40}, []int{1, 1, 12, 12}, 1, 144 * 50 * 40, func(x, w, b *tensor.Tensor) *tensor.Tensor {
			return x.ConvTranspose2d(w, b, tensor.ConvTransposeOptions{Stride: two(2, 2), Padding: two(3, 3)})
		}},
		{"one dimension", []int{1, 1, 4500}, []int{1, 1, 64}, 1, 64 * 4437, func(x, w, b *tensor.Tensor) *tensor.Tensor { return x.Conv1d(w, b, tensor.ConvOptions{}) }},
	} {
		for _, typ := range []dtype.Type{dtype.F32, dtype.BF16} {
			if typ != dtype.F32 && c.name != "transposed" || testing.Short() && c.name != "groups" {
				continue
			}
			peak := 0
			of := func(d device.Device) (y, dx, dw []float32) {
				tensor.Do(func(s *tensor.Scope) {
					var in []*tensor.Tensor
					for _, dims := range [][]int{c.x, c.w, {c.outputs}} {
						in = append(in, s.Rand(dims...).SubScalar(0.5).Cast(typ).To(d).Detach().RequiresGrad())
					}
					before := d.Stats().Allocated
					d.ResetPeak()
					v := c.f(in[0], in[1], in[2])
					v.Sum().Backward()
					peak = d.Stats().AllocatedPeak - before
					float := func(x *tensor.Tensor) []float32 { return tensor.Data[float32](x.Float()) }
					y, dx, dw = float(v), float(in[0].Grad()), float(in[1].Grad())
				}, tensor.Seed(7))
				return y, dx, dw
			}
			y, dx, dw := of(hostDevice())
			y2, dx2, dw2 := of(gpu)
			if peak >= c.columns*4 {
				t.Errorf("%s, %v: %d bytes at the peak, the columns are %d", c.name, typ, peak, c.columns*4)
			}
			eps := 1e-5
			if typ == dtype.BF16 {
				eps = 1. / 128
			}
			for i, pair := range [][2][]float32{{y, y2}, {dx, dx2}, {dw, dw2}} {
				greatest, worst := 0.0, 0.0
				for k, a := range pair[0] {
					greatest = max(greatest, math.Abs(float64(a)))
					worst = max(worst, math.Abs(float64(a-pair[1][k])))
				}
				if len(pair[0]) != len(pair[1]) || greatest == 0 || worst > eps*greatest {
					t.Errorf("%s, %v: %s differs by %g of at most %g", c.name, typ, [...]string{"the result", "the gradient of x", "the gradient of the weight"}[i], worst, greatest)
				}
			}
		}
	}
}

// TestMaxPoolInParts computes the gradient of a max pool with overlapping windows of 16-bit floats.
// The gradient must be summed in float32, for a few samples at a time. On a GPU and on the CPU, it
// must have the same bits as the float32 gradient, rounded once.
func TestMaxPoolInParts(t *testing.T) {
	for _, d := range []device.Device{hostDevice(), emulated(t)} {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Rand(5, 1, 256, 200).MulScalar(100).Cast(dtype.BF16).To(d)
			g := s.Rand(5, 1, 128, 100).Cast(dtype.BF16).To(d)
			grad := func(t dtype.Type) *tensor.Tensor {
				x := x.Cast(t).Detach().RequiresGrad()
				y := x.MaxPool2d(tensor.MaxPoolOptions{Kernel: []int{3, 3}, Stride: []int{2, 2}, Padding: []int{1, 1}})
				y.Mul(g.Cast(t)).Sum().Backward()
				return x.Grad()
			}
			if !grad(dtype.BF16).AllClose(grad(dtype.F32).Cast(dtype.BF16), 0, 0) {
				t.Errorf("%v: not the gradient in float32, rounded", d)
			}
		}, tensor.Seed(3))
	}
}
