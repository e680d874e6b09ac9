package nn_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Two sequences of five steps pass through two layers in both directions. The next call continues
// the sequences from the last states of the first call.
func ExampleLSTM() {
	l := nn.NewLSTM(3, 4, nn.RecurrentOptions{Layers: 2, Bidirectional: true})
	y, h, c := l.Forward(tensor.Ones(5, 2, 3), nil, nil)
	fmt.Println(y.Shape(), h.Shape(), c.Shape())
	y, _, _ = l.Forward(tensor.Ones(2, 2, 3), h.Detach(), c.Detach())
	fmt.Println(y.Shape())
	for _, p := range nn.Named(l)[:5] {
		fmt.Println(p.Name, p.Tensor.Shape())
	}
	// Output:
	// [5, 2, 8] [4, 2, 4] [4, 2, 4]
	// [2, 2, 8]
	// weight_ih_l0 [16, 3]
	// weight_hh_l0 [16, 4]
	// bias_ih_l0 [16]
	// bias_hh_l0 [16]
	// weight_ih_l0_reverse [16, 3]
}

func ExampleGRU() {
	l := nn.NewGRU(3, 4, nn.RecurrentOptions{BatchFirst: true})
	y, h := l.Forward(tensor.Ones(2, 5, 3), nil)
	fmt.Println(y.Shape(), h.Shape())
	// Output: [2, 5, 4] [1, 2, 4]
}

// The input is one sequence, without a batch dimension.
func ExampleRNN() {
	l := nn.NewRNN(1, 1, nn.RecurrentOptions{Relu: true})
	for _, p := range nn.Parameters(l) {
		p.Detach().Fill(0.5)
	}
	y, _ := l.Forward(tensor.From([]float32{0, 2, 0}, 3, 1), nil)
	fmt.Println(y.Detach().Squeeze(1)) // h₀ = 0, hₜ = ½·xₜ + ½ + ½·hₜ₋₁ + ½
	// Output: tensor([1.0000, 2.5000, 2.2500])
}

// Parameters are listed by layer and, within a bidirectional layer, by direction.
func ExampleRecurrent() {
	l := nn.NewLSTM(3, 4, nn.RecurrentOptions{})
	forget := l.Weights[0].BiasHH.Detach().Narrow(0, 4, 4) // the forget gate's block is the second
	forget.Fill(1)
	fmt.Println(l.Weights[0].BiasHH.Detach().Narrow(0, 4, 4))
	// Output: tensor([1., 1., 1., 1.])
}

// The example calls the cell in its own loop over the steps.
func ExampleLSTMCell() {
	cell := nn.NewLSTMCell(3, 4)
	x := tensor.Ones(5, 2, 3)
	var h, c *tensor.Tensor
	for _, step := range x.Unbind(0) {
		h, c = cell.Forward(step, h, c)
	}
	fmt.Println(h.Shape(), c.Shape())
	// Output: [2, 4] [2, 4]
}

func ExampleGRUCell() {
	fmt.Println(nn.NewGRUCell(3, 4).Forward(tensor.Ones(2, 3), nil).Shape())
	// Output: [2, 4]
}

func ExampleRNNCell() {
	fmt.Println(nn.NewRNNCell(3, 4).Forward(tensor.Ones(3), nil).Shape())
	// Output: [4]
}

// Packed sequences have different lengths. Each sequence ends with its own last step, and no time
// is spent on padding.
func ExamplePackPaddedSequence() {
	// three sequences of up to three steps
	x := tensor.From([]float32{1, 2, 0, 3, 4, 5, 6, 0, 0}, 3, 3, 1)
	p := nn.PackPaddedSequence(x, []int{2, 3, 1}, nn.PackOptions{BatchFirst: true, Unsorted: true})
	fmt.Println(p.Data.Squeeze(1), p.BatchSizes, p.Sorted)

	l := nn.NewGRU(1, 2, nn.RecurrentOptions{BatchFirst: true})
	y, h := l.ForwardPacked(p, nil)
	padded, lengths := nn.PadPackedSequence(y, nn.PadOptions{BatchFirst: true})
	fmt.Println(padded.Shape(), lengths, h.Select(0, 0).Select(0, 2).AllClose(padded.Select(0, 2).Select(0, 0), 0, 0))
	// Output:
	// tensor([3., 1., 6., 4., 2., 5.]) [3 2 1] [1 0 2]
	// [3, 3, 2] [2 3 1] true
}

func ExamplePadSequence() {
	list := []*tensor.Tensor{tensor.From([]float32{1, 2, 3}), tensor.From([]float32{4})}
	fmt.Println(nn.PadSequence(list, nn.PadOptions{BatchFirst: true}))
	// Output:
	// tensor([[1., 2., 3.],
	//         [4., 0., 0.]])
}

func ExampleUnpadSequence() {
	x := tensor.From([][]float32{{1, 2, 3}, {4, 0, 0}})
	for _, s := range nn.UnpadSequence(x, []int{3, 1}, true) {
		fmt.Println(s)
	}
	// Output:
	// tensor([1., 2., 3.])
	// tensor([4.])
}

func ExamplePackSequence() {
	p := nn.PackSequence([]*tensor.Tensor{tensor.From([]float32{1, 2, 3}), tensor.From([]float32{4})}, false)
	fmt.Println(p.Data, p.Lengths())
	// Output: tensor([1., 4., 2., 3.]) [3 1]
}
