package dist_test

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestDataParallelInference calls a model in no-grad mode, and in evaluation mode. Only the result
// may stay in memory.
func TestDataParallelInference(t *testing.T) {
	devices := gpus(t, ":3,mem=64MiB")
	m := nn.To(nn.Eval(convs()), devices[0])
	one := nn.Clone(m)
	dp := dist.DataParallel(m, devices)
	before := allocated(devices)
	tensor.Do(func(s *tensor.Scope) {
		x := s.Randn(7, 2, 4, 4)
		y := dp.Forward(x)
		if y.NeedsGrad() {
			t.Error("there is a graph")
		}
		if n := allocated(devices); n[1] != 0 || n[2] != 0 {
			t.Errorf("%v bytes are in use", n)
		}
		checkNear(t, "result", y, one.Forward(x.To(devices[0])), 1e-5)
		checkNear(t, "inferred", nn.Infer(dp, x), y, 0)
	}, tensor.NoGrad())
	if n := allocated(devices); !slices.Equal(n, before) {
		t.Errorf("%v bytes stay, there were %v", n, before)
	}
	// The counts include the models' memory, which must not be freed before this point.
	runtime.KeepAlive([]any{m, one, dp})
}

// TestDataParallelAutocast runs replicas under Autocast. The replicas must compute in bfloat16,
// their cached casts must end with the call, and gradients must have the type of the parameters.
func TestDataParallelAutocast(t *testing.T) {
	devices := gpus(t, ":2,mem=64MiB")
	m := nn.To(mlp(), devices[0])
	one := nn.Clone(m)
	dp := dist.DataParallel(m, devices)
	tensor.Do(func(s *tensor.Scope) {
		x := s.Randn(6, 6)
		for range 2 {
			y, want := dp.Forward(x), one.Forward(x.To(devices[0]))
			if y.Type() != dtype.BF16 {
				t.Errorf("the result is %v", y.Type())
			}
			checkNear(t, "result", y, want, 0.02)
			y.Square().Mean().Backward()
			want.Square().Mean().Backward()
			if n := allocated(devices); n[1] != 0 {
				t.Errorf("%d bytes stay", n[1])
			}
		}
		for k, p := range nn.Parameters(dp) {
			if p.Grad().Type() != dtype.F32 {
				t.Errorf("a gradient is %v", p.Grad().Type())
			}
			checkNear(t, "gradient", p.Grad(), nn.Parameters(one)[k].Grad(), 0.03)
		}
		// run many calls in one scope: they must leave nothing in memory
		s.Do(func(s *tensor.Scope) {
			for range 3 {
				dp.Forward(x.In(s)).Free()
			}
		}, tensor.NoGrad())
		if n := allocated(devices); n[1] != 0 {
			t.Errorf("%d bytes stay", n[1])
		}
	}, tensor.Autocast(dtype.BF16))
}

// TestDataParallelDropout checks that different replicas and different calls drop different
// elements. A second run with the same seed must drop the same elements. Backward must use the
// elements that the call dropped.
func TestDataParallelDropout(t *testing.T) {
	devices := append([]device.Device{host(t)}, gpus(t, ":2,mem=64MiB")...)
	dp := dist.DataParallel(nn.NewSequential(nn.NewDropout(0.5)), devices)
	run := func() (all [][]byte) {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Ones(3, 64).RequiresGrad()
			for range 2 {
				y := dp.Forward(x)
				for i := range 3 {
					all = append(all, y.Select(0, i).Contiguous().Bytes())
				}
				y.Sum().Backward()
				checkNear(t, "gradient", x.Grad(), y, 0)
				x.ZeroGrad()
			}
		}, tensor.Seed(11))
		return all
	}
	a, b := run(), run()
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			t.Errorf("part %d: the same seed gives other numbers", i)
		}
		for k := range i {
			if bytes.Equal(a[i], a[k]) {
				t.Errorf("parts %d and %d drop the same", k, i)
			}
		}
	}
	if nn.Eval(dp); dp.Module.Layers[0].(*nn.Dropout).Training() {
		t.Error("Eval does not reach the model")
	}
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(3, 64)
		checkNear(t, "evaluation", dp.Forward(x), x, 0)
	})
}

// roots is a model whose gradient is NaN at 0.
type roots struct {
	nn.Base
	W *tt `nn:"w"`
}

func (m *roots) Forward(x *tt) *tt { return x.Mul(m.W).Sqrt().Mul(x) }

// TestDataParallelAnomaly runs replicas in anomaly mode. A NaN must be reported in the call and in
// Backward.
func TestDataParallelAnomaly(t *testing.T) {
	devices := append([]device.Device{host(t)}, gpus(t, ":1,mem=64MiB")...)
	dp := dist.DataParallel(&roots{W: tensor.Ones(1).RequiresGrad()}, devices)
	tensor.Do(func(s *tensor.Scope) {
		y := dp.Forward(s.From([]float32{1, 0})).Sum()
		err := checkPanic(t, tensor.ErrAnomaly, func() { y.Backward() }, "Backward of the replica on cuda:0", "sqrt", "dataparallelmodes_test.go")
		var a *tensor.Anomaly
		if !errors.As(err, &a) || a.Op != "sqrt" {
			t.Errorf("%v", a)
		}
	}, tensor.DetectAnomaly())
	tensor.Do(func(s *tensor.Scope) {
		checkPanic(t, tensor.ErrAnomaly, func() { dp.Forward(s.From([]float32{1, -1})) }, "the replica on cuda:0", "the result of sqrt")
	}, tensor.DetectAnomaly(tensor.AnomalyForward))
}

// TestDataParallelStreams calls a model in a scope with a stream of one device. The replica on that
// device must use this stream, and every other replica its own device's stream.
func TestDataParallelStreams(t *testing.T) {
	devices := gpus(t, ":2,mem=64MiB")
	st, err := devices[0].NewStream(0)
	if err != nil {
		t.Fatal(err)
	}
	m := nn.To(mlp(), devices[0])
	one := nn.Clone(m)
	seen := make(chan string, 2)
	dp := dist.DataParallel(m, devices)
	tensor.Do(func(s *tensor.Scope) {
		x := s.Randn(6, 6)
		y := dp.Call(func(m nn.Module, x ...*tt) []*tt {
			if x[0].Scope().Stream(x[0].Device()) == st {
				seen <- x[0].Device().Name()
			}
			return []*tt{m.Forward(x[0])}
		}, x)[0]
		y.Square().Mean().Backward()
		one.Forward(x.To(devices[0])).Square().Mean().Backward()
		for k, p := range nn.Parameters(dp) {
			checkNear(t, "gradient", p.Grad(), nn.Parameters(one)[k].Grad(), 1e-4)
		}
	}, tensor.On(devices[0]), tensor.Stream(st))
	if close(seen); len(seen) != 1 || <-seen != "cuda:0" {
		t.Error("not the first replica, and it alone, was on the stream")
	}
}

// TestDataParallelCapture calls a model inside a capture. The call must panic before anything is
// computed.
func TestDataParallelCapture(t *testing.T) {
	devices := gpus(t, ":2,mem=64MiB")
	dp := dist.DataParallel(nn.To(mlp(), devices[0]), devices)
	x := tensor.Typed(dtype.F32).On(devices[0]).Ones(4, 6)
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("%v", r)
		}
	}()
	_, err := tensor.Capture(devices[0], func(s *tensor.Scope) { dp.Forward(x.In(s)) })
	if err == nil || !errors.Is(err, tensor.ErrCapture) || !strings.Contains(err.Error(), "cuda:1") {
		t.Errorf("%v", err)
	}
}
