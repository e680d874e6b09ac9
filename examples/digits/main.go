// Command digits is the program in the README. It trains a classifier of handwritten digits on the
// best device found.
package main

import (
	"fmt"
	"log"

	_ "github.com/flambeau-go/flambeau/cuda" // links the GPU driver into the program
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
)

func main() {
	dev, why := device.Best() // "cuda" if there is a GPU, else "cpu"
	fmt.Println(why)
	set, err := digits.Load()
	if err != nil {
		log.Fatal(err)
	}
	train, _ := set.Split()
	loader, err := data.NewLoader(train, data.Config{Batch: 32, Shuffle: true, Device: dev})
	if err != nil {
		log.Fatal(err)
	}
	model := nn.To(nn.NewSequential(nn.NewLinear(64, 128), nn.ReLU{}, nn.NewLinear(128, 10)), dev)
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 1e-3})
	for epoch := range 10 {
		last := 0.0
		for step, err := range loader.Steps() {
			if err != nil {
				log.Fatal(err)
			}
			loss := nn.CrossEntropy(model.Forward(step.X), step.Y)
			loss.Backward()
			opt.Step()
			opt.ZeroGrad()
			last = loss.Item()
		} // here the step's scope frees the batch and all tensors computed from it
		fmt.Printf("epoch %d: loss %.4f\n", epoch+1, last)
	}
}
