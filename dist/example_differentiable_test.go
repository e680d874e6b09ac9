package dist_test

import (
	"context"
	"fmt"

	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/tensor"
)

// Each rank has some of the vectors, and compares them with the vectors of all ranks. The gradient
// of a vector therefore has contributions from the loss of every rank.
func ExampleAllGather() {
	err := dist.Run(context.Background(), dist.Devices("cpu", "cpu"), func(_ context.Context, g *dist.Group) error {
		g.Do(func(s *tensor.Scope) {
			x := s.Full(float64(g.Rank()+1), 1, 2).RequiresGrad()
			all := dist.AllGather(g, x) // all has the shape [2, 2]
			x.MatMul(all.T()).Sum().Backward()
			for r, grad := range dist.Exchange(g, x.Grad().Floats()) {
				if g.Rank() == 0 {
					fmt.Printf("rank %d: %v\n", r, grad)
				}
			}
		})
		return nil
	})
	fmt.Println(err)
	// Output:
	// rank 0: [6 6]
	// rank 1: [6 6]
	// <nil>
}
