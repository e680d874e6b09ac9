package tensor

import (
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/expr"
)

// dropoutFunc stores the seed and the offset of its random numbers, so that the gradient can draw
// the same numbers again.
type dropoutFunc struct {
	p, scale     float64
	seed, offset uint64
}

func (*dropoutFunc) Name() string { return "dropout" }

// limit returns the threshold with which dropout compares the random bits of each element.
func (f *dropoutFunc) limit() float64 { return float64(expr.DropLimit(f.p)) }

func (f *dropoutFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	y := alloc("dropout", c.Scope(), x.st.dev, x.dtype, x.layout.Shape)
	return y.draw(y.op, c.Scope(), dropoutKind, f.seed, f.offset, in, f.limit(), f.scale)
}

func (f *dropoutFunc) VJP(c *Context, g *Tensor) []*Tensor {
	if c.mayOverwrite(g) {
		return []*Tensor{g.draw(f.Name(), c.scope, dropoutKind, f.seed, f.offset, []*Tensor{g}, f.limit(), f.scale)}
	}
	return []*Tensor{Apply(f, g)}
}

// alphaDropoutFunc is a dropoutFunc with two more numbers: shift is added to kept elements, and
// dropValue is the value of dropped elements.
type alphaDropoutFunc struct {
	dropoutFunc
	shift, dropValue float64
}

func (*alphaDropoutFunc) Name() string { return "alpha_dropout" }

func (f *alphaDropoutFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	y := alloc("alpha_dropout", c.Scope(), x.st.dev, x.dtype, x.layout.Shape)
	return y.draw(y.op, c.Scope(), alphaDropoutKind, f.seed, f.offset, in, f.limit(), f.scale, f.shift, f.dropValue)
}

func (f *alphaDropoutFunc) VJP(c *Context, g *Tensor) []*Tensor {
	return []*Tensor{Apply(&f.dropoutFunc, g)}
}

// The operands of these ops are a tensor X(0) and a mask X(1). The mask is 1 for elements that are
// kept and 0 for elements that are dropped.
var (
	channelDropoutOp = &Elementwise{Name: "feature_dropout", Arity: 2, Expr: x1.Ne(zeroC).Select(x0.Mul(p0), zeroC), Grad: []*expr.Expr{x1.Ne(zeroC).Select(x2.Mul(p0), zeroC), nil}}
	channelAlphaOp   = &Elementwise{Name: "feature_alpha_dropout", Arity: 2, Expr: x1.Ne(zeroC).Select(x0.Mul(p0).Add(expr.Param(1)), expr.Param(2)),
		Grad: []*expr.Expr{x1.Ne(zeroC).Select(x2.Mul(p0), zeroC), nil}}
)

// alphaParams returns the parameters of alpha dropout, which keeps a mean of 0 and a variance of 1.
// A kept element is multiplied by scale, and shift is added. A dropped element becomes dropValue:
// selu's least value, -α, multiplied by scale, plus shift (G. Klambauer et al., arXiv:1706.02515).
// All three are 0 for p = 1, as in torch.
func alphaParams(p float64) (scale, shift, dropValue float64) {
	if p == 1 {
		return 0, 0, 0
	}
	const alpha = 1.7580993408473766
	scale = 1 / math.Sqrt((alpha*alpha*p+1)*(1-p))
	return scale, alpha * scale * p, alpha*scale*p - alpha*scale
}

func dropoutScale(p float64) float64 {
	if p == 1 {
		return 0
	}
	return 1 / (1 - p)
}

// checkDropout checks the operands of every kind of dropout. It reports whether nothing can be
// dropped.
func (x *Tensor) checkDropout(op string, p float64, ranks ...int) (none bool) {
	x.use(op)
	in := []*Tensor{x}
	if !(p >= 0 && p <= 1) {
		fail(op, ErrValue, in, "%v is not a probability", p)
	}
	x.mustFloat(op)
	if len(ranks) > 0 && !slices.Contains(ranks, x.Rank()) {
		e := newError(op, ErrShape, in, "the input has shape "+x.layout.Shape.String()+", it should have "+utoa(uint32(ranks[0]))+" or "+utoa(uint32(ranks[1]))+" dimensions")
		panic(e.hint("Dropout drops elements of any shape"))
	}
	return p == 0 || x.Size() == 0
}

// Dropout returns x with elements set to zero with probability p, and the remaining elements scaled
// by 1/(1-p). The random numbers come from the generator of x's scope. The gradient and a
// recomputation draw the same numbers.
func (x *Tensor) Dropout(p float64) *Tensor {
	if x.checkDropout("dropout", p) {
		return x
	}
	seed, offset := x.scope.modes.gen.Draw(x.Size())
	return Apply(&dropoutFunc{p, dropoutScale(p), seed, offset}, x)
}

// AlphaDropout is the dropout for networks with the activation [Tensor.Selu]. It replaces elements
// with probability p by selu's least value. It then scales and shifts all elements so that a mean
// of 0 and a variance of 1 are kept. See [Tensor.Dropout] for the random numbers. The result is 0
// for p = 1.
func (x *Tensor) AlphaDropout(p float64) *Tensor {
	if x.checkDropout("alpha_dropout", p) {
		return x
	}
	seed, offset := x.scope.modes.gen.Draw(x.Size())
	scale, shift, instead := alphaParams(p)
	return Apply(&alphaDropoutFunc{dropoutFunc{p, scale, seed, offset}, shift, instead}, x)
}

// Dropout1d sets whole channels of x, [n, channels, length] or [channels, length], to zero with
// probability p and scales the other channels by 1/(1-p) (J. Tompson et al., arXiv:1411.4280).
func (x *Tensor) Dropout1d(p float64) *Tensor {
	if x.checkDropout("dropout1d", p, 2, 3) {
		return x
	}
	return x.dropChannels(p, x.Rank()-1)
}

// Dropout2d sets whole channels of x, [n, channels, height, width], to zero with probability p and
// scales the other channels by 1/(1-p). Three dimensions are [n, channels, length], as in torch.
func (x *Tensor) Dropout2d(p float64) *Tensor {
	if x.checkDropout("dropout2d", p, 3, 4) {
		return x
	}
	return x.dropChannels(p, 2)
}

// Dropout3d sets whole channels of x, [n, channels, depth, height, width] or [channels, depth,
// height, width], to zero with probability p and scales the other channels by 1/(1-p).
func (x *Tensor) Dropout3d(p float64) *Tensor {
	if x.checkDropout("dropout3d", p, 4, 5) {
		return x
	}
	return x.dropChannels(p, x.Rank()-3)
}

// FeatureAlphaDropout is [Tensor.AlphaDropout] of whole channels of x, [n, channels, …].
func (x *Tensor) FeatureAlphaDropout(p float64) *Tensor {
	const op = "feature_alpha_dropout"
	if x.checkDropout(op, p) {
		return x
	}
	if x.Rank() < 2 {
		fail(op, ErrShape, []*Tensor{x}, "the input has shape %v, it should be [n, channels, …]", x.Shape())
	}
	scale, shift, instead := alphaParams(p)
	return within(x.scope, func(c *Scope) *Tensor {
		return channelAlphaOp.Apply([]*Tensor{x.In(c), x.keptMask(c, p, 2)}, scale, shift, instead)
	})
}

func (x *Tensor) dropChannels(p float64, n int) *Tensor {
	return within(x.scope, func(c *Scope) *Tensor {
		return channelDropoutOp.Apply([]*Tensor{x.In(c), x.keptMask(c, p, n)}, dropoutScale(p))
	})
}

// keptMask draws a mask for the entries of the first n dimensions: 1 (kept) with probability 1-p,
// otherwise 0. The other dimensions of the mask have size 1.
func (x *Tensor) keptMask(c *Scope, p float64, n int) *Tensor {
	dims := x.layout.Shape.Slice()
	for i := n; i < len(dims); i++ {
		dims[i] = 1
	}
	return c.On(x.st.dev).Typed(x.dtype).Bernoulli(1-p, dims...)
}
