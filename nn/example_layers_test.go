package nn_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Words are numbers of rows; the padding's row is zeros and stays so.
func ExampleEmbedding() {
	l := nn.NewEmbedding(10, 3, nn.PaddingIndex(0))
	y := l.Forward(tensor.From([][]int64{{4, 7, 0}}))
	fmt.Println(y.Shape(), y.Detach().Select(1, 2))
	// Output: [1, 3, 3] tensor([[0., 0., 0.]])
}

// Bags of different sizes stand behind one another; the second one is empty.
func ExampleEmbeddingBag_Bags() {
	w := tensor.From([][]float32{{1, 10}, {2, 20}, {3, 30}})
	l := nn.EmbeddingBagFromPretrained(w, nn.BagSum)
	fmt.Println(l.Bags(tensor.From([]int64{0, 1, 2}), tensor.From([]int64{0, 2, 2}), nil))
	// Output:
	// tensor([[ 3., 30.],
	//         [ 0.,  0.],
	//         [ 3., 30.]])
}

// heads has a layer for each task.
type heads struct {
	Body  nn.ModuleList[*nn.Linear]
	Tasks *nn.ModuleMap[*nn.Linear]
}

// Lists and maps of layers name their parameters as torch's do.
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

// A function stands among layers.
func ExampleLambda() {
	m := nn.NewSequential(nn.NewLambda(func(x *tensor.Tensor) *tensor.Tensor { return x.MulScalar(2) }), nn.NewZeroPad1d(1, 0))
	fmt.Println(m.Forward(tensor.Ones(1, 1, 2)))
	// Output: tensor([[[0., 2., 2.]]])
}
