package nn_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// skipping is a layer that skips its inner layer at random.
type skipping struct {
	nn.Base
	Inner *nn.Linear
	Rand  *rand.Rand
}

func (s *skipping) Forward(x *tensor.Tensor) *tensor.Tensor {
	if s.Training() && s.Rand.IntN(2) == 0 {
		return x
	}
	return s.Inner.Forward(x)
}

// A copy of this model shares the model's random generator. So every number that the copy draws
// changes the numbers that the model draws later.
func ExampleShares() {
	m := &skipping{Inner: nn.NewLinear(2, 2)}
	fmt.Printf("%q\n", nn.Shares(m))
	m.Rand = rand.New(rand.NewPCG(1, 2))
	fmt.Printf("%q\n", nn.Shares(nn.NewSequential(m)))
	// Output:
	// ""
	// "0.Rand"
}
