package nn_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// The linear layer belongs to the discriminator of a GAN. Spectral normalisation ensures that the
// layer lengthens no vector.
func ExampleNewSpectralNorm() {
	l := nn.NewLinear(2, 2, nn.NoBias())
	initial.Eye(l.Weight)
	l.Weight.Detach().MulScalarInPlace(3)
	d := nn.NewSequential(nn.NewSpectralNorm(l), nn.NewLeakyReLU(0.2))
	fmt.Printf("%.3f\n", d.Forward(tensor.Ones(1, 2)).Floats())
	// Output: [1.000 1.000]
}

// Weight normalisation trains the direction and the length of a weight as separate parameters.
func ExampleNewWeightNorm() {
	l := nn.NewLinear(2, 1, nn.NoBias())
	l.Weight.Detach().Copy(tensor.From([]float32{3, 4}, 1, 2))
	m := nn.NewWeightNorm(l, 0)
	fmt.Println(m.G.Item(), m.Forward(tensor.Ones(1, 2)).Item())
	fmt.Println(m.Remove().Weight.Detach())
	// Output:
	// 5 7
	// tensor([[3., 4.]])
}
