package train_test

import (
	"context"
	"fmt"
	"log"

	_ "github.com/flambeau-go/flambeau/cuda" // registers the NVIDIA driver
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// points returns a loader of pairs of numbers. The class of a pair is 1 if its first number is the
// greater one.
func points() *data.Loader {
	x := tensor.Root().Randn(200, 2)
	set, err := data.NewTensorDataset(x, x.Select(1, 0).Gt(x.Select(1, 1)).Long())
	if err != nil {
		log.Fatal(err)
	}
	loader, err := data.NewLoader(set, data.Config{Batch: 20, Shuffle: true, Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	return loader
}

// To train on several devices, set a list of devices. Here the devices are two parts of the CPU. On
// a machine with GPUs, use dist.Devices("cuda:0", "cuda:1").
func ExampleFit_devices() {
	tensor.ManualSeed(1)
	loader, devices := points(), dist.Devices("cpu", "cpu")
	list, err := devices.List()
	if err != nil {
		log.Fatal(err)
	}
	model := nn.To(nn.NewLinear(2, 2), list[0])
	result, err := train.Fit(context.Background(), train.Config{
		Model: model, Optimizer: optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 0.1}), Train: loader, Epochs: 6,
		Devices: devices, Valid: loader, Metrics: []train.Metric{train.NewAccuracy()}, Watch: "accuracy", Maximize: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Step, "steps, accuracy over 0.95:", result.Metrics["accuracy"] > 0.95)
	// Output: 60 steps, accuracy over 0.95: true
}

// If Forward or Loss refers to the model, a training on several devices needs Replica. It returns
// these functions for each copy of the model.
func ExampleComputation() {
	tensor.ManualSeed(1)
	loader, devices := points(), dist.Devices("cpu", "cpu")
	list, err := devices.List()
	if err != nil {
		log.Fatal(err)
	}
	model := nn.To(nn.NewLinear(2, 2), list[0])
	smooth := func(m *nn.Linear) func(s *tensor.Scope, b *data.Batch) (output, target, loss *tensor.Tensor) {
		return func(_ *tensor.Scope, b *data.Batch) (output, target, loss *tensor.Tensor) {
			output = m.Forward(b.X)
			return output, b.Y, nn.CrossEntropy(output, b.Y).Add(m.Weight.Square().Mean().MulScalar(0.01))
		}
	}
	result, err := train.Fit(context.Background(), train.Config{
		Model: model, Optimizer: optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 0.1}), Train: loader, Epochs: 6, Devices: devices,
		Compute: smooth(model),
		Replica: func(m any, _ device.Device) train.Computation {
			return train.Computation{Compute: smooth(m.(*nn.Linear))}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Step, "steps, loss below 0.3:", result.Loss < 0.3)
	// Output: 60 steps, loss below 0.3: true
}
