// Package frompytorch_test runs the programs in the pages of this folder.
package frompytorch_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

func Example_step() {
	dev := tensor.Root().Device()
	model := nn.NewLinear(4, 1)
	batch := tensor.Ones(8, 4)
	total := 0.0
	tensor.Do(func(s *tensor.Scope) {
		x := s.From(batch)              // gives batch to s; batch.In(s) would lend it
		loss := model.Forward(x).Mean() // belongs to s, like every result computed from x
		loss.Backward()                 // gradients of parameters belong to the parameters' scope
		total += loss.Item()
	}, tensor.On(dev)) // here s ends and frees batch, x and the results
	fmt.Println(model.Weight.Grad())

	// Output:
	// tensor([[1., 1., 1., 1.]])
}

//flambeau:ignore unusedmode the page shows what this mistake says
func Example_unused() {
	model := nn.NewLinear(4, 2)
	x := tensor.Ones(1, 4)
	err := tensor.Try(func() {
		tensor.Do(func(*tensor.Scope) { model.Forward(x) }, tensor.NoGrad())
	})
	said, _, _ := strings.Cut(err.Error(), ": the scope")
	fmt.Println(said)

	// Output:
	// tensor: scope.close: NoGrad did nothing
}

func Example_meant() {
	model := nn.NewLinear(4, 2)
	x := tensor.Ones(1, 4)
	y := nn.Infer(model, x) // right: evaluation mode, no graph, and y is kept
	sum := 0.0
	tensor.Do(func(s *tensor.Scope) {
		sum += model.Forward(x.In(s)).Sum().Item() // right: x is lent to s
		model.Weight.In(s).MulScalarInPlace(.5)    // changes a parameter in place
	}, tensor.NoGrad())
	fmt.Println(y.Sum().Item() == sum, y.NeedsGrad())

	// Output:
	// true false
}

func Example_graph() {
	gpus, err := cuda.Emulate("emulate,mem=64MiB") // with a GPU: device.Open("cuda")
	if err != nil {
		log.Fatal(err)
	}
	dev := gpus[0]
	model := nn.To(nn.NewLinear(4, 3), dev)
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 1e-3})

	m := tensor.Root().On(dev)
	x, y := m.Zeros(8, 4), m.Typed(dtype.I64).Zeros(8)
	var loss *tensor.Tensor
	graph, err := tensor.Capture(dev, func(s *tensor.Scope) {
		loss = nn.CrossEntropy(model.Forward(x.In(s)), y.In(s))
		loss.Backward()
		opt.Step()
		opt.ZeroGrad()
	})
	if err != nil {
		log.Fatal(err)
	}
	defer graph.Close()
	last := 0.0
	for range 3 {
		x.Copy(m.Ones(8, 4)) // writes the inputs of the next batch; their classes stay in y
		if err := graph.Replay(); err != nil {
			log.Fatal(err)
		}
		now := loss.Item() // the loss of this step
		fmt.Println(last == 0 || now < last)
		last = now
	}

	// Output:
	// true
	// true
	// true
}
