// Command dataparallel spreads each batch over all GPUs, or over two halves of the CPU. Only one
// line differs from the program for one device.
package main

import (
	"flag"
	"fmt"
	"log"
	"strings"

	_ "github.com/flambeau-go/flambeau/cuda" // links the GPU driver into the program
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
)

func main() {
	names := "cpu,cpu"
	if n, _ := device.Count("cuda"); n > 0 {
		names = "cuda:*"
	}
	flag.StringVar(&names, "devices", names, "what parts of a batch are computed on")
	epochs := flag.Int("epochs", 10, "how often the data is gone through")
	flag.Parse()
	devices, err := dist.Devices(strings.Split(names, ",")...).List()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("on", devices)
	set, err := digits.Load()
	if err != nil {
		log.Fatal(err)
	}
	known, _ := set.Split()
	loader, err := data.NewLoader(known, data.Config{Batch: 32, Shuffle: true, Device: devices[0]})
	if err != nil {
		log.Fatal(err)
	}
	model := nn.To(nn.NewSequential(nn.NewLinear(64, 128), nn.ReLU{}, nn.NewLinear(128, 10)), devices[0])
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 1e-3})
	spread := dist.DataParallel(model, devices) // only this line differs
	for epoch := range *epochs {
		last := 0.0
		for step, err := range loader.Steps() {
			if err != nil {
				log.Fatal(err)
			}
			loss := nn.CrossEntropy(spread.Forward(step.X), step.Y)
			loss.Backward()
			opt.Step()
			opt.ZeroGrad()
			last = loss.Item()
		}
		fmt.Printf("epoch %d: loss %.4f\n", epoch+1, last)
	}
}
