package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// Bilinear is yₖ = xᵀ·Wₖ·z + bₖ of two inputs.
type Bilinear struct {
	Weight *tensor.Tensor `nn:"weight"` // [out, in1, in2]
	Bias   *tensor.Tensor `nn:"bias"`   // [out], nil for none
}

// NewBilinear returns a layer from in1 and in2 to out features. Weight and bias are uniform in
// ±1/√in1, as torch's. It panics with an *[Error] if one of the inputs has no features.
func NewBilinear(in1, in2, out int, opts ...Option) *Bilinear {
	if in1 <= 0 || in2 <= 0 {
		panic(&Error{"Bilinear", fmt.Sprintf("the inputs have %d and %d features, each must have at least one", in1, in2)})
	}
	o := options("Bilinear", opts, biased...)
	l := &Bilinear{Weight: o.parameters().Empty(out, in1, in2)}
	initial.Uniform(l.Weight, -initial.Bound(in1), initial.Bound(in1))
	l.Weight.RequiresGrad()
	if !o.noBias {
		l.Bias = o.parameters().Empty(out)
		initial.Uniform(l.Bias, -initial.Bound(in1), initial.Bound(in1))
		l.Bias.RequiresGrad()
	}
	return l
}

// Forward maps x of shape [..., in1] and z of shape [..., in2] to [..., out].
func (l *Bilinear) Forward(x, z *tensor.Tensor) *tensor.Tensor {
	return x.Bilinear(z, l.Weight, l.Bias)
}
