package nn_test

import (
	"errors"
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// perceptron is a model: a struct whose exported fields hold layers.
type perceptron struct {
	Hidden *nn.Linear
	Drop   *nn.Dropout
	Out    *nn.Linear `nn:"head"` // the name "head" replaces the field's name
}

func (p *perceptron) Forward(x *tensor.Tensor) *tensor.Tensor {
	return p.Out.Forward(p.Drop.Forward(p.Hidden.Forward(x).Relu()))
}

func newPerceptron() *perceptron {
	return &perceptron{nn.NewLinear(4, 8), nn.NewDropout(0.5), nn.NewLinear(8, 2)}
}

// A model needs no registration: parameters are found by reflection on its fields.
func Example() {
	m := newPerceptron()
	for _, p := range nn.Named(m) {
		fmt.Println(p.Name, p.Tensor.Shape())
	}
	fmt.Println(nn.Count(m), "numbers; an output of shape", m.Forward(tensor.Ones(3, 4)).Shape())
	// Output:
	// hidden.weight [8, 4]
	// hidden.bias [8]
	// head.weight [2, 8]
	// head.bias [2]
	// 58 numbers; an output of shape [3, 2]
}

// scaled is a user's layer. Its tags declare one field a parameter and the other a buffer, which is
// state without a gradient.
type scaled struct {
	Gain *tensor.Tensor `nn:"gain"`
	Seen *tensor.Tensor `nn:"seen,buffer"`
}

func (l *scaled) Forward(x *tensor.Tensor) *tensor.Tensor {
	l.Seen.AddScalarInPlace(float64(x.Dim(0)))
	return x.Mul(l.Gain)
}

// Parameters lists parameters only; Named lists buffers too.
func ExampleParameters() {
	l := &scaled{Gain: tensor.Ones(2).RequiresGrad(), Seen: tensor.Zeros()}
	l.Forward(tensor.From([][]float32{{1, 2}, {3, 4}})).Sum().Backward()
	for _, p := range nn.Parameters(l) {
		fmt.Println(p.Grad())
	}
	for _, p := range nn.Named(l) {
		fmt.Println(p.Name, p.Buffer)
	}
	fmt.Println(l.Seen)
	// Output:
	// tensor([4., 6.])
	// gain false
	// seen true
	// tensor(2.)
}

// A parameter in an unexported field cannot be found, so Parameters reports an error. Otherwise the
// parameter would silently stay untrained.
func ExampleError() {
	type forgotten struct {
		Head  *nn.Linear
		layer *nn.Linear
	}
	err := tensor.Try(func() { nn.Parameters(&forgotten{Head: nn.NewLinear(2, 2), layer: nn.NewLinear(2, 2)}) })
	var e *nn.Error
	fmt.Println(errors.As(err, &e), e.Type)
	fmt.Println(e.Path+":", e.Msg)
	// Output:
	// true *nn_test.forgotten
	// layer: the field is not exported, so its parameters cannot be found; export it or tag it nn:"-"
}

// Dropout is active in training only.
func ExampleEval() {
	m := newPerceptron()
	x := tensor.Ones(1, 4)
	same := func() bool { return m.Forward(x).Eq(m.Forward(x)).Sum().Item() == 2 }
	nn.Eval(m)
	fmt.Println(same(), m.Drop.Training())
	nn.Train(m)
	fmt.Println(m.Drop.Training())
	// Output:
	// true false
	// true
}

// Sequential chains layers. As in torch, their names are their indices.
func ExampleNewSequential() {
	m := nn.NewSequential(nn.Flatten{}, nn.NewLinear(6, 3), nn.GELU{}, nn.NewLinear(3, 1, nn.NoBias()))
	for _, p := range nn.Named(m) {
		fmt.Println(p.Name, p.Tensor.Shape())
	}
	fmt.Println(m.Forward(tensor.Ones(5, 2, 3)).Shape())
	// Output:
	// 1.weight [3, 6]
	// 1.bias [3]
	// 3.weight [1, 3]
	// [5, 1]
}

// To moves a model in place. The *Tensor values remain the same, so an existing optimizer stays
// valid.
func ExampleTo() {
	m := newPerceptron()
	before := m.Out.Weight
	dev, why := device.Best() // a GPU if there is one and package cuda is linked in
	nn.To(m, dev)
	fmt.Println(m.Out.Weight == before, m.Out.Weight.Device() == dev, why != "")
	// Output: true true true
}

// Layers are made in the root scope in float32, unless options say otherwise.
func ExampleNewLinear() {
	tensor.Do(func(s *tensor.Scope) {
		l := nn.NewLinear(2, 3, nn.In(s), nn.Typed(dtype.F64), nn.NoBias())
		fmt.Println(l.Weight.Shape(), l.Weight.Type(), l.Weight.Scope() == s, l.Bias == nil)
	}, tensor.Seed(1))
	// Output: [3, 2] float64 true true
}

// The arguments of CrossEntropy are logits and classes. Rows whose target is IgnoreIndex do not
// count.
func ExampleCrossEntropy() {
	logits := tensor.From([][]float32{{2, 0, 0}, {0, 0, 5}, {1, 1, 1}}).RequiresGrad()
	loss := nn.CrossEntropy(logits, tensor.From([]int64{0, 2, nn.IgnoreIndex}))
	loss.Backward()
	fmt.Printf("%.4f\n", loss.Item())
	fmt.Println(logits.Grad())
	// Output:
	// 0.1265
	// tensor([[-0.1065,  0.0533,  0.0533],
	//         [ 0.0033,  0.0033, -0.0066],
	//         [ 0.0000,  0.0000,  0.0000]])
}

func ExampleMSE() {
	fmt.Println(nn.MSE(tensor.From([]float32{1, 2}), tensor.From([]float32{1, 4})))
	// Output: tensor(2.)
}

// Losses with options are structs. A field that is not set has torch's default.
func ExampleCrossEntropyLoss() {
	loss := nn.CrossEntropyLoss{Weight: tensor.From([]float32{1, 4}), LabelSmoothing: 0.1}
	logits := tensor.From([][]float32{{2, 0}, {2, 0}})
	fmt.Printf("%.4f\n", loss.Forward(logits, tensor.From([]int64{0, 1})).Item())
	// Output: 1.7269
}

// A triplet loss pulls an anchor towards a positive example and pushes it away from a negative one.
func ExampleTripletMarginLoss() {
	loss := nn.NewTripletMarginLoss()
	loss.Margin = 0.5
	anchor, near, far := tensor.From([]float32{0, 0}), tensor.From([]float32{3, 4}), tensor.From([]float32{0, 5})
	fmt.Printf("%.4f\n", loss.Forward(anchor, near, far).Item())
	// Output: 0.5000
}

// In training a batch normalisation uses the batch's statistics, and updates the running
// statistics. In evaluation it uses the running statistics.
func ExampleBatchNorm1d() {
	l := nn.NewBatchNorm1d(1)
	x := tensor.From([][]float32{{0}, {2}, {4}})
	for range 100 {
		l.Forward(x)
	}
	nn.Eval(l)
	fmt.Printf("%.2f %.2f %v\n", l.RunningMean.Item(), l.RunningVar.Item(), l.NumBatchesTracked.Item())
	fmt.Printf("%.2f\n", l.Forward(tensor.From([][]float32{{6}})).Item())
	// Output:
	// 2.00 4.00 100
	// 2.00
}

// Infer runs a model in evaluation mode and without a graph. The result outlives the call, and
// afterwards each layer is back in its previous mode.
func ExampleInfer() {
	m := newPerceptron() // a new model is in training mode
	x := tensor.Ones(1, 4)
	y := nn.Infer(m, x)
	fmt.Println(y.Shape(), y.NeedsGrad(), m.Drop.Training())
	// Output:
	// [1, 2] false true
}
