package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// Each activation has the name that it has in torch. If torch's default for a setting is not zero,
// the activation has a constructor, whose doc comment states torch's defaults. Forward refuses a
// literal that leaves such a setting at zero, such as LeakyReLU{}. To set such a setting to zero,
// call the constructor.

// made is true in a layer that a constructor such as NewLeakyReLU made. A setting of such a layer
// may be zero on purpose.
type made bool

// unset raises an error if value, the layer's field of the given name, is 0 and no constructor made
// the layer. It serves fields whose default in torch is not 0. The argument constructor is the text
// of a call that makes a layer with torch's default. The error recommends this call.
func (m made) unset(op, field string, value float64, constructor string, operands ...*tensor.Tensor) {
	if value == 0 && !bool(m) {
		hinted(op, tensor.ErrValue, field+" of the literal is 0", constructor+" has torch's default", operands...)
	}
}

// Identity returns its input.
type Identity struct{ Base }

// Forward applies the layer.
func (l Identity) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x
}

// ReLU6 is x limited to [0, 6].
type ReLU6 struct{ Base }

// Forward applies the layer.
func (l ReLU6) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Relu6()
}

// SELU is the scaled exponential linear unit.
type SELU struct{ Base }

// Forward applies the layer.
func (l SELU) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Selu()
}

// Mish is x·tanh(softplus(x)).
type Mish struct{ Base }

// Forward applies the layer.
func (l Mish) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Mish()
}

// Softsign is x/(1+|x|).
type Softsign struct{ Base }

// Forward applies the layer.
func (l Softsign) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Softsign()
}

// Tanhshrink is x - tanh(x).
type Tanhshrink struct{ Base }

// Forward applies the layer.
func (l Tanhshrink) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Tanhshrink()
}

// LogSigmoid is log(sigmoid(x)).
type LogSigmoid struct{ Base }

// Forward applies the layer.
func (l LogSigmoid) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.LogSigmoid()
}

// Hardswish is x·Hardsigmoid(x).
type Hardswish struct{ Base }

// Forward applies the layer.
func (l Hardswish) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Hardswish()
}

// Hardsigmoid is x/6 + ½ limited to [0, 1].
type Hardsigmoid struct{ Base }

// Forward applies the layer.
func (l Hardsigmoid) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Hardsigmoid()
}

// LeakyReLU is x where x is positive, and Slope·x elsewhere.
type LeakyReLU struct {
	Base
	Slope float64
	made  made
}

// NewLeakyReLU returns a layer of the given slope; torch's default is 0.01.
func NewLeakyReLU(slope float64) LeakyReLU { return LeakyReLU{Slope: slope, made: true} }

// Forward applies the layer.
func (l LeakyReLU) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	l.made.unset("leaky_relu", "Slope", l.Slope, "nn.NewLeakyReLU(0.01)", x)
	return x.LeakyRelu(l.Slope)
}

// PReLU is x where x is positive, and Weight·x elsewhere. The weight is a parameter.
type PReLU struct {
	Base
	Weight *tensor.Tensor `nn:"weight"` // [1], or [channels] for inputs [batch, channels, ...]
}

// NewPReLU returns a layer with n weights, which all begin with the given value. torch's defaults
// are one weight and the value 0.25.
func NewPReLU(n int, value float64, opts ...Option) *PReLU {
	o := options("PReLU", opts)
	return &PReLU{Weight: o.parameters().Full(value, n).RequiresGrad()}
}

// Forward applies the layer.
func (l *PReLU) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.PRelu(l.Weight)
}

// ELU is x where x is positive, and Alpha·(eˣ-1) elsewhere.
type ELU struct {
	Base
	Alpha float64
	made  made
}

// NewELU returns a layer; torch's default alpha is 1.
func NewELU(alpha float64) ELU { return ELU{Alpha: alpha, made: true} }

// Forward applies the layer.
func (l ELU) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	l.made.unset("elu", "Alpha", l.Alpha, "nn.NewELU(1)", x)
	return x.Elu(l.Alpha)
}

// CELU is x where x is positive, and Alpha·(exp(x/Alpha)-1) elsewhere.
type CELU struct {
	Base
	Alpha float64
}

// NewCELU returns a layer; torch's default alpha is 1. Forward refuses an alpha of 0.
func NewCELU(alpha float64) CELU { return CELU{Alpha: alpha} }

// Forward applies the layer.
func (l CELU) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Celu(l.Alpha)
}

// Softplus is log(1+exp(Beta·x))/Beta, and x where Beta·x is above Threshold.
type Softplus struct {
	Base
	Beta, Threshold float64
	made            made
}

// NewSoftplus returns a layer; torch's defaults are beta 1 and threshold 20.
func NewSoftplus(beta, threshold float64) Softplus {
	return Softplus{Beta: beta, Threshold: threshold, made: true}
}

// Forward applies the layer.
func (l Softplus) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	l.made.unset("softplus", "Beta", l.Beta, "nn.NewSoftplus(1, 20)", x)
	l.made.unset("softplus", "Threshold", l.Threshold, "nn.NewSoftplus(1, 20)", x)
	return x.Softplus(l.Beta, l.Threshold)
}

// Hardtanh is x limited to [Min, Max].
type Hardtanh struct {
	Base
	Min, Max float64
	made     made
}

// NewHardtanh returns a layer; torch's defaults are -1 and 1.
func NewHardtanh(lo, hi float64) Hardtanh { return Hardtanh{Min: lo, Max: hi, made: true} }

// Forward applies the layer.
func (l Hardtanh) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	if l.Min == 0 {
		l.made.unset("hardtanh", "Max", l.Max, "nn.NewHardtanh(-1, 1)", x)
	}
	return x.Hardtanh(l.Min, l.Max)
}

// Hardshrink is 0 where |x| ≤ Lambda and x elsewhere.
type Hardshrink struct {
	Base
	Lambda float64
	made   made
}

// NewHardshrink returns a layer; torch's default lambda is 0.5.
func NewHardshrink(lambda float64) Hardshrink { return Hardshrink{Lambda: lambda, made: true} }

// Forward applies the layer.
func (l Hardshrink) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	l.made.unset("hardshrink", "Lambda", l.Lambda, "nn.NewHardshrink(0.5)", x)
	return x.Hardshrink(l.Lambda)
}

// Softshrink is x moved towards 0 by Lambda, and 0 where |x| ≤ Lambda.
type Softshrink struct {
	Base
	Lambda float64
	made   made
}

// NewSoftshrink returns a layer; torch's default lambda is 0.5.
func NewSoftshrink(lambda float64) Softshrink { return Softshrink{Lambda: lambda, made: true} }

// Forward applies the layer.
func (l Softshrink) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	l.made.unset("softshrink", "Lambda", l.Lambda, "nn.NewSoftshrink(0.5)", x)
	return x.Softshrink(l.Lambda)
}

// Threshold returns x where x is above the field Threshold, and Value elsewhere. With both fields 0
// it computes the same as ReLU.
type Threshold struct {
	Base
	Threshold, Value float64
}

// NewThreshold returns a layer that replaces elements up to threshold by value.
func NewThreshold(threshold, value float64) Threshold {
	return Threshold{Threshold: threshold, Value: value}
}

// Forward applies the layer.
func (l Threshold) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Threshold(l.Threshold, l.Value)
}

// Softmax is exp(x)/Σ exp(x) along dimension Dim. In the zero value Dim is 0, which is usually the
// batch dimension. NewSoftmax(-1) computes along the last dimension.
type Softmax struct {
	Base
	Dim int
}

// NewSoftmax returns a layer that computes along dimension dim.
func NewSoftmax(dim int) Softmax { return Softmax{Dim: dim} }

// Forward applies the layer.
func (l Softmax) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Softmax(l.Dim)
}

// LogSoftmax is the logarithm of Softmax along dimension Dim.
type LogSoftmax struct {
	Base
	Dim int
}

// NewLogSoftmax returns a layer that computes along dimension dim.
func NewLogSoftmax(dim int) LogSoftmax { return LogSoftmax{Dim: dim} }

// Forward applies the layer.
func (l LogSoftmax) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.LogSoftmax(l.Dim)
}

// GLU is the gated linear unit. It splits the input into halves along dimension Dim, and returns
// the first half times the sigmoid of the second half.
type GLU struct {
	Base
	Dim int
}

// NewGLU returns a layer; torch's default dim is -1.
func NewGLU(dim int) GLU { return GLU{Dim: dim} }

// Forward applies the layer. The size of dimension Dim must be even.
func (l GLU) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Glu(l.Dim)
}

// RReLU is x where x is positive and a·x elsewhere. In training, the slope a is drawn for each
// element from [Lower, Upper). In evaluation, the slope a is the mean of Lower and Upper (B. Xu et
// al., arXiv:1505.00853).
type RReLU struct {
	Base
	Lower, Upper float64
	made         made
}

// NewRReLU returns a layer; torch's defaults are 1/8 and 1/3. Forward refuses a lower slope that
// exceeds the upper one.
func NewRReLU(lower, upper float64) *RReLU { return &RReLU{Lower: lower, Upper: upper, made: true} }

// Forward applies the layer.
func (l *RReLU) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	requireUsable("rrelu", x)
	l.made.unset("rrelu", "Upper", l.Upper, "nn.NewRReLU(1./8, 1./3)", x)
	if !(l.Lower <= l.Upper) {
		misuse("rrelu", tensor.ErrValue, fmt.Sprintf("the lower slope %v is above the upper one, %v", l.Lower, l.Upper), x)
	}
	if !l.Training() {
		return x.LeakyRelu((l.Lower + l.Upper) / 2)
	}
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		a := c.On(x.Device()).Typed(x.Type()).Uniform(l.Lower, l.Upper, x.Shape().Slice()...)
		return x.In(c).Mul(a.MaskedFill(x.In(c).Detach().GtScalar(0), 1))
	}, x)
}

// Softmin is softmax of -x along dimension Dim.
type Softmin struct {
	Base
	Dim int
}

// NewSoftmin returns a layer that computes along dimension dim.
func NewSoftmin(dim int) Softmin { return Softmin{Dim: dim} }

// Forward applies the layer.
func (l Softmin) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Softmin(l.Dim)
}

// Softmax2d is softmax over the channels of images, [n, channels, height, width] or [channels,
// height, width].
type Softmax2d struct{ Base }

// Forward applies the layer.
func (l Softmax2d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	requireUsable("softmax2d", x)
	if x.Rank() != 3 && x.Rank() != 4 {
		misuse("softmax2d", tensor.ErrShape, fmt.Sprintf("images have 3 or 4 dimensions, the input has shape %v", x.Shape()), x)
	}
	return x.Softmax(-3)
}

// ReLU is the greater of x and 0.
type ReLU struct{ Base }

// Forward applies the layer.
func (l ReLU) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Relu()
}

// GELU is x·Φ(x), where Φ is the distribution function of the standard normal distribution. Φ is
// computed from the error function or, if Tanh is set, by the approximation with tanh.
type GELU struct {
	Base
	Tanh bool
}

// Forward applies the layer.
func (g GELU) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer g.Enter(&x, &out)()
	if g.Tanh {
		return x.GeluTanh()
	}
	return x.Gelu()
}

// Tanh is the hyperbolic tangent.
type Tanh struct{ Base }

// Forward applies the layer.
func (l Tanh) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Tanh()
}

// Sigmoid is 1/(1+e⁻ˣ).
type Sigmoid struct{ Base }

// Forward applies the layer.
func (l Sigmoid) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Sigmoid()
}

// SiLU is x·sigmoid(x).
type SiLU struct{ Base }

// Forward applies the layer.
func (l SiLU) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Silu()
}
