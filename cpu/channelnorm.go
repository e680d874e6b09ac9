package cpu

import (
	"math"
	"slices"
	"sync"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/device"
)

// channelBlock is the number of elements of a channel that one primitive handles at a time.
const channelBlock = 1024

// channelTask calls f for each channel of tensors of shape [n, channels, inner]. One worker handles
// a whole channel. Later passes over the channel then find it in the worker's cache.
type channelTask struct {
	n, channels, inner int
	f                  func(c *channelWorker, channel int)
}

// channelWorker holds rows that repeat one value, as operands for primitives on a block. An image's
// part of a channel is a plane. If planes are small, the worker copies the planes of many images
// next to each other, so that a block is long.
type channelWorker struct {
	*channelTask
	rows     [4][channelBlock]float32
	tmp      [channelBlock]float32
	gathered [2][]float32
}

const (
	gatherPlane = 256     // largest number of elements of a plane that is copied
	gatherLimit = 1 << 16 // largest number of elements of a channel whose planes are copied
)

// gathers reports whether the worker copies the planes of a channel next to each other.
func (t *channelTask) gathers() bool {
	return t.n > 1 && t.inner <= gatherPlane && t.n*t.inner <= gatherLimit
}

// elements returns the elements of a channel of x. If the worker copies the channel's planes, the
// result is a copy in buffer k. Otherwise the result is x itself.
func (c *channelWorker) elements(k int, x []float32, channel int) []float32 {
	if !c.gathers() {
		return x
	}
	to := slices.Grow(c.gathered[k][:0], c.n*c.inner)[:c.n*c.inner]
	c.gathered[k] = to
	for i := range c.n {
		at := (i*c.channels + channel) * c.inner
		if c.inner < 8 {
			for q := range c.inner {
				to[i*c.inner+q] = x[at+q]
			}
			continue
		}
		copy(to[i*c.inner:], x[at:at+c.inner])
	}
	return to
}

// put copies a channel's elements back to x. The argument from holds these elements. put does
// nothing unless the channel's planes were copied out of x.
func (c *channelWorker) put(x, from []float32, channel int) {
	if !c.gathers() {
		return
	}
	for i := range c.n {
		at := (i*c.channels + channel) * c.inner
		if c.inner < 8 {
			for q := range c.inner {
				x[at+q] = from[i*c.inner+q]
			}
			continue
		}
		copy(x[at:at+c.inner], from[i*c.inner:])
	}
}

var channelWorkers sync.Pool

func (t *channelTask) run(lo, hi int) {
	c, _ := channelWorkers.Get().(*channelWorker)
	if c == nil {
		c = &channelWorker{}
	}
	c.channelTask = t
	defer func() {
		c.channelTask = nil
		channelWorkers.Put(c)
	}()
	for i := lo; i < hi; i++ {
		t.f(c, i)
	}
}

// blocks calls f with the range of each block of a channel.
func (c *channelWorker) blocks(channel int, f func(lo, hi int)) {
	if all := c.n * c.inner; c.gathers() {
		for lo := 0; lo < all; lo += channelBlock {
			f(lo, min(lo+channelBlock, all))
		}
		return
	}
	for i := range c.n {
		at := (i*c.channels + channel) * c.inner
		for lo := 0; lo < c.inner; lo += channelBlock {
			f(at+lo, at+min(lo+channelBlock, c.inner))
		}
	}
}

// fill sets the elements of row k to v, for one block, and returns the row.
func (c *channelWorker) fill(k int, v float32) []float32 {
	n := c.inner
	if c.gathers() {
		n *= c.n
	}
	row := c.rows[k][:min(channelBlock, n)]
	asm.FillF32(row, v)
	return row
}

func (d *Device) channels(x *device.View, f func(c *channelWorker, channel int)) {
	t := &channelTask{x.Shape.At(0), x.Shape.At(1), x.Shape.At(2), f}
	d.workers.parallel(t.channels, max(1, inlineWork/max(1, t.n*t.inner)), t)
}

// optional returns the elements of a view, or nil if the view is absent.
func optional(v *device.View) []float32 {
	if v.Absent() {
		return nil
	}
	return floats(v)
}

// channelNorm normalises channels. It sums the elements of a block in float32, and adds these sums
// in float64.
func (d *Device) channelNorm(o *device.ChannelNorm) {
	x, out, w, b := floats(&o.X), floats(&o.Out), optional(&o.Weight), optional(&o.Bias)
	means, variances, roots := floats(&o.Mean), floats(&o.Variance), floats(&o.Rstd)
	count := float64(o.X.Shape.At(0) * o.X.Shape.At(2))
	d.channels(&o.X, func(c *channelWorker, channel int) {
		from, to := c.elements(0, x, channel), out
		if c.gathers() {
			to = from
		}
		var sum float64
		c.blocks(channel, func(lo, hi int) { sum += float64(asm.SumF32(from[lo:hi])) })
		m := float32(sum / count)
		middle := c.fill(0, m)
		sum = 0
		c.blocks(channel, func(lo, hi int) {
			t := c.tmp[:hi-lo]
			asm.SubF32(t, from[lo:hi], middle[:hi-lo])
			sum += float64(asm.DotF32(t, t))
		})
		v := float32(sum / count)
		root := 1 / float32(math.Sqrt(float64(v+float32(o.Eps))))
		means[channel], variances[channel], roots[channel] = m, v, root
		if w != nil {
			root *= w[channel]
		}
		scale := c.fill(1, root)
		var shift []float32
		if b != nil {
			shift = c.fill(2, b[channel])
		} else if o.Zero {
			shift = c.fill(2, 0)
		}
		c.blocks(channel, func(lo, hi int) {
			t := to[lo:hi]
			asm.SubF32(t, from[lo:hi], middle[:hi-lo])
			if shift != nil {
				asm.FMAF32(t, t, scale[:hi-lo], shift[:hi-lo])
			} else {
				asm.MulF32(t, t, scale[:hi-lo])
			}
		})
		c.put(out, to, channel)
	})
}

func (d *Device) channelNormGrad(o *device.ChannelNormGrad) {
	x, g, dx, w := floats(&o.X), floats(&o.G), optional(&o.DX), optional(&o.Weight)
	sums, products, means, roots := floats(&o.Sum), floats(&o.Product), floats(&o.Mean), floats(&o.Rstd)
	count := float64(o.X.Shape.At(0) * o.X.Shape.At(2))
	d.channels(&o.X, func(c *channelWorker, channel int) {
		from, grad, to := c.elements(0, x, channel), c.elements(1, g, channel), dx
		if dx != nil && c.gathers() {
			to = grad
		}
		middle := c.fill(0, means[channel])
		var all, times float64
		c.blocks(channel, func(lo, hi int) {
			t := c.tmp[:hi-lo]
			all += float64(asm.SumF32(grad[lo:hi]))
			asm.SubF32(t, from[lo:hi], middle[:hi-lo])
			times += float64(asm.DotF32(t, grad[lo:hi]))
		})
		root := float64(roots[channel])
		times *= root // times becomes Σ g·z, where z is the normalised element
		sums[channel], products[channel] = float32(all), float32(times)
		if to == nil {
			return
		}
		factor := root
		if w != nil {
			factor *= float64(w[channel])
		}
		// dx = g·factor + (x - mean)·slope + level
		scale, slope, level := c.fill(1, float32(factor)), c.fill(2, float32(-factor*root*times/count)), c.fill(3, float32(-factor*all/count))
		c.blocks(channel, func(lo, hi int) {
			n := hi - lo
			t := c.tmp[:n]
			asm.SubF32(t, from[lo:hi], middle[:n])
			asm.FMAF32(t, t, slope[:n], level[:n])
			asm.FMAF32(to[lo:hi], grad[lo:hi], scale[:n], t)
		})
		c.put(dx, to, channel)
	})
}
