// Command compare measures the same cases on each of the given devices in one run and prints JSON: steps a second of two
// perceptrons and the speed of matrix products. bench/compare/torch_compare.py measures them in PyTorch. Single numbers of a
// shared machine mean little; ratios within one run are what is quoted.
//
//	go run ./bench/compare cpu cuda:0
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	_ "github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A row is one case on one device.
type row struct {
	Device   string  `json:"device"`
	Name     string  `json:"device_name"`
	Emulated bool    `json:"emulated"`
	Case     string  `json:"case"`
	Median   float64 `json:"median_seconds"` // of a step
	Least    float64 `json:"min_seconds"`
	Samples  int     `json:"samples"`
	Rate     float64 `json:"rate"`
	Unit     string  `json:"unit"`
	Peak     int     `json:"peak_bytes"` // of the device's memory, in blocks that were in use, in a step after the first ones
}

func main() {
	log.SetFlags(0)
	names := os.Args[1:]
	if len(names) == 0 {
		names = []string{"cpu"}
	}
	budget := 4 * time.Second
	var rows []row
	for _, name := range names {
		dev, err := device.Open(name)
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range cases {
			r := row{Device: dev.Name(), Name: dev.Info().Name, Emulated: dev.Info().Emulated, Case: c.name, Unit: c.unit}
			if err := tensor.Try(func() { c.run(dev, budget, &r) }); err != nil {
				log.Fatalf("%s on %s: %v", c.name, name, err)
			}
			rows = append(rows, r)
			fmt.Fprintf(os.Stderr, "%-8s %-24s %12.1f %s\n", r.Device, r.Case, r.Rate, r.Unit)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(rows); err != nil {
		log.Fatal(err)
	}
}

type benchCase struct {
	name, unit string
	run        func(dev device.Device, budget time.Duration, r *row)
}

var cases = []benchCase{
	{"mlp_digits_b32", "samples/s", mlp(32, 64, 128, 10)},
	{"mlp_784_4096_4096_10_b128", "samples/s", mlp(128, 784, 4096, 4096, 10)},
	{"cnn_b256", "samples/s", step(256, dtype.Invalid, cnn)},
	{"chargpt_b32", "samples/s", step(32, dtype.Invalid, charGPT)},
	{"chargpt_b32_bf16", "samples/s", step(32, dtype.BF16, charGPT)},
	{"matmul_1024_f32", "GFLOP/s", matmul(1024)},
	{"matmul_4096_f32", "GFLOP/s", matmul(4096)},
	{"add_16M_f32", "GB/s", add(16 << 20)},
}

// measure times step, which ends with a synchronisation, until the budget is used up, after a warm-up.
func measure(budget time.Duration, r *row, inner int, step func()) {
	for range 2 {
		step()
	}
	var times []float64
	for start := time.Now(); len(times) < 5 || time.Since(start) < budget && len(times) < 1000; {
		t := time.Now()
		step()
		times = append(times, time.Since(t).Seconds()/float64(inner))
		if time.Since(start) > 4*budget {
			break
		}
	}
	slices.Sort(times)
	r.Median, r.Least, r.Samples = times[len(times)/2], times[0], len(times)
}

// mlp trains a perceptron of the given sizes, AdamW, on one batch; ten steps between synchronisations.
func mlp(batch int, sizes ...int) func(device.Device, time.Duration, *row) {
	return func(dev device.Device, budget time.Duration, r *row) {
		tensor.ManualSeed(1)
		var layers []nn.Module
		for i := range len(sizes) - 1 {
			if i > 0 {
				layers = append(layers, nn.ReLU{})
			}
			layers = append(layers, nn.NewLinear(sizes[i], sizes[i+1]))
		}
		m := nn.To(nn.NewSequential(layers...), dev)
		opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-4})
		const inner = 10
		tensor.Do(func(data *tensor.Scope) {
			x, y := data.Randn(batch, sizes[0]), data.RandInt(0, sizes[len(sizes)-1], batch)
			measure(budget, r, inner, func() {
				for range inner {
					data.Do(func(s *tensor.Scope) {
						nn.CrossEntropy(m.Forward(x.In(s)), y).Backward()
						opt.Step()
						opt.ZeroGrad()
					})
				}
				must(dev.Synchronize())
			})
		}, tensor.On(dev))
		r.Rate = float64(batch) / r.Median
	}
}

// cnn is models.CNN on images of 28 by 28, charGPT a small GPT on rows of 64 characters; both give the loss of a batch.
func cnn() (any, func(s *tensor.Scope, batch int) *tensor.Tensor) {
	m := models.NewCNN(1, 10)
	return m, func(s *tensor.Scope, batch int) *tensor.Tensor {
		logits := m.Forward(s.Randn(batch, 1, 28, 28))
		defer logits.Free() // as PyTorch does when the expression ends
		return nn.CrossEntropy(logits, s.RandInt(0, 10, batch))
	}
}

func charGPT() (any, func(s *tensor.Scope, batch int) *tensor.Tensor) {
	m := models.NewGPT(models.GPTConfig{Vocab: 65, Context: 64, Layers: 4, Heads: 4, Width: 128, Dropout: 0.1})
	return m, func(s *tensor.Scope, batch int) *tensor.Tensor {
		return m.Loss(s.RandInt(0, 65, batch, 64), s.RandInt(0, 65, batch, 64))
	}
}

// step trains a model, AdamW, on random batches; autocast is a 16-bit type or dtype.Invalid.
func step(batch int, autocast dtype.Type, model func() (any, func(*tensor.Scope, int) *tensor.Tensor)) func(device.Device, time.Duration, *row) {
	return func(dev device.Device, budget time.Duration, r *row) {
		tensor.ManualSeed(1)
		m, loss := model()
		nn.To(m, dev)
		opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-4})
		options := []tensor.Option{tensor.On(dev)}
		if autocast != dtype.Invalid {
			options = append(options, tensor.Autocast(autocast))
		}
		measure(budget, r, 1, func() {
			tensor.Do(func(s *tensor.Scope) {
				loss(s, batch).Backward()
			}, options...)
			opt.Step()
			opt.ZeroGrad()
			must(dev.Synchronize())
			if r.Peak == 0 { // the optimizer has its state now
				dev.ResetPeak()
			}
			r.Peak = dev.Stats().AllocatedPeak
		})
		r.Rate = float64(batch) / r.Median
	}
}

// matmul multiplies two square matrices in IEEE float32.
func matmul(n int) func(device.Device, time.Duration, *row) {
	return func(dev device.Device, budget time.Duration, r *row) {
		tensor.Do(func(data *tensor.Scope) {
			a, b := data.Randn(n, n), data.Randn(n, n)
			measure(budget, r, 1, func() {
				data.Do(func(s *tensor.Scope) { a.In(s).MatMul(b) })
				must(dev.Synchronize())
			})
		}, tensor.On(dev), tensor.NoGrad())
		r.Rate = 2 * float64(n) * float64(n) * float64(n) / r.Median / 1e9
	}
}

// add reads two vectors and writes one.
func add(n int) func(device.Device, time.Duration, *row) {
	return func(dev device.Device, budget time.Duration, r *row) {
		tensor.Do(func(data *tensor.Scope) {
			a, b := data.Randn(n), data.Randn(n)
			measure(budget, r, 10, func() {
				for range 10 {
					data.Do(func(s *tensor.Scope) { a.In(s).Add(b) })
				}
				must(dev.Synchronize())
			})
		}, tensor.On(dev), tensor.NoGrad())
		r.Rate = 12 * float64(n) / r.Median / 1e9
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
