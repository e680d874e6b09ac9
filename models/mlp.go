package models

import (
	"strconv"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// MLP is a chain of linear layers, with ReLU and dropout between them and dropout after the last
// layer. The names are those of torchvision's MLP. With two layers they are "0.weight", "0.bias",
// "3.weight", "3.bias".
type MLP struct {
	nn.Base
	Layers []nn.Module `nn:",inline"`

	checkpointing bool
}

// NewMLP returns a model whose layer i maps sizes[i] to sizes[i+1] features. dropout is the
// probability that training drops a feature. NewMLP panics with an *[Error] for fewer than two
// sizes, a size that is not positive, or a dropout that is not a probability.
func NewMLP(sizes []int, dropout float64, opts ...nn.Option) *MLP {
	if len(sizes) < 2 {
		panic(wrong("mlp", "%d sizes; it needs those of the input and of the output at least", len(sizes)))
	}
	if !(dropout >= 0 && dropout <= 1) {
		panic(wrong("mlp", "%v is not a probability of dropout", dropout))
	}
	m := &MLP{}
	for i, n := range sizes {
		if n < 1 {
			panic(wrong("mlp", "size "+strconv.Itoa(i)+" is %d", n))
		}
		if i == 0 {
			continue
		}
		if i > 1 {
			m.Layers = append(m.Layers, &nn.ReLU{}, nn.NewDropout(dropout))
		}
		m.Layers = append(m.Layers, nn.NewLinear(sizes[i-1], n, opts...))
	}
	m.Layers = append(m.Layers, nn.NewDropout(dropout))
	return m
}

// Forward maps x of shape [..., sizes[0]] to [..., last size]. Flatten a batch of images first:
// x.Flatten(1, -1).
func (m *MLP) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&x, &y)()
	chain := nn.Sequential{Layers: m.Layers}
	if m.checkpointing {
		chain.SetCheckpointing(true)
	}
	return chain.Forward(x)
}

// SetCheckpointing switches recomputation on or off. The MLP is recomputed in segments, as an
// [nn.Sequential] is.
func (m *MLP) SetCheckpointing(enabled bool) { m.checkpointing = enabled }
