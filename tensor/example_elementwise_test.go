package tensor_test

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// Whole-number division rounds down, as Python's // and % do. TruncDivide and Fmod round towards
// zero, as C does. Integers stay integers.
func ExampleTensor_FloorDivide() {
	x := tensor.From([]int64{7, -7, 7, -7})
	y := tensor.From([]int64{2, 2, -2, -2})
	fmt.Println(x.FloorDivide(y), x.Remainder(y))
	fmt.Println(x.TruncDivide(y), x.Fmod(y))
	fmt.Println(tensor.From([]float32{-1, 5.5}).RemainderScalar(3))
	// Output:
	// tensor([ 3, -4, -4,  3]) tensor([ 1,  1, -1, -1])
	// tensor([ 3, -3, -3,  3]) tensor([ 1, -1,  1, -1])
	// tensor([2.0000, 2.5000])
}

// IsNaN and similar methods find special values, and NanToNum replaces them.
func ExampleTensor_NanToNum() {
	x := tensor.From([]float64{1, math.NaN(), math.Inf(1), math.Inf(-1)})
	fmt.Println(x.IsFinite(), x.NanToNum(0, 9, -9))
	// Output: tensor([ True, False, False, False]) tensor([ 1.,  0.,  9., -9.], dtype=torch.float64)
}

// Linspace includes both ends. Logspace uses evenly spaced exponents.
func ExampleMaker_Linspace() {
	s := tensor.Root()
	fmt.Println(s.Linspace(0, 1, 5), s.Typed(dtype.I64).Linspace(0, 9, 4))
	fmt.Println(s.Logspace(0, 3, 4, 10))
	// Output:
	// tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000]) tensor([0, 3, 6, 9])
	// tensor([   1.,   10.,  100., 1000.])
}

// LerpScalarInPlace updates an exponential moving average in place, in a scope without gradients.
func ExampleTensor_LerpScalarInPlace() {
	average, weight := tensor.From([]float32{0, 1}), tensor.From([]float32{1, 3})
	tensor.Do(func(s *tensor.Scope) {
		average.In(s).LerpScalarInPlace(weight.In(s), 0.25)
	}, tensor.NoGrad())
	fmt.Println(average)
	// Output: tensor([0.2500, 1.5000])
}

// Multinomial draws classes by their probabilities. A class of probability 0 is not drawn.
func ExampleTensor_Multinomial() {
	tensor.Do(func(s *tensor.Scope) {
		p := s.From([][]float32{{0, 1, 0}, {0.5, 0, 0.5}})
		fmt.Println(p.Multinomial(4, true).Select(0, 0))
		fmt.Println(p.Narrow(0, 1, 1).Multinomial(2, false).Sum())
	}, tensor.Seed(1))
	// Output:
	// tensor([1, 1, 1, 1])
	// tensor(2)
}
