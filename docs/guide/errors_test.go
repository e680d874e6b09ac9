// Package guide_test runs the programs in the pages of this folder as tests.
package guide_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

func Example_try() {
	err := tensor.Try(func() { tensor.Ones(2, 3).MatMul(tensor.Ones(2, 3)) })
	var e *tensor.Error
	fmt.Println(errors.As(err, &e), e.Op, errors.Is(err, tensor.ErrShape))
	fmt.Println(strings.Split(err.Error(), "\n")[0])
	// Output:
	// true matmul true
	// tensor: matmul: [2, 3] × [2, 3]: inner dimensions 3 and 2 differ (did you mean y.T()?)
}

func Example_anomaly() {
	x := tensor.From([]float32{-1}).RequiresGrad()
	err := tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) { x.In(s).Sqrt().Sum().Backward() }, tensor.DetectAnomaly())
	})
	fmt.Println(strings.Split(err.Error(), "; ")[0])
	// Output: tensor: backward: the gradient that sqrt gives its operand 0 is NaN at [0]
}

func Example_goroutines() {
	model := nn.Eval(nn.NewLinear(4, 2))
	answers := make([]float64, 8)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			x := tensor.Root().Full(float64(i), 1, 4)
			answers[i] = nn.Infer(model, x).Sum().Item()
		})
	}
	all.Wait()
	fmt.Println(len(answers))
	// Output: 8
}
