package tensor_test

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cpu"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestNonBlockingCopies makes copies for which the host does not wait. They must be ordered with
// all other work on both devices, in each of six schedules.
func TestNonBlockingCopies(t *testing.T) {
	const n = 3000
	for seed := range 6 {
		dev, _ := emulated(t, seed)
		gpu := dev.(device.PinnedAllocator)
		side, err := dev.NewStream(0)
		if err != nil {
			t.Fatal(err)
		}
		tensor.Do(func(s *tensor.Scope) {
			x := s.Arange(n).Float().PinMemory(dev)
			if !x.IsPinned() || x.PinMemory(dev) != x || !x.Narrow(0, 1, 2).IsPinned() || s.Ones(2).IsPinned() || x.Device().Name() != "cpu" {
				t.Fatal("the memory is not page-locked")
			}
			var sums []*tensor.Tensor
			for i := range 5 {
				s.Do(func(c *tensor.Scope) {
					// the copy runs on a separate stream
					y := x.In(c).To(dev, tensor.NonBlocking())
					c.Do(func(d *tensor.Scope) {
						sum := y.In(d).Sum() // this sum runs on the default stream
						sums = append(sums, sum)
						d.Close(sum)
					}, tensor.Stream(dev.DefaultStream()))
					c.Close(sums[len(sums)-1])
				}, tensor.Stream(side))
				if i%2 == 0 {
					x.AddScalarInPlace(1) // this write waits until the copy has read x
				}
			}
			want := 0.0
			for i, at := range []float64{0, 1, 1, 2, 2} {
				want = n*(n-1)/2 + at*n
				if got := sums[i].Item(); got != want {
					t.Errorf("seed %d, copy %d: the sum is %v, want %v", seed, i, got, want)
				}
			}
			g := s.On(dev).ArangeStep(0, n, 1).Float().MulScalar(2)
			h := g.To(x.Device(), tensor.NonBlocking())
			g.Fill(7)                               // this write waits for the copy too
			if v := h.Floats(); v[n-1] != 2*(n-1) { // reading the result waits as well
				t.Errorf("seed %d: %v came back", seed, v[n-1])
			}
			if !h.IsPinned() || g.T().CPU().IsPinned() || g.CPU().IsPinned() {
				t.Error("only a copy that is not waited for needs page-locked memory")
			}
			h = s.On(dev).Full(3, 2, 5).T().To(x.Device(), tensor.NonBlocking())
			if v := h.Sum().Item(); v != 30 {
				t.Errorf("of a transposed tensor %v comes back", v)
			}
			odd := s.Arange(20).Float().Reshape(4, 5).T().PinMemory(dev)
			if v := odd.To(dev, tensor.NonBlocking()).Floats(); v[1] != 5 || odd.T().To(dev).Eq(s.On(dev).Arange(20).Reshape(4, 5)).All().Item() != 1 {
				t.Errorf("strided: %v", v)
			}
		})
		if a, p := dev.Stats().Allocated, gpu.PinnedStats().Allocated; a != 0 || p != 0 {
			t.Errorf("seed %d: %d bytes and %d bytes of page-locked memory are left", seed, a, p)
		}
		if err := dev.Synchronize(); err != nil {
			t.Fatal(err)
		}
		if r, e := gpu.PinnedStats().Reserved, gpu.EmptyPinned(); r != e || gpu.PinnedStats().Reserved != 0 {
			t.Errorf("%d bytes reserved, %d given back", r, e)
		}
	}
}

// TestPinnedIsCollected drops page-locked memory that no scope owns. The garbage collector must
// return it, even if it is small.
func TestPinnedIsCollected(t *testing.T) {
	dev, _ := emulated(t, 0)
	gpu := dev.(device.PinnedAllocator)
	func() { tensor.Ones(10).PinMemory(dev).To(dev, tensor.NonBlocking()).Free() }()
	for i := 0; gpu.PinnedStats().Allocated > 0 && i < 100; i++ {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	if n := gpu.PinnedStats().Allocated; n != 0 {
		t.Errorf("%d bytes are lost", n)
	}
}

func TestPinnedGradientsAndErrors(t *testing.T) {
	dev, _ := emulated(t, 2)
	w := tensor.Ones(3).RequiresGrad()
	w.PinMemory(dev).To(dev, tensor.NonBlocking()).MulScalar(3).To(w.Device(), tensor.NonBlocking()).Sum().Backward()
	if g := w.Grad().Floats(); !slices.Equal(g, []float64{3, 3, 3}) {
		t.Error(g)
	}
	if e := tensor.Typed(dtype.I64).Zeros(0, 3).PinMemory(dev).To(dev, tensor.NonBlocking()); e.Size() != 0 || e.To(w.Device(), tensor.NonBlocking()).Size() != 0 {
		t.Error("nothing is copied as nothing")
	}
	host := device.Device(cpu.Get())
	x := tensor.Ones(2)
	for want, f := range map[error]func(){
		tensor.ErrDevice: func() { x.PinMemory(host) },
		tensor.ErrFreed:  func() { y := x.Clone(); y.Free(); y.PinMemory(dev) },
	} {
		if err := tensor.Try(f); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if err := tensor.Try(func() { x.To(dev).PinMemory(dev) }); !errors.Is(err, tensor.ErrDevice) {
		t.Error(err)
	}
	if err := tensor.Try(func() { x.PinMemory(nil) }); !errors.Is(err, tensor.ErrDevice) {
		t.Error(err)
	}
	var u *device.UnavailableError
	if _, missing := device.Open("cuda:0"); missing != nil {
		if err := tensor.Try(func() { x.PinMemory() }); !errors.As(err, &u) {
			t.Error(err)
		}
	}
}
