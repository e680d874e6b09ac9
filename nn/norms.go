package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// NoAffine leaves out the weight and the bias of a normalisation: torch's elementwise_affine=False.
func NoAffine() Option { return func(o *layerOptions) { o.noAffine = true } }

// LayerNorm brings the last dimensions of its input to mean 0 and variance 1, then scales and shifts each of their elements:
// (x - mean)/√(variance + Eps)·Weight + Bias, with the variance that divides by the number of elements.
type LayerNorm struct {
	Weight *tensor.Tensor `nn:"weight"` // of shape Shape, nil for none
	Bias   *tensor.Tensor `nn:"bias"`   // of shape Shape, nil for none
	Shape  []int          // of the last dimensions of the input
	Eps    float64        // 1e-5 as made
}

// NewLayerNorm returns a layer for inputs whose last dimensions have the given shape, with weight 1 and bias 0.
func NewLayerNorm(shape []int, opts ...Option) *LayerNorm {
	o := options(opts)
	l := &LayerNorm{Shape: append([]int(nil), shape...), Eps: 1e-5}
	if o.noAffine {
		return l
	}
	l.Weight = o.scope.Typed(o.t).Ones(shape...).RequiresGrad()
	if !o.noBias {
		l.Bias = o.scope.Typed(o.t).Zeros(shape...).RequiresGrad()
	}
	return l
}

// Forward normalises x of shape [..., Shape...].
func (l *LayerNorm) Forward(x *tensor.Tensor) *tensor.Tensor {
	wide, over := normalised("layer_norm", x, l.Shape)
	d := wide.Add(wide.Mean(over...).RSubScalar(0)) // x - mean, and +0 where both are 0
	y := d.Mul(d.Square().Mean(over...).AddScalar(l.Eps).Rsqrt())
	return affine(x, y, l.Weight, l.Bias)
}

// RMSNorm divides the last dimensions of its input by their root mean square: x/√(mean(x²) + Eps)·Weight (B. Zhang, R. Sennrich,
// arXiv:1910.07467).
type RMSNorm struct {
	Weight *tensor.Tensor `nn:"weight"` // of shape Shape, nil for none
	Shape  []int          // of the last dimensions of the input
	Eps    float64        // 0 stands for the distance from 1 to the next number of the input's type, torch's default
}

// NewRMSNorm returns a layer for inputs whose last dimensions have the given shape, with weight 1.
func NewRMSNorm(shape []int, opts ...Option) *RMSNorm {
	o := options(opts)
	l := &RMSNorm{Shape: append([]int(nil), shape...)}
	if !o.noAffine {
		l.Weight = o.scope.Typed(o.t).Ones(shape...).RequiresGrad()
	}
	return l
}

// Forward normalises x of shape [..., Shape...].
func (l *RMSNorm) Forward(x *tensor.Tensor) *tensor.Tensor {
	wide, over := normalised("rms_norm", x, l.Shape)
	eps := l.Eps
	if eps == 0 {
		eps = map[dtype.Type]float64{dtype.F64: 0x1p-52, dtype.F32: 0x1p-23, dtype.F16: 0x1p-10, dtype.BF16: 0x1p-7}[x.Type()]
	}
	return affine(x, wide.Mul(wide.Square().Mean(over...).AddScalar(eps).Rsqrt()), l.Weight, nil)
}

// normalised checks the input of a normalisation and returns it in the type to compute in, and the dimensions to reduce.
func normalised(op string, x *tensor.Tensor, shape []int) (wide *tensor.Tensor, over []int) {
	if !x.Type().IsFloat() {
		misuse(op, tensor.ErrType, fmt.Sprintf("needs a floating point tensor, not %v", x.Type()), x)
	}
	fits := len(shape) > 0 && len(shape) <= x.Rank()
	for i, d := range shape {
		fits = fits && x.Dim(i-len(shape)) == d
		over = append(over, i-len(shape))
	}
	if !fits {
		misuse(op, tensor.ErrShape, fmt.Sprintf("the layer normalises dimensions of shape %v, the input has shape %v", shape, x.Shape()), x)
	}
	return x.Cast(x.Type().Compute()), append(over, tensor.KeepDim)
}

// affine returns y·w + b in x's type.
func affine(x, y, w, b *tensor.Tensor) *tensor.Tensor {
	if w != nil {
		y = y.Mul(w)
	}
	if b != nil {
		y = y.Add(b)
	}
	return y.Cast(x.Type())
}
