// Command ranks compares training on several ranks of the CPU with training on one device with the
// same number of workers. It measures the two alternately.
//
//	go run ./bench/ranks [-rounds 31] [-world 2]
//
// For each model it prints a median ratio: the steps per second on ranks, divided by the steps per
// second on one device. 1 means equally fast, and the ratio should stay above 0.9. The line "one
// rank" compares one rank of package dist with the same loop without the package.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A workload is a model with its batches.
type workload struct {
	name    string
	batch   int
	sample  []int
	classes int
	model   func() nn.Module
}

var workloads = []workload{
	{"mlp 784-512-512-10, batch 128", 128, []int{784}, 10, func() nn.Module {
		return nn.NewSequential(nn.NewLinear(784, 512), nn.ReLU{}, nn.NewLinear(512, 512), nn.ReLU{}, nn.NewLinear(512, 10))
	}},
	{"mlp 784-512-512-10, batch 512", 512, []int{784}, 10, func() nn.Module {
		return nn.NewSequential(nn.NewLinear(784, 512), nn.ReLU{}, nn.NewLinear(512, 512), nn.ReLU{}, nn.NewLinear(512, 10))
	}},
	{"cnn 32-64 on 28×28, batch 64", 64, []int{1, 28, 28}, 10, func() nn.Module {
		return nn.NewSequential(nn.NewConv2d(1, 32, 3), nn.ReLU{}, nn.NewConv2d(32, 64, 3), nn.ReLU{}, nn.NewMaxPool2d(2),
			nn.NewFlatten(1, -1), nn.NewLinear(64*12*12, 10))
	}},
}

func main() {
	rounds := flag.Int("rounds", 31, "pairs of measurements")
	world := flag.Int("world", 2, "ranks")
	steps := flag.Int("steps", 12, "steps of a measurement")
	flag.Parse()
	if n := runtime.GOMAXPROCS(0); n < *world {
		log.Fatalf("%d ranks need as many cores; there are %d", *world, n)
	}
	one, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	for _, w := range workloads {
		var many, single []float64
		for range *rounds {
			alone := w.alone(one, *steps)
			ranks := w.ranks(dist.Devices(strings.Split(strings.Repeat("cpu,", *world)[:4**world-1], ",")...), *steps)
			rank := w.ranks(dist.On(one), *steps)
			many = append(many, alone.Seconds()/ranks.Seconds())
			single = append(single, alone.Seconds()/rank.Seconds())
		}
		fmt.Printf("%-32s %d ranks %.3f of one device (%.3f to %.3f), one rank %.3f (%.3f to %.3f)\n", w.name, *world,
			median(many), slices.Min(many), slices.Max(many), median(single), slices.Min(single), slices.Max(single))
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// step runs one training step with n samples on a scope's device.
func (w workload) step(s *tensor.Scope, m nn.Module, opt optim.Optimizer, n int) {
	x := s.Randn(append([]int{n}, w.sample...)...)
	y := s.RandInt(0, w.classes, n)
	nn.CrossEntropy(m.Forward(x), y).Backward()
	opt.Step()
	opt.ZeroGrad()
}

// warm is the number of steps before a measurement.
const warm = 3

func (w workload) alone(d device.Device, steps int) time.Duration {
	m := nn.To(w.model(), d)
	opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 1e-3, Momentum: 0.9})
	var start time.Time
	for i := range warm + steps {
		if i == warm {
			start = time.Now()
		}
		tensor.Do(func(s *tensor.Scope) { w.step(s, m, opt, w.batch) }, tensor.On(d))
	}
	return time.Since(start)
}

func (w workload) ranks(devices dist.DeviceList, steps int) (took time.Duration) {
	err := dist.Run(context.Background(), devices, func(_ context.Context, g *dist.Group) error {
		m := dist.DDP(nn.To(dist.Make(g, w.model), g.Device()), g)
		opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 1e-3, Momentum: 0.9})
		var start time.Time
		for i := range warm + steps {
			if i == warm {
				g.Barrier()
				start = time.Now()
			}
			g.Do(func(s *tensor.Scope) { w.step(s, m, opt, w.batch/g.World()) })
		}
		g.Barrier()
		if g.Rank() == 0 {
			took = time.Since(start)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	return took
}
