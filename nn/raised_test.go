package nn_test

import (
	"errors"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/optim/sched"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

type theirs struct{}

func (theirs) Error() string { return "theirs" }

// Try returns the errors that packages of this library raise. It lets other panics through.
func TestTryReturnsTheLibrarysErrors(t *testing.T) {
	for name, c := range map[string]struct {
		f  func()
		as any
	}{
		"tensor":  {func() { tensor.Ones(2).Add(tensor.Ones(3)) }, new(*tensor.Error)},
		"nn":      {func() { nn.NewConv2d(3, 4, 3, nn.Groups(2)) }, new(*nn.Error)},
		"model":   {func() { nn.Parameters(&struct{ l []*nn.Linear }{}) }, new(*nn.Error)},
		"optim":   {func() { optim.NewSGD(nil, optim.SGDConfig{LR: -1}) }, new(*optim.Error)},
		"sched":   {func() { sched.NewStep(optim.NewSGD(nn.Parameters(nn.NewLinear(1, 1)), optim.SGDConfig{LR: 1}), 0, 0.1) }, new(*optim.Error)},
		"expr":    {func() { expr.Call("nothing") }, new(*expr.Error)},
		"shape":   {func() { shape.Of(1, 2, 3, 4, 5, 6, 7, 8, 9) }, new(shape.RankError)},
		"get":     {func() { cuda.Get(5) }, new(*device.UnavailableError)},
		"not gpu": {func() { cuda.DeviceName(tensor.Root().Device()) }, new(*device.OperandError)},
	} {
		err := tensor.Try(c.f)
		if err == nil || !errors.As(err, c.as) {
			t.Errorf("%s: %T %v", name, err, err)
		}
		var raised device.Raised
		if !errors.As(err, &raised) {
			t.Errorf("%s: %T is not of the family", name, err)
		}
	}
	for name, f := range map[string]func(){
		"a word":        func() { panic("mine") },
		"their error":   func() { panic(theirs{}) },
		"an index":      func() { _ = make([]int, 1)[len(name())] },
		"a nil map":     func() { noMap()["x"] = 1 },
		"a plain error": func() { panic(errors.New("mine")) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: the panic was kept", name)
				}
			}()
			t.Errorf("%s: Try returned %v", name, tensor.Try(f))
		}()
	}
}

func name() string { return "a word" }

func noMap() map[string]int { return nil }
