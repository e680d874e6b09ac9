package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// chance returns p. It panics if p is not a probability.
func chance(layer string, p float64) float64 {
	if !(p >= 0 && p <= 1) {
		panic(wrong(layer, fmt.Sprintf("elements are dropped with a probability between 0 and 1, not %v", p)))
	}
	return p
}

// Dropout sets elements to zero with probability P in training, and scales the remaining elements
// by 1/(1-P). The zero value drops nothing, as do the zero values of the other dropout layers.
type Dropout struct {
	Base
	P float64
}

// NewDropout returns a dropout layer; torch's default is 0.5. It panics with an *[Error] unless 0 ≤
// p ≤ 1.
func NewDropout(p float64) *Dropout { return &Dropout{P: chance("Dropout", p)} }

// Forward applies the layer.
func (d *Dropout) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer d.Enter(&x, &out)()
	if !d.Training() {
		return x
	}
	return x.Dropout(d.P)
}

// Add returns residual + d.Forward(x). In training, a layer without hooks computes this sum in
// one launch: see [tensor.Tensor.DropoutAdd].
func (d *Dropout) Add(residual, x *tensor.Tensor) (out *tensor.Tensor) {
	if d.hooks != nil || !d.Training() {
		return residual.Add(d.Forward(x))
	}
	defer d.Enter(&x, &out)()
	return x.DropoutAdd(residual, d.P)
}

// takesRelu reports whether d can apply a relu and itself in one launch.
func (d *Dropout) takesRelu() bool { return d.hooks == nil && d.Training() && d.P > 0 }

// forwardRelu returns d.Forward(relu(x)), computed in one launch. It requires that takesRelu is
// true.
func (d *Dropout) forwardRelu(x *tensor.Tensor) (out *tensor.Tensor) {
	defer d.Enter(&x, &out)()
	return x.ReluDropout(d.P)
}

// reluDropout returns layers[1] if layers begins with a [ReLU] and a [Dropout] that can run in one
// launch. Otherwise it returns nil, for example if a hook sees the tensor between the two.
func reluDropout(layers []Module) *Dropout {
	if len(layers) < 2 {
		return nil
	}
	d, ok := layers[1].(*Dropout)
	if !ok || d == nil || !d.takesRelu() {
		return nil
	}
	switch l := layers[0].(type) {
	case ReLU:
		ok = l.hooks == nil
	case *ReLU:
		ok = l != nil && l.hooks == nil
	default:
		ok = false
	}
	if !ok {
		return nil
	}
	return d
}

// Dropout1d sets whole channels of signals to zero with probability P in training, and scales the
// remaining channels by 1/(1-P).
type Dropout1d struct {
	Base
	P float64
}

// NewDropout1d returns a layer for inputs [n, channels, length] or [channels, length].
func NewDropout1d(p float64) *Dropout1d { return &Dropout1d{P: chance("Dropout1d", p)} }

// Forward applies the layer.
func (d *Dropout1d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer d.Enter(&x, &out)()
	if !d.Training() {
		return x
	}
	return x.Dropout1d(d.P)
}

// Dropout2d sets whole channels of images to zero with probability P in training, and scales the
// remaining channels by 1/(1-P).
type Dropout2d struct {
	Base
	P float64
}

// NewDropout2d returns a layer for inputs [n, channels, height, width]. As in torch, an input with
// three dimensions is [n, channels, length].
func NewDropout2d(p float64) *Dropout2d { return &Dropout2d{P: chance("Dropout2d", p)} }

// Forward applies the layer.
func (d *Dropout2d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer d.Enter(&x, &out)()
	if !d.Training() {
		return x
	}
	return x.Dropout2d(d.P)
}

// Dropout3d sets whole channels of volumes to zero with probability P in training, and scales the
// remaining channels by 1/(1-P).
type Dropout3d struct {
	Base
	P float64
}

// NewDropout3d returns a layer for inputs [n, channels, depth, height, width] or [channels, depth,
// height, width].
func NewDropout3d(p float64) *Dropout3d { return &Dropout3d{P: chance("Dropout3d", p)} }

// Forward applies the layer.
func (d *Dropout3d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer d.Enter(&x, &out)()
	if !d.Training() {
		return x
	}
	return x.Dropout3d(d.P)
}

// AlphaDropout is active in training. It replaces each element, with probability P, by the lowest
// value of selu, and then rescales all elements. Inputs with mean 0 and variance 1 give results
// with mean 0 and variance 1: see [tensor.Tensor.AlphaDropout].
type AlphaDropout struct {
	Base
	P float64
}

// NewAlphaDropout returns a layer; torch's default is 0.5.
func NewAlphaDropout(p float64) *AlphaDropout { return &AlphaDropout{P: chance("AlphaDropout", p)} }

// Forward applies the layer.
func (d *AlphaDropout) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer d.Enter(&x, &out)()
	if !d.Training() {
		return x
	}
	return x.AlphaDropout(d.P)
}

// FeatureAlphaDropout is an [AlphaDropout] that drops whole channels.
type FeatureAlphaDropout struct {
	Base
	P float64
}

// NewFeatureAlphaDropout returns a layer for inputs [n, channels, …]; torch's default is 0.5.
func NewFeatureAlphaDropout(p float64) *FeatureAlphaDropout {
	return &FeatureAlphaDropout{P: chance("FeatureAlphaDropout", p)}
}

// Forward applies the layer.
func (d *FeatureAlphaDropout) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer d.Enter(&x, &out)()
	if !d.Training() {
		return x
	}
	return x.FeatureAlphaDropout(d.P)
}

// StochasticDepth sets whole samples to zero with probability P in training, and scales the
// remaining samples by 1/(1-P). It is torchvision.ops.StochasticDepth (G. Huang et al., Deep
// Networks with Stochastic Depth, arXiv:1603.09382). As the last layer of the inner path of a
// residual block, it makes the block the identity for the dropped samples.
type StochasticDepth struct {
	Base
	P float64
	// Batch drops all samples or none, as torchvision's mode "batch" does. Without it the mode is
	// "row".
	Batch bool
}

// NewStochasticDepth returns a layer for inputs [n, …].
func NewStochasticDepth(p float64) *StochasticDepth {
	return &StochasticDepth{P: chance("StochasticDepth", p)}
}

// Forward applies the layer. A tensor of rank 0 is one sample.
func (d *StochasticDepth) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer d.Enter(&x, &out)()
	if !d.Training() || d.P == 0 {
		return x
	}
	size := make([]int, x.Rank())
	for i := range size {
		size[i] = 1
	}
	if !d.Batch && len(size) > 0 {
		size[0] = x.Dim(0)
	}
	return x.Mul(x.New().Typed(x.Type()).Ones(size...).Dropout(d.P))
}
