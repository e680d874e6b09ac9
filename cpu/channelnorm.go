package cpu

import (
	"math"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/device"
)

var _ device.ChannelNormer = (*Device)(nil)

// channelBlock is how many elements of a channel go through the primitives at once.
const channelBlock = 1024

// A channelTask passes over the channels of tensors [n, channels, inner], each of which is one worker's, so that it is read again from its
// cache.
type channelTask struct {
	n, channels, inner int
	f                  func(c *channelWorker, channel int)
}

// channelWorker has room for a value as often as a block has elements.
type channelWorker struct {
	*channelTask
	rows [4][channelBlock]float32
	tmp  [channelBlock]float32
}

func (t *channelTask) run(lo, hi int) {
	c := &channelWorker{channelTask: t}
	for i := lo; i < hi; i++ {
		t.f(c, i)
	}
}

// blocks calls f with where the blocks of a channel lie.
func (c *channelWorker) blocks(channel int, f func(lo, hi int)) {
	for i := range c.n {
		at := (i*c.channels + channel) * c.inner
		for lo := 0; lo < c.inner; lo += channelBlock {
			f(at+lo, at+min(lo+channelBlock, c.inner))
		}
	}
}

// fill sets row k to v, as far as blocks go.
func (c *channelWorker) fill(k int, v float32) []float32 {
	row := c.rows[k][:min(channelBlock, c.inner)]
	asm.FillF32(row, v)
	return row
}

func (d *Device) channels(x *device.View, f func(c *channelWorker, channel int)) {
	t := &channelTask{x.Shape.At(0), x.Shape.At(1), x.Shape.At(2), f}
	d.crew.parallel(t.channels, max(1, inlineWork/max(1, t.n*t.inner)), t)
}

func (d *Device) checkChannels(op string, outs, whole, channels []device.View) error {
	for i := range outs {
		if v := &outs[i]; v.Buf != nil {
			if err := d.checkOut(op, numbered("out", i, len(outs)), v); err != nil {
				return err
			}
		}
	}
	for _, list := range [][]device.View{whole, channels} {
		for i := range list {
			if v := &list[i]; v.Buf != nil {
				if err := d.checkIn(op, numbered("operand", i, len(list)), v); err != nil {
					return err
				}
			}
		}
	}
	if why := device.CheckChannels(whole, channels); why != "" {
		return &ViewError{op, "x", why}
	}
	return nil
}

// optional returns the elements of a view, nil for one that is absent.
func optional(v *device.View) []float32 {
	if v.Buf == nil {
		return nil
	}
	return floats(v)
}

// ChannelNorm brings each channel of x to mean 0 and variance 1, scales and shifts it; see [device.ChannelNormer]. Sums of blocks are added
// in float64.
func (d *Device) ChannelNorm(s device.Stream, out, mean, variance, rstd, x, weight, bias device.View, n device.ChannelNorm) error {
	const op = "channel norm"
	if err := d.checkChannels(op, []device.View{out, mean, variance, rstd}, []device.View{x, out}, []device.View{mean, variance, rstd, weight, bias}); err != nil {
		return err
	}
	if t := device.Tracing(); t != nil && s != nil {
		defer d.traced(t, s, op, device.ChannelNormWork(out, mean, variance, rstd, x, weight, bias), x.Type, t.Wants().ShapesOf([]device.View{out, x})).done()
	}
	from, to, w, b := floats(&x), floats(&out), optional(&weight), optional(&bias)
	means, variances, roots := floats(&mean), floats(&variance), floats(&rstd)
	count := float64(x.Shape.At(0) * x.Shape.At(2))
	d.channels(&x, func(c *channelWorker, channel int) {
		var sum float64
		c.blocks(channel, func(lo, hi int) { sum += float64(asm.SumF32(from[lo:hi])) })
		m := float32(sum / count)
		middle := c.fill(0, m)
		sum = 0
		c.blocks(channel, func(lo, hi int) {
			t := c.tmp[:hi-lo]
			asm.SubF32(t, from[lo:hi], middle[:hi-lo])
			asm.MulF32(t, t, t)
			sum += float64(asm.SumF32(t))
		})
		v := float32(sum / count)
		root := 1 / float32(math.Sqrt(float64(v+float32(n.Eps))))
		means[channel], variances[channel], roots[channel] = m, v, root
		if w != nil {
			root *= w[channel]
		}
		scale := c.fill(1, root)
		var shift []float32
		if b != nil {
			shift = c.fill(2, b[channel])
		} else if n.Zero {
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
	})
	return nil
}

// ChannelNormGrad sets dx, sum and product from the gradient g of ChannelNorm's result; see [device.ChannelNormer].
func (d *Device) ChannelNormGrad(s device.Stream, dx, sum, product, g, x, mean, rstd, weight device.View) error {
	const op = "channel norm gradient"
	if err := d.checkChannels(op, []device.View{sum, product, dx}, []device.View{x, g, dx}, []device.View{sum, product, mean, rstd, weight}); err != nil {
		return err
	}
	if t := device.Tracing(); t != nil && s != nil {
		defer d.traced(t, s, op, device.ChannelNormGradWork(dx, sum, product, g, x, mean, rstd, weight), x.Type, t.Wants().ShapesOf([]device.View{g, x})).done()
	}
	from, grad, to, w := floats(&x), floats(&g), optional(&dx), optional(&weight)
	sums, products, means, roots := floats(&sum), floats(&product), floats(&mean), floats(&rstd)
	count := float64(x.Shape.At(0) * x.Shape.At(2))
	d.channels(&x, func(c *channelWorker, channel int) {
		middle := c.fill(0, means[channel])
		var all, times float64
		c.blocks(channel, func(lo, hi int) {
			t := c.tmp[:hi-lo]
			all += float64(asm.SumF32(grad[lo:hi]))
			asm.SubF32(t, from[lo:hi], middle[:hi-lo])
			asm.MulF32(t, t, grad[lo:hi])
			times += float64(asm.SumF32(t))
		})
		root := float64(roots[channel])
		times *= root // Σ g·z
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
	})
	return nil
}
