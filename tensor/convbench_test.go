package tensor

import (
	"fmt"
	"testing"
)

// convShapes are layers of a ResNet, and a depthwise layer.
var convShapes = []struct {
	name                              string
	in, size, out, kernel, stride, gr int
}{
	{"stem", 3, 224, 64, 7, 2, 1},
	{"3x3_64_56", 64, 56, 64, 3, 1, 1},
	{"1x1_64_256_56", 64, 56, 256, 1, 1, 1},
	{"1x1s2_256_512", 256, 56, 512, 1, 2, 1},
	{"3x3s2_128_56", 128, 56, 128, 3, 2, 1},
	{"3x3_256_14", 256, 14, 256, 3, 1, 1},
	{"3x3_512_7", 512, 7, 512, 3, 1, 1},
	{"1x1_2048_7", 512, 7, 2048, 1, 1, 1},
	{"depthwise_128_56", 128, 56, 128, 3, 1, 128},
}

// BenchmarkConv2d runs layers on a batch of 8: forward only, and with both gradients.
// bench/convolutions runs them here and in PyTorch, alternately. These are the ratios of the
// processor time to that of PyTorch 2.15 with oneDNN, on one core of a Xeon with AVX-512:
//
//	                          forward     input's gradient  weight's gradient
//	the stem                  1.0         0.9               0.8
//	1×1                       1.0 to 1.2  0.4 to 1.3        1.2 to 1.3
//	3×3, images of 56×56      1.1 to 1.2  1.0 to 1.1        0.8 to 1.1
//	3×3, images of 14×14      1.4         1.5               1.1
//	3×3, images of 7×7        1.7         2.1               1.1
//	depthwise                 0.6         0.7               0.7
//
// The highest rate is 115 GFLOP/s. The core can do about 176 in float32.
func BenchmarkConv2d(b *testing.B) {
	for _, l := range convShapes {
		s := NewScope()
		x, w := s.Randn(8, l.in, l.size, l.size), s.Randn(l.out, l.in/l.gr, l.kernel, l.kernel)
		o := ConvOptions{Stride: []int{l.stride}, Padding: []int{l.kernel / 2}, Groups: l.gr}
		y := x.Conv2d(w, nil, o)
		flops := 2 * float64(y.Size()) * float64(l.in/l.gr*l.kernel*l.kernel)
		rate := func(b *testing.B, f float64) {
			b.ReportMetric(f*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		}
		b.Run(fmt.Sprintf("%s/forward", l.name), func(b *testing.B) {
			for b.Loop() {
				x.Conv2d(w, nil, o).Free()
			}
			rate(b, flops)
		})
		x.RequiresGrad()
		w.RequiresGrad()
		g := y.RandnLike()
		b.Run(fmt.Sprintf("%s/gradients", l.name), func(b *testing.B) {
			for b.Loop() {
				s.Do(func(c *Scope) { Gradients(x.In(c).Conv2d(w, nil, o), []*Tensor{x, w}, GradOutput(g)) })
			}
			rate(b, 3*flops)
		})
		s.Close()
	}
}

// BenchmarkPool2d runs interpolation, and pools with the sizes of a ResNet and a classifier,
// forward only and with the gradient. These are the ratios to PyTorch's time, measured as for
// BenchmarkConv2d:
//
//	          forward     gradient
//	maxima    0.5 to 0.6  0.7
//	averages  0.4 to 1.1  0.6 to 0.9
//	nearest   0.7         1.8
//	bilinear  3           2.4
//	bicubic   2           1.3
//
// With the gradient, averages over windows of different sizes take 4 and 6 times PyTorch's time.
func BenchmarkPool2d(b *testing.B) {
	most := MaxPoolOptions{Kernel: []int{3}, Stride: []int{2}, Padding: []int{1}}
	for _, l := range []struct {
		name           string
		channels, size int
		f              func(x *Tensor) *Tensor
	}{
		{"max3s2_64_112", 64, 112, func(x *Tensor) *Tensor { return x.MaxPool2d(most) }},
		{"max2_64_56", 64, 56, func(x *Tensor) *Tensor { return x.MaxPool2d(MaxPoolOptions{Kernel: []int{2}}) }},
		{"avg2_64_56", 64, 56, func(x *Tensor) *Tensor { return x.AvgPool2d(AvgPoolOptions{Kernel: []int{2}}) }},
		{"avg3s1_64_56", 64, 56, func(x *Tensor) *Tensor {
			return x.AvgPool2d(AvgPoolOptions{Kernel: []int{3}, Stride: []int{1}, Padding: []int{1}})
		}},
		{"global_avg_512_7", 512, 7, func(x *Tensor) *Tensor { return x.AdaptiveAvgPool2d(1) }},
		{"adaptive_avg_512_14_6", 512, 14, func(x *Tensor) *Tensor { return x.AdaptiveAvgPool2d(6) }},
		{"bilinear_64_28_56", 64, 28, func(x *Tensor) *Tensor {
			return x.Interpolate(InterpolateOptions{Scale: []float64{2}, Mode: InterpolateLinear})
		}},
		{"nearest_64_28_56", 64, 28, func(x *Tensor) *Tensor { return x.Interpolate(InterpolateOptions{Scale: []float64{2}}) }},
		{"bicubic_64_28_56", 64, 28, func(x *Tensor) *Tensor {
			return x.Interpolate(InterpolateOptions{Scale: []float64{2}, Mode: InterpolateCubic})
		}},
	} {
		s := NewScope()
		x := s.Randn(8, l.channels, l.size, l.size)
		b.Run(l.name+"/forward", func(b *testing.B) {
			for b.Loop() {
				s.Do(func(c *Scope) { l.f(x.In(c)) })
			}
		})
		x.RequiresGrad()
		g := l.f(x).Detach().RandnLike()
		b.Run(l.name+"/gradient", func(b *testing.B) {
			for b.Loop() {
				s.Do(func(c *Scope) { Gradients(l.f(x.In(c)), []*Tensor{x}, GradOutput(g)) })
			}
		})
		s.Close()
	}
}
