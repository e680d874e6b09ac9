package nn_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// If a layer and its input are on different devices, the error names both devices. It also says how
// to move the layer or the input.
func TestMistakenDevice(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		for name, f := range map[string]func(){
			"linear": func() { nn.To(nn.NewLinear(3, 5), device.Device(gpus[0])).Forward(s.Ones(2, 3)) },
			"conv1d": func() { nn.NewConv1d(3, 5, 1).Forward(s.On(gpus[0]).Ones(1, 3, 4)) },
		} {
			err := tensor.Try(f)
			for _, part := range []string{name + ":", "on cpu", "on cuda:0", "nn.Follow(model, x) moves the input", "nn.To(model, dev) the model"} {
				if !errors.Is(err, tensor.ErrDevice) || !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q is not in: %v", name, part, err)
				}
			}
		}
		if err := tensor.Try(func() { s.Ones(3).Add(s.On(gpus[0]).Ones(3)) }); !errors.Is(err, tensor.ErrDevice) || strings.Contains(err.Error(), "nn.To") {
			t.Error(err)
		}
	})
}

// The table lists typical mistakes with layers and losses. Each error names the op, its operands
// and the line of the caller. If the fix is clear, the error names it too.
func TestMistakes(t *testing.T) {
	line := 0
	here := func() { _, _, line, _ = runtime.Caller(1) }
	tensor.Do(func(s *tensor.Scope) {
		a, b := s.Ones(2, 3), s.Ones(2, 4)
		ints := s.Typed(dtype.I64)
		var gone *tensor.Tensor
		s.Do(func(s *tensor.Scope) { gone = s.Ones(2, 3) })
		for _, c := range []struct {
			name  string
			kind  error
			wrong func()
			says  []string
		}{
			{"images into a linear layer", tensor.ErrShape, func() { here(); nn.NewLinear(12, 5).Forward(s.Ones(2, 3, 4)) }, []string{"linear", "4 features", "made for 12", "did you mean x.Flatten(1, -1)?"}},
			{"features of a linear layer", tensor.ErrShape, func() { here(); nn.NewLinear(4, 5).Forward(a) }, []string{"linear", "3 features", "made for 4"}},
			{"type of a linear layer", tensor.ErrType, func() { here(); nn.NewLinear(3, 5).Forward(a.Double()) }, []string{"linear", "float64", "the layer float32", "nn.Cast", "[]float32"}},
			{"layer that was not made", tensor.ErrValue, func() { here(); (&nn.Linear{}).Forward(a) }, []string{"linear", "no weight", "New"}},
			{"scalar into a linear layer", tensor.ErrShape, func() { here(); nn.NewLinear(3, 5).Forward(s.Ones()) }, []string{"linear", "scalar"}},
			{"indices into a linear layer", tensor.ErrType, func() { here(); nn.NewLinear(3, 5).Forward(ints.Zeros(2, 3)) }, []string{"linear", "int64", "nn.Embedding"}},
			{"input of a closed scope", tensor.ErrScope, func() { here(); nn.NewLinear(3, 5).Forward(gone) }, []string{"linear", "closed", "operand 0: [2, 3]"}},
			{"batch of one in a norm", tensor.ErrShape, func() { here(); nn.NewBatchNorm1d(3).Forward(s.Ones(1, 3)) }, []string{"batch_norm", "[1, 3]", "DropLast", "nn.Eval"}},
			{"predictions in a column", tensor.ErrShape, func() { here(); nn.MSE(s.Ones(5, 1), s.Ones(5)) }, []string{"mse_loss", "[5, 1]", "[5]", "[5, 5]", "Squeeze(-1) the prediction"}},
			{"targets in a column", tensor.ErrShape, func() { here(); nn.SmoothL1(s.Ones(5), s.Ones(5, 1), 1) }, []string{"smooth_l1_loss", "[5, 5]", "Squeeze(-1) the target"}},
			{"probabilities in a column", tensor.ErrShape, func() { here(); nn.BCEWithLogits(s.Ones(5, 1), s.Ones(5), nil) }, []string{"binary_cross_entropy_with_logits", "[5, 1]", "one shape", "Squeeze(-1) the prediction"}},
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

// Errors name the caller's line below any number of nested layers. This holds for an error raised
// immediately, for an index error that a GPU reports later, and in anomaly mode.
func TestMistakesBelowManyLayers(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	nested := func(l nn.Module) *nn.Sequential {
		m := nn.NewSequential(l)
		for range 20 {
			m = nn.NewSequential(m)
		}
		return m
	}
	line := 0
	here := func() { _, _, line, _ = runtime.Caller(1) }
	bad := nested(nn.NewLinear(3, 5))
	words := nested(nn.NewEmbedding(3, 5))
	root := nested(nn.NewLambda((*tensor.Tensor).Sqrt))
	encoder := nn.NewTransformerEncoder(8, 2, 1, nn.TransformerOptions{FeedForward: 8})
	for name, f := range map[string]func(s *tensor.Scope){
		"shape":   func(s *tensor.Scope) { here(); bad.Forward(s.Ones(2, 4)) },
		"encoder": func(s *tensor.Scope) { here(); encoder.Forward(s.Ones(2, 3, 4)) },
		"index": func(s *tensor.Scope) {
			x := s.On(gpus[0]).Typed(dtype.I64).Full(7, 2)
			func() { here(); nn.To(words, device.Device(gpus[0])).Forward(x).Sum().Item() }()
		},
		"anomaly": func(s *tensor.Scope) {
			x, y := s.Full(-1, 2).RequiresGrad(), (*tensor.Tensor)(nil)
			func() { here(); y = root.Forward(x) }()
			y.Sum().Backward()
		},
	} {
		err := tensor.Try(func() { tensor.Do(f, tensor.DetectAnomaly()) })
		if want := fmt.Sprintf("at nn/errors_test.go:%d", line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q is not in: %v", name, want, err)
		}
	}
}
