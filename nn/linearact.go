package nn

import "github.com/flambeau-go/flambeau/tensor"

// activated returns the first two layers if one op can compute both: a linear layer and an
// activation. Otherwise it returns nil. It also returns nil if a hook sees the tensor between the
// two, or if a dropout after them can apply the activation in its own launch.
func activated(layers []Module) (l *Linear, act func(*tensor.Tensor) *tensor.Tensor) {
	if len(layers) < 2 || reluDropout(layers[1:]) != nil {
		return nil, nil
	}
	l, ok := layers[0].(*Linear)
	a, is := layers[1].(activator)
	if !ok || !is || l.Hooked() || !passesOn(layers[1]) {
		return nil, nil
	}
	act, hooked := a.activation()
	if hooked {
		return nil, nil
	}
	return l, act
}

// An activator is an activation that the launch of a linear layer can apply. A user's struct that
// embeds an activation has the activation's methods too, but passesOn excludes such structs.
type activator interface {
	activation() (act func(*tensor.Tensor) *tensor.Tensor, hooked bool)
}

func (l ReLU) activation() (func(*tensor.Tensor) *tensor.Tensor, bool) {
	return (*tensor.Tensor).Relu, l.Hooked()
}

func (l ReLU6) activation() (func(*tensor.Tensor) *tensor.Tensor, bool) {
	return (*tensor.Tensor).Relu6, l.Hooked()
}

func (l SiLU) activation() (func(*tensor.Tensor) *tensor.Tensor, bool) {
	return (*tensor.Tensor).Silu, l.Hooked()
}

func (l Tanh) activation() (func(*tensor.Tensor) *tensor.Tensor, bool) {
	return (*tensor.Tensor).Tanh, l.Hooked()
}

func (l Sigmoid) activation() (func(*tensor.Tensor) *tensor.Tensor, bool) {
	return (*tensor.Tensor).Sigmoid, l.Hooked()
}

func (l SELU) activation() (func(*tensor.Tensor) *tensor.Tensor, bool) {
	return (*tensor.Tensor).Selu, l.Hooked()
}

func (l Mish) activation() (func(*tensor.Tensor) *tensor.Tensor, bool) {
	return (*tensor.Tensor).Mish, l.Hooked()
}

func (l Hardsigmoid) activation() (func(*tensor.Tensor) *tensor.Tensor, bool) {
	return (*tensor.Tensor).Hardsigmoid, l.Hooked()
}

func (l Hardswish) activation() (func(*tensor.Tensor) *tensor.Tensor, bool) {
	return (*tensor.Tensor).Hardswish, l.Hooked()
}

func (g GELU) activation() (func(*tensor.Tensor) *tensor.Tensor, bool) {
	if g.Tanh {
		return (*tensor.Tensor).GeluTanh, g.Hooked()
	}
	return (*tensor.Tensor).Gelu, g.Hooked()
}
