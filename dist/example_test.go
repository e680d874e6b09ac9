package dist_test

import (
	"context"
	"fmt"

	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// Two ranks train one model, and each rank draws its own samples. The devices may also be "cuda:0"
// and "cuda:1".
func Example() {
	err := dist.Run(context.Background(), dist.Devices("cpu", "cpu"), func(_ context.Context, g *dist.Group) error {
		model := dist.DDP(nn.To(nn.NewLinear(2, 1), g.Device()), g)
		opt := optim.NewAdam(nn.Parameters(model), optim.AdamConfig{LR: 0.05})
		for range 300 {
			g.Do(func(s *tensor.Scope) {
				x := s.Randn(16, 2) // each rank draws different numbers
				nn.MSE(model.Forward(x), x.Sum(1, tensor.KeepDim)).Backward()
				opt.Step() // gradients are the mean over the ranks
				opt.ZeroGrad()
			})
		}
		for _, w := range dist.Exchange(g, model.Weight.Detach().Floats()) {
			if g.Rank() == 0 {
				fmt.Printf("%.2f\n", w)
			}
		}
		return nil
	}, dist.Seed(1))
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// [1.00 1.00]
	// [1.00 1.00]
}
