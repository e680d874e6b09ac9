package initial_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// Initialisers overwrite a parameter in place, without a graph. The spread follows from the shape [out, in].
func Example() {
	w := tensor.Zeros(256, 512).RequiresGrad()
	initial.KaimingNormal(w, initial.LeakyGain(0)) // standard deviation √(2/512)
	fmt.Printf("%.3f\n", w.Detach().Square().Mean().Sqrt().Item())
	initial.XavierUniform(w, 1) // within ±√(6/768)
	fmt.Printf("%.3f %.3f\n", w.Detach().Amin().Item(), w.Detach().Amax().Item())
	initial.Constant(w, 0.5)
	fmt.Println(w.Detach().Mean())
	// Output:
	// 0.063
	// -0.088 0.088
	// tensor(0.5000)
}

// The gain makes up for what an activation takes away.
func ExampleLeakyGain() {
	fmt.Printf("%.4f %.4f\n", initial.LeakyGain(0), initial.LeakyGain(0.2))
	// Output: 1.4142 1.3868
}

// Bound is torch's limit for a bias.
func ExampleBound() {
	fmt.Println(initial.Bound(64))
	// Output: 0.125
}
