package models

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// placement holds the options of a model's constructor, and a Maker for the model's parameters. The
// Maker has the scope, the device and the type that the options select.
type placement struct {
	make tensor.Maker
	opts []nn.Option
}

func placementOf(opts []nn.Option) placement {
	probe := nn.NewLayerNorm([]int{1}, opts...)
	h := placement{probe.Weight.Scope().On(probe.Weight.Device()).Typed(probe.Weight.Type()), opts}
	probe.Weight.Free()
	if probe.Bias != nil {
		probe.Bias.Free()
	}
	return h
}

// appendOptions returns a new list with opts followed by extra.
func appendOptions(opts []nn.Option, extra ...nn.Option) []nn.Option {
	return append(opts[:len(opts):len(opts)], extra...)
}

// normal returns a parameter with normally distributed values of mean 0.
func (h placement) normal(std float64, dims ...int) *tensor.Tensor {
	w := h.make.Empty(dims...)
	initial.Normal(w, 0, std)
	return w.RequiresGrad()
}

func (h placement) zeros(dims ...int) *tensor.Tensor {
	return h.make.Zeros(dims...).RequiresGrad()
}

// linear returns a layer whose weight is normal and whose bias is 0.
func (h placement) linear(in, out int, std float64) *nn.Linear {
	return &nn.Linear{Weight: h.normal(std, out, in), Bias: h.zeros(out)}
}

// norm returns a layer norm over the last dimension.
func (h placement) norm(width int, eps float64) *nn.LayerNorm {
	l := nn.NewLayerNorm([]int{width}, h.opts...)
	l.Eps = eps
	return l
}

// table is an embedding table for tokens or positions.
type table struct {
	Weight *tensor.Tensor `nn:"weight"` // [rows, width]
}

// conv1D is a linear layer with a transposed weight: GPT-2's Conv1D.
type conv1D struct {
	nn.Base
	Weight *tensor.Tensor `nn:"weight"` // [in, out]
	Bias   *tensor.Tensor `nn:"bias"`   // [out]
}

func (h placement) conv1D(in, out int, std float64) *conv1D {
	return &conv1D{Weight: h.normal(std, in, out), Bias: h.zeros(out)}
}

// Forward maps x of shape [..., in] to [..., out].
func (l *conv1D) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.LinearT(l.Weight, l.Bias)
}

// forwardAct returns act(l.Forward(x)), as [nn.Linear.ForwardAct] does.
func (l *conv1D) forwardAct(x *tensor.Tensor, act func(*tensor.Tensor) *tensor.Tensor) (y *tensor.Tensor) {
	if l.Hooked() {
		return act(l.Forward(x))
	}
	defer l.Enter(&x, &y)()
	return x.LinearTAct(l.Weight, l.Bias, act)
}

// heads reshapes [batch, length, heads·features] to [batch, heads, length, features].
func heads(x *tensor.Tensor, n int) *tensor.Tensor {
	return x.Unflatten(-1, n, x.Dim(-1)/n).Transpose(1, 2)
}

// joined reshapes [batch, heads, length, features] to [batch, length, heads·features].
func joined(x *tensor.Tensor) *tensor.Tensor { return x.Transpose(1, 2).Flatten(2, 3) }

// checkTokens raises an error unless ids is a tensor of tokens [batch, length]. It also raises an
// error if the tokens, from position start, need more than limit positions.
func checkTokens(op string, ids *tensor.Tensor, start, limit int) {
	requireNonNil(op, ids)
	switch {
	case ids.Type().IsFloat() || ids.Type() == dtype.Bool:
		misuse(op, tensor.ErrType, fmt.Sprintf("tokens are integers, not %v", ids.Type()), ids)
	case ids.Rank() != 2:
		misuse(op, tensor.ErrShape, fmt.Sprintf("tokens are [batch, length], not %v", ids.Shape()), ids)
	case ids.Dim(1) > limit-start:
		panic(tensor.NewError(op, tensor.ErrShape, fmt.Sprintf("%d tokens from position %d on do not fit the context of %d", ids.Dim(1), start, limit), ids))
	}
}
