// Command reinforce learns to balance a pole on a cart (A. Barto, R. Sutton, C. Anderson, 1983)
// with REINFORCE (R. Williams, 1992). Actions that led to a good result become more likely.
package main

import (
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	_ "github.com/flambeau-go/flambeau/cuda" // links the GPU driver into the program
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A cart has a position x and a pole that leans by an angle. speed is the velocity of x, and turn
// is the velocity of the angle.
type cart struct{ x, speed, angle, turn float64 }

// push pushes the cart for a fiftieth of a second, and reports whether the pole still stands.
func (c *cart) push(right bool) bool {
	const gravity, mass, pole, length, dt = 9.8, 1.1, 0.1, 0.5, 0.02
	force := -10.0
	if right {
		force = 10
	}
	sin, cos := math.Sincos(c.angle)
	t := (force + pole*length*c.turn*c.turn*sin) / mass
	turn := (gravity*sin - cos*t) / (length * (4.0/3 - pole*cos*cos/mass))
	c.x, c.angle = c.x+dt*c.speed, c.angle+dt*c.turn
	c.speed, c.turn = c.speed+dt*(t-pole*length*turn*cos/mass), c.turn+dt*turn
	return math.Abs(c.x) < 2.4 && math.Abs(c.angle) < 0.21
}

func (c *cart) state() []float32 {
	return []float32{float32(c.x), float32(c.speed), float32(c.angle), float32(c.turn)}
}

const most = 200 // greatest number of pushes in a game

// play runs n carts side by side until all poles have fallen. It returns the states and the
// actions, and for each action how many more steps the pole stood.
func play(policy *nn.Sequential, dev device.Device, rng *rand.Rand, n int) (states [][]float32, actions []int64, left []float32, mean float64) {
	carts, stood := make([]cart, n), make([]int, n)
	for i := range carts {
		small := func() float64 { return rng.Float64()/10 - 0.05 }
		carts[i] = cart{small(), small(), small(), small()}
	}
	var whose, when []int
	for t := range most {
		var running []int
		var now [][]float32
		for i := range carts {
			if stood[i] == t {
				running, now = append(running, i), append(now, carts[i].state())
			}
		}
		if len(running) == 0 {
			break
		}
		var chosen []float64
		tensor.Do(func(s *tensor.Scope) {
			chosen = policy.Forward(s.From(now)).Softmax(-1).Multinomial(1, true).Floats()
		}, tensor.On(dev), tensor.NoGrad())
		for k, i := range running {
			states, actions = append(states, now[k]), append(actions, int64(chosen[k]))
			whose, when = append(whose, i), append(when, t)
			if carts[i].push(chosen[k] == 1) {
				stood[i]++
			}
		}
	}
	for _, t := range stood {
		mean += float64(t) / float64(n)
	}
	for k, i := range whose {
		left = append(left, float32(stood[i]-when[k]))
	}
	return states, actions, left, mean
}

func main() {
	log.SetFlags(0)
	rounds := flag.Int("rounds", 40, "how often the policy is improved")
	flag.Parse()
	dev, why := device.Best() // "cuda" if there is a GPU, else "cpu"
	fmt.Println(why)
	tensor.ManualSeed(1)
	rng := rand.New(rand.NewPCG(1, 2))
	policy := nn.To(nn.NewSequential(nn.NewLinear(4, 32), nn.Tanh{}, nn.NewLinear(32, 2)), dev)
	opt := optim.NewAdam(nn.Parameters(policy), optim.AdamConfig{LR: 0.02})
	for round := range *rounds {
		states, actions, left, mean := play(policy, dev, rng, 16)
		tensor.Do(func(s *tensor.Scope) {
			gain := s.From(left)
			gain = gain.Sub(gain.Mean()).Div(gain.Std(0).AddScalar(1e-6))
			chosen := s.From(actions).Unsqueeze(1)
			logp := policy.Forward(s.From(states)).LogSoftmax(-1).Gather(1, chosen).Squeeze(1)
			loss := logp.Mul(gain).Mean().Neg()
			loss.Backward()
			opt.Step()
			opt.ZeroGrad()
		}, tensor.On(dev))
		if round%10 == 9 || round == *rounds-1 {
			fmt.Printf("round %d: the pole stands for %.0f of %d pushes\n", round+1, mean, most)
		}
	}
}
