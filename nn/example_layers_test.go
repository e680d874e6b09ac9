package nn_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// The rows of the table are the vectors of words. The row for padding is zero and stays zero.
func ExampleEmbedding() {
	l := nn.NewEmbedding(10, 3, nn.PaddingIndex(0))
	y := l.Forward(tensor.From([][]int64{{4, 7, 0}}))
	fmt.Println(y.Shape(), y.Detach().Select(1, 2))
	// Output: [1, 3, 3] tensor([[0., 0., 0.]])
}

// A vector holds the row numbers of all bags, one bag after another. The second bag is empty.
func ExampleEmbeddingBag_Bags() {
	w := tensor.From([][]float32{{1, 10}, {2, 20}, {3, 30}})
	l := nn.EmbeddingBagFromPretrained(w, nn.BagSum)
	fmt.Println(l.Bags(tensor.From([]int64{0, 1, 2}), tensor.From([]int64{0, 2, 2}), nil))
	// Output:
	// tensor([[ 3., 30.],
	//         [ 0.,  0.],
	//         [ 3., 30.]])
}

// heads is a model with one output layer for each task.
type heads struct {
	Body  nn.ModuleList[*nn.Linear]
	Tasks *nn.ModuleMap[*nn.Linear]
}

// Parameters in lists and maps of layers have the same names as in torch.
func ExampleModuleMap() {
	m := &heads{
		Body:  nn.NewModuleList(nn.NewLinear(2, 2), nn.NewLinear(2, 2)),
		Tasks: nn.NewModuleMap[*nn.Linear]().Set("rain", nn.NewLinear(2, 1)).Set("sun", nn.NewLinear(2, 1)),
	}
	for _, p := range nn.NamedParameters(m) {
		fmt.Print(p.Name, " ")
	}
	fmt.Println(m.Tasks.At("sun").Weight.Shape())
	// Output: body.0.weight body.0.bias body.1.weight body.1.bias tasks.rain.weight tasks.rain.bias tasks.sun.weight tasks.sun.bias [1, 2]
}

// A Lambda makes a function a layer of a Sequential.
func ExampleLambda() {
	m := nn.NewSequential(nn.NewLambda(func(x *tensor.Tensor) *tensor.Tensor { return x.MulScalar(2) }), nn.NewZeroPad1d(1, 0))
	fmt.Println(m.Forward(tensor.Ones(1, 1, 2)))
	// Output: tensor([[[0., 2., 2.]]])
}

// Summary returns a table of a model's layers. It runs the model once and leaves it unchanged.
func ExampleSummary() {
	m := nn.NewSequential(nn.NewConv2d(1, 8, 3), nn.NewBatchNorm2d(8), nn.ReLU{}, nn.Flatten{}, nn.NewLinear(8*26*26, 10))
	nn.Freeze(m.Layers[0])
	fmt.Println(nn.Summary(m, tensor.Ones(64, 1, 28, 28)))
	// Output:
	// Layer  Type         Output           Parameters  Output size
	// ────────────────────────────────────────────────────────────
	// model  Sequential   [64, 10]                         2.5 KiB
	//   0    Conv2d       [64, 8, 26, 26]          80      1.3 MiB
	//   1    BatchNorm2d  [64, 8, 26, 26]          16      1.3 MiB
	//   2    ReLU         [64, 8, 26, 26]                  1.3 MiB
	//   3    Flatten      [64, 5408]                       1.3 MiB
	//   4    Linear       [64, 10]             54,090      2.5 KiB
	//
	// Parameters  54,186 (54.2 K), trainable 54,106, frozen 80; buffers 17
	// Memory      211.7 KiB of parameters, 72 B of buffers, 196.0 KiB of inputs, 5.3 MiB of outputs
}

// Auto copies inputs to the model's device. For another device, only the call of To has to change.
func ExampleAuto() {
	dev, err := device.Open("cpu")
	if err != nil {
		fmt.Println(err)
		return
	}
	m := nn.Auto(nn.To(nn.NewSequential(nn.NewLinear(4, 2), nn.ReLU{}), dev))
	y := m.Forward(tensor.Ones(3, 4))
	fmt.Println(y.Shape(), y.Device().Name(), m.Device().Name())
	// Output: [3, 2] cpu cpu
}
