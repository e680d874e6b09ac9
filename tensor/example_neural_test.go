package tensor_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// Each query gets a mean of the values, weighted by how well the query matches the keys of these
// values. With Causal a query attends to keys up to its own position.
func ExampleScaledDotProductAttention() {
	q := tensor.From([][]float32{{0, 0}, {4, 0}, {0, 4}})
	k := tensor.From([][]float32{{1, 0}, {0, 1}, {1, 0}})
	v := tensor.From([][]float32{{1}, {2}, {3}})
	y := tensor.ScaledDotProductAttention(q, k, v, tensor.AttentionOptions{Causal: true})
	fmt.Println(y.T())
	// Output: tensor([[1.0000, 1.0558, 2.0000]])
}

// Queries and keys are rotated by their positions. This text continues after 7 tokens in a cache.
func ExampleTensor_RoPE() {
	heads := tensor.Typed(dtype.F32).Ones(2, 4) // two tokens
	fmt.Println(heads.RoPE(tensor.RoPEOptions{Offset: 7}))
	// Output:
	// tensor([[ 0.0969,  0.9276,  1.4109,  1.0675],
	//         [-1.1349,  0.9169,  0.8439,  1.0767]])
}

// Dropout1d drops whole channels: each of the six channels is kept or dropped as a whole.
func ExampleTensor_Dropout1d() {
	tensor.Do(func(s *tensor.Scope) {
		fmt.Println(s.Ones(2, 3, 4).Dropout1d(0.5).Mean(-1))
	}, tensor.Seed(2))
	// Output:
	// tensor([[2., 2., 0.],
	//         [2., 2., 2.]])
}

// CrossEntropy returns the loss of each target, 0 for ignored targets.
func ExampleTensor_CrossEntropy() {
	logits := tensor.From([][]float32{{2, 0}, {0, 2}})
	fmt.Println(logits.CrossEntropy(tensor.From([]int64{0, -1}), tensor.CrossEntropyOptions{IgnoreIndex: new(-1)}))
	// Output: tensor([0.1269, 0.0000])
}

func ExampleScaledDotProductAttention_lengths() {
	s := tensor.NewScope()
	defer s.Close()
	q, k, v := s.Zeros(2, 1, 1, 2), s.Zeros(2, 1, 3, 2), s.From([]float32{1, 3, 8, 2, 4, 9}).Reshape(2, 1, 3, 1)
	y := tensor.ScaledDotProductAttention(q, k, v, tensor.AttentionOptions{Lengths: s.From([]int64{2, 3})})
	fmt.Println(y.Floats())
	// Output: [2 5]
}

// LinearAct computes a linear layer and its activation in one op.
func ExampleTensor_LinearAct() {
	x := tensor.From([][]float32{{1, 2}, {-3, 4}})
	w, b := tensor.From([][]float32{{1, 0}, {0, -1}, {2, 2}}), tensor.From([]float32{0, 3, -1})
	fmt.Println(x.LinearAct(w, b, (*tensor.Tensor).Relu))
	// Output:
	// tensor([[1., 1., 5.],
	//         [0., 0., 1.]])
}
