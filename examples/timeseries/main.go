// Command timeseries trains an LSTM on a noisy wave. The LSTM then continues the wave by itself.
package main

import (
	"flag"
	"fmt"
	"log"
	"math"
	"strings"

	_ "github.com/flambeau-go/flambeau/cuda" // links the GPU driver into the program
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Forecaster predicts the next value of a series from all earlier values.
type Forecaster struct {
	Memory *nn.LSTM
	Out    *nn.Linear
}

func newForecaster() *Forecaster {
	return &Forecaster{nn.NewLSTM(1, 32, nn.RecurrentOptions{BatchFirst: true}), nn.NewLinear(32, 1)}
}

// Forward returns, for each of the values [batch, steps, 1], a prediction of the next value. h and
// c are the LSTM's state, nil at the beginning.
func (m *Forecaster) Forward(x, h, c *tensor.Tensor) (y, h1, c1 *tensor.Tensor) {
	y, h1, c1 = m.Memory.Forward(x, h, c)
	return m.Out.Forward(y), h1, c1
}

func wave(t float64) float64 { return math.Sin(t/5) + 0.5*math.Sin(t/2) }

// waves returns noisy series with random phases.
func waves(s *tensor.Scope, batch, steps int) *tensor.Tensor {
	values := make([]float32, 0, batch*steps)
	for _, start := range s.Rand(batch).Floats() {
		for t := range steps {
			values = append(values, float32(wave(100*start+float64(t))))
		}
	}
	x := s.From(values, batch, steps, 1)
	return x.Add(x.RandnLike().MulScalar(0.05))
}

func main() {
	log.SetFlags(0)
	steps := flag.Int("steps", 300, "steps of the optimizer")
	batch := flag.Int("batch", 32, "series a step")
	flag.Parse()

	dev, why := device.Best() // "cuda" if there is a GPU, else "cpu"
	fmt.Println(why)
	tensor.ManualSeed(1)
	model := nn.To(newForecaster(), dev)
	opt := optim.NewAdam(nn.Parameters(model), optim.AdamConfig{LR: 5e-3})
	for step := range *steps {
		tensor.Do(func(s *tensor.Scope) {
			x := waves(s, *batch, 41)
			y, _, _ := model.Forward(x.Narrow(1, 0, 40), nil, nil)
			loss := nn.MSE(y, x.Narrow(1, 1, 40))
			loss.Backward()
			optim.ClipGradNorm(opt.Params(), 1)
			opt.Step()
			opt.ZeroGrad()
			if step%50 == 49 || step == *steps-1 {
				fmt.Printf("step %d: loss %.4f\n", step+1, loss.Item())
			}
		}, tensor.On(dev))
	}

	// The first input is the wave. Each later input is the model's own prediction.
	tensor.Do(func(s *tensor.Scope) {
		var x, y, h, c *tensor.Tensor
		for t := range 80 {
			if t < 40 {
				x = s.Full(wave(float64(t)), 1, 1, 1)
			} else {
				x = y
			}
			y, h, c = model.Forward(x, h, c)
			if t%2 == 1 {
				value := x.Item()
				fmt.Println(strings.Repeat(" ", int(20+12*value)) + map[bool]string{true: "o", false: "*"}[t < 40])
			}
		}
	}, tensor.On(dev), tensor.NoGrad())
}
