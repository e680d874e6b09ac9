package nn

import "github.com/flambeau-go/flambeau/tensor"

// Activations beyond those of layers.go, with torch's names. Those with numbers are made by a function, where torch has defaults that are
// not zero: the doc comment says them.

// Identity returns its input.
type Identity struct{}

// Forward applies the layer.
func (Identity) Forward(x *tensor.Tensor) *tensor.Tensor { return x }

// ReLU6 is x limited to [0, 6].
type ReLU6 struct{}

// Forward applies the layer.
func (ReLU6) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Relu6() }

// SELU is the scaled exponential linear unit.
type SELU struct{}

// Forward applies the layer.
func (SELU) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Selu() }

// Mish is x·tanh(softplus(x)).
type Mish struct{}

// Forward applies the layer.
func (Mish) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Mish() }

// Softsign is x/(1+|x|).
type Softsign struct{}

// Forward applies the layer.
func (Softsign) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Softsign() }

// Tanhshrink is x - tanh(x).
type Tanhshrink struct{}

// Forward applies the layer.
func (Tanhshrink) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Tanhshrink() }

// LogSigmoid is log(sigmoid(x)).
type LogSigmoid struct{}

// Forward applies the layer.
func (LogSigmoid) Forward(x *tensor.Tensor) *tensor.Tensor { return x.LogSigmoid() }

// Hardswish is x·Hardsigmoid(x).
type Hardswish struct{}

// Forward applies the layer.
func (Hardswish) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Hardswish() }

// Hardsigmoid is x/6 + ½ limited to [0, 1].
type Hardsigmoid struct{}

// Forward applies the layer.
func (Hardsigmoid) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Hardsigmoid() }

// LeakyReLU is x where it is positive and Slope·x elsewhere.
type LeakyReLU struct{ Slope float64 }

// NewLeakyReLU returns a layer of the given slope; torch's default is 0.01.
func NewLeakyReLU(slope float64) LeakyReLU { return LeakyReLU{slope} }

// Forward applies the layer.
func (l LeakyReLU) Forward(x *tensor.Tensor) *tensor.Tensor { return x.LeakyRelu(l.Slope) }

// PReLU is x where it is positive and Weight·x elsewhere; the weight is learnt.
type PReLU struct {
	Weight *tensor.Tensor `nn:"weight"` // [1], or [channels] for inputs [batch, channels, ...]
}

// NewPReLU returns a layer with n weights of the value first; torch's defaults are 1 and 0.25.
func NewPReLU(n int, first float64, opts ...Option) *PReLU {
	o := options(opts)
	return &PReLU{o.scope.Typed(o.t).Full(first, n).RequiresGrad()}
}

// Forward applies the layer.
func (l *PReLU) Forward(x *tensor.Tensor) *tensor.Tensor { return x.PRelu(l.Weight) }

// ELU is x where it is positive and Alpha·(eˣ-1) elsewhere.
type ELU struct{ Alpha float64 }

// NewELU returns a layer; torch's default is 1.
func NewELU(alpha float64) ELU { return ELU{alpha} }

// Forward applies the layer.
func (l ELU) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Elu(l.Alpha) }

// CELU is x where it is positive and Alpha·(exp(x/Alpha)-1) elsewhere.
type CELU struct{ Alpha float64 }

// NewCELU returns a layer; torch's default is 1, and 0 is refused when it is applied.
func NewCELU(alpha float64) CELU { return CELU{alpha} }

// Forward applies the layer.
func (l CELU) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Celu(l.Alpha) }

// Softplus is log(1+exp(Beta·x))/Beta, and x where Beta·x is above Threshold.
type Softplus struct{ Beta, Threshold float64 }

// NewSoftplus returns a layer; torch's defaults are 1 and 20.
func NewSoftplus(beta, threshold float64) Softplus { return Softplus{beta, threshold} }

// Forward applies the layer.
func (l Softplus) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Softplus(l.Beta, l.Threshold) }

// Hardtanh is x limited to [Min, Max].
type Hardtanh struct{ Min, Max float64 }

// NewHardtanh returns a layer; torch's defaults are -1 and 1.
func NewHardtanh(lo, hi float64) Hardtanh { return Hardtanh{lo, hi} }

// Forward applies the layer.
func (l Hardtanh) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Hardtanh(l.Min, l.Max) }

// Hardshrink is 0 where |x| ≤ Lambda and x elsewhere.
type Hardshrink struct{ Lambda float64 }

// NewHardshrink returns a layer; torch's default is 0.5.
func NewHardshrink(lambda float64) Hardshrink { return Hardshrink{lambda} }

// Forward applies the layer.
func (l Hardshrink) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Hardshrink(l.Lambda) }

// Softshrink is x moved towards 0 by Lambda, 0 where |x| ≤ Lambda.
type Softshrink struct{ Lambda float64 }

// NewSoftshrink returns a layer; torch's default is 0.5.
func NewSoftshrink(lambda float64) Softshrink { return Softshrink{lambda} }

// Forward applies the layer.
func (l Softshrink) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Softshrink(l.Lambda) }

// Threshold is x where it is above Threshold and Value elsewhere.
type Threshold struct{ Threshold, Value float64 }

// NewThreshold returns a layer.
func NewThreshold(threshold, value float64) Threshold { return Threshold{threshold, value} }

// Forward applies the layer.
func (l Threshold) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Threshold(l.Threshold, l.Value) }

// Softmax is exp(x)/Σ exp(x) along dimension Dim.
type Softmax struct{ Dim int }

// NewSoftmax returns a layer.
func NewSoftmax(dim int) Softmax { return Softmax{dim} }

// Forward applies the layer.
func (l Softmax) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Softmax(l.Dim) }

// LogSoftmax is the logarithm of Softmax along dimension Dim.
type LogSoftmax struct{ Dim int }

// NewLogSoftmax returns a layer.
func NewLogSoftmax(dim int) LogSoftmax { return LogSoftmax{dim} }

// Forward applies the layer.
func (l LogSoftmax) Forward(x *tensor.Tensor) *tensor.Tensor { return x.LogSoftmax(l.Dim) }

// GLU is the gated linear unit: the first half of the input along dimension Dim times the sigmoid of the second.
type GLU struct{ Dim int }

// NewGLU returns a layer; torch's default is -1.
func NewGLU(dim int) GLU { return GLU{dim} }

// Forward applies the layer. The dimension's size is even.
func (l GLU) Forward(x *tensor.Tensor) *tensor.Tensor { return x.Glu(l.Dim) }
