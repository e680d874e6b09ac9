package cpu

import (
	"github.com/flambeau-go/flambeau/cpu/internal/gemm"
	"github.com/flambeau-go/flambeau/device"
)

var _ device.Convolver = (*Device)(nil)

// Convolve sets y to the convolution of x with w; see [device.Convolver].
func (d *Device) Convolve(s device.Stream, y, x, w device.View, c device.Convolution) error {
	return d.convolution(s, "convolution", c, x, w, y, &y, &x, &w, func(g *gemm.Conv, out, a, b []float32) { g.Forward(d.par, out, a, b) })
}

// ConvolveData sets dx to the gradient of a convolution's input; see [device.Convolver].
func (d *Device) ConvolveData(s device.Stream, dx, g, w device.View, c device.Convolution) error {
	return d.convolution(s, "convolution data gradient", c, dx, w, g, &dx, &g, &w, func(v *gemm.Conv, out, a, b []float32) { v.Data(d.par, out, a, b) })
}

// ConvolveWeight sets dw to the gradient of a convolution's weight; see [device.Convolver].
func (d *Device) ConvolveWeight(s device.Stream, dw, x, g device.View, c device.Convolution) error {
	return d.convolution(s, "convolution weight gradient", c, x, dw, g, &dw, &x, &g, func(v *gemm.Conv, out, a, b []float32) { v.Weight(d.par, out, a, b) })
}

// convolution checks the views of a convolution, x, w and y or their gradients, of which out is set from a and b, and runs f.
func (d *Device) convolution(s device.Stream, op string, c device.Convolution, x, w, y device.View, out, a, b *device.View, f func(g *gemm.Conv, out, a, b []float32)) error {
	if err := d.checkOut(op, "out", out); err != nil {
		return err
	}
	for i, v := range []*device.View{a, b} {
		if err := d.checkIn(op, numbered("in", i, 2), v); err != nil {
			return err
		}
	}
	if why := c.Check(x, w, y); why != "" {
		return &ViewError{op, "out", why}
	}
	if out.Size() == 0 {
		return nil
	}
	if t := device.Tracing(); t != nil && s != nil {
		defer d.traced(t, s, op, device.ConvolutionWork(x, w, y), out.Type, t.Wants().ShapesOf([]device.View{*out, *a, *b})).done()
	}
	g := &gemm.Conv{N: x.Shape.At(0), Groups: c.Groups, Channels: x.Shape.At(1), Outputs: w.Shape.At(0),
		In: c.Spatial(x.Shape), Kernel: c.Spatial(w.Shape), Out: c.Spatial(y.Shape),
		Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1}}
	for i := range c.Rank {
		at := 3 - c.Rank + i
		g.Stride[at], g.Dilation[at], g.Before[at] = c.Stride[i], c.Dilation[i], c.Before[i]
	}
	f(g, floats(out), floats(a), floats(b))
	return nil
}

// floats returns the elements of a contiguous view.
func floats(v *device.View) []float32 {
	if v.Size() == 0 {
		return nil
	}
	return at[float32](pointer(v), v.Size())
}
