package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// Linear is y = x·Wᵀ + b.
type Linear struct {
	Base
	Weight *tensor.Tensor `nn:"weight"` // [out, in]
	Bias   *tensor.Tensor `nn:"bias"`   // [out], nil for none
	// WeightScale is nil in an ordinary layer. [QuantizeDynamic] makes Weight int8, and WeightScale
	// then holds a scale for each row of Weight.
	WeightScale *tensor.Tensor `nn:"weight_scale,buffer"`

	lazy *lazy
}

// NewLinear returns a layer with the given numbers of input and output features. As in torch,
// weight and bias are uniform in ±1/√in.
func NewLinear(in, out int, opts ...Option) *Linear {
	o := options("Linear", opts, biased...)
	l := &Linear{}
	l.fill(in, &lazy{o: o, out: out})
	return l
}

// NewLazyLinear returns a layer with the given number of output features, torch's LazyLinear. Its
// first input determines the number of input features. Before its first input or a [LoadStateDict],
// the layer has no parameters. NewLazyLinear accepts the options of [NewLinear].
func NewLazyLinear(out int, opts ...Option) *Linear {
	return &Linear{lazy: &lazy{o: options("LazyLinear", opts, biased...), out: out}}
}

func (l *Linear) waiting() **lazy { return &l.lazy }

func (l *Linear) empty() { l.Weight, l.Bias = nil, nil }

func (l *Linear) inputsOf(*lazy) (names []string, dim, by int) { return []string{"weight"}, 1, 1 }

func (l *Linear) fill(in int, z *lazy) {
	o := z.o
	l.Weight = o.parameters().Empty(z.out, in)
	initial.KaimingUniform(l.Weight, initial.LeakyGain(2.23606797749979)) // torch uses a = √5
	l.Weight.RequiresGrad()
	if !o.noBias {
		l.Bias = o.parameters().Empty(z.out)
		initial.Uniform(l.Bias, -initial.Bound(in), initial.Bound(in))
		l.Bias.RequiresGrad()
	}
}

// Forward maps x of shape [..., in] to [..., out].
func (l *Linear) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	l.checkInput(x)
	if l.WeightScale != nil {
		return x.LinearInt8(l.Weight, l.WeightScale, l.Bias)
	}
	return x.Linear(l.Weight, l.Bias)
}

// ForwardAct returns act(l.Forward(x)), in one launch if the device supports this: see
// [tensor.Tensor.LinearAct]. Hooks of the layer see the same tensors as in Forward.
func (l *Linear) ForwardAct(x *tensor.Tensor, act func(*tensor.Tensor) *tensor.Tensor) (out *tensor.Tensor) {
	if l.Hooked() {
		return act(l.Forward(x))
	}
	defer l.Enter(&x, &out)()
	l.checkInput(x)
	if l.WeightScale != nil {
		return act(x.LinearInt8(l.Weight, l.WeightScale, l.Bias))
	}
	return x.LinearAct(l.Weight, l.Bias, act)
}

// checkInput checks an input of the layer. For a lazy layer, it also makes the parameters.
func (l *Linear) checkInput(x *tensor.Tensor) {
	if l.lazy != nil {
		requireUsable("linear", x)
		if x.Rank() == 0 {
			misuse("linear", tensor.ErrShape, scalarInput, x)
		}
		ready(l, x, x.Dim(-1))
	}
	features("linear", x, l.Weight, l.WeightScale != nil)
}

// Bilinear is yₖ = xᵀ·Wₖ·z + bₖ for two inputs x and z.
type Bilinear struct {
	Weight *tensor.Tensor `nn:"weight"` // [out, in1, in2]
	Bias   *tensor.Tensor `nn:"bias"`   // [out], nil for none
}

// NewBilinear returns a layer for two inputs, with in1 and in2 features. Its result has the given
// number of output features. As in torch, weight and bias are uniform in ±1/√in1. NewBilinear
// panics with an *[Error] if in1 or in2 is not positive.
func NewBilinear(in1, in2, out int, opts ...Option) *Bilinear {
	if in1 <= 0 || in2 <= 0 {
		panic(wrong("Bilinear", fmt.Sprintf("the inputs have %d and %d features, each must have at least one", in1, in2)))
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
