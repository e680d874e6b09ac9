package dist_test

import (
	"context"
	"fmt"

	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// Two ranks train a layer, and each rank has its own batches. Each rank holds Adam's moments for
// half of the elements.
func ExampleNewZeRO() {
	err := dist.Run(context.Background(), dist.Devices("cpu", "cpu"), func(_ context.Context, g *dist.Group) error {
		layer := nn.To(nn.NewLinear(64, 64), g.Device())
		params := nn.Parameters(layer)
		for _, p := range params {
			p.Detach().Fill(0.01) // the parameters are equal on all ranks
		}
		opt := dist.NewZeRO(g, optim.NewAdam(params, optim.AdamConfig{LR: 1e-3}))
		for step := range 3 {
			g.Do(func(s *tensor.Scope) {
				x := s.Full(float64(1+g.Rank()+step), 4, 64)
				layer.Forward(x).Square().Mean().Backward()
				for _, p := range params {
					g.AllReduce(p.Grad(), dist.Mean)
				}
				opt.Step()
				opt.ZeroGrad()
			})
		}
		opt.Consolidate(0)
		if g.Rank() == 0 {
			state := opt.StateDict()["state"].(map[int64]any)
			moment := state[0].(map[string]any)["exp_avg"].(*tensor.Tensor)
			fmt.Println(opt)
			fmt.Println("after", opt.Steps(), "steps the whole state has moments of shape", moment.Shape())
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// ZeRO over 2 ranks of Adam(2 parameters in 1 groups, lr 0.001)
	// after 3 steps the whole state has moments of shape [64, 64]
}
