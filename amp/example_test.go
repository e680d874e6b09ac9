package amp_test

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// The example trains in float16. The loss is scaled, clipping uses unscaled gradients, and Update
// adjusts the scale.
func Example() {
	s := tensor.NewScope(tensor.Seed(1))
	defer s.Close()
	model := nn.NewSequential(nn.NewLinear(4, 8, nn.In(s)), nn.ReLU{}, nn.NewLinear(8, 1, nn.In(s)))
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 0.02})
	scaler := amp.NewGradScaler()
	x := s.Randn(64, 4)
	y := x.Sum(1, tensor.KeepDim)
	first, last := 0.0, 0.0
	for i := range 200 {
		s.Do(func(s *tensor.Scope) {
			loss := nn.MSE(model.Forward(x.In(s)), y)
			scaler.Scale(loss).Backward()
			scaler.Unscale(opt)
			optim.ClipGradNorm(opt.Params(), 1)
			scaler.Step(opt)
			scaler.Update()
			opt.ZeroGrad()
			if last = loss.Item(); i == 0 {
				first = last
			}
		}, tensor.Autocast(dtype.F16))
	}
	fmt.Println(last < first/20, model.Layers[0].(*nn.Linear).Weight.Type())
	// Output: true float32
}

// A step whose gradients have overflowed is skipped, and the scale is halved. An emulated GPU
// behaves like a real one.
func ExampleGradScaler() {
	gpus, err := cuda.Emulate("emulate,mem=16MiB")
	if err != nil {
		fmt.Println(err)
		return
	}
	w := tensor.Root().On(gpus[0]).From([]float32{1, 2}).RequiresGrad()
	opt := optim.NewSGD([]*tensor.Tensor{w}, optim.SGDConfig{LR: 0.5})
	scaler := amp.NewGradScaler(amp.InitScale(1024))
	for _, factor := range []float64{1, math.Inf(1), 1} {
		opt.ZeroGrad()
		scaler.Scale(w.MulScalar(factor).Sum()).Backward()
		scaler.Step(opt)
		scaler.Update()
		fmt.Println(w.Detach().Floats(), scaler.Value(), opt.Steps())
	}
	// Output:
	// [0.5 1.5] 1024 1
	// [0.5 1.5] 512 1
	// [0 1] 512 2
}

// WarnAfter sets a function that is called when many consecutive steps were skipped. Here the
// function names the parameters.
func ExampleWarnAfter() {
	model := nn.NewSequential(nn.NewLinear(2, 2), nn.NewLinear(2, 1))
	opt := optim.NewSGD(nn.Parameters(model), optim.SGDConfig{LR: 0.1})
	var scaler *amp.GradScaler
	scaler = amp.NewGradScaler(amp.InitScale(8), amp.WarnAfter(2, func(w amp.Warning) {
		fmt.Println(w.Skipped, w.Scale, scaler.Overflowed(model)[0])
	}))
	for range 3 {
		tensor.Do(func(s *tensor.Scope) {
			scaler.Scale(model.Forward(s.Ones(1, 2)).Log().MulScalar(math.NaN()).Sum()).Backward()
			scaler.Step(opt)
			scaler.Update()
			opt.ZeroGrad()
		})
	}
	// Output: 2 2 1.bias
}
