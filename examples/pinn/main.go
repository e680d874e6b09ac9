// Command pinn solves the heat equation ∂u/∂t = α·∂²u/∂x² with a physics-informed network (M.
// Raissi, P. Perdikaris, G. Karniadakis, arXiv:1711.10561). The network is the function u(t, x).
// The loss is the mean squared error in the equation, plus the errors of u at t = 0 and at both
// ends of the rod.
package main

import (
	"flag"
	"fmt"
	"log"
	"math"

	_ "github.com/flambeau-go/flambeau/cuda" // links the GPU driver into the program
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

const alpha = 0.3 // diffusivity: how fast heat spreads

// exact is the solution for a rod that is cold at both ends. At t = 0 its temperature is half a
// sine wave.
func exact(t, x float64) float64 { return math.Exp(-alpha*math.Pi*math.Pi*t) * math.Sin(math.Pi*x) }

func newHeat() *nn.Sequential {
	return nn.NewSequential(nn.NewLinear(2, 24), nn.Tanh{}, nn.NewLinear(24, 24), nn.Tanh{}, nn.NewLinear(24, 24), nn.Tanh{}, nn.NewLinear(24, 1))
}

// eval returns u at n pairs of a time t and a position x. Both have the shape [n, 1].
func eval(model *nn.Sequential, t, x *tensor.Tensor) *tensor.Tensor {
	return model.Forward(tensor.Cat(1, t, x))
}

// residual is ∂u/∂t − α·∂²u/∂x², which is 0 where the network obeys the equation. With CreateGraph
// the derivatives are part of the graph, so that ∂u/∂x can be differentiated with respect to x, and
// the loss with respect to the weights.
func residual(model *nn.Sequential, t, x *tensor.Tensor) *tensor.Tensor {
	first := tensor.Gradients(eval(model, t, x).Sum(), []*tensor.Tensor{t, x}, tensor.CreateGraph())
	second := tensor.Gradients(first[1].Sum(), []*tensor.Tensor{x}, tensor.CreateGraph())
	return first[0].Sub(second[0].MulScalar(alpha))
}

func main() {
	log.SetFlags(0)
	rounds := flag.Int("rounds", 6, "steps of LBFGS, of 50 iterations each")
	points := flag.Int("points", 1000, "times and places at which the equation has to hold")
	flag.Parse()
	if *points < 10 {
		log.Fatal("-points must be at least 10: a tenth of them lies at each edge, and a mean of none is NaN")
	}

	dev, why := device.Best() // "cuda" if there is a GPU, else "cpu"
	fmt.Println(why)
	tensor.ManualSeed(1)
	model := nn.To(newHeat(), dev)
	params := nn.Parameters(model)
	opt := optim.NewLBFGS(params, optim.LBFGSConfig{LR: 1, MaxIter: 50, LineSearch: "strong_wolfe"})

	// LBFGS compares gradients from several steps, so the points must stay the same.
	all := tensor.Root().On(dev)
	n, edge := *points, *points/10
	time, place := all.Rand(n, 1).RequiresGrad(), all.Rand(n, 1).RequiresGrad()
	begin, rod := all.Zeros(edge, 1), all.Rand(edge, 1) // points with t = 0
	// points with x = 0 or x = 1, the ends of the rod
	later, ends := all.Rand(2*edge, 1), all.Rand(2*edge, 1).Round()
	warm := rod.MulScalar(math.Pi).Sin()

	for round := range *rounds {
		loss := opt.Step(func() (value float64) { // Step calls this function several times
			tensor.Do(func(s *tensor.Scope) {
				opt.ZeroGrad()
				equation := residual(model, time.In(s), place.In(s)).Square().Mean()
				start := nn.MSE(eval(model, begin.In(s), rod.In(s)), warm)
				cold := eval(model, later.In(s), ends.In(s)).Square().Mean()
				loss := equation.Add(start).Add(cold)
				loss.Backward(tensor.Into(params...)) // times and positions need no gradients
				value = loss.Item()
			}, tensor.On(dev))
			return value
		})
		fmt.Printf("round %d: loss %.2g\n", round+1, loss)
	}
	worst := 0.0
	tensor.Do(func(s *tensor.Scope) {
		for _, t := range []float64{0, 0.25, 0.5, 0.75, 1} {
			row := s.Linspace(0, 1, 41)
			u := eval(model, s.Full(t, 41, 1), row.Unsqueeze(1)).Floats()
			line := ""
			for i, v := range u {
				worst = max(worst, math.Abs(float64(v)-exact(t, float64(i)/40)))
				line += string(" .:-=+*#%@"[min(9, max(0, int(10*v)))])
			}
			fmt.Printf("t = %.2f |%s|\n", t, line)
		}
	}, tensor.On(dev), tensor.NoGrad())
	fmt.Printf("at most %.4f off the exact solution\n", worst)
}
