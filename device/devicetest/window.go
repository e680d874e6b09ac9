package devicetest

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// window is a test case for convolution and pooling in two dimensions.
type window struct {
	n, channels, outputs, groups              int
	in, kernel, stride, dilation, before, out [2]int
}

func (w *window) sees(p, k [2]int) (at int, inside bool) {
	for i := range 2 {
		v := p[i]*w.stride[i] + k[i]*w.dilation[i] - w.before[i]
		if v < 0 || v >= w.in[i] {
			return 0, false
		}
		at = at*w.in[i] + v
	}
	return at, true
}

// forEach visits each position of the window. There it calls f for each element of the window that
// lies inside the image and not in the padding.
func (w *window) forEach(f func(place, element, offset int)) {
	for p := range w.out[0] * w.out[1] {
		for k := range w.kernel[0] * w.kernel[1] {
			if offset, ok := w.sees([2]int{p / w.out[1], p % w.out[1]}, [2]int{k / w.kernel[1], k % w.kernel[1]}); ok {
				f(p, k, offset)
			}
		}
	}
}

func three(v [2]int) [3]int { return [3]int{v[0], v[1], 0} }

func testConvolve(r *rig) {
	if !r.supports("convolution", "convolution data gradient", "convolution weight gradient") {
		return
	}
	for i, w := range []window{
		{2, 3, 5, 1, [2]int{5, 6}, [2]int{3, 3}, [2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}, [2]int{5, 6}},
		{3, 4, 6, 2, [2]int{7, 9}, [2]int{2, 3}, [2]int{2, 1}, [2]int{1, 2}, [2]int{1, 0}, [2]int{4, 5}},
		{2, 3, 3, 3, [2]int{6, 20}, [2]int{3, 3}, [2]int{1, 2}, [2]int{1, 1}, [2]int{0, 1}, [2]int{4, 10}},
		{0, 3, 5, 1, [2]int{5, 6}, [2]int{3, 3}, [2]int{1, 1}, [2]int{1, 1}, [2]int{1, 1}, [2]int{5, 6}},
		// many small images, with padding of more than half the kernel
		{33, 16, 15, 1, [2]int{2, 3}, [2]int{3, 3}, [2]int{1, 2}, [2]int{1, 1}, [2]int{2, 1}, [2]int{4, 2}},
		{32, 32, 18, 2, [2]int{1, 4}, [2]int{2, 3}, [2]int{1, 1}, [2]int{1, 2}, [2]int{1, 0}, [2]int{2, 1}},
		{31, 30, 9, 1, [2]int{3, 3}, [2]int{1, 1}, [2]int{2, 1}, [2]int{1, 1}, [2]int{0, 0}, [2]int{2, 3}},
		{2, 1, 4, 1, [2]int{40, 41}, [2]int{3, 5}, [2]int{2, 2}, [2]int{1, 1}, [2]int{1, 2}, [2]int{20, 21}},
	} {
		f := []form{contiguous, offset}[i%2]
		what := fmt.Sprintf("convolution %+v", w)
		inputs, taps := w.channels/w.groups, w.kernel[0]*w.kernel[1]
		of := shape.Of(w.n, w.channels, w.in[0], w.in[1])
		x, weight := r.small(dtype.F32, of, f), r.small(dtype.F32, shape.Of(w.outputs, inputs, w.kernel[0], w.kernel[1]), f)
		g := r.small(dtype.F32, shape.Of(w.n, w.outputs, w.out[0], w.out[1]), f)
		y, dx, dw := r.empty(dtype.F32, g.v.Shape, f), r.empty(dtype.F32, of, f), r.empty(dtype.F32, weight.v.Shape, f)
		for k, c := range []device.Convolution{{X: x.v, W: weight.v, Y: y.v}, {X: dx.v, W: weight.v, Y: g.v}, {X: x.v, W: dw.v, Y: g.v}} {
			c.Kind, c.Rank, c.Groups = device.ConvKind(k), 2, w.groups
			c.Stride, c.Dilation, c.Before = three(w.stride), three(w.dilation), three(w.before)
			r.run(what, &c)
		}
		fx, fw, fg := x.floats(), weight.floats(), g.floats()
		var want, bound [3][]float64
		for k, n := range []int{len(fg), len(fx), len(fw)} {
			want[k], bound[k] = make([]float64, n), make([]float64, n)
		}
		add := func(k, at int, v float64) {
			want[k][at] += v
			bound[k][at] += 4 * epsilon(dtype.F32) * math.Abs(v)
		}
		for n := range w.n {
			for o := range w.outputs {
				for i := range inputs {
					w.forEach(func(place, element, at int) {
						to := (n*w.outputs+o)*w.out[0]*w.out[1] + place
						from := (n*w.channels+o/(w.outputs/w.groups)*inputs+i)*w.in[0]*w.in[1] + at
						k := (o*inputs+i)*taps + element
						add(0, to, fx[from]*fw[k])
						add(1, from, fg[to]*fw[k])
						add(2, k, fx[from]*fg[to])
					})
				}
			}
		}
		for k, a := range []*array{y, dx, dw} {
			a.close(what+[]string{"", ", data", ", weight"}[k], want[k], func(i int) float64 { return bound[k][i] })
		}
		r.end()
	}
}

func testPool(r *rig) {
	for i, w := range []window{
		{n: 3, in: [2]int{6, 8}, kernel: [2]int{2, 2}, stride: [2]int{2, 2}, dilation: [2]int{1, 1}, out: [2]int{3, 4}},
		{n: 2, in: [2]int{7, 40}, kernel: [2]int{3, 5}, stride: [2]int{2, 1}, dilation: [2]int{1, 2}, before: [2]int{1, 2}, out: [2]int{4, 36}},
		{n: 2, in: [2]int{5, 6}, kernel: [2]int{5, 6}, stride: [2]int{1, 1}, dilation: [2]int{1, 1}, out: [2]int{1, 1}},
		{n: 0, in: [2]int{5, 6}, kernel: [2]int{5, 6}, stride: [2]int{1, 1}, dilation: [2]int{1, 1}, out: [2]int{1, 1}},
	} {
		for k, t := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16} {
			r.testPool(w, t, []form{contiguous, offset}[i%2], []dtype.Type{dtype.U8, dtype.I16, dtype.I32}[(i+k)%3])
		}
	}
}

// testPool checks the pooling ops for window w and element type t. The argument distances is the
// type of MaxPoolGrad's operand Near.
func (r *rig) testPool(w window, t dtype.Type, f form, distances dtype.Type) {
	what := fmt.Sprintf("pool of %v %+v", t, w)
	plane, places := w.in[0]*w.in[1], w.out[0]*w.out[1]
	x, g := r.small(t, shape.Of(w.n, w.in[0], w.in[1]), f), r.small(t, shape.Of(w.n, w.out[0], w.out[1]), f)
	y, most := r.empty(t, g.v.Shape, f), r.empty(t, x.v.Shape, f)
	c := device.Window{Rank: 2, Kernel: three(w.kernel), Stride: three(w.stride), Dilation: three(w.dilation), Before: three(w.before)}
	fx, fg := x.floats(), g.floats()
	sums, reached, size, reach := make([]float64, len(fg)), make([]float64, len(fx)), make([]float64, len(fg)), make([]float64, len(fx))
	// index of each window's last element, which stands for the maximum
	last := make([]int, len(fg))
	for n := range w.n {
		w.forEach(func(place, _, at int) {
			sums[n*places+place] += fx[n*plane+at]
			size[n*places+place] += math.Abs(fx[n*plane+at])
			last[n*places+place] = at
		})
	}
	near := r.array(distances, g.v.Shape, contiguous, func(k int) uint64 {
		if k >= len(last) {
			return 0
		}
		p := k % places
		begin := (p/w.out[1]*w.stride[0]-w.before[0])*w.in[1] + p%w.out[1]*w.stride[1] - w.before[1]
		return uint64(last[k] - begin)
	})
	for k, at := range last {
		reached[k/places*plane+at] += fg[k]
		reach[k/places*plane+at] += math.Abs(fg[k])
	}
	if o := (&device.SumWindows{Y: y.v, X: x.v, Window: c}); t == dtype.F32 && r.dev.Supports(o) {
		r.run(what, o)
		y.close(what+", sums", sums, func(i int) float64 { return 4 * epsilon(t) * size[i] })
	}
	if o := (&device.MaxPoolGrad{DX: most.v, G: g.v, Near: near.v, Window: c}); r.dev.Supports(o) {
		r.run(what, o)
		most.close(what+", maxima", reached, func(i int) float64 { return 4 * epsilon(t) * reach[i] })
	}
	r.end()
}

func testChannelNorm(r *rig) {
	if !r.supports("channel norm", "channel norm gradient") {
		return
	}
	sizes := []shape.Dims{shape.Of(3, 2, 5), shape.Of(1, 4, 7), shape.Of(6, 3, 1)}
	if r.large {
		sizes = append(sizes, shape.Of(5, 20, 2500), shape.Of(200, 3, 40))
	}
	for i, s := range sizes {
		for affine := range 3 {
			f := []form{contiguous, offset}[(i+affine)%2]
			what := fmt.Sprintf("channel norm of %v with %d weights", s, affine)
			column := shape.Of(s.At(1))
			x, g := r.small(dtype.F32, s, f), r.small(dtype.F32, s, f)
			y, dx := r.empty(dtype.F32, s, f), r.empty(dtype.F32, s, f)
			mean, variance, rstd := r.empty(dtype.F32, column, f), r.empty(dtype.F32, column, f), r.empty(dtype.F32, column, f)
			sum, product := r.empty(dtype.F32, column, f), r.empty(dtype.F32, column, f)
			var weight, bias device.View
			fw, fb := make([]float64, s.At(1)), make([]float64, s.At(1))
			for k := range fw {
				fw[k] = 1
			}
			if affine > 0 {
				a := r.small(dtype.F32, column, f)
				weight, fw = a.v, a.floats()
			}
			if affine > 1 {
				a := r.small(dtype.F32, column, f)
				bias, fb = a.v, a.floats()
			}
			r.run(what, &device.ChannelNorm{Out: y.v, Mean: mean.v, Variance: variance.v, Rstd: rstd.v, X: x.v, Weight: weight, Bias: bias, Eps: 1e-3})
			r.run(what, &device.ChannelNormGrad{Sum: sum.v, Product: product.v, DX: dx.v, G: g.v, X: x.v, Mean: mean.v, Rstd: rstd.v, Weight: weight})
			fx, fg := x.floats(), g.floats()
			// reference values of y, dx, mean, variance, rstd, sum and product, in this order
			var wants [7][]float64
			for k := range wants {
				n := s.At(1)
				if k < 2 {
					n = len(fx)
				}
				wants[k] = make([]float64, n)
			}
			count := float64(s.At(0) * s.At(2))
			channel := func(i int) int { return i / s.At(2) % s.At(1) }
			for i, v := range fx {
				wants[2][channel(i)] += v / count
			}
			for i, v := range fx {
				d := v - wants[2][channel(i)]
				wants[3][channel(i)] += d * d / count
			}
			for c, v := range wants[3] {
				wants[4][c] = 1 / math.Sqrt(v+1e-3)
			}
			for i, v := range fx {
				c := channel(i)
				z := (v - wants[2][c]) * wants[4][c]
				wants[0][i] = z*fw[c] + fb[c]
				wants[5][c] += fg[i]
				wants[6][c] += fg[i] * z
			}
			for i, v := range fx {
				c := channel(i)
				z := (v - wants[2][c]) * wants[4][c]
				wants[1][i] = (fg[i] - wants[5][c]/count - z*wants[6][c]/count) * wants[4][c] * fw[c]
			}
			for k, a := range []*array{y, dx, mean, variance, rstd, sum, product} {
				most := 0.0
				for _, v := range wants[k] {
					most = max(most, math.Abs(v))
				}
				scale := 1 + most
				// dx is a sum of numbers of magnitude 1/√eps that cancel each other, so its error
				// is larger
				if k == 1 {
					scale += 100 * most
					for _, v := range wants[4] {
						scale = max(scale, 10*v)
					}
				}
				a.close(fmt.Sprintf("%s, result %d", what, k), wants[k], func(int) float64 { return 64 * epsilon(dtype.F32) * scale * math.Sqrt(1+count/1000) })
			}
			r.end()
		}
	}
}
