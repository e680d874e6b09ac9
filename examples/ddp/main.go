// Command ddp trains one model on all GPUs, or on two halves of the CPU, with one goroutine for
// each device.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"

	_ "github.com/flambeau-go/flambeau/cuda" // links the GPU driver into the program
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/train"
)

func main() {
	names := "cpu,cpu"
	if n, _ := device.Count("cuda"); n > 0 {
		names = "cuda:*"
	}
	flag.StringVar(&names, "devices", names, "a device for each rank")
	epochs := flag.Int("epochs", 10, "how often the data is gone through")
	flag.Parse()
	set, err := digits.Load()
	if err != nil {
		log.Fatal(err)
	}
	known, held := set.Split()
	devices := dist.Devices(strings.Split(names, ",")...)
	list, err := devices.List()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("a rank on each of", list)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	err = dist.Run(ctx, devices, func(ctx context.Context, g *dist.Group) error {
		share, err := data.NewDistributedSampler(known.Len(), data.DistributedConfig{Rank: g.Rank(), World: g.World(), Shuffle: true})
		if err != nil {
			return err
		}
		loader, err := data.NewLoader(known, data.Config{Batch: 32 / g.World(), Sampler: share, Device: g.Device()})
		if err != nil {
			return err
		}
		model := dist.Make(g, func() nn.Module {
			return nn.NewSequential(nn.NewLinear(64, 128), nn.ReLU{}, nn.NewDropout(0.1), nn.NewLinear(128, 10))
		})
		// From here on, Backward averages gradients over the ranks.
		model = dist.DDP(nn.To(model, g.Device()), g)
		opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 1e-3})
		for epoch := range *epochs {
			last := 0.0
			for step, err := range loader.Steps(g.Options()...) {
				if err != nil {
					return err
				}
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				loss := nn.CrossEntropy(model.Forward(step.X), step.Y)
				loss.Backward()
				opt.Step()
				opt.ZeroGrad()
				last = loss.Item()
			}
			if g.Rank() == 0 {
				fmt.Printf("epoch %d: loss %.4f\n", epoch+1, last)
			}
		}
		if g.Rank() > 0 { // all ranks have the same weights, so only rank 0 continues
			return nil
		}
		test, err := data.NewLoader(held, data.Config{Batch: 256, Device: g.Device()})
		if err != nil {
			return err
		}
		result, err := train.Evaluate(ctx, train.Config{Model: model, Metrics: []train.Metric{train.NewAccuracy()}}, test)
		fmt.Printf("accuracy %.4f of what was held out\n", result["accuracy"])
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
