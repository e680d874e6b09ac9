package tensor_test

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// onEach runs f on the CPU and on two emulated GPUs.
func onEach(t *testing.T, f func(t *testing.T, dev device.Device)) {
	t.Helper()
	for _, dev := range threeDevices(t) {
		t.Run(dev.Name(), func(t *testing.T) { f(t, dev) })
	}
}

func threeDevices(t *testing.T) []device.Device {
	t.Helper()
	gpus, err := cuda.Emulate("emulate:2,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	return []device.Device{tensor.Root().Device(), gpus[0], gpus[1]}
}

func values(t *testing.T, what string, x *tensor.Tensor, want ...float64) {
	t.Helper()
	if x == nil {
		t.Errorf("%s is nil, want %v", what, want)
	} else if got := x.Floats(); !slices.Equal(got, want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// TestGradientIsAView checks gradients that are views of one tensor, which holds the gradients of
// several leaves. Backward adds to each view in place, and an op on the whole tensor changes each
// gradient.
func TestGradientIsAView(t *testing.T) {
	onEach(t, func(t *testing.T, dev device.Device) {
		tensor.Do(func(s *tensor.Scope) {
			a := s.From([]float32{1, 2}).RequiresGrad()
			b := s.From([]float32{3, 4, 5, 6}, 2, 2).RequiresGrad()
			bucket := s.Zeros(7)
			ga, gb := bucket.Narrow(0, 1, 2), bucket.Narrow(0, 3, 4).View(2, 2)
			a.SetGrad(ga)
			b.SetGrad(gb)
			step := func(opts ...tensor.GradOption) {
				s.Do(func(c *tensor.Scope) {
					a.In(c).MulScalar(2).Sum().Add(b.In(c).Square().Sum()).Backward(opts...)
				})
			}
			step()
			values(t, "the bucket", bucket, 0, 2, 2, 6, 8, 10, 12)
			step()
			values(t, "the bucket after two", bucket, 0, 4, 4, 12, 16, 20, 24)
			if a.Grad() != ga || b.Grad() != gb {
				t.Error("Backward has set other gradients")
			}
			bucket.MulScalarInPlace(0.5)
			values(t, "a gradient, scaled with the bucket", a.Grad(), 2, 2)
			bucket.Zero()
			step(tensor.Into(b))
			values(t, "the bucket, into one", bucket, 0, 0, 0, 6, 8, 10, 12)

			// If a run records its gradients, the sum is a new tensor, and the view does not
			// change.
			bucket.Zero()
			s.Do(func(c *tensor.Scope) {
				a.In(c).Square().Sum().Backward(tensor.CreateGraph())
			})
			values(t, "the sum", a.Grad(), 2, 4)
			values(t, "the bucket with a graph", bucket, make([]float64, 7)...)
			if a.Grad() == ga {
				t.Error("a gradient with a graph was added in place")
			}
			a.SetGrad(ga)

			// Take the gradient away, and put it back.
			got := a.TakeGrad()
			if got != ga || a.Grad() != nil {
				t.Error("TakeGrad has not taken the view")
			}
			step()
			values(t, "a gradient of its own", a.Grad(), 2, 2)
			values(t, "what was taken", got, 0, 0)
			a.SetGrad(got)
			step()
			values(t, "the bucket again", bucket, 0, 2, 2, 12, 16, 20, 24)

			// Another view of the same memory may replace the gradient. ZeroGrad does not change
			// the other gradients.
			a.SetGrad(bucket.Narrow(0, 1, 2))
			values(t, "another view", a.Grad(), 2, 2)
			a.ZeroGrad()
			step()
			values(t, "the bucket without the first", bucket, 0, 2, 2, 18, 24, 30, 36)
			values(t, "the first", a.Grad(), 2, 2)

			// SetGrad refuses a gradient that does not fit.
			for what, g := range map[string]*tensor.Tensor{"shape": bucket.Narrow(0, 0, 3), "type": bucket.Double().Narrow(0, 0, 2)} {
				if err := tensor.Try(func() { a.SetGrad(g) }); err == nil {
					t.Errorf("a view of another %s is taken", what)
				}
			}
		}, tensor.On(dev))
	})
}

// TestGradientViewsShareAVersion checks gradients that lie in one memory. They must share the
// memory's version. If a graph has saved one gradient and Backward has added to another, using the
// graph must be an error.
func TestGradientViewsShareAVersion(t *testing.T) {
	onEach(t, func(t *testing.T, dev device.Device) {
		tensor.Do(func(s *tensor.Scope) {
			a, b, x := s.Ones(2).RequiresGrad(), s.Ones(2).RequiresGrad(), s.Ones(2).RequiresGrad()
			bucket := s.Zeros(4)
			a.SetGrad(bucket.Narrow(0, 0, 2))
			b.SetGrad(bucket.Narrow(0, 2, 2))
			for _, leaf := range []*tensor.Tensor{a, b} {
				y := x.Mul(a.Grad()).Sum()
				leaf.Sum().Backward()
				if err := tensor.Try(func() { y.Backward() }); !errors.Is(err, tensor.ErrInPlace) {
					t.Errorf("a saved gradient that was added to: %v", err)
				}
			}
			y := x.Mul(a.Grad().Clone()).Sum()
			a.Sum().Backward()
			y.Backward()
			values(t, "the gradient by a copy", x.Grad(), 1, 1)
		}, tensor.On(dev))
	})
}

// TestGradientViewsFreeTheBucket checks that the memory of a bucket is freed with its last handle.
// The handles of the bucket and of the gradients may be freed in any order.
func TestGradientViewsFreeTheBucket(t *testing.T) {
	const n = 1 << 16 // a bucket of n numbers is pooled on the CPU too
	onEach(t, func(t *testing.T, dev device.Device) {
		runtime.GC()
		time.Sleep(time.Millisecond)
		held := func() int { return dev.Stats().Allocated }
		for order := range 3 {
			home := tensor.NewScope(tensor.On(dev))
			leaves := []*tensor.Tensor{home.Ones(n).RequiresGrad(), home.Ones(n).RequiresGrad()}
			base := held()
			bucket := home.Zeros(2 * n)
			size := held() - base
			if size < 8*n {
				t.Fatalf("a bucket of %d bytes takes %d", 8*n, size)
			}
			for i, x := range leaves {
				x.SetGrad(bucket.Narrow(0, i*n, n))
			}
			home.Do(func(c *tensor.Scope) { leaves[0].In(c).Mul(leaves[1].In(c)).Sum().Backward() })
			drop := []func(){leaves[0].ZeroGrad, leaves[1].ZeroGrad, bucket.Free}
			for k := range drop {
				if got := held() - base; got != size {
					t.Errorf("order %d: %d bytes are held before %d of 3 handles are gone, not %d", order, got, k+1, size)
				}
				drop[(k+order)%3]()
			}
			if got := held() - base; got != 0 {
				t.Errorf("order %d: %d bytes are left", order, got)
			}
			home.Close()
		}
	})
}

// TestGradientViewOutlivesItsScope ends the scope in which a bucket was made. The bucket must live
// on as long as a gradient uses it.
func TestGradientViewOutlivesItsScope(t *testing.T) {
	onEach(t, func(t *testing.T, dev device.Device) {
		x := tensor.Root().On(dev).Ones(2).RequiresGrad()
		tensor.Do(func(s *tensor.Scope) { x.SetGrad(s.Zeros(5).Narrow(0, 2, 2)) }, tensor.On(dev))
		runtime.GC()
		x.MulScalar(3).Sum().Backward()
		values(t, "the gradient", x.Grad(), 3, 3)
		x.ZeroGrad()
	})
}

// TestGradientViewsConcurrently runs Backward on several goroutines. Each run must add to the parts
// of one bucket that belong to its leaves.
func TestGradientViewsConcurrently(t *testing.T) {
	onEach(t, func(t *testing.T, dev device.Device) {
		tensor.Do(func(s *tensor.Scope) {
			const n = 4
			bucket := s.Zeros(3 * n)
			var want []float64
			var wg sync.WaitGroup
			for k := range n {
				x := s.Full(float64(k), 3).RequiresGrad()
				x.SetGrad(bucket.Narrow(0, 3*k, 3))
				want = append(want, 10*float64(k), 10*float64(k), 10*float64(k))
				wg.Go(func() {
					for range 5 {
						s.Do(func(c *tensor.Scope) { x.In(c).Square().Sum().Backward() })
					}
				})
			}
			wg.Wait()
			values(t, "the bucket", bucket, want...)
		}, tensor.On(dev))
	})
}
