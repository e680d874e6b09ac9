package nn_test

import (
	"bytes"
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// In training, a Sequential computes a relu and the dropout after it in one op. The result is
// bitwise equal to that of two ops. Hooks, checkpoints and concurrent goroutines see the same
// values, and anomaly checks name the op.
func TestSequentialReluDropout(t *testing.T) {
	a, b := nn.NewLinear(6, 8), nn.NewLinear(8, 3)
	relu := func() nn.Module { return &nn.ReLU{} }
	chain := func(relu nn.Module, p float64) *nn.Sequential {
		return nn.NewSequential(a, relu, nn.NewDropout(p), b)
	}
	step := func(m nn.Module) (list [][]byte) {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Randn(5, 6).RequiresGrad()
			y := m.Forward(x)
			grads := tensor.Gradients(y.Square().Sum(), append(nn.Parameters(m), x))
			for _, v := range append(grads, y, s.Rand(3)) {
				list = append(list, v.Bytes())
			}
		}, tensor.Seed(7))
		return list
	}
	same := func(what string, got, want [][]byte) {
		t.Helper()
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("%s: number %d differs", what, i)
			}
		}
	}
	// op returns the op that produced the first NaN.
	op := func(m nn.Module, modes ...tensor.Option) string {
		err := tensor.Try(func() {
			tensor.Do(func(s *tensor.Scope) { m.Forward(s.Full(math.NaN(), 500, 6)) }, append(modes, tensor.DetectAnomaly(tensor.AnomalyForward))...)
		})
		var found *tensor.Anomaly
		if !errors.As(err, &found) {
			t.Fatal(err)
		}
		return found.Op
	}
	// pairOf returns a chain of a relu and a dropout, without a linear layer before them.
	pairOf := func(relu nn.Module, p float64) nn.Module {
		return nn.NewSequential(relu, nn.NewDropout(p))
	}
	for _, p := range []float64{0, 0.4, 1} {
		two := chain(nn.NewLambda(func(x *tt) *tt { return x.Relu() }), p)
		want := step(two)
		same("a pointer", step(chain(relu(), p)), want)
		same("a value", step(chain(nn.ReLU{}, p)), want)
		checked := chain(relu(), p)
		checked.SetCheckpointing(true)
		same("checkpoints", step(checked), want)
		whole := nn.NewSequential(chain(relu(), p), &nn.Identity{})
		whole.SetCheckpointing(true)
		same("a checkpoint", step(whole), want)
		seen := 0
		for i := range 2 {
			hooked := chain(relu(), p)
			look := func(x, y *tt) *tt { seen++; return nil }
			if i == 0 {
				hooked.Layers[1].(*nn.ReLU).RegisterForwardHook(look)
			} else {
				hooked.Layers[2].(*nn.Dropout).RegisterForwardHook(look)
			}
			same("a hook", step(hooked), want)
		}
		if seen != 2 {
			t.Errorf("hooks were called %d times", seen)
		}
		m := chain(relu(), p)
		var wait sync.WaitGroup
		for range 4 {
			wait.Go(func() { same("goroutines", step(m), want) })
		}
		wait.Wait()
		same("in evaluation", step(nn.Eval(m)), step(nn.Eval(two)))
	}
	for what, row := range map[string]struct {
		m  nn.Module
		op string
	}{
		"in training":   {pairOf(relu(), 0.4), "relu_dropout"},
		"in evaluation": {nn.Eval(pairOf(relu(), 0.4)), "relu"},
		"p is 0":        {pairOf(relu(), 0), "relu"},
		"another layer": {pairOf(&nn.Tanh{}, 0.4), "tanh"},
		"alone":         {nn.NewSequential(relu()), "relu"},
	} {
		if got := op(row.m); got != row.op {
			t.Errorf("%s: the op is %s, not %s", what, got, row.op)
		}
	}
	layer := nn.NewTransformerEncoderLayer(6, 2, nn.TransformerOptions{Dropout: 0.4, FeedForward: 8})
	same("a transformer's layer", step(layer), func() [][]byte {
		layer.Options.Activation = (*tt).Relu
		return step(layer)
	}())
}
