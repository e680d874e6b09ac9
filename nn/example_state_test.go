package nn_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
)

// A state dict maps the names of a model's tensors to the tensors. The names are torch's.
func ExampleStateDict() {
	m := nn.NewSequential(nn.NewLinear(2, 1), nn.NewBatchNorm1d(1))
	sd := nn.StateDict(m)
	fmt.Println(len(sd), sd["0.weight"].Shape(), sd["1.num_batches_tracked"])
	// Output: 7 [1, 2] tensor(0)
}

// LoadStateDict copies values from one model to another with the same structure. If some tensors do
// not fit, the error lists them all, and the model stays as it was.
func ExampleLoadStateDict() {
	from, to := nn.NewLinear(2, 1), nn.NewLinear(2, 1)
	fmt.Println(nn.LoadStateDict(to, nn.StateDict(from)))
	fmt.Println(to.Weight.Detach().Eq(from.Weight.Detach()).All())

	err := nn.LoadStateDict(nn.NewLinear(3, 1, nn.NoBias()), nn.StateDict(from))
	var e *nn.StateError
	fmt.Println(errors.As(err, &e), e.Unexpected, e.Mismatched)
	// Output:
	// <nil>
	// tensor(True)
	// true [bias] [{weight [1, 3] [1, 2]}]
}

// A model that will be loaded from a file need not be initialised. It uses the file's tensors
// without a copy.
func ExampleSkipInit() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.safetensors")
	if err := safetensors.Save(path, nn.StateDict(nn.NewLinear(4, 2)), nil); err != nil {
		panic(err)
	}

	f, err := safetensors.Open(path) // the file is mapped into memory
	if err != nil {
		panic(err)
	}
	defer f.Close()
	sd, err := f.Tensors()
	if err != nil {
		panic(err)
	}
	m := nn.NewLinear(4, 2, nn.SkipInit())
	err = tensor.Try(func() { m.Forward(tensor.Ones(1, 4)) })
	fmt.Println(errors.Is(err, tensor.ErrDevice)) // the layer still has no weights
	if err := nn.LoadStateDict(m, sd, nn.Assign()); err != nil {
		panic(err)
	}
	fmt.Println(m.Forward(tensor.Ones(1, 4)).Shape(), m.Weight.Storage() == sd["weight"].Storage())
	// Output:
	// true
	// [1, 2] true
}

// Loose loads only the tensors whose names are in both the model and the dict. This helps if the
// head of the model differs from the head in the dict. Report lists the names that are in only
// one of the two.
func ExampleLoose() {
	type net struct{ Body, Head *nn.Linear }
	type renamed struct{ Body, Classifier *nn.Linear }
	from, to := &net{nn.NewLinear(2, 2), nn.NewLinear(2, 5)}, &renamed{nn.NewLinear(2, 2), nn.NewLinear(2, 3)}
	var r nn.StateError
	fmt.Println(nn.LoadStateDict(to, nn.StateDict(from), nn.Loose(), nn.Report(&r)))
	fmt.Println(r.Missing, r.Unexpected)
	// Output:
	// <nil>
	// [classifier.weight classifier.bias] [head.bias head.weight]
}

// Cast keeps the same *Tensor values, so an existing optimizer keeps working.
func ExampleCast() {
	m := nn.NewLinear(2, 2)
	w := m.Weight
	nn.Cast(m, dtype.BF16)
	fmt.Println(m.Weight == w, w.Type())
	// Output: true bfloat16
}

// Fine-tuning trains only the head.
func ExampleFreeze() {
	body, head := nn.NewLinear(2, 2), nn.NewLinear(2, 2)
	nn.Freeze(body)
	nn.NewSequential(body, head).Forward(tensor.Ones(1, 2)).Sum().Backward()
	fmt.Println(body.Weight.Grad() == nil, head.Weight.Grad() == nil)
	// Output: true false
}

// Apply calls a function with each layer; here it sets the biases of linear layers to zero. Modules
// iterates over the layers and their names.
func ExampleApply() {
	m := nn.NewSequential(nn.NewLinear(2, 2), nn.ReLU{}, nn.NewLinear(2, 1))
	nn.Apply(m, func(l any) {
		if l, ok := l.(*nn.Linear); ok {
			initial.Constant(l.Bias, 1)
		}
	})
	for name, l := range nn.Modules(m) {
		if l, ok := l.(*nn.Linear); ok {
			fmt.Println(name, l.Bias.Detach())
		}
	}
	// Output:
	// 0 tensor([1., 1.])
	// 2 tensor([1.])
}

// A quantised model takes a quarter of the memory. Only the rounding to int8 changes its results.
func ExampleQuantizeDynamic() {
	s := tensor.NewScope(tensor.Seed(1))
	defer s.Close()
	m := nn.NewSequential(nn.NewLinear(8, 32, nn.In(s)), nn.ReLU{}, nn.NewLinear(32, 2, nn.In(s)))
	x := s.Randn(4, 8)
	before := nn.Infer(m, x)
	fmt.Println(nn.QuantizeDynamic(m), m.Layers[0].(*nn.Linear).Weight.Type())
	off := nn.Infer(m, x).Sub(before).Abs().Amax().Item()
	fmt.Println(off < 0.02)
	fmt.Println(tensor.Try(func() { m.Forward(s.Randn(1, 8).RequiresGrad()) }) != nil)
	// Output:
	// 2 int8
	// true
	// true
}
