package nn_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// misfit is a layer whose Forward panics.
type misfit struct{ nn.Base }

func (*misfit) Forward(x *tensor.Tensor) *tensor.Tensor { return x.MatMul(x.T().Reshape(1, -1)) }

// Calling a model in training mode within tensor.NoGrad, as in "with torch.no_grad(): y =
// model(x)", is an error. The error says what to write instead. The same holds for a single layer.
func TestForwardOutsideOfItsMode(t *testing.T) {
	x := tensor.Root().Ones(3, 4)
	for _, m := range []interface {
		Forward(*tensor.Tensor) *tensor.Tensor
	}{nn.NewLinear(4, 2), nn.NewSequential(nn.NewLinear(4, 2))} {
		//flambeau:ignore unusedmode the mistake is the test
		err := tensor.Try(func() { tensor.Do(func(*tensor.Scope) { m.Forward(x) }, tensor.NoGrad()) })
		if !errors.Is(err, tensor.ErrScope) || !strings.Contains(err.Error(), "nn.Infer(model, x)") {
			t.Errorf("%T: %v", m, err)
		}
	}
}

func TestInfer(t *testing.T) {
	m := nn.NewSequential(nn.NewLinear(4, 8), nn.NewBatchNorm1d(8), nn.NewDropout(0.9), nn.NewLinear(8, 2))
	frozen := nn.Eval(m.Layers[1]).(*nn.BatchNorm1d)
	x := tensor.Root().Ones(3, 4)
	y := nn.Infer(m, x)
	again := nn.Infer(m, x)
	switch {
	case y.NeedsGrad():
		t.Error("a graph was recorded")
	case y.Scope() != tensor.Root() || y.Shape().String() != "[3, 2]":
		t.Errorf("the result is %v of %v", y, y.Scope())
	case !y.AllClose(again, 0, 0):
		t.Error("dropout was in training")
	case !m.Training() || !m.Layers[2].(*nn.Dropout).Training() || frozen.Training():
		t.Error("layers are in another mode than before")
	}
	if y := nn.Infer(m, x, tensor.WithGrad(), tensor.Autocast(dtype.BF16)); y.Type() != dtype.BF16 || y.NeedsGrad() {
		t.Errorf("under autocast it is %v, gradient %v", y.Type(), y.NeedsGrad())
	}
	// The result of Infer belongs to the scope of x or of the model, whichever is younger.
	tensor.Do(func(s *tensor.Scope) {
		if y := nn.Infer(m, s.Ones(1, 4)); y.Scope() != s {
			t.Errorf("the result belongs to %v", y.Scope())
		}
		if y := nn.Infer(nn.NewLinear(4, 2, nn.In(s)), x); y.Scope() != s {
			t.Errorf("the result of a model of the scope belongs to %v", y.Scope())
		}
		if y := nn.Infer(&nn.Identity{}, x); y == x || y.Scope() != tensor.Root() || !y.AllClose(x, 0, 0) {
			t.Errorf("the result of no layer is %v", y)
		}
	})
	x.Sum() // panics if Infer has moved or freed x
}

// Infer frees intermediate tensors.
func TestInferFreesIntermediates(t *testing.T) {
	m := nn.NewSequential(nn.NewLinear(64, 512), nn.ReLU{}, nn.NewLinear(512, 512), nn.ReLU{}, nn.NewLinear(512, 1))
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(256, 64)
		nn.Infer(m, x).Free()
		before := x.Device().Stats().Allocated
		y := nn.Infer(m, x)
		if got := x.Device().Stats().Allocated - before; got > 4096 {
			t.Errorf("%d bytes more are held after it, the result has %d", got, y.Size()*4)
		}
	})
}

// Infer restores the modes when Forward panics.
func TestInferPanics(t *testing.T) {
	m := nn.NewSequential(nn.NewDropout(0.5), &misfit{})
	if err := tensor.Try(func() { nn.Infer(m, tensor.Ones(2, 3)) }); !errors.Is(err, tensor.ErrShape) {
		t.Fatal(err)
	}
	if !m.Training() || !m.Layers[0].(*nn.Dropout).Training() || !m.Layers[1].(*misfit).Training() {
		t.Error("layers are in another mode than before")
	}
	if err := tensor.Try(func() { nn.Infer(m, nil) }); !errors.Is(err, tensor.ErrValue) {
		t.Error(err)
	}
}

// Several goroutines may call Infer at once for a model in evaluation mode.
func TestInferConcurrently(t *testing.T) {
	m := nn.Eval(nn.NewSequential(nn.NewLinear(4, 8), nn.NewBatchNorm1d(8), nn.NewDropout(0.9), nn.NewLinear(8, 2)))
	want := nn.Infer(m, tensor.Ones(3, 4))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				tensor.Do(func(s *tensor.Scope) {
					if y := nn.Infer(m, s.Ones(3, 4)); !y.AllClose(want, 0, 0) {
						t.Errorf("%v, it should be %v", y, want)
					}
				})
			}
		})
	}
	wg.Wait()
}
