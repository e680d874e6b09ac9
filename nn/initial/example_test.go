package initial_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// Initialisers overwrite a parameter in place, without a graph. The spread of the values depends on
// the parameter's shape [out, in].
func Example() {
	w := tensor.Zeros(256, 512).RequiresGrad()
	initial.KaimingNormal(w, initial.LeakyGain(0)) // standard deviation √(2/512)
	fmt.Printf("%.2f\n", w.Detach().Square().Mean().Sqrt().Item())
	initial.XavierUniform(w, 1) // within ±√(6/768)
	fmt.Printf("%.3f %.3f\n", w.Detach().Amin().Item(), w.Detach().Amax().Item())
	initial.Constant(w, 0.5)
	fmt.Println(w.Detach().Mean())
	// Output:
	// 0.06
	// -0.088 0.088
	// tensor(0.5000)
}

// The gain compensates for the factor by which an activation reduces the variance.
func ExampleLeakyGain() {
	fmt.Printf("%.4f %.4f\n", initial.LeakyGain(0), initial.LeakyGain(0.2))
	// Output: 1.4142 1.3868
}

// Bound is torch's default bound for a bias.
func ExampleBound() {
	fmt.Println(initial.Bound(64))
	// Output: 0.125
}

// A convolution before a ReLU, as in ResNet, has weights with deviation √(2/fan out).
func ExampleKaimingNormal() {
	w := tensor.Zeros(64, 32, 3, 3)
	initial.KaimingNormal(w, initial.Gain(initial.ReLU), initial.FanOut)
	fmt.Printf("%.2f\n", w.Std(1).Item())
	// Output: 0.06
}

// Orthogonal weights preserve the lengths of vectors.
func ExampleOrthogonal() {
	w := tensor.Zeros(4, 4)
	initial.Orthogonal(w, 1)
	fmt.Printf("%.3f\n", tensor.Ones(4).MatMul(w).Norm(2).Item())
	// Output: 2.000
}

// Half of each column is zero.
func ExampleSparse() {
	w := tensor.Zeros(4, 3)
	initial.Sparse(w, 0.5, 0.01)
	fmt.Println(w.CountNonzero(0))
	// Output: tensor([2, 2, 2])
}
