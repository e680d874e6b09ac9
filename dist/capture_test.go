package dist

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// emulated starts an emulated CUDA driver. It returns the driver's GPUs, as devices and as a
// DeviceList.
func emulated(t testing.TB, spec string) ([]*cuda.Device, DeviceList) {
	t.Helper()
	gpus, err := cuda.Emulate("emulate:" + spec)
	if err != nil {
		t.Fatal(err)
	}
	var list []device.Device
	for _, d := range gpus {
		list = append(list, d)
	}
	return gpus, On(list...)
}

// trainee is one rank's model, with its data in the tensors that a captured step reads and writes.
type trainee struct {
	g      *Group
	m      *nn.Sequential
	opt    optim.Optimizer
	x, y   *tensor.Tensor
	loss   *tensor.Tensor
	how    captured
	scaler *amp.GradScaler
	boost  *tensor.Tensor // multiplies the loss
}

// captured describes a training with captured steps.
type captured struct {
	name    string
	opt     func(p []*tensor.Tensor) optim.Optimizer
	ddp     []DDPOption
	outside bool
	weigh   bool
	sync    bool // use batch norms whose statistics are over all ranks
	scaled  bool // use a GradScaler, which skips a step in which rank 0's gradients overflow
	// compute gradients in two parts of the batch, and average them only after the second
	parts bool
}

var waysToTrain = []captured{
	{name: "SGD", opt: sgd},
	{name: "AdamW", opt: adamW},
	{name: "many buckets", opt: sgd, ddp: []DDPOption{BucketBytes(600, 3000)}},
	{name: "compressed", opt: adamW, ddp: []DDPOption{BucketBytes(600, 3000), Compress()}},
	{name: "own buffers", opt: sgd, ddp: []DDPOption{KeepBuffers()}},
	{name: "gradients that stay", opt: sgd, outside: true},
	{name: "weighed", opt: sgd, weigh: true},
	{name: "statistics of all ranks", opt: sgd, sync: true},
	{name: "scaled", opt: adamW, scaled: true},
	{name: "in two parts", opt: sgd, parts: true},
}

func sgd(p []*tensor.Tensor) optim.Optimizer {
	return optim.NewSGD(p, optim.SGDConfig{LR: 0.1, Momentum: 0.9})
}

func adamW(p []*tensor.Tensor) optim.Optimizer {
	return optim.NewAdamW(p, optim.AdamConfig{LR: 0.01, WeightDecay: 0.1})
}

func newTrainee(g *Group, how captured) *trainee {
	m := fixed(nn.NewSequential(
		nn.NewLinear(12, 40), nn.NewBatchNorm1d(40), nn.ReLU{}, nn.NewDropout(0.3),
		nn.NewLinear(40, 33), nn.Tanh{}, nn.NewLinear(33, 5)))
	p := &trainee{g: g, m: nn.To(m, g.Device()), how: how}
	if how.sync {
		ConvertSyncBatchNorm(p.m, g)
	}
	r := g.NewReducer(p.m, how.ddp...)
	if how.weigh {
		r.Weigh(float64(1 + g.Rank()))
	}
	p.opt = how.opt(nn.Parameters(p.m))
	s := tensor.Root().On(g.Device())
	p.x, p.y, p.loss = s.Zeros(8, 12), s.Typed(dtype.I64).Zeros(8), s.Zeros()
	p.scaler, p.boost = amp.NewGradScaler(amp.InitScale(8), amp.Enabled(how.scaled)), s.Ones()
	return p
}

// feed copies this rank's samples of a step to the tensors that the captured step reads.
func (p *trainee) feed(step int) {
	p.g.Do(func(s *tensor.Scope) {
		x, y := batch(s, dtype.F32, step, 8*p.g.Rank(), 8*p.g.Rank()+8)
		p.x.Copy(x)
		p.y.Copy(y)
	})
	if p.g.Rank() == 0 {
		p.boost.Fill(map[bool]float64{false: 1, true: math.Inf(1)}[step == warm+1])
	}
}

func (p *trainee) step(s *tensor.Scope) {
	if p.how.parts {
		p.g.NoSync(func() { nn.CrossEntropy(p.m.Forward(p.x.In(s).MulScalar(0.5)), p.y.In(s)).Backward() })
	}
	loss := nn.CrossEntropy(p.m.Forward(p.x.In(s)), p.y.In(s))
	p.loss.In(s).Copy(loss.Detach())
	if p.how.scaled {
		p.scaler.Scale(loss.Mul(p.boost)).Backward()
		p.scaler.Step(p.opt)
		p.scaler.Update()
	} else {
		loss.Backward()
		p.opt.Step()
	}
	if !p.how.outside {
		p.opt.ZeroGrad()
	}
}

// numbers returns everything that a step changes on the rank: parameters, buffers, gradients, loss,
// and the state of its generator.
func (p *trainee) numbers() []float64 {
	v := append(weights(p.m), p.loss.Item())
	for _, x := range nn.Parameters(p.m) {
		if x.Grad() != nil {
			v = append(v, x.Grad().Floats()...)
		}
	}
	if p.how.scaled {
		v = append(v, p.scaler.Value())
	}
	seed, offset := p.g.Generator().State()
	return append(v, float64(seed), float64(offset))
}

const warm, replays = 2, 4 // numbers of eager steps and of replays

// eager trains without a capture. It returns, for each rank and step, the result of
// [trainee.numbers] after the step.
func eager(t *testing.T, l DeviceList, how captured) [][][]float64 {
	got := make([][][]float64, len(l.devices))
	run(t, l, func(g *Group) {
		p := newTrainee(g, how)
		for step := range warm + replays {
			p.feed(step)
			g.Do(p.step)
			got[g.Rank()] = append(got[g.Rank()], p.numbers())
		}
	}, Seed(3))
	return got
}

// TestCapturedStep compares captured steps with eager steps, which must compute the same bits. One
// launch must replay the steps of all ranks. The test also lets the emulated driver run independent
// nodes of the graph in other orders.
func TestCapturedStep(t *testing.T) {
	soak := os.Getenv("FLAMBEAU_SOAK") == "1"
	for _, world := range []int{1, 2, 3} {
		for k, how := range waysToTrain {
			// run all variants on two GPUs, but only a fifth of them on one GPU and on three
			if !soak && world != 2 && k%5 != world {
				continue
			}
			t.Run(fmt.Sprintf("%s×%d", how.name, world), func(t *testing.T) {
				_, l := emulated(t, fmt.Sprintf("%d,mem=64MiB", world))
				want := eager(t, l, how)
				if world > 1 && slices.Equal(want[0][warm], want[1][warm]) {
					t.Fatal("the ranks see the same batches")
				}
				for seed, more := range []string{"", ",peer=off"} {
					if !soak && seed != k%2 {
						continue
					}
					gpus, l := emulated(t, fmt.Sprintf("%d,mem=64MiB,segment=64KiB,seed=%d%s", world, seed, more))
					kept := make([]*trainee, world)
					var graph *Graph
					run(t, l, func(g *Group) {
						p := newTrainee(g, how)
						kept[g.Rank()] = p
						for step := range warm {
							p.feed(step)
							g.Do(p.step)
						}
						before := p.numbers()
						x, err := g.Capture(p.step)
						if err != nil {
							t.Error(err)
							return
						}
						if !how.outside && !slices.Equal(before, p.numbers()) {
							t.Errorf("rank %d: the capture has changed something", g.Rank())
						}
						for step := warm; step < warm+replays; step++ {
							p.feed(step)
							g.Barrier()
							launches := gpus[g.Rank()].Counters().Launches
							g.Barrier()
							if err := x.Replay(); err != nil {
								t.Error(err)
								return
							}
							g.Barrier()
							one := uint64(0)
							if g.Rank() == 0 {
								one = 1
							}
							if n := gpus[g.Rank()].Counters().Launches - launches; n != one {
								t.Errorf("rank %d: %d launches by a replay, want %d", g.Rank(), n, one)
							}
							if got := p.numbers(); !slices.Equal(got, want[g.Rank()][step]) {
								t.Errorf("seed %d%s, rank %d, step %d:\n%v\nwant\n%v", seed, more, g.Rank(), step, got[:8], want[g.Rank()][step][:8])
								return
							}
						}
						if g.Rank() == 0 {
							graph = x
						}
					}, Seed(3))
					if graph == nil {
						return
					}
					if err := graph.shared.graph.Replay(); !errors.Is(err, tensor.ErrFreed) {
						t.Errorf("a replay after the run: %v", err)
					}
					runtime.KeepAlive(kept)
				}
			})
		}
	}
}

// TestCapturedStepGoesOn runs eager steps between replays, captures a second graph, and closes
// graphs.
func TestCapturedStepGoesOn(t *testing.T) {
	_, l := emulated(t, "2,mem=64MiB")
	t.Run("gpu", func(t *testing.T) { testCapturedStepGoesOn(t, l) })
	t.Run("cpu", func(t *testing.T) { testCapturedStepGoesOn(t, Devices("cpu:0", "cpu:1")) })
}

func testCapturedStepGoesOn(t *testing.T, l DeviceList) {
	how := waysToTrain[2]
	want := eager(t, l, how)
	run(t, l, func(g *Group) {
		p := newTrainee(g, how)
		var graphs []*Graph
		for range 2 { // capture before the first step
			x, err := g.Capture(p.step)
			if err != nil {
				t.Error(err)
				return
			}
			graphs = append(graphs, x)
		}
		if a, b := graphs[0].String(), graphs[1].String(); a != b || graphs[0].Operations() == 0 {
			t.Errorf("two captures of one step are %s and %s", a, b)
		}
		for step := range warm + replays {
			p.feed(step)
			if k := step % 3; k < 2 {
				if err := graphs[k].Replay(); err != nil {
					t.Error(err)
				}
			} else {
				g.Do(p.step)
			}
			if got := p.numbers(); !slices.Equal(got, want[g.Rank()][step]) {
				t.Errorf("rank %d, step %d: %v, want %v", g.Rank(), step, got[:8], want[g.Rank()][step][:8])
				return
			}
		}
		if g.Rank() == 0 {
			if err := graphs[0].Close(); err != nil {
				t.Error(err)
			}
		}
		g.Barrier()
		if err := graphs[0].Replay(); !errors.Is(err, tensor.ErrFreed) || !strings.Contains(err.Error(), "rank 0 has closed") {
			t.Errorf("rank %d: %v", g.Rank(), err)
		}
		for _, x := range graphs {
			if err := errors.Join(x.Close(), x.Close()); err != nil {
				t.Error(err)
			}
		}
	}, Seed(3))
}

// TestCapturedCollectives captures every kind of collective, for all ranks and for a subset of the
// ranks.
func TestCapturedCollectives(t *testing.T) {
	_, l := emulated(t, "3,mem=64MiB")
	t.Run("gpu", func(t *testing.T) { testCapturedCollectives(t, l) })
	t.Run("cpu", func(t *testing.T) { testCapturedCollectives(t, Devices("cpu:0", "cpu:1", "cpu:2")) })
}

func testCapturedCollectives(t *testing.T, l DeviceList) {
	run(t, l, func(g *Group) {
		n, w, r := 1000, g.World(), g.Rank()
		s := tensor.Root().On(g.Device())
		x, sum, all, got := s.Zeros(n), s.Zeros(n), s.Zeros(w*n), s.Zeros(n)
		sub := g.Split(min(r, 1), r) // two groups: rank 0 alone, and ranks 1 and 2
		pair, only, freed := s.Zeros(n), s.Zeros(n), s.Zeros(n)
		graph, err := g.Capture(func(s *tensor.Scope) {
			y := x.In(s).MulScalar(2)
			g.AllReduce(y, Sum)
			sum.In(s).Copy(y)
			g.AllGather(all.In(s), x.In(s))
			g.Send(x.In(s), (r+1)%w)
			g.Recv(got.In(s), (r+w-1)%w)
			z := x.In(s).AddScalar(1)
			sub.AllReduce(z, Sum)
			pair.In(s).Copy(z)
			g.AllReduce(only, Sum) // a tensor from before the capture that no other op uses
			g.AllReduce(freed, Sum)
		}, tensor.NoGrad())
		if err != nil {
			t.Error(err)
			return
		}
		freed.Free() // the graph keeps the tensor's memory
		for k := range 3 {
			x.Fill(float64(10*k + r))
			only.Fill(float64(k + r))
			if err := graph.Replay(); err != nil {
				t.Error(err)
				return
			}
			of := func(r int) float64 { return float64(10*k + r) }
			want(t, "sum", sum, func(int) float64 { return 2 * (of(0) + of(1) + of(2)) })
			want(t, "all", all, func(i int) float64 { return of(i / n) })
			want(t, "got", got, func(int) float64 { return of((r + w - 1) % w) })
			want(t, "pair", pair, func(int) float64 {
				if r == 0 {
					return of(0) + 1
				}
				return of(1) + of(2) + 2
			})
			want(t, "only", only, func(int) float64 { return float64(3*k + 3) })
			g.AllReduce(x, Mean) // an eager collective between replays
			want(t, "mean", x, func(int) float64 { return of(1) })
		}
	})
}

// TestCaptureFails makes one rank fail during a capture. All ranks must get the same error, the
// capture must leave nothing behind, and training must continue.
func TestCaptureFails(t *testing.T) {
	odd := errors.New("odd")
	for _, c := range []struct {
		name string
		rank int // rank that fails; -1 for any rank
		f    func(p *trainee, s *tensor.Scope)
		kind error
		says string
	}{
		{"before Backward", 1, func(p *trainee, s *tensor.Scope) {
			if p.g.Rank() == 1 {
				p.x.In(s).Sum().Item()
			}
			p.step(s)
		}, tensor.ErrCapture, "item"},
		{"in Backward", 2, func(p *trainee, s *tensor.Scope) {
			if p.g.Rank() == 2 {
				x := p.m.Forward(p.x.In(s))
				x.RegisterHook(func(*tensor.Tensor) *tensor.Tensor { panic(&tensor.Error{Op: "hook", Msg: "odd", Err: odd}) })
				nn.CrossEntropy(x, p.y.In(s)).Backward()
			}
			p.step(s)
		}, odd, "odd"},
		{"after Backward", 0, func(p *trainee, s *tensor.Scope) {
			p.step(s)
			if p.g.Rank() == 0 {
				p.x.AddScalarInPlace(1)
			}
		}, tensor.ErrCapture, "changed now, once"},
		{"beside, on another rank", 2, func(p *trainee, s *tensor.Scope) {
			p.step(s)
			if p.g.Rank() == 2 {
				p.x.AddScalarInPlace(1)
			}
		}, tensor.ErrCapture, "changed now, once"},
		{"a rank that leaves", -1, func(p *trainee, s *tensor.Scope) {
			if p.g.Rank() != 1 {
				p.step(s)
			}
		}, ErrLeft, "rank 1 returned from the function of the capture"},
		{"a collective that nobody waits for", -1, func(p *trainee, s *tensor.Scope) {
			p.step(s)
			if p.g.Rank() == 1 {
				p.g.AllReduce(p.x.In(s), Sum)
			}
		}, ErrLeft, "ranks 0, 2 returned from the function of the capture"},
		{"another collective", -1, func(p *trainee, s *tensor.Scope) {
			if p.g.Rank() == 2 {
				p.g.Broadcast(p.x.In(s), 0)
			} else {
				p.g.AllReduce(p.x.In(s), Sum)
			}
			p.step(s)
		}, ErrMismatch, "rank 0 on cuda:0 calls all reduce"},
		{"a cycle", -1, func(p *trainee, s *tensor.Scope) {
			r := p.g.Rank()
			p.g.Recv(p.x.In(s), (r+1)%3).Wait()
			p.g.Send(p.x.In(s), (r+2)%3)
		}, ErrLeft, "each rank waits for another"},
		{"a capture within", 0, func(p *trainee, s *tensor.Scope) {
			_, _ = p.g.Capture(p.step)
		}, tensor.ErrCapture, "within a capture"},
		{"without data", 0, func(p *trainee, s *tensor.Scope) { p.g.Join(func() {}) }, tensor.ErrCapture, "all ranks take part"},
		{"nothing", -1, func(p *trainee, s *tensor.Scope) {}, tensor.ErrCapture, "nothing was recorded"},
		{"closed", -1, func(p *trainee, s *tensor.Scope) {
			p.step(s)
			s.Close()
		}, tensor.ErrScope, "closed by the function"},
	} {
		t.Run(c.name, func(t *testing.T) {
			gpus, l := emulated(t, "3,mem=64MiB")
			how := waysToTrain[2]
			want := eager(t, l, how)
			run(t, l, func(g *Group) {
				p := newTrainee(g, how)
				for step := range warm {
					p.feed(step)
					g.Do(p.step)
				}
				p.x.Zero()
				g.Barrier()
				runtime.GC()
				g.Barrier()
				allocated := gpus[g.Rank()].Stats().Allocated
				before := p.numbers()
				for range 2 {
					x, err := g.Capture(func(s *tensor.Scope) { c.f(p, s) })
					var e *CaptureError
					if x != nil || !errors.As(err, &e) || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
						t.Errorf("rank %d: %v, want %v, %q", g.Rank(), err, c.kind, c.says)
						return
					}
					if c.rank >= 0 && e.Rank != c.rank {
						t.Errorf("rank %d: the failure is of rank %d", g.Rank(), e.Rank)
					}
					for _, o := range Exchange(g, err.Error()) {
						if o != err.Error() {
							t.Errorf("ranks have different errors: %v and %v", err, o)
						}
					}
				}
				if got := p.numbers(); !slices.Equal(got, before) {
					t.Errorf("rank %d: the capture has changed something: %v, was %v", g.Rank(), got[:8], before[:8])
				}
				g.Barrier()
				if n := gpus[g.Rank()].Stats().Allocated; n > allocated {
					t.Errorf("rank %d: %d bytes are in use, %d before the captures", g.Rank(), n, allocated)
				}
				for step := warm; step < warm+replays; step++ {
					p.feed(step)
					g.Do(p.step)
					if got := p.numbers(); !slices.Equal(got, want[g.Rank()][step]) {
						t.Errorf("rank %d, step %d: %v, want %v", g.Rank(), step, got[:8], want[g.Rank()][step][:8])
						return
					}
				}
			}, Seed(3))
		})
	}
}

// TestCaptureWithOthersBehind starts a capture while one rank has not yet called an earlier
// collective. The capture must fail. When that rank has called the collective, a new capture must
// succeed.
func TestCaptureWithOthersBehind(t *testing.T) {
	_, l := emulated(t, "2,mem=64MiB")
	run(t, l, func(g *Group) {
		x := tensor.Root().On(g.Device()).Ones(4)
		other := g.Clone()
		add := func(s *tensor.Scope) { x.In(s).AddScalarInPlace(1) }
		if g.Rank() == 0 {
			other.AllReduce(x, Sum)
		}
		_, err := g.Capture(add, tensor.NoGrad())
		if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "others have not come to it") {
			t.Errorf("rank %d: %v", g.Rank(), err)
		}
		if g.Rank() == 1 {
			other.AllReduce(x, Sum)
		}
		g.Barrier()
		graph, err := g.Capture(add, tensor.NoGrad())
		if err != nil {
			t.Error(err)
			return
		}
		for range 2 {
			if err := graph.Replay(); err != nil {
				t.Error(err)
			}
		}
		want(t, "x", x, func(int) float64 { return 4 })
	})
}

// TestReplayOfAnother replays different graphs on two ranks. The run must end with an error.
func TestReplayOfAnother(t *testing.T) {
	_, l := emulated(t, "2,mem=64MiB")
	err := Run(context.Background(), l, func(_ context.Context, g *Group) error {
		x := tensor.Root().On(g.Device()).Ones(4)
		var graphs []*Graph
		for range 2 {
			graph, err := g.Capture(func(s *tensor.Scope) { x.In(s).AddScalarInPlace(1) }, tensor.NoGrad())
			if err != nil {
				return err
			}
			graphs = append(graphs, graph)
		}
		return graphs[g.Rank()].Replay()
	}, InProcess())
	if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "replays another graph") {
		t.Error(err)
	}
}

// TestCaptureEndsWithRun ends the run during a capture. The capture must end on all ranks.
func TestCaptureEndsWithRun(t *testing.T) {
	_, l := emulated(t, "2,mem=64MiB")
	how := waysToTrain[0]
	err := Run(context.Background(), l, func(_ context.Context, g *Group) error {
		p := newTrainee(g, how)
		_, err := g.Capture(func(s *tensor.Scope) {
			if g.Rank() == 1 {
				panic("odd")
			}
			p.step(s)
		})
		if err == nil {
			t.Error("no error")
		}
		return nil
	}, InProcess())
	var p *PanicError
	if !errors.As(err, &p) || p.Value != "odd" {
		t.Errorf("%v", err)
	}
	err = Run(context.Background(), l, func(_ context.Context, g *Group) error {
		p := newTrainee(g, how)
		if g.Rank() == 1 {
			return nil
		}
		_, err := g.Capture(p.step)
		return err
	}, InProcess())
	if !errors.Is(err, ErrLeft) {
		t.Errorf("%v", err)
	}
}

// TestCaptureWithoutTurns captures a step in which one rank never stops recording. The other ranks
// must stop waiting for it.
func TestCaptureWithoutTurns(t *testing.T) {
	_, l := emulated(t, "2,mem=64MiB")
	end := make(chan bool)
	err := Run(context.Background(), l, func(_ context.Context, g *Group) error {
		_, err := g.Capture(func(s *tensor.Scope) {
			if g.Rank() == 0 {
				<-end
				return
			}
			t.Error("the rank got a turn")
		})
		if g.Rank() == 1 {
			close(end)
		}
		return err
	}, InProcess(), Timeout(50*time.Millisecond))
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, ErrTimeout) || !strings.Contains(e.Stacks, "capture_test.go") {
		t.Error(err)
	}
}
