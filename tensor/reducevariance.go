package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// varFunc computes the variance, or its square root, in two passes: first the mean, then the mean
// square distance from it.
type varFunc struct {
	correction int
	dims       []int
	root       bool
}

func (f *varFunc) Name() string {
	if f.root {
		return "std"
	}
	return "var"
}

type variancePass struct {
	t    dtype.Type
	root bool
}

// meanPasses holds the reductions that compute the mean in float64.
var meanPasses cache[dtype.Type, *device.Reduction]

func meanPass(t dtype.Type) *device.Reduction {
	return meanPasses.get(t, func() *device.Reduction {
		return &device.Reduction{Kind: device.Sum,
			Map:    expr.MustLower([]*expr.Expr{x0.Cvt(dtype.F64)}, []dtype.Type{dtype.F64}, []dtype.Type{t}, -1),
			Finish: expr.MustLower([]*expr.Expr{x0.Div(p0)}, []dtype.Type{dtype.F64}, []dtype.Type{dtype.F64}, -1)}
	})
}

var variancePasses cache[variancePass, *device.Reduction]

// pass returns the reduction that sums (x - mean)² and divides the sum by the degrees of freedom.
// It computes in float64, as torch does on the CPU, so that squares of float32 numbers neither
// overflow nor underflow.
func (f *varFunc) pass(t dtype.Type) *device.Reduction {
	return variancePasses.get(variancePass{t, f.root}, func() *device.Reduction {
		const acc = dtype.F64
		d := x0.Cvt(acc).Sub(x1)
		finish := x0.Div(p0)
		if f.root {
			finish = finish.Sqrt()
		}
		return &device.Reduction{Kind: device.Sum,
			Map:    expr.MustLower([]*expr.Expr{d.Mul(d)}, []dtype.Type{acc}, []dtype.Type{t, acc}, -1),
			Finish: expr.MustLower([]*expr.Expr{finish}, []dtype.Type{t}, []dtype.Type{acc}, -1)}
	})
}

func (f *varFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x, s := in[0], c.Scope()
	mask, keep := x.axes(f.Name(), f.dims)
	kept, out, n := reducedShapes(x.layout.Shape, mask, keep)
	mean := alloc(f.Name(), s, x.st.dev, dtype.F64, kept)
	p := meanPass(x.dtype)
	runReduce(f.Name(), s, p, mean, kept, []*Tensor{x}, x.layout.Shape, []uint64{expr.Encode(p.Finish.Params[0], float64(n))})
	p = f.pass(x.dtype)
	y := alloc(f.Name(), s, x.st.dev, x.dtype, out)
	runReduce(f.Name(), s, p, y, kept, []*Tensor{x, mean}, x.layout.Shape, []uint64{expr.Encode(p.Finish.Params[0], float64(max(0, n-f.correction)))})
	mean.Free()
	if c.Needs(0) {
		if c.Save(x); f.root {
			c.Save(y)
		}
	}
	return y
}

func (f *varFunc) lean(c *Context, in []*Tensor) *Tensor { return f.Forward(c, in) }

func (f *varFunc) VJP(c *Context, g *Tensor) []*Tensor {
	x := c.Saved(0)
	mask, _ := x.axes(f.Name(), f.dims)
	kept, _, n := reducedShapes(x.layout.Shape, mask, true)
	wide := x.Cast(x.dtype.Compute())
	g = g.Cast(wide.dtype)
	if f.root { // the gradient is 0 where the deviation is 0
		y := c.Saved(1).Cast(wide.dtype)
		g = g.Div(y.MulScalar(2)).MaskedFill(y.EqScalar(0), 0)
	}
	distance := wide.Sub(wide.Mean(append(axesOf(mask), KeepDim)...))
	if whole := len(f.dims) == 0 || f.dims[0] == KeepDim; n <= f.correction && (whole || x.Rank() == 0) {
		// The variance of a whole tensor of at most correction elements has torch's gradient: NaN
		// for an element that equals the mean, and infinite for the other elements.
		return []*Tensor{g.reshape(kept).MulScalar(math.Inf(1)).expand(x.layout.Shape).MaskedFill(distance.EqScalar(0), math.NaN()).Cast(x.dtype)}
	}
	// As in torch, the gradient is divided by n - correction even if this is negative. The value
	// is then divided by 0.
	return []*Tensor{distance.Mul(g.reshape(kept).MulScalar(2 / float64(n-f.correction))).Cast(x.dtype)}
}

func (x *Tensor) variance(f *varFunc) *Tensor {
	x.use(f.Name())
	x.mustFloat(f.Name())
	return Apply(f, x)
}

func (x *Tensor) mustFloat(op string) {
	if !x.dtype.IsFloat() {
		e := newError(op, ErrType, []*Tensor{x}, "needs a floating point tensor, not "+x.dtype.String())
		panic(e.hint("use Float"))
	}
}

// Var returns the variance over dims, or over all elements if dims is empty. It is the sum of
// squared distances from the mean, divided by the number of elements less correction. A correction
// of 1 is torch's default and computes the unbiased estimate. A correction of 0 computes the mean
// square. Var makes two passes, in float64. As in torch, if the divisor is not positive the result
// is NaN, or infinite if the elements differ.
func (x *Tensor) Var(correction int, dims ...int) *Tensor {
	return x.variance(&varFunc{correction: correction, dims: dims})
}

// Std returns the standard deviation, the square root of [Tensor.Var]. Where it is 0 its gradient
// is 0.
func (x *Tensor) Std(correction int, dims ...int) *Tensor {
	return x.variance(&varFunc{correction: correction, dims: dims, root: true})
}
