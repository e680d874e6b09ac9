package cuda_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// twoHalves is a model of two halves, each computed on its own stream. Its training step uses mixed
// precision with a loss scale, recomputation, dropout, batch normalisation, gradients accumulated
// over two passes, clipping and an average of the weights.
type twoHalves struct {
	dev    *cuda.Device
	a, b   *nn.Sequential
	opt    optim.Optimizer
	scaler *amp.GradScaler
	mean   *optim.Averaged
	gen    *tensor.Generator
	x, y   *tensor.Tensor
	loss   *tensor.Tensor
	sides  []tensor.Option // for each half, the option that runs its scope on its own stream
	at     func()          // called in the forward pass of the second half
}

func newTwoHalves(t *testing.T, config string, streams int) *twoHalves {
	t.Helper()
	list, err := cuda.Emulate(config)
	if err != nil {
		t.Fatal(err)
	}
	return newTwoHalvesOn(t, list[0], streams)
}

func newTwoHalvesOn(t *testing.T, dev *cuda.Device, streams int) *twoHalves {
	p := &twoHalves{dev: dev, gen: tensor.NewGenerator(5), at: func() {}}
	newHalf := func() *nn.Sequential {
		return nn.NewSequential(nn.NewLinear(6, 8), nn.NewBatchNorm1d(8), nn.GELU{}, nn.NewDropout(0.25), nn.NewLinear(8, 5))
	}
	both := nn.NewSequential(newHalf(), newHalf())
	tensor.Do(func(s *tensor.Scope) {
		for _, w := range nn.Parameters(both) {
			w.In(s).NormalInPlace(0, 0.3)
		}
	}, tensor.WithGenerator(tensor.NewGenerator(3)), tensor.NoGrad())
	nn.To(both, dev)
	p.a, p.b = both.Layers[0].(*nn.Sequential), both.Layers[1].(*nn.Sequential)
	p.opt = adamW(nn.Parameters(both))
	// with this initial scale, float16 gradients overflow in the first steps
	p.scaler = amp.NewGradScaler(amp.InitScale(1<<18), amp.GrowthInterval(2))
	p.mean = optim.NewEMA(both, 0.8)
	m := tensor.Root().On(dev)
	p.x, p.y, p.loss = m.Zeros(8, 6), m.Typed(dtype.I64).Zeros(8), m.Zeros()
	for i := range 2 {
		p.sides = append(p.sides, tensor.Named("half"))
		if i >= streams {
			continue
		}
		s, err := dev.NewStream(i)
		if err != nil {
			t.Fatal(err)
		}
		p.sides[i] = tensor.Stream(s)
	}
	return p
}

func (p *twoHalves) step(s *tensor.Scope) {
	for i := range 2 {
		s.Do(func(c *tensor.Scope) {
			x, y := p.x.In(c).Narrow(0, 4*i, 4), p.y.In(c).Narrow(0, 4*i, 4)
			half := func(i int, f func(x *tensor.Tensor) *tensor.Tensor) (h *tensor.Tensor) {
				c.Do(func(d *tensor.Scope) { h = f(x.In(d)); d.Close(h) }, p.sides[i])
				return h
			}
			one := half(0, p.a.Forward)
			two := half(1, func(x *tensor.Tensor) *tensor.Tensor {
				p.at()
				return autograd.Checkpoint(p.b.Forward, x)
			})
			loss := nn.CrossEntropy(one.Add(two), y).MulScalar(0.5)
			p.scaler.Scale(loss).Backward()
			p.loss.In(c).Copy(loss.Detach())
		}, tensor.Autocast(dtype.F16))
	}
	p.scaler.Unscale(p.opt)
	optim.ClipGradNorm(p.opt.Params(), 0.5)
	p.scaler.Step(p.opt)
	p.scaler.Update()
	p.opt.ZeroGrad()
	p.mean.Update()
}

func (p *twoHalves) feed(k int) {
	tensor.Do(func(s *tensor.Scope) {
		p.x.In(s).Copy(s.Arange(48).Float().AddScalar(float64(k)).SinInPlace().Reshape(8, 6).To(p.dev))
		p.y.In(s).Copy(s.Arange(8).MulScalar(float64(k + 1)).RemainderScalar(5).To(p.dev))
	}, tensor.NoGrad())
	p.opt.SetLR(0.05 / (1 + 0.3*float64(k)))
}

func (p *twoHalves) numbers() []float64 {
	v := []float64{p.loss.Item(), p.scaler.Value(), float64(p.scaler.Skipped()), float64(p.opt.Steps())}
	for _, d := range []map[string]*tensor.Tensor{nn.StateDict(p.a), nn.StateDict(p.b), p.mean.Averages()} {
		for _, n := range slices.Sorted(maps.Keys(d)) {
			v = append(v, d[n].Floats()...)
		}
	}
	_, offset := p.gen.State()
	return append(v, float64(offset))
}

func (p *twoHalves) options() []tensor.Option {
	return []tensor.Option{tensor.On(p.dev), tensor.WithGenerator(p.gen)}
}

func (p *twoHalves) eager(t *testing.T, k int) {
	t.Helper()
	p.feed(k)
	if err := tensor.Try(func() { tensor.Do(p.step, p.options()...) }); err != nil {
		t.Fatal(err)
	}
}

func (p *twoHalves) capture(t *testing.T) *tensor.Graph {
	t.Helper()
	g, err := tensor.Capture(p.dev, p.step, p.options()...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (p *twoHalves) replay(t *testing.T, g *tensor.Graph, k int) {
	t.Helper()
	p.feed(k)
	if err := g.Replay(); err != nil {
		t.Fatal(err)
	}
}

// eagerNumbers runs n eager steps on one stream, and returns the values that they have changed.
func eagerNumbers(t *testing.T, n int) []float64 {
	p := newTwoHalves(t, "emulate,mem=32MiB", 0)
	for k := range n {
		p.eager(t, k)
	}
	if s := p.scaler.Skipped(); s == 0 || s == n {
		t.Errorf("%d of %d steps were left out: the test does not test what it should", s, n)
	}
	return p.numbers()
}

// TestForkedTraining captures and replays a step whose halves are on streams of their own, with
// eager steps between the replays. All steps must compute the same bits as eager steps on one
// stream. The test repeats this for several orders of the streams, for memory in segments and in
// pages, and while a memory history and a profile are recorded.
func TestForkedTraining(t *testing.T) {
	const n = 6
	want := eagerNumbers(t, n)
	seeds := 2
	switch {
	case os.Getenv("FLAMBEAU_SOAK") == "1":
		seeds = 60
	case testing.Short():
		seeds = 1
	}
	for seed := 1; seed <= seeds; seed++ {
		for _, streams := range []int{1, 2} {
			if os.Getenv("FLAMBEAU_SOAK") != "1" && streams != 1+seed%2 {
				continue
			}
			p := newTwoHalves(t, fmt.Sprintf("emulate,mem=32MiB,segment=4KiB,seed=%d", seed), streams)
			if err := p.dev.SetExpandableSegments(seed%3 == 1); err != nil {
				t.Fatal(err)
			}
			var prof *profile.Profile
			if seed%3 == 2 {
				p.dev.RecordMemoryHistory(device.MaxHistoryEntries(64))
				var err error
				if prof, err = profile.Start(profile.Options{Memory: true}); err != nil {
					t.Fatal(err)
				}
				p.at = func() { p.dev.MemorySnapshot() }
			}
			p.eager(t, 0)
			g := p.capture(t)
			for k := 1; k < n; k++ {
				if k == 3 {
					p.eager(t, k)
					cuda.EmptyCache(p.dev)
				} else {
					p.replay(t, g, k)
				}
			}
			if prof != nil {
				if err := prof.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			if got := p.numbers(); !slices.Equal(got, want) {
				t.Errorf("seed %d, %d streams: replays come to\n%v\nnot\n%v", seed, streams, got[:8], want[:8])
			}
			if err := g.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestForkedCaptureFails makes the capture of a forked step fail: at each request for memory, and
// by a panic in the middle of a fork. No memory may stay allocated, and later steps must work.
func TestForkedCaptureFails(t *testing.T) {
	const before = 5
	want := eagerNumbers(t, before+1)
	mishap := errors.New("a mishap")
	for n := 0; ; n++ {
		if testing.Short() && n > 1 {
			break
		}
		if os.Getenv("FLAMBEAU_SOAK") != "1" && n > 2 {
			n *= 4
		}
		p := newTwoHalves(t, fmt.Sprintf("emulate,mem=32MiB,segment=1KiB,seed=%d", n), 2)
		for k := range before {
			p.eager(t, k)
		}
		if p.numbers(); p.opt.Steps() == 0 {
			t.Fatal("the optimizer has no state yet")
		}
		p.dev.Empty()
		held := p.dev.Stats()
		if n == 0 {
			p.at = func() { panic(mishap) }
		} else if err := p.dev.FailAlloc(n); err != nil {
			t.Fatal(err)
		}
		var g *tensor.Graph
		var err error
		func() {
			defer func() {
				if r := recover(); r != nil {
					err = r.(error)
				}
			}()
			g, err = tensor.Capture(p.dev, p.step, p.options()...)
		}()
		p.at = func() {}
		if err == nil {
			if err := g.Close(); err != nil || n < 3 {
				t.Errorf("request %d: %v", n, err)
			}
			break
		}
		if !errors.Is(err, device.ErrOutOfMemory) && !errors.Is(err, mishap) {
			t.Errorf("request %d: %v", n, err)
		}
		if err := p.dev.FailAlloc(0); err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		p.dev.Empty()
		// The capture may also have allocated the counter of captured steps.
		if now := p.dev.Stats(); now.Allocated > held.Allocated+2*512 {
			t.Errorf("request %d: %d bytes are allocated, %d before", n, now.Allocated, held.Allocated)
		}
		p.eager(t, before)
		if got := p.numbers(); !slices.Equal(got, want) {
			t.Errorf("request %d: a step afterwards gives %v, want %v", n, got[:8], want[:8])
		}
	}
}

// TestManyGraphs keeps a hundred graphs of the same streams and parameters. Closing them must give
// back all their memory.
func TestManyGraphs(t *testing.T) {
	n := 100
	if testing.Short() {
		n = 5
	}
	p := newTwoHalves(t, "emulate,mem=64MiB,segment=4KiB,seed=4", 2)
	p.eager(t, 0)
	p.eager(t, 1)
	p.numbers()
	p.dev.Empty()
	before := p.dev.Stats()
	pinned := p.dev.PinnedStats().Allocated
	var graphs []*tensor.Graph
	for range n {
		g, err := tensor.Capture(p.dev, func(s *tensor.Scope) {
			for i := range p.sides {
				s.Do(func(c *tensor.Scope) {
					h := p.a.Layers[0].Forward(p.x.In(c)).Tanh()
					p.loss.In(c).Copy(h.Dropout(0.5).Sum())
				}, p.sides[i])
			}
		}, append(p.options(), tensor.NoGrad())...)
		if err != nil {
			t.Fatal(err)
		}
		graphs = append(graphs, g)
	}
	for i, g := range graphs {
		if i%5 > 0 {
			continue
		}
		if err := g.Replay(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range graphs {
		g := graphs[(i*37)%n]
		if i%2 == 0 { // a replay is still running
			if err := g.Replay(); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	p.numbers()
	p.dev.Empty()
	if now := p.dev.Stats(); now.Allocated > before.Allocated || now.Reserved > before.Reserved || p.dev.PinnedStats().Allocated != pinned {
		t.Errorf("%d bytes allocated and %d reserved, %d of page-locked memory, before %d, %d and %d",
			now.Allocated, now.Reserved, p.dev.PinnedStats().Allocated, before.Allocated, before.Reserved, pinned)
	}
}

// TestForkedAtOnce captures and replays in two goroutines with the same streams, on one device and
// on two.
func TestForkedAtOnce(t *testing.T) {
	const n = 3
	want := eagerNumbers(t, n)
	for _, devices := range []int{1, 2} {
		if testing.Short() && devices == 2 {
			continue
		}
		list, err := cuda.Emulate(fmt.Sprintf("emulate:2,mem=32MiB,seed=%d", devices))
		if err != nil {
			t.Fatal(err)
		}
		var all []*twoHalves
		for i := range 2 {
			p := newTwoHalvesOn(t, list[i%devices], 2)
			if devices == 1 && i == 1 {
				p.sides = all[0].sides
			}
			all = append(all, p)
		}
		var wg sync.WaitGroup
		for _, p := range all {
			wg.Go(func() {
				g, err := tensor.Capture(p.dev, p.step, p.options()...)
				if err != nil {
					t.Error(err)
					return
				}
				for k := range n {
					p.feed(k)
					if err := g.Replay(); err != nil {
						t.Error(err)
						return
					}
				}
				if got := p.numbers(); !slices.Equal(got, want) {
					t.Errorf("%d devices: replays come to\n%v\nnot\n%v", devices, got[:8], want[:8])
				}
				if err := g.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}
