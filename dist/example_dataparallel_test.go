package dist_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// DataParallel makes a model for one device use two devices. This example emulates the devices, so
// it runs anywhere. Normally they are cuda.Get(0) and cuda.Get(1).
func ExampleDataParallel() {
	gpus, err := cuda.Emulate("emulate:2")
	if err != nil {
		fmt.Println(err)
		return
	}
	devices := []device.Device{gpus[0], gpus[1]}
	model := dist.DataParallel(nn.To(nn.NewSequential(nn.NewLinear(2, 8), &nn.Tanh{}, nn.NewLinear(8, 1)), devices[0]), devices)
	opt := optim.NewAdam(nn.Parameters(model), optim.AdamConfig{LR: 0.05})
	var first, last float64
	for step := range 120 {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Randn(16, 2) // the batch is on the CPU; each GPU gets 8 samples
			y := x.Prod(1, tensor.KeepDim).To(devices[0])
			loss := model.Forward(x).Sub(y).Square().Mean()
			loss.Backward()
			opt.Step()
			opt.ZeroGrad()
			if last = loss.Item(); step == 0 {
				first = last
			}
		}, tensor.Seed(uint64(step)))
	}
	fmt.Println("less than a half of the loss is left:", last < first/2)
	// Output: less than a half of the loss is left: true
}

// decoder is a model with two inputs.
type decoder struct {
	nn.Base
	Query, Memory *nn.Linear
}

func (m *decoder) Forward(x, memory *tensor.Tensor, scale float64) *tensor.Tensor {
	return m.Query.Forward(x).Add(m.Memory.Forward(memory).MulScalar(scale))
}

// Call passes several inputs to a model.
func ExampleParallel_Call() {
	gpus, err := cuda.Emulate("emulate:2")
	if err != nil {
		fmt.Println(err)
		return
	}
	devices := []device.Device{gpus[0], gpus[1]}
	model := dist.DataParallel(nn.To(&decoder{Query: nn.NewLinear(3, 4), Memory: nn.NewLinear(5, 4)}, devices[0]), devices)
	tensor.Do(func(s *tensor.Scope) {
		y := model.Call(func(m *decoder, x ...*tensor.Tensor) []*tensor.Tensor {
			return []*tensor.Tensor{m.Forward(x[0], x[1], 0.5)}
		}, s.Ones(6, 3), s.Ones(6, 5))[0]
		fmt.Println(y.Shape(), y.Device().Name())
	})
	// Output: [6, 4] cuda:0
}
