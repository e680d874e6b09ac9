package tensor_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// direction has two results, x/‖x‖ and ‖x‖.
type direction struct{}

func (direction) Name() string { return "direction" }

func (direction) Forward(c *tensor.Context, in []*tensor.Tensor) []*tensor.Tensor {
	n := in[0].Norm(2)
	u := in[0].Div(n)
	c.Save(u, n)
	return []*tensor.Tensor{u, n}
}

func (direction) VJP(c *tensor.Context, g []*tensor.Tensor) []*tensor.Tensor {
	u, n := c.Saved(0), c.Saved(1)
	return []*tensor.Tensor{g[0].Sub(u.Mul(g[0].Mul(u).Sum())).Div(n).Add(u.Mul(g[1]))}
}

func ExampleApplyAll() {
	x := tensor.From([]float64{3, 4}).RequiresGrad()
	r := tensor.ApplyAll(direction{}, x)
	fmt.Println(r[0].Floats(), r[1].Item())
	r[1].Square().Backward()
	fmt.Println(x.Grad().Floats())
	// Output:
	// [0.6 0.8] 5
	// [6 8]
}
