package train_test

import (
	"context"
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// Forward is the program's own function, so by default Fit would not capture steps. Replays do not
// call Forward: it runs only in three eager steps and in the capture.
func ExampleCapturing() {
	x := tensor.Linspace(-1, 1, 64).Reshape(64, 1)
	set, err := data.NewTensorDataset(x, x.MulScalar(3))
	if err != nil {
		log.Fatal(err)
	}
	for _, how := range []train.Capturing{train.CaptureNever, train.CaptureAlways} {
		loader, err := data.NewLoader(set, data.Config{Batch: 16})
		if err != nil {
			log.Fatal(err)
		}
		tensor.ManualSeed(1)
		calls, model := 0, nn.NewLinear(1, 1)
		r, err := train.Fit(context.Background(), train.Config{
			Model: model, Optimizer: optim.NewSGD(nn.Parameters(model), optim.SGDConfig{LR: 0.3}),
			Train: loader, Epochs: 4, Loss: nn.MSELoss{}.Forward, Capture: how,
			Forward: func(x *tensor.Tensor) *tensor.Tensor {
				calls++
				return model.Forward(x)
			},
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d steps, %d calls of Forward, loss %.4f\n", r.Step, calls, r.Loss)
	}
	// Output:
	// 16 steps, 16 calls of Forward, loss 0.0000
	// 16 steps, 4 calls of Forward, loss 0.0000
}
