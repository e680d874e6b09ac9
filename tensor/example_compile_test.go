package tensor_test

import (
	"errors"
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// The first call of a compiled function runs it, the second captures its work, and each further
// call replays the work. Operands of another shape get a separate graph.
func ExampleCompile() {
	calls := 0
	c := tensor.Compile(func(s *tensor.Scope, x ...*tensor.Tensor) []*tensor.Tensor {
		calls++
		return []*tensor.Tensor{x[0].Square().AddScalar(1)}
	})
	defer c.Close()
	for v := range 4 {
		tensor.Do(func(s *tensor.Scope) {
			y := c.Call(s, s.Full(float64(v), 2))[0]
			fmt.Println(y, calls)
		})
	}
	// Output:
	// tensor([1., 1.]) 1
	// tensor([2., 2.]) 2
	// tensor([5., 5.]) 2
	// tensor([10., 10.]) 2
}

// A function that reads a value cannot be captured. With OrEager it runs eagerly, and the program
// learns the reason once.
func ExampleOrEager() {
	c := tensor.Compile(func(s *tensor.Scope, x ...*tensor.Tensor) []*tensor.Tensor {
		if x[0].Sum().Item() > 2 { // Item waits for a value
			return []*tensor.Tensor{x[0].Neg()}
		}
		return []*tensor.Tensor{x[0].MulScalar(2)}
	}, tensor.OrEager(func(err error) {
		var e *tensor.Error
		fmt.Println(errors.As(err, &e) && errors.Is(err, tensor.ErrCapture), e.Op)
	}))
	defer c.Close()
	for v := range 4 {
		tensor.Do(func(s *tensor.Scope) { fmt.Println(c.Call(s, s.Full(float64(v), 2))[0]) })
	}
	// Output:
	// tensor([0., 0.])
	// true item
	// tensor([2., 2.])
	// tensor([-2., -2.])
	// tensor([-3., -3.])
}

// With Warm(0) the first call captures the work already.
func ExampleWarm() {
	calls := 0
	c := tensor.Compile(func(s *tensor.Scope, x ...*tensor.Tensor) []*tensor.Tensor {
		calls++
		return []*tensor.Tensor{x[0].Exp()}
	}, tensor.Warm(0))
	defer c.Close()
	for range 3 {
		tensor.Do(func(s *tensor.Scope) { c.Call(s, s.Zeros(2)) })
	}
	fmt.Println(calls, len(c.Graphs()))
	// Output:
	// 1 1
}
