package amp_test

import (
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A step with a scaler is captured as a whole. Replays whose gradients overflow skip the step and
// change the scale, as eager steps do.
func ExampleGradScaler_capture() {
	gpus, err := cuda.Emulate("emulate,mem=16MiB")
	if err != nil {
		log.Fatal(err)
	}
	dev := gpus[0]
	w := tensor.Root().On(dev).Ones(4).RequiresGrad()
	x := tensor.Root().On(dev).Ones(4) // input at a fixed address
	opt := optim.NewAdamW([]*tensor.Tensor{w}, optim.AdamConfig{LR: 0.1})
	scaler := amp.NewGradScaler(amp.InitScale(1 << 17))
	graph, err := tensor.Capture(dev, func(s *tensor.Scope) {
		// A gradient of 2¹⁷ overflows float16.
		loss := w.In(s).Half().Mul(x.In(s).Half()).Sum().Float()
		scaler.Scale(loss).Backward()
		scaler.Step(opt)
		scaler.Update()
		opt.ZeroGrad()
	}, tensor.Autocast(dtype.F16))
	if err != nil {
		log.Fatal(err)
	}
	defer graph.Close()
	for range 5 {
		if err := graph.Replay(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(opt.Steps(), "steps,", scaler.Skipped(), "left out, scale", scaler.Value())
	// Output: 3 steps, 2 left out, scale 32768
}
