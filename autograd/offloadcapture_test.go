package autograd_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestCapturedSaveOnCPU checks that each replay copies saved values to page-locked memory and back,
// also for work on two streams. The gradients must have the same bits as eager passes without
// SaveOnCPU. The GPU's memory must hold only a few of the saved values. The page-locked memory must
// not be reused before the graph is closed.
func TestCapturedSaveOnCPU(t *testing.T) {
	const width, batch, layers = 16, 64, 6
	const one = width * batch * 4
	seeds := []int{0, 3}
	if testing.Short() {
		seeds = seeds[1:]
	}
	for _, seed := range seeds {
		list, err := cuda.Emulate(fmt.Sprintf("emulate,mem=16MiB,segment=64KiB,seed=%d", seed))
		if err != nil {
			t.Fatal(err)
		}
		dev := list[0]
		side, err := dev.NewStream(0)
		if err != nil {
			t.Fatal(err)
		}
		gen := tensor.NewGenerator(4)
		m := newStack(tensor.Root(), layers, width)
		for _, w := range m.w {
			w.MoveTo(dev)
		}
		data := tensor.Root().On(dev).Randn(batch, width)
		step := func(streams ...tensor.Option) func(s *tensor.Scope) {
			return func(s *tensor.Scope) {
				x := data.In(s)
				for i, f := range m.fns {
					var y *tt
					var opts []tensor.Option
					if i%3 == 1 {
						opts = streams
					}
					s.Do(func(c *tensor.Scope) { y = f(x.In(c)); c.Close(y) }, opts...)
					x.Free()
					x = y
				}
				x.Square().Mean().Backward()
			}
		}
		run := func(f func(s *tensor.Scope), captured bool, opts ...tensor.Option) (all []byte, peak int) {
			gen.SetState(3, 0)
			opts = append([]tensor.Option{tensor.On(dev), tensor.WithGenerator(gen)}, opts...)
			dev.Empty()
			before := dev.Stats().Allocated
			dev.ResetPeak()
			once := func() error { return tensor.Try(func() { tensor.Do(f, opts...) }) }
			if captured {
				g, err := tensor.Capture(dev, f, opts...)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := g.Close(); err != nil {
						t.Error(err)
					}
				}()
				once = g.Replay
			}
			var others []*tt
			for range 3 {
				if err := once(); err != nil {
					t.Fatal(err)
				}
				for i := range 4 { // allocate page-locked memory while the replay runs
					others = append(others, tensor.Root().Full(float64(i), batch, width).PinMemory(dev))
				}
				for _, w := range m.w {
					all = append(all, w.Grad().Bytes()...)
				}
				if !captured {
					for _, w := range m.w {
						w.ZeroGrad()
					}
				}
			}
			peak = (dev.Stats().AllocatedPeak - before) / one
			for i, p := range others {
				if v := p.Floats(); v[0] != float64(i%4) || v[len(v)-1] != v[0] {
					t.Errorf("page-locked memory of others was written: %v", v[0])
				}
				p.Free()
			}
			for _, w := range m.w {
				w.ZeroGrad()
			}
			return all, peak
		}
		want, _ := run(step(), false)
		_, most := run(step(), true)
		for name, f := range map[string]func(s *tensor.Scope){"one stream": step(), "two streams": step(tensor.Stream(side))} {
			got, least := run(f, true, autograd.SaveOnCPU(true))
			if !bytes.Equal(got, want) {
				t.Errorf("seed %d, %s: not the same bits", seed, name)
			}
			if name == "one stream" && least*3 > most*2 {
				t.Errorf("seed %d, %s: a peak of %d values, %d without", seed, name, least, most)
			}
			if n := dev.PinnedStats().Allocated; n != 0 {
				t.Errorf("seed %d, %s: %d bytes of page-locked memory are left", seed, name, n)
			}
		}
		if _, err := tensor.Capture(dev, step(), autograd.SaveOnCPU(false)); !errors.Is(err, tensor.ErrCapture) || !strings.Contains(err.Error(), "not page-locked") {
			t.Errorf("pageable memory: %v", err)
		}
		data.Free()
		for _, w := range m.w {
			w.Free()
		}
		if n := dev.Stats().Allocated; n != 0 {
			t.Errorf("%d bytes are left in use", n)
		}
	}
}

// TestCapturedToCPU replays a non-blocking copy to the CPU. A read of the copy must wait for the
// last replay.
func TestCapturedToCPU(t *testing.T) {
	list, err := cuda.Emulate("emulate,mem=16MiB,seed=3")
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	dev := list[0]
	x := tensor.Root().On(dev).Ones(5)
	var y *tt
	capture := func() *tensor.Graph {
		g, err := tensor.Capture(dev, func(s *tensor.Scope) { y = x.In(s).MulScalarInPlace(2).To(cpu, tensor.NonBlocking()) })
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g := capture()
	want := 1.0
	for k := range 4 {
		for range k + 1 {
			if err := g.Replay(); err != nil {
				t.Fatal(err)
			}
			want *= 2
		}
		if got := y.Floats(); got[0] != want || got[4] != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	// The garbage collector frees y while replays still write the copy to its memory.
	func() {
		g := capture()
		for range 3 {
			if err := g.Replay(); err != nil {
				t.Fatal(err)
			}
		}
		y = nil
	}()
	for range 200 {
		runtime.GC()
		p := tensor.Root().Full(7, 5).PinMemory(dev)
		time.Sleep(time.Millisecond)
		if v := p.Floats()[0]; v != 7 {
			t.Fatalf("page-locked memory of others was written: %v", v)
		}
		p.Free()
		if dev.PinnedStats().Allocated == 0 {
			return
		}
	}
	t.Errorf("%d bytes of page-locked memory are left", dev.PinnedStats().Allocated)
}
