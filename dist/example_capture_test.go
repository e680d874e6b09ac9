package dist_test

import (
	"context"
	"fmt"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// Two GPUs train one step that is recorded once. Then one launch replays the step on both. The GPUs
// are emulated.
func ExampleGroup_Capture() {
	gpus, err := cuda.Emulate("emulate:2,mem=64MiB")
	if err != nil {
		fmt.Println(err)
		return
	}
	err = dist.Run(context.Background(), dist.On(gpus[0], gpus[1]), func(_ context.Context, g *dist.Group) error {
		s := tensor.Root().On(g.Device())
		w := s.Zeros().RequiresGrad()
		model := dist.DDP(&struct {
			W *tensor.Tensor `nn:"w"`
		}{w}, g)
		opt := optim.NewSGD(nn.Parameters(model), optim.SGDConfig{LR: 0.5})
		x := s.Zeros(4) // each replay reads this tensor
		graph, err := g.Capture(func(s *tensor.Scope) {
			// Backward averages the gradients over the ranks
			x.In(s).Sub(w).Square().Mean().Backward()
			opt.Step()
			opt.ZeroGrad()
		})
		if err != nil {
			return err
		}
		for step := range 3 {
			x.Fill(float64(10*step + g.Rank()))
			if err := graph.Replay(); err != nil {
				return err
			}
			if v := w.Item(); g.Rank() == 0 {
				fmt.Println("step", step, "w is the mean of both ranks' x:", v)
			}
		}
		return graph.Close()
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// step 0 w is the mean of both ranks' x: 0.5
	// step 1 w is the mean of both ranks' x: 10.5
	// step 2 w is the mean of both ranks' x: 20.5
}
