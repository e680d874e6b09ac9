package optim_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// The average follows the weight slowly. The method With runs a function while the model computes
// with the average.
func ExampleNewEMA() {
	model := nn.NewLinear(1, 1, nn.NoBias())
	set := func(v float64) {
		tensor.Do(func(s *tensor.Scope) { model.Weight.In(s).Fill(v) }, tensor.NoGrad())
	}
	set(0)
	ema := optim.NewEMA(model, 0.9)
	ema.Update()
	set(1)
	ema.Update()
	ema.With(func() { fmt.Printf("%.2f\n", model.Weight.Detach().Item()) })
	fmt.Println(model.Weight.Detach().Item())
	// Output:
	// 0.10
	// 1
}

// NewSWA averages the weights after each of three epochs, with equal weight.
func ExampleNewSWA() {
	model := nn.NewLinear(1, 1, nn.NoBias())
	swa := optim.NewSWA(model)
	for _, v := range []float64{1, 2, 6} {
		tensor.Do(func(s *tensor.Scope) { model.Weight.In(s).Fill(v) }, tensor.NoGrad())
		swa.Update()
	}
	fmt.Println(swa.Updates(), swa.Averages()["weight"].Item())
	// Output: 3 3
}

// With averaged weights, batch normalisations need new running statistics. One pass over the data
// computes them.
func ExampleUpdateBN() {
	norm := nn.NewBatchNorm1d(1)
	model := nn.NewSequential(norm)
	err := optim.UpdateBN(model, func() error {
		for _, batch := range [][][]float32{{{0}, {2}}, {{4}, {6}}} {
			tensor.Do(func(s *tensor.Scope) { model.Forward(s.From(batch)) }, tensor.NoGrad())
		}
		return nil
	})
	fmt.Println(norm.RunningMean, norm.RunningVar, err)
	// Output: tensor([3.]) tensor([2.]) <nil>
}
