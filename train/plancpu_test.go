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

// What is estimated of a step's time on the CPU, from the rates of this moment, is what it takes within a factor of 1.5; rates and steps alternate,
// so that both see what else the machine does. One look says nothing of a machine that is busy: without FLAMBEAU_SOAK only what does not depend on the time
// is looked at, that more samples take longer.
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
