package gemm

import (
	"sync/atomic"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

// Data sets dx to the gradient of x; g is the gradient of y.
func (c *Conv) Data(par Parallel, dx, g, w []float32) {
	if len(dx) == 0 {
		return
	}
	if len(g) == 0 || len(w) == 0 {
		clear(dx)
		return
	}
	if c.dataByTiles(par, dx, g, w) || c.dataByPlace(par, dx, g, w) {
		return
	}
	// the kernel multiplies zeros beyond the edges of y with weights, and an infinite weight would
	// give NaN
	if !finite(par, w) {
		c.plain(par, dx, g, w)
		return
	}
	taps, inputs, outputs := c.taps(), c.Channels/c.Groups, c.Outputs/c.Groups
	cleared := false
	for i := range size(c.Stride) {
		r := [3]int{i / (c.Stride[1] * c.Stride[2]), i / c.Stride[2] % c.Stride[1], i % c.Stride[2]}
		if r[0] >= c.In[0] || r[1] >= c.In[1] || r[2] >= c.In[2] {
			continue
		}
		s, kernel := c.gradientGrid(g, r)
		if len(kernel) == 0 {
			if !cleared && i > 0 {
				c.clear(dx, r) // set only the elements of this r to 0
			} else if !cleared {
				clear(dx)
				cleared = true
			}
			continue
		}
		j := newColumns(s, inputs)
		j.dst, j.dstChannel = dx, size(c.In)
		j.dstAt = (r[0]*c.In[1]+r[1])*c.In[2] + r[2]
		j.dstStep = [3]int{c.Stride[0] * c.In[1] * c.In[2], c.Stride[1] * c.In[2], c.Stride[2]}
		j.tapFirst = true
		j.packA = func(dst []float32, g, row, h, k0, kc int) {
			var few [1024]float32
			stride, n := j.kern.stride, len(kernel)
			some, o0 := kc/n, k0/n
			for o := range some {
				from := w[((g*outputs+o0+o)*inputs+row)*taps:]
				if taps*stride <= len(few) {
					j.kern.pack(few[:], stride, from, taps, 1, h, taps)
					for t, at := range kernel {
						copy(dst[(t*some+o)*stride:][:stride], few[at*stride:])
					}
					continue
				}
				for t, at := range kernel {
					d := dst[(t*some+o)*stride:][:stride]
					for r := range h {
						d[r] = from[r*taps+at]
					}
					clear(d[h:])
				}
			}
		}
		if taps == 1 {
			j.packA = func(dst []float32, g, row, h, k0, kc int) {
				j.kern.pack(dst, j.kern.stride, w[(g*outputs+k0)*inputs+row:], 1, inputs, h, kc)
			}
		}
		if j.channels == 1 && j.m == 1 {
			j.direct(par, func(g int, dst []float32) {
				for t := range dst {
					dst[t] = w[g*taps+kernel[t]]
				}
			})
		} else {
			j.run(par)
		}
	}
}

// finite reports whether all elements of w and their partial sums are finite.
func finite(par Parallel, w []float32) bool {
	var not atomic.Bool
	par(ceil(len(w), packWork), func(i int) {
		sum := asm.SumF32(w[i*packWork : min((i+1)*packWork, len(w))])
		if sum-sum != 0 {
			not.Store(true)
		}
	})
	return !not.Load()
}

// clear sets some elements of dx to 0: those whose coordinates are r modulo the stride.
func (c *Conv) clear(dx []float32, r [3]int) {
	for i := range c.N * c.Channels {
		for z := r[0]; z < c.In[0]; z += c.Stride[0] {
			for y := r[1]; y < c.In[1]; y += c.Stride[1] {
				row := dx[((i*c.In[0]+z)*c.In[1]+y)*c.In[2]:][:c.In[2]]
				for x := r[2]; x < len(row); x += c.Stride[2] {
					row[x] = 0
				}
			}
		}
	}
}

// plain computes Data by the definition of the gradient. It multiplies no weight with zeros beyond
// the edges of y.
func (c *Conv) plain(par Parallel, dx, g, w []float32) {
	inputs, outputs := c.Channels/c.Groups, c.Outputs/c.Groups
	par(c.N*c.Channels, func(i int) {
		image, channel := i/c.Channels, i%c.Channels
		group := channel / inputs
		to := dx[i*size(c.In):][:size(c.In)]
		clear(to)
		for o := group * outputs; o < (group+1)*outputs; o++ {
			from := g[(image*c.Outputs+o)*size(c.Out):][:size(c.Out)]
			for k := range c.taps() {
				weight := w[(o*inputs+channel%inputs)*c.taps()+k]
				at := [3]int{k / (c.Kernel[1] * c.Kernel[2]), k / c.Kernel[2] % c.Kernel[1], k % c.Kernel[2]}
				for q, v := range from {
					p := [3]int{q / (c.Out[1] * c.Out[2]), q / c.Out[2] % c.Out[1], q % c.Out[2]}
					inside := true
					for a := range 3 {
						p[a] = p[a]*c.Stride[a] + at[a]*c.Dilation[a] - c.Before[a]
						inside = inside && uint(p[a]) < uint(c.In[a])
					}
					if inside {
						to[(p[0]*c.In[1]+p[1])*c.In[2]+p[2]] += float32(v * weight)
					}
				}
			}
		}
	})
}
