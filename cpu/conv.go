package cpu

import (
	"github.com/flambeau-go/flambeau/cpu/internal/gemm"
	"github.com/flambeau-go/flambeau/device"
)

func (d *Device) convolution(c *device.Convolution) {
	if c.Operand(0).View.Size() == 0 {
		return
	}
	g := &gemm.Conv{N: c.X.Shape.At(0), Groups: c.Groups, Channels: c.X.Shape.At(1), Outputs: c.W.Shape.At(0),
		In: c.Spatial(c.X.Shape), Kernel: c.Spatial(c.W.Shape), Out: c.Spatial(c.Y.Shape),
		Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1}}
	for i := range c.Rank {
		at := 3 - c.Rank + i
		g.Stride[at], g.Dilation[at], g.Before[at] = c.Stride[i], c.Dilation[i], c.Before[i]
	}
	x, w, y := floats(&c.X), floats(&c.W), floats(&c.Y)
	switch c.Kind {
	case device.ConvForward:
		g.Forward(d.par, y, x, w)
	case device.ConvData:
		g.Data(d.par, x, y, w)
	case device.ConvWeight:
		g.Weight(d.par, w, x, y)
	}
}

// floats returns the elements of a contiguous view.
func floats(v *device.View) []float32 {
	if v.Size() == 0 {
		return nil
	}
	return at[float32](pointer(v), v.Size())
}
