package tensor_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// streamProgram is a program on several streams without any explicit ordering. It trains a small
// network. It copies batches in advance from one page-locked buffer, and fills the buffer again
// meanwhile. The update, the reading of activations and half of the forward pass run on separate
// streams. It frees memory that other streams still read, and immediately allocates the same amount
// again. The host waits only at the end. streamProgram returns all computed values.
func streamProgram(dev device.Device, first, second, copies device.Stream) (seen []float32, err error) {
	cpu, err := device.Open("cpu")
	if err != nil {
		return nil, err
	}
	err = tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			const n, wide, steps = 4, 8, 3
			w1 := s.Arange(n*wide).Float().Sin().Reshape(n, wide).Detach().RequiresGrad()
			w2 := s.Arange(wide*n).Float().Cos().Reshape(wide, n).Detach().RequiresGrad()
			host := tensor.Root().Zeros(n, n).PinMemory(dev)
			defer host.Free()
			on := func(p *tensor.Scope, st device.Stream, f func(c *tensor.Scope) *tensor.Tensor, opts ...tensor.Option) (y *tensor.Tensor) {
				p.Do(func(c *tensor.Scope) {
					if y = f(c); y != nil {
						c.Close(y)
					}
				}, append(opts, tensor.Stream(st))...)
				return y
			}
			ahead := func(i int) *tensor.Tensor {
				host.Fill(float64(i) * 0.25) // the previous copy from host may not have begun yet
				return on(s, copies, func(c *tensor.Scope) *tensor.Tensor { return host.In(c).To(dev, tensor.NonBlocking()) })
			}
			var results []*tensor.Tensor
			next := ahead(1)
			for i := range steps {
				x := next
				if i+1 < steps {
					next = ahead(i + 2)
				}
				kept := on(s, first, func(a *tensor.Scope) *tensor.Tensor {
					h := x.In(a).AddScalar(0.5).MatMul(w1).Tanh()
					x.Free() // the memory of x was allocated on the stream copies
					y := on(a, second, func(b *tensor.Scope) *tensor.Tensor { return h.In(b).MatMul(w2).Softmax(-1) })
					temporary := y.Detach().Exp()
					read := on(a, copies, func(c *tensor.Scope) *tensor.Tensor { return temporary.In(c).CumSum(0).Sum(1) })
					temporary.Free()
					a.Full(777, n, n) // this tensor gets the memory that was just freed
					loss := y.Square().Sum()
					loss.Backward()
					on(a, second, func(c *tensor.Scope) *tensor.Tensor {
						for _, w := range []*tensor.Tensor{w1, w2} {
							w.In(c).SubInPlace(w.Grad().In(c).MulScalar(0.5))
							w.ZeroGrad()
						}
						return nil
					}, tensor.NoGrad())
					return tensor.Cat(0, read, loss.Detach().Reshape(1))
				})
				results = append(results, kept.To(cpu, tensor.NonBlocking()))
			}
			results = append(results, w1.Detach().Flatten(0, -1).CPU(), w2.Detach().Flatten(0, -1).CPU())
			for _, r := range results {
				seen = append(seen, tensor.Data[float32](r)...)
			}
		}, tensor.On(dev))
	})
	return seen, err
}

// runOnGPU runs the program on a fresh emulated GPU. The seed decides the order in which its
// streams run. With seed 0 there is only one stream.
func runOnGPU(t *testing.T, seed int) ([]float32, error) {
	t.Helper()
	gpus, err := cuda.Emulate(fmt.Sprintf("emulate,mem=4MiB,seed=%d", seed))
	if err != nil {
		t.Fatal(err)
	}
	dev := gpus[0]
	streams := []device.Stream{dev.DefaultStream(), dev.DefaultStream(), dev.DefaultStream()}
	if seed != 0 {
		for i := range streams {
			if streams[i], err = dev.NewStream(0); err != nil {
				t.Fatal(err)
			}
		}
	}
	seen, err := streamProgram(dev, streams[0], streams[1], streams[2])
	if n := dev.Stats().Allocated; n != 0 && err == nil {
		t.Errorf("seed %d: %d bytes are left", seed, n)
	}
	return seen, err
}

// TestAnyScheduleGivesTheSame checks that streamProgram returns the same bits under any schedule
// that the rules of streams allow. It tries 16 random schedules, 3 with -short, and 1000 with
// FLAMBEAU_SOAK.
func TestAnyScheduleGivesTheSame(t *testing.T) {
	n := 16
	switch {
	case os.Getenv("FLAMBEAU_SOAK") == "1":
		n = 1000
	case testing.Short():
		n = 3
	}
	want, err := runOnGPU(t, 0)
	if err != nil || len(want) < 70 {
		t.Fatalf("%d numbers, %v", len(want), err)
	}
	for seed := 1; seed <= n; seed++ {
		if got, err := runOnGPU(t, seed); err != nil || !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v, %v; on one stream %v", seed, got, err, want)
		}
	}
	t.Logf("%d schedules", n)
}

// TestSchedulesFindMissingOrder checks that TestAnyScheduleGivesTheSame can fail. If streams do not
// wait for each other, some schedule must give other results. The same holds if memory is reused
// while other streams may still read it.
func TestSchedulesFindMissingOrder(t *testing.T) {
	want, err := runOnGPU(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, missing := range map[string][2]bool{"waits": {true, false}, "uses": {false, true}} {
		found := 0
		tensor.Unordered(missing[0], missing[1], func() {
			for seed := 1; seed <= 4; seed++ {
				if got, err := runOnGPU(t, seed); err != nil || !slices.Equal(got, want) {
					found++
				}
			}
		})
		t.Logf("without %s %d of 4 schedules go wrong", name, found)
		if found == 0 {
			t.Errorf("without %s no schedule goes wrong: the test of schedules sees nothing", name)
		}
	}
}
