package nn_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Typical mistakes with layers and losses: each error names the op, what it was applied to and the line of the caller, and what
// would be right where that is plain.
func TestMistakes(t *testing.T) {
	line := 0
	here := func() { _, _, line, _ = runtime.Caller(1) }
	tensor.Do(func(s *tensor.Scope) {
		a, b := s.Ones(2, 3), s.Ones(2, 4)
		ints := s.Typed(dtype.I64)
		for _, c := range []struct {
			name  string
			kind  error
			wrong func()
			says  []string
		}{
			{"images into a linear layer", tensor.ErrShape, func() { here(); nn.NewLinear(12, 5).Forward(s.Ones(2, 3, 4)) }, []string{"matmul", "[2, 3, 4] × [12, 5]", "did you mean x.Flatten(1, -1)?"}},
			{"features of a linear layer", tensor.ErrShape, func() { here(); nn.NewLinear(4, 5).Forward(a) }, []string{"matmul", "[2, 3] × [4, 5]", "inner dimensions 3 and 4"}},
			{"type of a linear layer", tensor.ErrType, func() { here(); nn.NewLinear(3, 5).Forward(a.Double()) }, []string{"matmul", "float64 and float32", "Cast"}},
			{"features of a norm", tensor.ErrShape, func() { here(); nn.NewLayerNorm([]int{4}).Forward(a) }, []string{"layer_norm", "[2, 3]", "[4]"}},
			{"targets in a column", tensor.ErrShape, func() { here(); nn.CrossEntropy(a, ints.Zeros(2, 1)) }, []string{"cross_entropy", "[2, 3] and [2, 1]", "Squeeze(1)"}},
			{"targets of another batch", tensor.ErrShape, func() { here(); nn.CrossEntropy(a, ints.Zeros(5)) }, []string{"cross_entropy", "[2, 3] and [5]"}},
			{"float targets", tensor.ErrShape, func() { here(); nn.CrossEntropy(a, s.Zeros(2)) }, []string{"cross_entropy", "int64", "float32", "Cast(dtype.I64)"}},
			{"class out of range", tensor.ErrIndex, func() { here(); nn.CrossEntropy(a, ints.Full(3, 2)) }, []string{"cross_entropy", "index 3", "size 3"}},
			{"shapes of a loss", tensor.ErrShape, func() { here(); nn.MSE(a, b) }, []string{"[2, 3] and [2, 4]", "dimension -1 is 3 and 4"}},
			{"integers in a loss", tensor.ErrType, func() { here(); nn.L1(ints.Zeros(3), ints.Zeros(3)) }, []string{"l1_loss", "int64", "Float"}},
			{"reduction that is none", tensor.ErrValue, func() { here(); nn.MSE(a, a, nn.Reduction(77)) }, []string{"mse_loss", "77"}},
		} {
			err := tensor.Try(c.wrong)
			if !errors.Is(err, c.kind) {
				t.Errorf("%s: %v, want %v", c.name, err, c.kind)
				continue
			}
			for _, part := range append(c.says, fmt.Sprintf("at nn/errors_test.go:%d", line)) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q is not in:\n%v", c.name, part, err)
				}
			}
		}
	})
}
