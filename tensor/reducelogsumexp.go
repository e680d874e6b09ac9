package tensor

import "math"

// logSumExpFunc computes log Σ exp x. It subtracts the maximum before exp.
type logSumExpFunc struct{ dims []int }

func (*logSumExpFunc) Name() string { return "logsumexp" }

func (f *logSumExpFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	mask, _ := x.axes("logsumexp", f.dims)
	_, _, n := reducedShapes(x.layout.Shape, mask, true)
	wide := x.Cast(x.dtype.Compute())
	var y *Tensor
	if n == 0 {
		y = wide.Sum(f.dims...).Log()
	} else {
		most := wide.Amax(append(axesOf(mask), KeepDim)...)
		most = most.MaskedFill(most.Abs().EqScalar(math.Inf(1)), 0)
		sum := wide.Sub(most).Exp().Sum(f.dims...)
		y = sum.Log().Add(most.reshape(sum.layout.Shape))
	}
	y = y.Cast(x.dtype)
	if c.Needs(0) {
		c.Save(x, y)
	}
	return y
}

func (f *logSumExpFunc) VJP(c *Context, g *Tensor) []*Tensor {
	x := c.Saved(0)
	mask, _ := x.axes("logsumexp", f.dims)
	kept, _, _ := reducedShapes(x.layout.Shape, mask, true)
	wide := x.Cast(x.dtype.Compute())
	y := c.Saved(1).Cast(wide.dtype).reshape(kept)
	return []*Tensor{wide.Sub(y).Exp().Mul(g.Cast(wide.dtype).reshape(kept)).Cast(x.dtype)}
}

// LogSumExp returns log Σ exp(x) over dims, or over all elements if dims is empty, without
// overflow. For no elements the result is -Inf. For integers it is float32.
func (x *Tensor) LogSumExp(dims ...int) *Tensor {
	x.use("logsumexp")
	if !x.dtype.IsFloat() {
		x = x.Float()
	}
	return Apply(&logSumExpFunc{dims}, x)
}
