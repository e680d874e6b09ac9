package tensor_test

import (
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// A scope owns the results that are computed from its tensors. It frees them when the function
// returns. Item and Data copy values out.
func ExampleDo() {
	w := tensor.From([][]float32{{1, 2}, {3, 4}}) // w is made outside of s, so it lives on
	var y *tensor.Tensor
	total := 0.0
	for _, batch := range [][]float32{{1, 0}, {0, 1}} {
		tensor.Do(func(s *tensor.Scope) {
			y = w.MatMul(s.From(batch)) // y belongs to s, because an operand does
			total += y.Sum().Item()
		})
	}
	fmt.Println(total)
	err := tensor.Try(func() { y.Item() }) // y ended with its scope
	fmt.Println(errors.Is(err, tensor.ErrScope))
	// Output:
	// 10
	// true
}

// Close frees everything except the tensors to keep, which move to the parent.
func ExampleScope_Close() {
	s := tensor.NewScope()
	x := s.From([]float32{1, 2, 3})
	square, sum := x.Square(), x.Sum()
	s.Close(sum)
	fmt.Println(sum.Item(), sum.Scope() == tensor.Root())
	err := tensor.Try(func() { square.Item() })
	fmt.Println(errors.Is(err, tensor.ErrScope))
	// Output:
	// 6 true
	// true
}

// Scopes nest. A child inherits the modes of its parent, and ends before the parent does.
func ExampleScope_New() {
	outer := tensor.NewScope(tensor.NoGrad(), tensor.Named("epoch"))
	inner := outer.New(tensor.Named("step"))
	x := outer.Ones(2)
	y := x.Add(inner.Ones(2)) // y belongs to inner, the youngest scope
	fmt.Println(y.Scope() == inner, inner.GradEnabled())
	err := tensor.Try(func() { outer.Close() })
	fmt.Println(errors.Is(err, tensor.ErrScope))
	inner.Close()
	outer.Close()
	// Output:
	// true false
	// true
}

// If all tensors of an expression are older than a scope, the result belongs to their scope.
// w.In(s) returns a handle of w in the younger scope s, so that the results end with s. Gradients
// flow through the handle.
func ExampleTensor_In() {
	w := tensor.From([]float32{3, 4}).RequiresGrad()
	tensor.Do(func(s *tensor.Scope) {
		penalty := w.In(s).Square().Sum()
		fmt.Println(penalty.Scope() == s)
		penalty.Backward()
	})
	fmt.Println(w.Grad())
	// Output:
	// true
	// tensor([6., 8.])
}

// s.From(x) moves x to the scope s. This suits a batch, which is freed at the end of its step.
// w.In(s) only lends w to s. This suits a parameter, which lives longer.
func ExampleScope_From() {
	w, batch := tensor.From([]float32{3, 4}), tensor.From([]float32{1, 2})
	tensor.Do(func(s *tensor.Scope) {
		fmt.Println(s.From(batch).Mul(w.In(s)))
	})
	fmt.Println(w)
	err := tensor.Try(func() { batch.Sum() })
	fmt.Println(errors.Is(err, tensor.ErrFreed))
	// Output:
	// tensor([3., 8.])
	// tensor([3., 4.])
	// true
}

// A mode affects only tensors that belong to its scope. A mode without any effect is an error.
//
//flambeau:ignore unusedmode the example shows the error
func ExampleScope_unused() {
	w := tensor.Ones(2).RequiresGrad()
	err := tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) { w.MulScalar(2) }, tensor.NoGrad())
	})
	fmt.Println(errors.Is(err, tensor.ErrScope))
	tensor.Do(func(s *tensor.Scope) { fmt.Println(w.In(s).MulScalar(2).NeedsGrad()) }, tensor.NoGrad())
	// Output:
	// true
	// false
}

// Free returns memory early, as Python's del does.
func ExampleTensor_Free() {
	x := tensor.Ones(1000)
	y := x.Sum()
	x.Free()
	fmt.Println(y.Item())
	fmt.Println(errors.Is(tensor.Try(func() { x.Sum() }), tensor.ErrFreed))
	// Output:
	// 1000
	// true
}

// The option On sets the device on which the scope creates tensors. A [tensor.Maker], such as s.On
// returns, sets the device of a single call.
func ExampleOn() {
	dev, err := device.Open("cpu") // or "cuda:0", or "auto"
	if err != nil {
		log.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		fmt.Println(s.Zeros(2).Device().Name(), s.Typed(dtype.I64).Zeros(2).Type())
	}, tensor.On(dev))
	// Output: cpu int64
}

// The same seed gives the same numbers on every device.
func ExampleSeed() {
	draw := func(seed uint64) *tensor.Tensor {
		s := tensor.NewScope(tensor.Seed(seed))
		x := s.Randn(3)
		s.Close(x)
		return x
	}
	fmt.Println(draw(7))
	fmt.Println(draw(7).Eq(draw(7)).Floats(), draw(8).Eq(draw(7)).Floats())
	// Output:
	// tensor([ 2.9157e-04, -3.0485e-01,  1.7888e+00])
	// [1 1 1] [0 0 0]
}

// Without a scope the new tensors belong to the root scope. s.Randn(2, 3) makes one in s.
func ExampleRandn() {
	x, order, class := tensor.Randn(2, 3), tensor.RandPerm(10), tensor.RandInt(0, 4, 8)
	fmt.Println(x.Shape(), order.Sum(), class.Lt(tensor.Full(4)).All())
	fmt.Println(tensor.Arange(4), tensor.Linspace(0, 1, 3), tensor.Eye(2).Sum())
	// Output:
	// [2, 3] tensor(45) tensor(True)
	// tensor([0, 1, 2, 3]) tensor([0.0000, 0.5000, 1.0000]) tensor(2.)
}

// ManualSeed restarts the generator of all scopes that have no seed or generator of their own.
func ExampleManualSeed() {
	tensor.ManualSeed(1)
	a := tensor.Root().Rand(2)
	tensor.ManualSeed(1)
	b := tensor.Root().Rand(2)
	fmt.Println(tensor.Data[float32](a.Eq(b).Float()))
	// Output: [1 1]
}

// A generator is an object whose state can be saved and restored. WithGenerator makes scopes share
// a generator.
func ExampleGenerator() {
	g := tensor.NewGenerator(42)
	s := tensor.NewScope(tensor.WithGenerator(g))
	defer s.Close()
	s.Randn(10)
	seed, offset := g.State()
	fmt.Println(seed, offset)
	next := s.RandInt(0, 100, 3)
	g.SetState(seed, offset)
	again := s.RandInt(0, 100, 3)
	fmt.Println(next.Sub(again))
	// Output:
	// 42 10
	// tensor([0, 0, 0])
}

// Dropout draws from the scope's generator.
func ExampleTensor_Dropout() {
	tensor.Do(func(s *tensor.Scope) {
		fmt.Println(s.Ones(8).Dropout(0.5))
	}, tensor.Seed(3))
	// Output:
	// tensor([2., 0., 2., 2., 0., 2., 0., 2.])
}

// Composed makes heavy ops run as compositions of primitives instead of the device's fast kernels.
// That helps to find out whether a kernel is wrong.
func ExampleComposed() {
	softmax := func(opts ...tensor.Option) []float64 {
		s := tensor.NewScope(opts...)
		defer s.Close()
		return s.From([]float64{1, 2, 3}).Softmax(0).Floats()
	}
	a, b := softmax(), softmax(tensor.Composed())
	fmt.Printf("%.4f\n%.4f\n", a, b)
	// Output:
	// [0.0900 0.2447 0.6652]
	// [0.0900 0.2447 0.6652]
}

// Every created tensor knows the line that made it. With RecordSites, every result of an op does
// too.
func ExampleRecordSites() {
	tensor.Do(func(s *tensor.Scope) {
		h := s.Ones(2, 3).MulScalar(2)
		var e *tensor.Error
		errors.As(tensor.Try(func() { h.Add(s.Ones(4)) }), &e)
		where := e.Operands[0].Origin
		fmt.Println(where[:strings.LastIndex(where, ":")])
	}, tensor.RecordSites())
	// Output:
	// mul_scalar at tensor/example_scope_test.go
}
