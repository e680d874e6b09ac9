package tensor_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestRawInCapture calls Raw in a capture. Ops that the function of Raw queues must be recorded,
// also on the CPU. Direct access to the memory must be refused, with the op's name in the error,
// because it would happen once during the capture and not in replays.
func TestRawInCapture(t *testing.T) {
	dev := newRank(t)
	x, y := tensor.Root().On(dev).Full(2, 3), tensor.Root().On(dev).Zeros(3)
	twice := expr.MustLower([]*expr.Expr{expr.X(0).Mul(expr.C(2))}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
	double := func(onHost bool) func(s *tensor.Scope) {
		return func(s *tensor.Scope) {
			out, in := []*tensor.Tensor{y.In(s)}, []*tensor.Tensor{x.In(s)}
			tensor.Raw("double", out, in, func(st device.Stream, outs, ins []device.View) error {
				if onHost {
					return doubleOnHost(st, outs, ins)
				}
				return device.Run(dev, st, &device.Map{Program: twice, Outs: outs, Ins: ins})
			})
		}
	}
	g := capture(t, dev, double(false))
	for k := range 3 {
		x.Fill(float64(k))
		ok(t, g.Replay())
		if v := y.Floats(); v[2] != float64(2*k) {
			t.Errorf("%v after a replay, want %d", v, 2*k)
		}
	}
	ok(t, g.Close())
	var e *tensor.Error
	if _, err := tensor.Capture(dev, double(true)); !errors.Is(err, tensor.ErrCapture) || !errors.As(err, &e) || e.Op != "double" || !strings.Contains(e.Site, "rawcapture_test.go") {
		t.Errorf("access to memory in a capture: %v", err)
	}
	if v := y.Floats(); v[2] != 4 {
		t.Errorf("%v after a capture that failed", v)
	}
}
