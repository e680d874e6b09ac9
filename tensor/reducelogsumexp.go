package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// logSumExpFunc computes log Σ exp x. It subtracts the maximum before exp.
type logSumExpFunc struct{ dims []int }

func (*logSumExpFunc) Name() string { return "logsumexp" }

// expSums holds the reductions that compute Σ exp(x - most), where most is the maximum, or 0 if the
// maximum is infinite. expSumGrad computes the gradient of x from the gradient of the result. Each
// takes one pass.
var (
	expSums    cache[dtype.Type, *device.Reduction]
	expSumGrad = &Elementwise{Name: "logsumexp", Arity: 3, Expr: x0.Sub(x1).Exp().Mul(x2), NoGrad: true}
)

func (f *logSumExpFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	mask, keep := x.axes("logsumexp", f.dims)
	kept, out, n := reducedShapes(x.layout.Shape, mask, keep)
	wide := x.Cast(x.dtype.Compute())
	var y *Tensor
	if n == 0 {
		y = wide.Sum(f.dims...).Log()
	} else {
		most := wide.Amax(append(axesOf(mask), KeepDim)...)
		most = most.MaskedFill(most.Abs().EqScalar(math.Inf(1)), 0)
		var sum *Tensor
		// If wide is contiguous, one pass computes the sum. For other layouts, one pass might add
		// in another order than Sum does.
		if t := wide.dtype; wide.IsContiguous() {
			r := expSums.get(t, func() *device.Reduction {
				return &device.Reduction{Kind: device.Sum, Map: expr.MustLower([]*expr.Expr{x0.Sub(x1).Exp()}, []dtype.Type{t}, []dtype.Type{t, t}, -1)}
			})
			sum = alloc("logsumexp", c.scope, x.st.dev, t, out)
			runReduce("logsumexp", c.scope, r, sum, kept, []*Tensor{wide, most}, x.layout.Shape, nil)
		} else {
			sum = wide.Sub(most).Exp().Sum(f.dims...)
		}
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
	y, g := c.Saved(1).Cast(wide.dtype).reshape(kept), g.Cast(wide.dtype).reshape(kept)
	if c.scope.modes.noGrad {
		return []*Tensor{expSumGrad.Apply([]*Tensor{wide, y, g}).Cast(x.dtype)}
	}
	return []*Tensor{wide.Sub(y).Exp().Mul(g).Cast(x.dtype)}
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
