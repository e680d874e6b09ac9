package tensor_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// emulated returns the first two of a program's emulated GPUs. The seed decides the order in which
// their streams run.
func emulated(t *testing.T, seed int) (a, b device.Device) {
	t.Helper()
	d, err := cuda.Emulate(fmt.Sprintf("emulate:2,mem=64MiB,seed=%d", seed))
	if err != nil {
		t.Fatal(err)
	}
	return d[0], d[1]
}

// train runs a few steps whose scopes alternate between two streams, and frees tensors in between.
// It returns a sum of the results.
func train(dev device.Device, s1, s2 device.Stream) (sum float64) {
	tensor.Do(func(s *tensor.Scope) {
		w := s.Full(0.5, 64, 64).RequiresGrad()
		x := s.Arange(64*64).Float().MulScalar(1e-3).Reshape(64, 64)
		for i := range 4 {
			st := s1
			if i%2 == 1 {
				st = s2
			}
			s.Do(func(c *tensor.Scope) {
				h := x.In(c).MatMul(w).Tanh()
				h2 := h.Mul(x).AddScalar(float64(i))
				h.Free()
				g := h2.Softmax(-1)
				h2.Free()
				l := g.Square().Sum()
				c.Do(func(d *tensor.Scope) { l.In(d).MulScalar(2).Backward(tensor.RetainGraph()) }, tensor.Stream(s1))
				l.Backward()
				c.Do(func(d *tensor.Scope) { w.In(d).SubInPlace(w.Grad().In(d).MulScalar(0.1)) }, tensor.NoGrad(), tensor.Stream(s2))
				x.AddScalarInPlace(0.01)
				w.ZeroGrad()
			}, tensor.Stream(st))
		}
		sum = w.Sum().Item() + x.Sum().Item()
	}, tensor.On(dev))
	return sum
}

// TestStreamsOrderThemselves runs work on several streams without explicit waits. The results must
// equal those on one stream, and memory must not be reused too early.
func TestStreamsOrderThemselves(t *testing.T) {
	for seed := range 4 {
		dev, _ := emulated(t, seed+1)
		s1, err1 := dev.NewStream(0)
		s2, err2 := dev.NewStream(0)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		want := train(dev, dev.DefaultStream(), dev.DefaultStream())
		if a, b := train(dev, s1, s2), train(dev, s1, dev.DefaultStream()); a != want || b != want {
			t.Errorf("seed %d: %v and %v, on one stream %v", seed, a, b, want)
		}
		if n := dev.Stats().Allocated; n != 0 {
			t.Errorf("seed %d: %d bytes are left", seed, n)
		}
	}
}

func TestTwoDevices(t *testing.T) {
	const n = 1 << 16
	for seed := range 4 {
		a, b := emulated(t, seed+1)
		tensor.Do(func(s *tensor.Scope) {
			x := s.On(a).Ones(n).RequiresGrad()
			x.MulScalar(2).To(b).Square().To(a).Sum().Backward()
			if g := x.Grad(); g.Device() != a || g.Sum().Item() != 8*n {
				t.Errorf("seed %d: the gradient adds up to %v on %s", seed, g.Sum().Item(), g.Device().Name())
			}
			y := s.On(a).Ones(n)
			z := y.To(b)
			y.MulScalarInPlace(5) // this write waits until the copy has read y
			if v := z.Sum().Item(); v != n {
				t.Errorf("seed %d: a write overtook the copy: %v", seed, v)
			}
			z = y.To(b)
			y.Free() // the next owner of the memory waits too
			s.On(a).Zeros(n)
			if v := z.Sum().Item(); v != 5*n {
				t.Errorf("seed %d: memory was reused before the copy had read: %v", seed, v)
			}
			for name, f := range map[string]func(){
				"add":      func() { x.Add(z) },
				"matmul":   func() { x.MatMul(z) },
				"backward": func() { x.Sum().Backward(tensor.GradOutput(s.On(b).Ones())) },
			} {
				if err := tensor.Try(f); !errors.Is(err, tensor.ErrDevice) {
					t.Errorf("%s: %v", name, err)
				}
			}
			w := s.On(a).Ones(10).RequiresGrad()
			l := w.Square().Sum()
			l.Backward(tensor.RetainGraph())
			if w.MoveTo(b); w.Grad().Device() != b {
				t.Error("the gradient moves along")
			}
			if err := tensor.Try(func() { l.Backward() }); !errors.Is(err, tensor.ErrDevice) {
				t.Errorf("a graph from before the move: %v", err)
			}
		})
		if m, k := a.Stats().Allocated, b.Stats().Allocated; m != 0 || k != 0 {
			t.Errorf("seed %d: %d and %d bytes are left", seed, m, k)
		}
	}
}
