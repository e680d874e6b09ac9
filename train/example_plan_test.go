package train_test

import (
	"fmt"
	"log"

	_ "github.com/flambeau-go/flambeau/cuda" // registers the NVIDIA driver for Plan
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// Plan estimates the memory and time that a step of your own model needs on an L4, and the largest
// batch. The machine itself needs no GPU.
func ExamplePlan() {
	build := func(s *tensor.Scope, batch int) *train.PlannedStep {
		m := nn.NewSequential(nn.NewLinear(4096, 16384, nn.In(s)), nn.GELU{}, nn.NewLinear(16384, 4096, nn.In(s)))
		return &train.PlannedStep{
			Model:     m,
			Optimizer: optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-4}),
			Loss: func(s *tensor.Scope) *tensor.Tensor {
				x := s.Zeros(batch, 4096) // the values do not matter
				return nn.MSE(m.Forward(x), x)
			},
		}
	}
	gpu, err := train.FindGPU("l4")
	if err != nil {
		log.Fatal(err)
	}
	r, err := train.Plan(build, train.PlanConfig{Machine: gpu, Batch: 512, MaxBatch: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	b := r.Breakdown
	fmt.Printf("GiB at the peak: weights %.2f, gradients %.2f, AdamW %.2f\n", gib(b.Weights), gib(b.Gradients), gib(b.Optimizer))
	fmt.Println("fits:", r.Fits, "- and more than ten times as many samples:", r.MaxBatch > 5120)
	fmt.Printf("%.1f TFLOP in %d samples\n", float64(r.FLOPs.Total())/1e12, r.Batch)
	// Output:
	// GiB at the peak: weights 0.50, gradients 0.50, AdamW 1.00
	// fits: true - and more than ten times as many samples: true
	// 0.3 TFLOP in 512 samples
}

func gib(n int) float64 { return float64(n) / (1 << 30) }

// GPUs returns the GPUs whose rates are known.
func ExampleGPUs() {
	for _, m := range train.GPUs() {
		fmt.Printf("%-5s %-17s %3.0f GiB  %4.0f TFLOP/s in bfloat16\n", m.Name, m.Product, gib(m.Memory), m.Half/1e12)
	}
	// Output:
	// 3090  GeForce RTX 3090   24 GiB    71 TFLOP/s in bfloat16
	// 4090  GeForce RTX 4090   24 GiB   165 TFLOP/s in bfloat16
	// a100  A100 SXM 80GB      79 GiB   312 TFLOP/s in bfloat16
	// h100  H100 SXM           79 GiB   990 TFLOP/s in bfloat16
	// h200  H200 SXM          140 GiB   990 TFLOP/s in bfloat16
	// l4    L4                 22 GiB   121 TFLOP/s in bfloat16
	// l40s  L40S               44 GiB   362 TFLOP/s in bfloat16
}

// MeasureCPU measures the rates of the library's kernels on this machine's CPU. Plan estimates the
// time of a step from these rates.
func ExampleMeasureCPU() {
	cpu, err := train.MeasureCPU()
	if err != nil {
		log.Fatal(err)
	}
	r, err := train.Plan(func(s *tensor.Scope, batch int) *train.PlannedStep {
		m := nn.NewLinear(1000, 1000, nn.In(s))
		return &train.PlannedStep{Model: m, Loss: func(s *tensor.Scope) *tensor.Tensor { return m.Forward(s.Zeros(batch, 1000)).Mean() }}
	}, train.PlanConfig{Machine: cpu, Batch: 64})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.Machine, r.Fits, r.Seconds > 0 && r.Duration() < 10e9)
	// Output: cpu true true
}
