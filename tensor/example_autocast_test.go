package tensor_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// Under autocast products are computed in 16 bits, and what needs a wide range in float32. The parameter and its gradient stay float32.
func ExampleAutocast() {
	w := tensor.From([][]float32{{1, 2}, {3, 4}}).RequiresGrad()
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([][]float32{{1, 0.5}})
		y := x.MatMul(w)
		loss := y.Exp().Sum()
		loss.Backward()
		fmt.Println(y.Type(), loss.Type(), w.Grad().Type())
	}, tensor.Autocast(dtype.BF16))
	// Output: bfloat16 float32 float32
}

// A part of a model that needs all bits switches autocast off.
func ExampleNoAutocast() {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(2, 2)
		s.Do(func(c *tensor.Scope) {
			fmt.Println(s.Autocast(), x.In(c).MatMul(x).Type())
		}, tensor.NoAutocast())
	}, tensor.Autocast(dtype.F16))
	// Output: float16 float32
}

// An op that is made of others has a class as a whole: here it is computed in float32, whatever its operands are.
func ExampleWithAutocast() {
	distance := func(x, y *tensor.Tensor) *tensor.Tensor {
		return tensor.WithAutocast("distance", tensor.AutocastHigh, func(in []*tensor.Tensor) *tensor.Tensor {
			return in[0].Sub(in[1]).Square().Sum().Sqrt()
		}, x, y)
	}
	tensor.Do(func(s *tensor.Scope) {
		d := distance(s.Ones(4).Half(), s.Zeros(4).Half())
		fmt.Println(d.Item(), d.Type())
	}, tensor.Autocast(dtype.F16))
	// Output: 2 float32
}

// A number is brought to the host while the device goes on, and read when it is there: the loss of the step before, without waiting for this one.
func ExampleTensor_ItemLater() {
	var last *tensor.LateItem
	w := tensor.From([]float32{3}).RequiresGrad()
	for step := range 3 {
		tensor.Do(func(s *tensor.Scope) {
			loss := w.In(s).Square().Sum()
			if last != nil {
				fmt.Println("step", step-1, "had a loss of", last.Item())
			}
			last = loss.ItemLater()
			s.Do(func(c *tensor.Scope) { w.In(c).SubInPlace(c.Ones(1)) }, tensor.NoGrad())
		})
	}
	fmt.Println("step 2 had a loss of", last.Item())
	// Output:
	// step 0 had a loss of 9
	// step 1 had a loss of 4
	// step 2 had a loss of 1
}
