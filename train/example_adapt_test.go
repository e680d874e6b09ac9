package train_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// In a program's own loop, an Adapt handles a batch that is too large for the device. The emulated
// GPU has 1 MiB.
func ExampleAdapt() {
	gpus, err := cuda.Emulate("emulate,mem=1MiB,segment=16KiB")
	if err != nil {
		fmt.Println(err)
		return
	}
	model := nn.To(nn.NewSequential(nn.NewLinear(2, 256), nn.Tanh{}, nn.NewLinear(256, 1)), device.Device(gpus[0]))
	opt := optim.NewSGD(nn.Parameters(model), optim.SGDConfig{LR: 0.01})
	adapt, err := train.NewAdapt(train.AdaptConfig{Model: model, Reduction: train.ReductionMean, Log: func(line string) { fmt.Println(line) }})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer adapt.Close()
	for range 3 {
		batch := &data.Batch{X: tensor.Ones(600, 2), Y: tensor.Zeros(600, 1)}
		_, err := adapt.Step(opt, batch, func(s *tensor.Scope, part *data.Batch) *tensor.Tensor {
			return model.Forward(part.X).Sub(part.Y).Square().Mean()
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(opt.Steps(), "steps, with at most", adapt.Stats().Most, "samples at once")
	// Output:
	// out of memory with 600 samples at once: going on in parts of 300, whose gradients are added up to the same update
	// 3 steps, with at most 300 samples at once
}

// If not even one sample fits, the error says how much memory was needed and available.
func ExampleMemoryError() {
	gpus, err := cuda.Emulate("emulate,mem=1MiB")
	if err != nil {
		fmt.Println(err)
		return
	}
	w := tensor.Root().On(gpus[0]).Ones(1).RequiresGrad()
	adapt, err := train.NewAdapt(train.AdaptConfig{Model: nn.NewLinear(1, 1), Params: []*tensor.Tensor{w}, Device: gpus[0]})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = adapt.Backward(&data.Batch{X: tensor.Ones(1, 1)}, func(s *tensor.Scope, part *data.Batch) *tensor.Tensor {
		return w.In(s).Mul(s.Ones(1 << 20)).Sum()
	})
	var e *train.MemoryError
	fmt.Println(errors.As(err, &e), errors.Is(err, device.ErrOutOfMemory))
	fmt.Println(e.What, e.Shortage.Asked, "bytes of", e.Shortage.Total)
	// Output:
	// true true
	// the gradients of a single sample 4194304 bytes of 1048576
}

// The example saves memory from the start. It computes batches in parts of 8 samples, and their
// gradients add up to those of the batch. Its matrix products are in bfloat16, and it recomputes
// activations instead of keeping them.
func ExampleConfig_memory() {
	gpus, err := cuda.Emulate("emulate,mem=16MiB")
	if err != nil {
		fmt.Println(err)
		return
	}
	tensor.ManualSeed(1)
	x := tensor.Root().Randn(32, 2)
	set, err := data.NewTensorDataset(x, x.Sum(1, tensor.KeepDim))
	if err != nil {
		fmt.Println(err)
		return
	}
	loader, err := data.NewLoader(set, data.Config{Batch: 16, Device: gpus[0]})
	if err != nil {
		fmt.Println(err)
		return
	}
	model := nn.To(nn.NewSequential(nn.NewLinear(2, 16), nn.Tanh{}, nn.NewLinear(16, 1)), device.Device(gpus[0]))
	var losses []float64
	r, err := train.Fit(context.Background(), train.Config{
		Model: model, Optimizer: optim.NewAdam(nn.Parameters(model), optim.AdamConfig{LR: 0.1}), Train: loader, Epochs: 3,
		Loss:       nn.MSELoss{}.Forward,
		MicroBatch: 8, Checkpointing: true, Autocast: dtype.BF16,
		OnLoss: func(step int, loss float64) { losses = append(losses, loss) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Step, "steps, the loss fell:", losses[len(losses)-1] < losses[0]/2)
	// Output: 6 steps, the loss fell: true
}

// A program can call the parts of a step separately, with other work between them. Backward splits
// the batch if necessary. Do runs a change that either succeeds or changes nothing, and repeats it
// once after running out of memory. Here the first attempt finds no memory on the GPU.
func ExampleAdapt_Do() {
	gpus, err := cuda.Emulate("emulate,mem=1MiB,segment=16KiB")
	if err != nil {
		fmt.Println(err)
		return
	}
	model := nn.To(nn.NewLinear(64, 64), device.Device(gpus[0]))
	opt := optim.NewAdam(nn.Parameters(model), optim.AdamConfig{LR: 0.01})
	adapt, err := train.NewAdapt(train.AdaptConfig{Model: model, Reduction: train.ReductionMean})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer adapt.Close()
	_, err = adapt.Backward(&data.Batch{X: tensor.Ones(8, 64), Y: tensor.Zeros(8, 64)}, func(s *tensor.Scope, part *data.Batch) *tensor.Tensor {
		return nn.MSE(model.Forward(part.X), part.Y)
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := adapt.Do("clipping", func() { optim.ClipGradNorm(opt.Params(), 1) }); err != nil {
		fmt.Println(err)
		return
	}
	gpus[0].Empty()
	if err := gpus[0].FailAlloc(1); err != nil {
		fmt.Println(err)
		return
	}
	err = adapt.Do("the step of Adam", opt.Step)
	fmt.Println(opt.Steps(), err, cuda.MemoryStats(gpus[0])["num_ooms"])
	// Output: 1 <nil> 1
}
