// Command resume trains in mixed precision with gradient accumulation. The training is interrupted
// and then resumes. Its weights are bitwise equal to those of a training without interruption.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/flambeau-go/flambeau/amp"
	_ "github.com/flambeau-go/flambeau/cuda" // links the GPU driver into the program
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/optim/sched"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// fit trains for some epochs. If end is not 0, fit stops after this number of steps, as if the
// process had been killed.
func fit(dev device.Device, dir string, epochs, end int, resume bool) (*nn.Sequential, *train.Result) {
	set := must(digits.Load())
	tensor.ManualSeed(1)
	model := nn.To(nn.NewSequential(nn.NewLinear(64, 64), nn.ReLU{}, nn.NewDropout(0.2), nn.NewLinear(64, 10)), dev)
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 3e-3})
	result, err := train.Fit(context.Background(), train.Config{
		Model: model, Optimizer: opt, Device: dev,
		Train:      must(data.NewLoader(set, data.Config{Batch: 32, Shuffle: true, Seed: 1, Device: dev})),
		Epochs:     epochs,
		Accumulate: 2,         // two batches of 32 samples for each step
		Autocast:   dtype.F16, // matrix products in 16 bits
		// The scaler multiplies the loss, because gradients in float16 may otherwise be too small.
		Scaler:      amp.NewGradScaler(),
		ClipNorm:    1,
		Schedule:    sched.NewCosineAnnealing(opt, 30*epochs, 0),
		Checkpoints: dir, Every: 10, Resume: resume,
		OnStep: func(s *train.State) error {
			if s.Step == end {
				return train.ErrStop
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	return model, result
}

func main() {
	log.SetFlags(0)
	epochs := flag.Int("epochs", 3, "passes over the digits")
	flag.Parse()
	dev, why := device.Best() // "cuda" if there is a GPU, else "cpu"
	fmt.Println(why)
	dir := must(os.MkdirTemp("", "resume"))
	defer os.RemoveAll(dir)

	whole, r := fit(dev, filepath.Join(dir, "whole"), *epochs, -1, false)
	fmt.Printf("without a break: %d steps, loss %.4f\n", r.Step, r.Loss)
	_, r = fit(dev, filepath.Join(dir, "broken"), *epochs, r.Step/2, false)
	fmt.Printf("stopped after %d steps\n", r.Step)
	resumed, r := fit(dev, filepath.Join(dir, "broken"), *epochs, -1, true)
	fmt.Printf("went on from %s to %d steps\n", filepath.Base(r.Resumed), r.Step)

	same := true
	other := nn.Parameters(resumed)
	for i, p := range nn.Parameters(whole) {
		same = same && p.Detach().Eq(other[i].Detach()).All().Item() == 1
	}
	fmt.Println("the weights are the same, bit for bit:", same)
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
