package nn_test

import (
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

func ExampleDescribe() {
	model := nn.NewSequential(nn.NewConv2d(1, 8, 3, nn.Padding(1)), nn.ReLU{}, nn.Flatten{}, nn.NewLinear(8, 10))
	fmt.Println(nn.Describe(model)) // Sequential.String returns the same text
	// Output:
	// Sequential(
	//   (0): Conv2d(weight [8, 1, 3, 3], bias [8], Padding: [1])
	//   (1): ReLU()
	//   (2): Flatten()
	//   (3): Linear(weight [10, 8], bias [10])
	// )
}

// A describedNet has a layer or a field for each case that Describe distinguishes.
type describedNet struct {
	nn.Base
	Blocks []*nn.Sequential
	Words  *nn.Embedding
	Act    nn.ReLU
	Free   *tensor.Tensor `nn:"free"`
	Gain   *tensor.Tensor `nn:"gain"`
	Cache  *tensor.Tensor
	Count  *tensor.Tensor `nn:"count,buffer"`
	Rate   float64
	Off    bool
	Names  []string
	hidden int
}

func TestDescribe(t *testing.T) {
	block := func(out int) *nn.Sequential { return nn.NewSequential(nn.NewLinear(4, out), nn.Tanh{}) }
	m := &describedNet{Blocks: []*nn.Sequential{block(4), block(4), block(4), block(2)}, Words: nn.NewEmbedding(10, 3, nn.PaddingIndex(7)),
		Free: tensor.Ones(1), Gain: tensor.Ones(2).RequiresGrad(), Cache: tensor.Ones(3, 4), Count: tensor.Ones(1), Rate: 0.5, Names: []string{"a"}, hidden: 3}
	const want = `describedNet(free [1] frozen, gain [2], Cache: [3, 4] without a tag, Rate: 0.5, Names: [a]
  (blocks.0-2): 3 × Sequential(
    (0): Linear(weight [4, 4], bias [4])
    (1): Tanh()
  )
  (blocks.3): Sequential(
    (0): Linear(weight [2, 4], bias [2])
    (1): Tanh()
  )
  (words): Embedding(weight [10, 3], Padding: 7, NormType: 2)
  (act): ReLU()
)`
	if got := nn.Describe(m); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	act, tied := &nn.ReLU{}, nn.NewLinear(2, 2)
	for want, m := range map[string]any{
		"Sequential(\n  (0): Linear(weight [2, 2], bias [2])\n  (1): ReLU()\n  (2): Linear(weight [2, 2], bias [2])\n  (3): ReLU()\n)": nn.NewSequential(tied, act, tied, act),
		"ReLU()":           nn.ReLU{},
		"Dropout(P: 0.25)": nn.NewDropout(0.25),
		"LSTM(weight_ih_l0 [12, 2], weight_hh_l0 [12, 3], bias_ih_l0 [12], bias_hh_l0 [12], Features: 2, Hidden: 3, Layers: 1, BatchFirst: true)": nn.NewLSTM(2, 3, nn.RecurrentOptions{BatchFirst: true}),
		"slice(\n  (0): Dropout()\n  (1): Tanh()\n)": []nn.Module{nn.NewDropout(0), nn.Tanh{}},
	} {
		if got := nn.Describe(m); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	small := nn.NewSequential(nn.NewLinear(2, 3))
	nn.Eval(small)
	nn.QuantizeDynamic(small)
	if got := nn.Describe(small); got != "Sequential(\n  (0): Linear(weight [3, 2] int8 frozen, bias [3] frozen)\n)" {
		t.Errorf("a quantised model prints as %s", got)
	}
	if got := fmt.Sprint(block(4)); got != nn.Describe(block(4)) {
		t.Errorf("a Sequential prints as %s", got)
	}
}
