package nn

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// LayerNorm normalises the last dimensions of its input to mean 0 and variance 1, then scales and
// shifts each element: (x - mean)/√(variance + Eps)·Weight + Bias. The variance is the mean of the
// squared deviations.
type LayerNorm struct {
	Base
	Weight *tensor.Tensor `nn:"weight"` // shape as in the field Shape; nil for no weight
	Bias   *tensor.Tensor `nn:"bias"`   // shape as in the field Shape; nil for no bias
	Shape  []int          // the sizes of the last dimensions of the input
	Eps    float64        // 1e-5 by default
}

// NewLayerNorm returns a layer for inputs whose last dimensions have the given shape, with weight 1
// and bias 0. For the last dimension alone, its size is enough: NewLayerNorm(512).
func NewLayerNorm[S Sizes](shape S, opts ...Option) *LayerNorm {
	o := options("LayerNorm", opts, "NoAffine", "NoBias")
	l := &LayerNorm{Shape: sizes(shape), Eps: 1e-5}
	if o.noAffine {
		return l
	}
	l.Weight = o.parameters().Ones(l.Shape...).RequiresGrad()
	if !o.noBias {
		l.Bias = o.parameters().Zeros(l.Shape...).RequiresGrad()
	}
	return l
}

// Forward normalises x of shape [..., Shape...].
func (l *LayerNorm) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return x.LayerNorm(l.Shape, l.Weight, l.Bias, l.Eps)
}

// ForwardLow is Forward, except that under [tensor.Autocast] the result has autocast's 16-bit type.
// Use it if only one linear layer reads the result. That layer would cast it to 16 bits anyway, so
// ForwardLow saves two casts and changes no values. Hooks see the 16-bit result.
func (l *LayerNorm) ForwardLow(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	if t := x.Scope().Autocast(); t != dtype.Invalid && x.Type() != dtype.F64 {
		return x.LayerNormAs(t, l.Shape, l.Weight, l.Bias, l.Eps)
	}
	return x.LayerNorm(l.Shape, l.Weight, l.Bias, l.Eps)
}

// RMSNorm divides the last dimensions of its input by their root mean square: x/√(mean(x²) +
// Eps)·Weight (B. Zhang, R. Sennrich, arXiv:1910.07467).
type RMSNorm struct {
	Base
	Weight *tensor.Tensor `nn:"weight"` // shape as in the field Shape; nil for no weight
	Shape  []int          // the sizes of the last dimensions of the input
	Eps    float64        // 0 means torch's default: see [tensor.Tensor.RMSNorm]
}

// NewRMSNorm returns a layer for inputs whose last dimensions have the given shape, with weight 1.
// For the last dimension alone, its size is enough: NewRMSNorm(512).
func NewRMSNorm[S Sizes](shape S, opts ...Option) *RMSNorm {
	o := options("RMSNorm", opts, "NoAffine")
	l := &RMSNorm{Shape: sizes(shape)}
	if !o.noAffine {
		l.Weight = o.parameters().Ones(l.Shape...).RequiresGrad()
	}
	return l
}

// Forward normalises x of shape [..., Shape...].
func (l *RMSNorm) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return x.RMSNorm(l.Shape, l.Weight, l.eps())
}

// ForwardLow is Forward, except that under [tensor.Autocast] the result has autocast's 16-bit type.
// [LayerNorm.ForwardLow] says when to use it.
func (l *RMSNorm) ForwardLow(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	if t := x.Scope().Autocast(); t != dtype.Invalid && x.Type() != dtype.F64 {
		return x.RMSNormAs(t, l.Shape, l.Weight, l.eps())
	}
	return x.RMSNorm(l.Shape, l.Weight, l.eps())
}

// eps returns the argument eps of [tensor.Tensor.RMSNorm], where -1 means torch's default.
func (l *RMSNorm) eps() float64 {
	if l.Eps == 0 {
		return -1
	}
	return l.Eps
}
