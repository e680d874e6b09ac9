package dist_test

import (
	"context"
	"fmt"

	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Each of two ranks has one row of a batch. The batch norm computes the same as in one process with
// both rows.
func ExampleConvertSyncBatchNorm() {
	err := dist.Run(context.Background(), dist.Devices("cpu", "cpu"), func(_ context.Context, g *dist.Group) error {
		g.Do(func(s *tensor.Scope) {
			model := nn.NewSequential(nn.NewBatchNorm1d(1, nn.In(s)), &nn.Tanh{})
			dist.ConvertSyncBatchNorm(model, g)
			// the values are 0 and 10, so the mean is 5
			y := model.Forward(s.Full(float64(10*g.Rank()), 1, 1))
			for r, v := range dist.Exchange(g, y.Item()) {
				if g.Rank() == 0 {
					fmt.Printf("rank %d: %.3f\n", r, v)
				}
			}
		})
		return nil
	})
	fmt.Println(err)
	// Output:
	// rank 0: -0.762
	// rank 1: 0.762
	// <nil>
}
