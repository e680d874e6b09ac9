// Command digits is the README's program: it trains a classifier of handwritten digits on the best device there is.
package main

import (
	"fmt"
	"log"

	_ "github.com/flambeau-go/flambeau/cuda" // link the GPU driver in
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

func main() {
	dev, why := device.Best() // "cuda" if available else "cpu"
	fmt.Println(why)
	set, err := digits.Load()
	if err != nil {
		log.Fatal(err)
	}
	train, _ := set.Split()
	loader, err := data.NewLoader(train, data.Config{Batch: 32, Shuffle: true})
	if err != nil {
		log.Fatal(err)
	}
	model := nn.To(nn.NewSequential(nn.NewLinear(64, 128), nn.ReLU{}, nn.NewLinear(128, 10)), dev)
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 1e-3})
	for epoch := range 10 {
		last := 0.0
		for batch, err := range loader.Batches() {
			if err != nil {
				log.Fatal(err)
			}
			tensor.Do(func(s *tensor.Scope) { // owns what the step makes, and what From gives it (In lends), and frees it
				loss := nn.CrossEntropy(model.Forward(s.From(batch.X)), s.From(batch.Y))
				loss.Backward()
				opt.Step()
				opt.ZeroGrad()
				last = loss.Item()
			}, tensor.On(dev))
		}
		fmt.Printf("epoch %d: loss %.4f\n", epoch+1, last)
	}
}
