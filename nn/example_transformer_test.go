package nn_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Two sequences of five steps each attend to themselves. The last step of the second sequence is
// padding.
func ExampleMultiheadAttention() {
	m := nn.NewMultiheadAttention(8, 2, nn.MultiheadOptions{BatchFirst: true})
	x := tensor.Ones(2, 5, 8)
	padding := tensor.Typed(dtype.Bool).Zeros(2, 5)
	padding.SetIndex(true, 1, 4)
	y, w := m.Forward(x, x, x, nn.AttendOptions{Masks: nn.Masks{KeyPadding: padding}, NeedWeights: true})
	fmt.Println(y.Shape(), w.Shape())
	fmt.Println(w.Detach().Index(0, 0))
	fmt.Println(w.Detach().Index(1, 0))
	// Output:
	// [2, 5, 8] [2, 5, 5]
	// tensor([0.2000, 0.2000, 0.2000, 0.2000, 0.2000])
	// tensor([0.2500, 0.2500, 0.2500, 0.2500, 0.0000])
}

// With a causal mask, a language model's layer sees only earlier steps.
func ExampleTransformerEncoderLayer() {
	tensor.ManualSeed(1)
	l := nn.NewTransformerEncoderLayer(8, 2, nn.TransformerOptions{FeedForward: 16, BatchFirst: true, NormFirst: true, Activation: (*tensor.Tensor).Gelu})
	x := tensor.Root().Randn(1, 4, 8)
	y := l.ForwardMasked(x, nn.Masks{Causal: true})
	first := l.ForwardMasked(x.Narrow(1, 0, 2), nn.Masks{Causal: true})
	fmt.Println(y.Shape(), y.Narrow(1, 0, 2).AllClose(first, 1e-5, 1e-5))
	// Output: [1, 4, 8] true
}

// An encoder is a stack of layers. All layers get the same masks.
func ExampleTransformerEncoder() {
	e := nn.NewTransformerEncoder(8, 2, 3, nn.TransformerOptions{FeedForward: 16})
	e.Norm = nn.NewLayerNorm([]int{8})
	fmt.Println(e.Forward(tensor.Ones(4, 2, 8)).Shape(), nn.Named(e)[0].Name)
	// Output: [4, 2, 8] layers.0.self_attn.in_proj_weight
}

// A decoder attends to itself and to the result of an encoder.
func ExampleTransformerDecoder() {
	d := nn.NewTransformerDecoder(8, 2, 2, nn.TransformerOptions{FeedForward: 16})
	memory := tensor.Ones(5, 2, 8)
	fmt.Println(d.Forward(tensor.Ones(3, 2, 8), memory, nn.Masks{Causal: true}, nn.Masks{}).Shape())
	// Output: [3, 2, 8]
}

func ExampleTransformerDecoderLayer() {
	l := nn.NewTransformerDecoderLayer(8, 2, nn.TransformerOptions{FeedForward: 16})
	fmt.Println(l.Forward(tensor.Ones(3, 2, 8), tensor.Ones(5, 2, 8), nn.Masks{Causal: true}, nn.Masks{}).Shape())
	// Output: [3, 2, 8]
}

// The example applies a whole transformer, an encoder and a decoder. The source has five steps, and
// the target has three.
func ExampleTransformer() {
	m := nn.NewTransformer(8, 2, 1, 1, nn.TransformerOptions{FeedForward: 16})
	y := m.Forward(tensor.Ones(5, 2, 8), tensor.Ones(3, 2, 8), nn.Masks{}, nn.Masks{Causal: true}, nn.Masks{})
	fmt.Println(y.Shape())
	// Output: [3, 2, 8]
}

// CausalMask returns a tensor that can be added to the scores of any attention function.
func ExampleCausalMask() {
	fmt.Println(nn.CausalMask(tensor.Typed(dtype.F32), 3))
	// Output:
	// tensor([[0., -inf, -inf],
	//         [0., 0., -inf],
	//         [0., 0., 0.]])
}
