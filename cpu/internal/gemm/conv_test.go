package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

// convCases returns geometries that cover every path: padding, strides, dilation, groups, three
// dimensions, several units per image, several images per unit, and rows shorter and longer than a
// panel.
func convCases() (list []Conv) {
	add := func(n, groups, channels, outputs int, in, kernel, stride, dilation, before, behind [3]int) {
		c := Conv{N: n, Groups: groups, Channels: channels, Outputs: outputs, In: in, Kernel: kernel, Stride: stride, Dilation: dilation, Before: before}
		for a := range 3 {
			c.Out[a] = (in[a]+before[a]+behind[a]-dilation[a]*(kernel[a]-1)-1)/stride[a] + 1
		}
		list = append(list, c)
	}
	plane := func(n, groups, channels, outputs, size, kernel, stride, pad int) {
		add(n, groups, channels, outputs, [3]int{1, size, size}, [3]int{1, kernel, kernel}, [3]int{1, stride, stride}, [3]int{1, 1, 1}, [3]int{0, pad, pad}, [3]int{0, pad, pad})
	}
	plane(9, 1, 3, 5, 7, 3, 1, 1)
	plane(2, 1, 17, 33, 14, 3, 1, 1)
	plane(1, 1, 2, 3, 40, 3, 1, 1) // divides an image into several units
	plane(3, 1, 50, 20, 9, 3, 2, 1)
	plane(2, 1, 5, 40, 8, 1, 1, 0)
	plane(2, 1, 5, 6, 9, 1, 2, 0)
	plane(2, 2, 6, 4, 11, 3, 1, 1)
	plane(2, 6, 6, 6, 19, 3, 1, 1) // depthwise: each channel is a group
	plane(2, 6, 6, 6, 18, 5, 2, 2)
	plane(2, 4, 4, 8, 10, 3, 3, 0)
	plane(1, 1, 4, 4, 3, 3, 1, 0) // the result has one place
	plane(2, 1, 1, 32, 20, 7, 2, 3)
	plane(3, 1, 4, 3, 6, 2, 3, 0) // a stride larger than the kernel
	plane(1, 1, 120, 30, 5, 2, 1, 1)
	plane(1, 1, 45, 45, 28, 3, 2, 1) // several tasks pack columns that all tasks use
	add(2, 1, 3, 4, [3]int{5, 6, 7}, [3]int{2, 3, 2}, [3]int{1, 2, 1}, [3]int{2, 1, 3}, [3]int{1, 0, 2}, [3]int{2, 1, 1})
	add(2, 1, 3, 4, [3]int{1, 1, 3000}, [3]int{1, 1, 5}, [3]int{1, 1, 2}, [3]int{1, 1, 3}, [3]int{0, 0, 4}, [3]int{0, 0, 4})
	add(1, 3, 3, 3, [3]int{4, 9, 9}, [3]int{3, 3, 3}, [3]int{2, 1, 2}, [3]int{1, 2, 1}, [3]int{1, 2, 1}, [3]int{1, 2, 1})
	add(2, 1, 2, 2, [3]int{12, 14, 14}, [3]int{3, 1, 2}, [3]int{1, 1, 1}, [3]int{1, 1, 1}, [3]int{0, 0, 0}, [3]int{0, 0, 0})
	// computed by Winograd's form
	plane(1, 1, 16, 16, 32, 3, 1, 1)
	plane(2, 2, 64, 36, 22, 3, 1, 1)
	plane(1, 1, 20, 17, 70, 3, 1, 1)
	plane(3, 1, 48, 33, 13, 3, 1, 2)
	plane(1, 1, 400, 20, 20, 3, 1, 0) // the sum has two blocks of channels
	add(2, 1, 24, 30, [3]int{1, 15, 37}, [3]int{1, 3, 3}, [3]int{1, 1, 1}, [3]int{1, 1, 1}, [3]int{0, 2, 0}, [3]int{0, 0, 3})
	add(2, 1, 24, 30, [3]int{1, 22, 33}, [3]int{1, 3, 3}, [3]int{1, 1, 1}, [3]int{1, 1, 1}, [3]int{0, 0, 4}, [3]int{0, 1, 1})
	// many small images, computed place by place
	plane(32, 1, 20, 30, 5, 3, 1, 1)
	plane(29, 1, 16, 17, 4, 3, 2, 1)
	plane(64, 2, 18, 32, 3, 3, 1, 1)
	plane(32, 1, 9, 45, 1, 3, 1, 1) // of the nine taps, eight read only zeros
	plane(31, 1, 33, 40, 2, 3, 2, 1)
	plane(32, 1, 40, 16, 6, 1, 2, 0)
	plane(32, 1, 8, 8, 2, 1, 1, 3) // some results are zeros
	plane(30, 1, 12, 14, 7, 5, 1, 2)
	plane(70, 1, 64, 15, 2, 3, 1, 1) // several chunks of images
	plane(33, 2, 64, 6, 3, 2, 1, 0)
	plane(20, 1, 30, 29, 5, 5, 1, 2)
	plane(20, 1, 31, 8, 4, 1, 1, 0)
	add(32, 2, 16, 20, [3]int{3, 2, 5}, [3]int{2, 1, 3}, [3]int{2, 1, 1}, [3]int{1, 2, 2}, [3]int{1, 0, 2}, [3]int{0, 0, 1})
	return list
}

// each calls f for every product in the definition of the convolution, with the indices of its
// elements of x, w and y.
func (c *Conv) each(f func(x, w, y int)) {
	inputs, outputs := c.Channels/c.Groups, c.Outputs/c.Groups
	for n := range c.N {
		for o := range c.Outputs {
			for q := range size(c.Out) {
				p := [3]int{q / (c.Out[1] * c.Out[2]), q / c.Out[2] % c.Out[1], q % c.Out[2]}
				for i := range inputs {
				taps:
					for k := range c.taps() {
						t := [3]int{k / (c.Kernel[1] * c.Kernel[2]), k / c.Kernel[2] % c.Kernel[1], k % c.Kernel[2]}
						at := 0
						for a := range 3 {
							v := p[a]*c.Stride[a] + t[a]*c.Dilation[a] - c.Before[a]
							if v < 0 || v >= c.In[a] {
								continue taps
							}
							at = at*c.In[a] + v
						}
						f((n*c.Channels+o/outputs*inputs+i)*size(c.In)+at, (o*inputs+i)*c.taps()+k, (n*c.Outputs+o)*size(c.Out)+q)
					}
				}
			}
		}
	}
}

func (c *Conv) sizes() (x, w, y int) {
	return c.N * c.Channels * size(c.In), c.Outputs * c.Channels / c.Groups * c.taps(), c.N * c.Outputs * size(c.Out)
}

// TestConv compares a convolution and both gradients with the definition. Where the system allows
// it, pages without access follow the operands.
func TestConv(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	some := func(n int) []float32 {
		v := convOperand(t, n)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return v
	}
	for _, variant := range asm.Variants() {
		t.Run(variant, func(t *testing.T) {
			defer asm.Use(variant)()
			for _, c := range convCases() {
				nx, nw, ny := c.sizes()
				x, w, g := some(nx), some(nw), some(ny)
				y, dx, dw := some(ny), some(nx), some(nw)
				wy, wx, ww := make([]float64, ny), make([]float64, nx), make([]float64, nw)
				c.each(func(i, k, q int) {
					wy[q] += float64(x[i]) * float64(w[k])
					wx[i] += float64(g[q]) * float64(w[k])
					ww[k] += float64(g[q]) * float64(x[i])
				})
				c.Forward(runTogether, y, x, w)
				c.Data(runTogether, dx, g, w)
				c.Weight(runTogether, dw, x, g)
				for what, p := range map[string]struct {
					got  []float32
					want []float64
				}{"forward": {y, wy}, "data": {dx, wx}, "weight": {dw, ww}} {
					var worst, most float64
					for i, v := range p.got {
						d := math.Abs(float64(v) - p.want[i])
						if !(d <= worst) {
							worst = d
						}
						most = max(most, math.Abs(p.want[i]))
					}
					if !(worst <= 2e-6*(1+most)) {
						t.Errorf("%+v: %s is off by %v of %v", c, what, worst, most)
					}
				}
			}
		})
	}
}

// runTogether runs the tasks at the same time and starts the last one first.
func runTogether(n int, f func(i int)) {
	done := make(chan struct{})
	for i := n - 1; i >= 0; i-- {
		go func() {
			f(i)
			done <- struct{}{}
		}()
	}
	for range n {
		<-done
	}
}

// TestConvSame runs the tasks in different orders. The bits of the results must not change.
func TestConvSame(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, c := range convCases() {
		nx, nw, ny := c.sizes()
		some := func(n int) []float32 {
			v := make([]float32, n)
			for i := range v {
				v[i] = float32(r.NormFloat64())
			}
			return v
		}
		x, w, g := some(nx), some(nw), some(ny)
		var results [2]string
		for i, par := range []Parallel{Serial, runTogether} {
			y, dx, dw := make([]float32, ny), make([]float32, nx), make([]float32, nw)
			c.Forward(par, y, x, w)
			c.Data(par, dx, g, w)
			c.Weight(par, dw, x, g)
			results[i] = fmt.Sprint(y, dx, dw)
		}
		if results[0] != results[1] {
			t.Errorf("%+v: other bits", c)
		}
	}
}

// TestConvInfinite makes one weight infinite. In the gradient of the input, the weight may affect
// only elements whose sums contain it. In the result, a zero of the padding times this weight must
// give NaN.
func TestConvInfinite(t *testing.T) {
	for _, n := range []int{2, 32} {
		c := Conv{N: n, Groups: 1, Channels: 8, Outputs: 9, In: [3]int{1, 4, 4}, Kernel: [3]int{1, 3, 3}, Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1}, Before: [3]int{0, 1, 1}, Out: [3]int{1, 4, 4}}
		nx, nw, ny := c.sizes()
		w, g, dx, x, y := make([]float32, nw), make([]float32, ny), make([]float32, nx), make([]float32, nx), make([]float32, ny)
		for i := range g {
			g[i] = 1
		}
		for i := range x {
			x[i] = 1
		}
		w[0] = float32(math.Inf(1))
		c.Data(Serial, dx, g, w)
		c.Forward(Serial, y, x, w)
		want := make([]float64, nx)
		c.each(func(i, k, q int) { want[i] += float64(g[q]) * float64(w[k]) })
		for i, v := range dx {
			if float64(v) != want[i] {
				t.Fatalf("%d images: element %d is %v, want %v", n, i, v, want[i])
			}
		}
		if y[0] == y[0] || !math.IsInf(float64(y[5]), 1) || y[16] != 0 {
			t.Fatalf("%d images: results are %v, %v and %v, want NaN, +Inf and 0", n, y[0], y[5], y[16])
		}
	}
}

// TestConvByTilesInfinite makes an element infinite, NaN or huge. It may affect only the results
// whose sums contain it, although Winograd's form spreads it to neighbouring results.
func TestConvByTilesInfinite(t *testing.T) {
	in, ones := [3]int{1, 22, 22}, [3]int{1, 1, 1}
	c := Conv{N: 2, Groups: 1, Channels: 36, Outputs: 32, In: in, Kernel: [3]int{1, 3, 3}, Stride: ones, Dilation: ones, Before: [3]int{0, 1, 1}, Out: in}
	nx, nw, ny := c.sizes()
	for _, v := range []struct{ odd, scale float32 }{
		{1, 1}, {float32(math.Inf(1)), 1}, {float32(math.NaN()), 1}, {math.MaxFloat32, 1}, {1e9, 1},
		{math.MaxFloat32, 1. / 1024}, // the sum of the elements overflows, but no result does
	} {
		x, w, g := make([]float32, nx), make([]float32, nw), make([]float32, ny)
		for i := range x {
			x[i] = float32(i%5 - 2)
		}
		for i := range w {
			w[i] = float32(i%7-3) * v.scale
		}
		for i := range g {
			g[i] = float32(i%3 - 1)
		}
		x[777], g[1500] = v.odd, v.odd
		wantY, wantX := make([]float64, ny), make([]float64, nx)
		c.each(func(i, k, q int) {
			wantY[q] += float64(x[i]) * float64(w[k])
			wantX[i] += float64(g[q]) * float64(w[k])
		})
		y, dx := make([]float32, ny), make([]float32, nx)
		if by := winogradKernels[asm.Active()] != nil && v.odd == 1; c.forwardByTiles(Serial, y, x, w) != by || c.dataByTiles(Serial, dx, g, w) != by {
			t.Errorf("%v: computed by tiles: %v, want %v", v.odd, !by, by)
		}
		c.Forward(Serial, y, x, w)
		c.Data(Serial, dx, g, w)
		for what, p := range map[string]struct {
			got  []float32
			want []float64
		}{"forward": {y, wantY}, "data": {dx, wantX}} {
			for i, got := range p.got {
				if want := float32(p.want[i]); got != want && (got == got || want == want) && !(math.Abs(float64(got)-p.want[i]) <= 1e-6*math.Abs(p.want[i])) {
					t.Fatalf("%v: %s element %d is %v, want %v", v.odd, what, i, got, want)
				}
			}
		}
	}
}
