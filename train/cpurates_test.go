package train_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// stepTime returns the median time of a step on the CPU.
func stepTime(build builder, batch, steps int) float64 {
	var times []float64
	tensor.Do(func(s *tensor.Scope) {
		p := build(s, batch)
		for range steps {
			at := time.Now()
			s.Do(func(s *tensor.Scope) { p.Loss(s).Backward() })
			p.Optimizer.Step()
			p.Optimizer.ZeroGrad()
			times = append(times, time.Since(at).Seconds())
		}
	}, tensor.Seed(0))
	slices.Sort(times)
	return times[len(times)/2]
}

// The time of a step on the CPU, estimated from measured rates, must be right within a factor of
// 1.5. Rates and steps are measured alternately, so that other load on the machine affects both.
// Without FLAMBEAU_SOAK the test checks only that more samples take longer, because on a busy
// machine a single measurement proves nothing.
func TestPlanSecondsOnTheCPU(t *testing.T) {
	const rounds, steps, factor = 15, 9, 1.5
	soak := os.Getenv("FLAMBEAU_SOAK") == "1"
	var cpu train.Machine
	for _, m := range []struct {
		name  string
		build builder
		batch int
	}{
		{"mlp", images(func(o nn.Option) nn.Module { return models.NewMLP([]int{784, 512, 256, 10}, 0.1, o) }, 784), 128},
		{"cnn", images(func(o nn.Option) nn.Module { return models.NewCNN(1, 10, o) }, 1, 28, 28), 32},
		{"gpt", gptStep(models.GPTConfig{Vocab: 256, Context: 64, Layers: 4, Heads: 4, Width: 128}, 64), 8},
	} {
		estimate := func(batch int) float64 {
			r, err := train.Plan(m.build, train.PlanConfig{Machine: cpu, Batch: batch})
			if err != nil {
				t.Fatal(err)
			}
			return r.Seconds
		}
		var ratios []float64
		for range rounds {
			if soak || cpu.Name == "" {
				var err error
				if cpu, err = train.MeasureCPU(); err != nil {
					t.Fatal(err)
				}
			}
			if !soak {
				break
			}
			ratios = append(ratios, estimate(m.batch)/stepTime(m.build, m.batch, steps))
		}
		if few, many := estimate(m.batch), estimate(16*m.batch); few <= 0 || many <= few {
			t.Errorf("%s: %v s for %d samples, %v for sixteen times as many", m.name, few, m.batch, many)
		}
		if !soak {
			continue
		}
		slices.Sort(ratios)
		ratio := ratios[rounds/2]
		t.Logf("%s: estimated %.2f of the time that it takes, between %.2f and %.2f", m.name, ratio, ratios[0], ratios[rounds-1])
		if ratio > factor || ratio < 1/factor {
			t.Errorf("%s: estimated %.2f of the time that it takes, want at most a factor %v", m.name, ratio, factor)
		}
	}
}

// The operations of a convolution and of attention count as operations of matrix products, even if
// a special kernel computes them. The estimated time depends on this count.
func TestPlanProductsOnTheCPU(t *testing.T) {
	// The work is large enough that the overhead of a call does not matter even on a slow machine.
	const channels, size = 128, 48
	cpu, err := train.MeasureCPU()
	if err != nil {
		t.Fatal(err)
	}
	conv := func(kernel int) builder {
		return func(s *tensor.Scope, batch int) *train.PlannedStep {
			w := s.Zeros(channels, channels, kernel, kernel)
			return &train.PlannedStep{Model: &nn.Tanh{}, Loss: func(s *tensor.Scope) *tensor.Tensor {
				return s.Zeros(batch, channels, size, size).Conv2d(w.In(s), nil, tensor.ConvOptions{Padding: []int{kernel / 2}}).Mean()
			}}
		}
	}
	plan := func(b builder, m train.Machine) *train.Report {
		r, err := train.Plan(b, train.PlanConfig{Machine: m, Batch: 4})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const want = 2 * 4 * channels * channels * size * size * 25
	here, gpu := plan(conv(5), cpu), plan(conv(5), train.Machine{})
	if here.FLOPs.MatMul != want || gpu.FLOPs.MatMul != want {
		t.Errorf("%d operations of products, on a GPU %d, want %d", here.FLOPs.MatMul, gpu.FLOPs.MatMul, want)
	}
	if few := plan(conv(1), cpu); here.Seconds < 3*few.Seconds {
		t.Errorf("%v s, with a 25th of the operations %v s", here.Seconds, few.Seconds)
	}
	attention := func(s *tensor.Scope, batch int) *train.PlannedStep {
		return &train.PlannedStep{Model: &nn.Tanh{}, Loss: func(s *tensor.Scope) *tensor.Tensor {
			x := s.Zeros(batch, 128, 64)
			return tensor.ScaledDotProductAttention(x, x, x, tensor.AttentionOptions{}).Mean()
		}}
	}
	const products = 2 * 2 * 4 * 128 * 128 * 64
	if f := plan(attention, cpu).FLOPs.MatMul; f < products || f > products*3/2 {
		t.Errorf("%d operations of attention's products, want %d", f, products)
	}
}
