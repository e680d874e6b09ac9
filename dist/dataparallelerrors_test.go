package dist_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestDataParallelMisuse calls DataParallel and its methods with wrong arguments. Each must panic
// before anything is computed.
func TestDataParallelMisuse(t *testing.T) {
	g := gpus(t, ":2,mem=64MiB")
	checkPanic(t, tensor.ErrDevice, func() { dist.DataParallel(mlp(), nil) }, "there are no devices")
	checkPanic(t, tensor.ErrDevice, func() { dist.DataParallel(mlp(), []device.Device{g[0], nil}) }, "device 1 is nil")
	checkPanic(t, tensor.ErrDevice, func() { dist.DataParallel(mlp(), []device.Device{g[0], g[1], g[0]}) }, "cuda:0 is given twice")
	dp := dist.DataParallel(nn.To(mlp(), g[0]), g)
	list := func(y ...*tt) func(m nn.Module, x ...*tt) []*tt {
		return func(m nn.Module, x ...*tt) []*tt { return y }
	}
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(4, 6)
		checkPanic(t, tensor.ErrShape, func() { dp.Forward(s.Ones()) }, "input 0 has no dimension to be cut along")
		checkPanic(t, tensor.ErrValue, func() { dp.Forward(nil) }, "input 0 is nil")
		checkPanic(t, tensor.ErrValue, func() { dp.Call(list()) }, "there are no inputs")
		checkPanic(t, tensor.ErrValue, func() { dp.Call(nil, x) }, "the function is nil")
		checkPanic(t, tensor.ErrShape, func() { dp.Call(list(x), x, s.Ones(3)) }, "input 1 has 3 samples, the first has 4")
		checkPanic(t, tensor.ErrValue, func() { dp.Call(list(), x) }, "the replica on cuda:0", "returned no results")
		checkPanic(t, tensor.ErrValue, func() { dp.Call(list(x, nil), x) }, "result 1 is nil")
		checkPanic(t, tensor.ErrValue, func() { dp.Call(list(x, nil), x.Narrow(0, 0, 1)) }, "result 1 is nil")
		on := func(d device.Device, a, b func(x *tt) []*tt) func(m nn.Module, x ...*tt) []*tt {
			return func(m nn.Module, x ...*tt) []*tt {
				if x[0].Device() == d {
					return a(x[0])
				}
				return b(x[0])
			}
		}
		one := func(x *tt) []*tt { return []*tt{x} }
		between := "the replicas on cuda:0 and cuda:1 return "
		checkPanic(t, tensor.ErrValue, func() { dp.Call(on(g[0], one, func(x *tt) []*tt { return []*tt{x, x} }), x) }, between+"1 and 2 results")
		checkPanic(t, tensor.ErrShape, func() { dp.Call(on(g[0], one, func(x *tt) []*tt { return []*tt{x.Sum()} }), x) }, between, "result 0")
		checkPanic(t, tensor.ErrShape, func() { dp.Call(on(g[0], one, func(x *tt) []*tt { return []*tt{x.T()} }), x) }, between, "[6, 2]")
		checkPanic(t, tensor.ErrType, func() { dp.Call(on(g[0], one, func(x *tt) []*tt { return []*tt{x.Half()} }), x) }, between, "two types")
	})
}

// TestDataParallelReplicaErrors checks how failures in replicas are reported. An error names its
// device. A panic of the program comes with its stack. A replica that ends its goroutine ends the
// caller's goroutine too. If several devices fail, the first device's error is reported.
func TestDataParallelReplicaErrors(t *testing.T) {
	g := gpus(t, ":3,mem=64MiB")
	dp := dist.DataParallel(nn.To(mlp(), g[0]), g)
	at := func(i int, f func()) func(m nn.Module, x ...*tt) []*tt {
		return func(m nn.Module, x ...*tt) []*tt {
			for _, d := range g[i:] {
				if x[0].Device() == d {
					f()
				}
			}
			return []*tt{m.Forward(x[0])}
		}
	}
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(6, 6)
		for i, d := range g {
			err := checkPanic(t, tensor.ErrShape, func() { dp.Call(at(i, func() { s.Ones(2).Add(s.Ones(3)) }), x) }, "the replica on "+d.Name()+": tensor: add")
			var e *tensor.Error
			if !errors.As(err, &e) || !strings.Contains(e.Site, "dataparallelerrors_test.go") {
				t.Errorf("%v", err)
			}
			func() {
				defer func() {
					p, ok := recover().(*dist.ReplicaPanic)
					if !ok || p.Value != "mine" || p.Device != d.Name() || !strings.Contains(string(p.Stack), "dataparallelerrors_test.go") ||
						!strings.Contains(p.Error(), "panicked: mine") {
						t.Errorf("device %d: %v", i, p)
					}
				}()
				tensor.Try(func() { dp.Call(at(i, func() { panic("mine") }), x) })
			}()
			ended := make(chan bool)
			go func() {
				defer close(ended)
				dp.Call(at(i, runtime.Goexit), x)
				ended <- true
			}()
			if <-ended {
				t.Error("the call returned")
			}
		}
		// The error must name the layer as in the model, and the line that called Forward.
		err := checkPanic(t, tensor.ErrShape, func() { dp.Forward(s.Ones(6, 5)) }, "in 0 (nn.Linear)")
		var r *dist.ReplicaError
		if !errors.As(err, &r) || r.Device != "cuda:0" {
			t.Errorf("%v", err)
		}
		var nilMap map[string]int
		func() {
			defer func() {
				var e runtime.Error
				if p, ok := recover().(*dist.ReplicaPanic); !ok || !errors.As(p, &e) {
					t.Errorf("%v", p)
				}
			}()
			dp.Call(at(1, func() { nilMap["a"] = 1 }), x)
		}()
		// An error in Backward must name the layer, and the line that called Backward.
		y := dp.Call(func(m nn.Module, x ...*tt) []*tt {
			y := m.Forward(x[0])
			if x[0].Device() == g[2] {
				y.RegisterHook(func(*tt) *tt { panic("back") })
			}
			return []*tt{y}
		}, x)[0]
		defer func() {
			if p, ok := recover().(*dist.ReplicaPanic); !ok || p.Value != "back" || p.Device != "cuda:2" {
				t.Errorf("%v", p)
			}
		}()
		y.Sum().Backward()
	})
	if n := allocated(g); n[1] != 0 || n[2] != 0 {
		t.Errorf("%v bytes stay", n)
	}
}

// TestDataParallelLateErrors causes errors on devices other than the first. Such an error is found
// only when its device runs the work. Backward must report it. If the call records no graph, the
// call itself must report it.
func TestDataParallelLateErrors(t *testing.T) {
	g := gpus(t, ":2,mem=64MiB")
	dp := dist.DataParallel(nn.To(nn.NewEmbedding(3, 2), g[0]), g)
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([]int64{0, 1, 2, 9})
		y := dp.Forward(x).Sum()
		if y.Item(); !y.NeedsGrad() {
			t.Error("there is no graph")
		}
		for _, f := range []func(){
			func() { y.Backward() },
			func() { nn.Infer(dp, x) },
		} {
			err := checkPanic(t, tensor.ErrIndex, f, "the replica on cuda:1", "index 9", "embedding")
			var e *tensor.Error
			if !errors.As(err, &e) || !strings.Contains(e.Site, "dataparallelerrors_test.go") {
				t.Errorf("%v", err)
			}
		}
	})
}
