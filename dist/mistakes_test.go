package dist

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// mistake is a mistake of a program. The run must end soon, and its error must say what went wrong,
// on which rank, and at which line of this file.
type mistake struct {
	name  string
	kind  error // the kind of error
	rank  int   // rank that the error must name, or anyRank or noRank
	words []string
	f     func(m *marks, ctx context.Context, g *Group) error
	world int // number of ranks, 0 means 2
	wait  time.Duration
}

const (
	anyRank = -1 - iota // the error names the rank that failed first, which may be any rank
	noRank              // the error names no rank
)

// marks records the line numbers of this file that an error must name.
type marks struct {
	mu    sync.Mutex
	lines []string
}

// markLine records the line of its own call, and calls f, which must be on the same line.
func (m *marks) markLine(f func()) {
	_, file, line, _ := runtime.Caller(1)
	m.mu.Lock()
	m.lines = append(m.lines, fmt.Sprintf("dist/%s:%d", filepath.Base(file), line))
	m.mu.Unlock()
	f()
}

var errOwn = errors.New("an error of the program's own")

func sleepsTooLong(ctx context.Context) { <-ctx.Done() }

// ones returns n ones on the rank's device.
func ones(g *Group, n int) *tensor.Tensor { return tensor.Root().On(g.Device()).Ones(n) }

// averaged returns a new model on this rank's device, whose gradients DDP averages.
func averaged(g *Group, opts ...DDPOption) *nn.Sequential {
	return DDP(nn.To(mlp(dtype.F32), g.Device()), g, opts...)
}

// stepped runs the forward and the backward pass of a model.
func stepped(g *Group, m *nn.Sequential) {
	g.Do(func(s *tensor.Scope) {
		x, y := batch(s, dtype.F32, 0, g.Rank()*3, g.Rank()*3+3)
		nn.CrossEntropy(m.Forward(x), y).Backward()
	})
}

// mistakesOfCalls are collectives that the ranks call in different ways.
var mistakesOfCalls = []mistake{
	{name: "one is skipped", kind: ErrMismatch, rank: anyRank,
		words: []string{"barrier", "all reduce of 4 float32, sum", "collective number 1 ", "rank 0", "rank 1"},
		f: func(m *marks, _ context.Context, g *Group) error {
			if g.Rank() == 0 {
				m.markLine(func() { g.AllReduce(ones(g, 4), Sum) })
				g.Barrier()
				return nil
			}
			m.markLine(func() { g.Barrier() })
			return nil
		}},
	{name: "the order differs", kind: ErrMismatch, rank: anyRank,
		words: []string{"all reduce of 4 float32, sum", "broadcast of 4 float32 from rank 0"},
		f: func(m *marks, _ context.Context, g *Group) error {
			x := ones(g, 4)
			if g.Rank() == 0 {
				m.markLine(func() { g.AllReduce(x, Sum) })
				g.Broadcast(x, 0).Wait()
			} else {
				m.markLine(func() { g.Broadcast(x, 0) })
				g.AllReduce(x, Sum).Wait()
			}
			return nil
		}},
	{name: "the type differs", kind: ErrMismatch, rank: anyRank, words: []string{"4 float32", "4 float64"},
		f: func(m *marks, _ context.Context, g *Group) error {
			x := ones(g, 4)
			if g.Rank() == 1 {
				x = x.Double()
			}
			m.markLine(func() { g.AllReduce(x, Sum).Wait() })
			return nil
		}},
	{name: "the size differs", kind: ErrMismatch, rank: anyRank, words: []string{"4 float32", "5 float32"},
		f: func(m *marks, _ context.Context, g *Group) error {
			if g.Rank() == 0 {
				m.markLine(func() { g.AllReduce(ones(g, 4), Mean).Wait() })
			} else {
				m.markLine(func() { g.AllReduce(ones(g, 5), Mean).Wait() })
			}
			return nil
		}},
	{name: "the root differs", kind: ErrMismatch, rank: anyRank, words: []string{"from rank 0", "from rank 1"},
		f: func(m *marks, _ context.Context, g *Group) error {
			m.markLine(func() { g.Broadcast(ones(g, 4), g.Rank()).Wait() })
			return nil
		}},
	{name: "the combination differs", kind: ErrMismatch, rank: anyRank, words: []string{"sum", "max"},
		f: func(m *marks, _ context.Context, g *Group) error {
			m.markLine(func() { g.AllReduce(ones(g, 4), []Combine{Sum, Max}[g.Rank()]).Wait() })
			return nil
		}},
	{name: "the third rank differs", kind: ErrMismatch, rank: anyRank, world: 3, words: []string{"4 float32", "3 float32", "rank 2"},
		f: func(m *marks, _ context.Context, g *Group) error {
			m.markLine(func() { g.AllReduce(ones(g, 4-g.Rank()/2), Sum).Wait() })
			return nil
		}},
	{name: "a rank returns early", kind: ErrLeft, rank: 0, words: []string{"all reduce", "rank 1", "returned"},
		f: func(m *marks, _ context.Context, g *Group) error {
			if g.Rank() == 0 {
				m.markLine(func() { g.AllReduce(ones(g, 4), Sum).Wait() })
			}
			return nil
		}},
	{name: "a rank sleeps", kind: ErrTimeout, rank: 0, wait: 300 * time.Millisecond,
		words: []string{"all reduce of 4 float32, sum", "rank 1 did not come", "sleepsTooLong", "mistakes_test.go"},
		f: func(m *marks, ctx context.Context, g *Group) error {
			if g.Rank() == 1 {
				sleepsTooLong(ctx)
				return nil
			}
			m.markLine(func() { g.AllReduce(ones(g, 4), Sum).Wait() })
			return nil
		}},
	{name: "an op needs what a rank that sleeps does not give", kind: ErrTimeout, rank: 0, wait: 300 * time.Millisecond,
		words: []string{"all gather", "rank 1 did not come", "sleepsTooLong"},
		f: func(m *marks, ctx context.Context, g *Group) error {
			if g.Rank() == 1 {
				sleepsTooLong(ctx)
				return nil
			}
			all := ones(g, 8)
			m.markLine(func() { g.AllGather(all, ones(g, 4)) })
			all.AddScalar(1)
			return nil
		}},
	{name: "a message nobody receives", kind: ErrLeft, rank: 0, words: []string{"send", "from rank 0 to rank 1", "rank 1"},
		f: func(m *marks, _ context.Context, g *Group) error {
			if g.Rank() == 0 {
				m.markLine(func() { g.Send(ones(g, 4), 1) })
			}
			return nil
		}},
	{name: "a message nobody sends", kind: ErrLeft, rank: 1, words: []string{"receive", "from rank 0 to rank 1", "rank 0"},
		f: func(m *marks, _ context.Context, g *Group) error {
			if g.Rank() == 1 {
				m.markLine(func() { g.Recv(ones(g, 4), 0).Wait() })
			}
			return nil
		}},
	{name: "a message of another size", kind: ErrMismatch, rank: anyRank, words: []string{"4 float32", "3 float32"},
		f: func(m *marks, _ context.Context, g *Group) error {
			if g.Rank() == 0 {
				m.markLine(func() { g.Send(ones(g, 4), 1).Wait() })
			} else {
				m.markLine(func() { g.Recv(ones(g, 3), 0).Wait() })
			}
			return nil
		}},
	{name: "a message to itself", kind: tensor.ErrValue, rank: 1, words: []string{"send", "rank 1 is this one"},
		f: func(m *marks, _ context.Context, g *Group) error {
			if g.Rank() == 1 {
				m.markLine(func() { g.Send(ones(g, 4), 1) })
			}
			return nil
		}},
	{name: "there is no such root", kind: tensor.ErrValue, rank: 1, words: []string{"broadcast", "no rank 2 of 2"},
		f: func(m *marks, _ context.Context, g *Group) error {
			if g.Rank() == 1 {
				m.markLine(func() { g.Broadcast(ones(g, 4), 2) })
			}
			return nil
		}},
	{name: "no equal parts", kind: tensor.ErrShape, rank: 1, words: []string{"reduce scatter", "[7]", "2 equal parts"},
		f: func(m *marks, _ context.Context, g *Group) error {
			if g.Rank() == 1 {
				m.markLine(func() { g.ReduceScatter(ones(g, 3), ones(g, 7), Sum) })
			}
			return nil
		}},
	{name: "in and out do not fit", kind: tensor.ErrShape, rank: 1, words: []string{"all gather", "4 float32", "5 float32"},
		f: func(m *marks, _ context.Context, g *Group) error {
			if g.Rank() == 1 {
				m.markLine(func() { g.AllGather(ones(g, 10), ones(g, 4)) })
			}
			return nil
		}},
	{name: "only the root gathers", kind: tensor.ErrValue, rank: 1, words: []string{"gather", "given by rank 0"},
		f: func(m *marks, _ context.Context, g *Group) error {
			if g.Rank() == 1 {
				m.markLine(func() { g.Gather(ones(g, 8), ones(g, 4), 0) })
			}
			return nil
		}},
	{name: "a mean of whole numbers", kind: tensor.ErrValue, rank: anyRank, words: []string{"all reduce", "mean of int64"},
		f: func(m *marks, _ context.Context, g *Group) error {
			m.markLine(func() { g.AllReduce(ones(g, 4).Long(), Mean).Wait() })
			return nil
		}},
	{name: "a tensor of another device", kind: tensor.ErrDevice, rank: 1, words: []string{"all reduce", ":0"},
		f: func(m *marks, _ context.Context, g *Group) error {
			x := tensor.Root().On(g.Devices()[0]).Ones(4)
			if g.Rank() == 1 {
				m.markLine(func() { g.AllReduce(x, Sum) })
			}
			return nil
		}},
	{name: "no tensor", kind: tensor.ErrValue, rank: 1, words: []string{"all reduce", "nil"},
		f: func(m *marks, _ context.Context, g *Group) error {
			if g.Rank() == 1 {
				m.markLine(func() { g.AllReduce(nil, Sum) })
			}
			return nil
		}},
	{name: "a tensor that is not contiguous", kind: tensor.ErrShape, rank: 1, words: []string{"all reduce", "not contiguous"},
		f: func(m *marks, _ context.Context, g *Group) error {
			x := ones(g, 6).Reshape(2, 3).Transpose(0, 1)
			if g.Rank() == 1 {
				m.markLine(func() { g.AllReduce(x, Sum) })
			}
			return nil
		}},
	{name: "a tensor that requires a gradient", kind: tensor.ErrGrad, rank: 1, words: []string{"all reduce", "requires a gradient"},
		f: func(m *marks, _ context.Context, g *Group) error {
			x := ones(g, 6).SetRequiresGrad(true)
			if g.Rank() == 1 {
				m.markLine(func() { g.AllReduce(x, Sum) })
			}
			return nil
		}},
	{name: "a tensor that has been freed", kind: tensor.ErrFreed, rank: 1, words: []string{"all reduce", "freed"},
		f: func(m *marks, _ context.Context, g *Group) error {
			x := ones(g, 6)
			x.Free()
			if g.Rank() == 1 {
				m.markLine(func() { g.AllReduce(x, Sum) })
			}
			return nil
		}},
	{name: "a group of other ranks", kind: ErrMember, rank: 1, world: 3, words: []string{"all reduce", "not in the group"},
		f: func(m *marks, _ context.Context, g *Group) error {
			sub := g.Sub(0, 2)
			if g.Rank() == 1 {
				m.markLine(func() { sub.AllReduce(ones(g, 6), Sum) })
			}
			return nil
		}},
	{name: "no group of ranks", kind: tensor.ErrValue, rank: anyRank, words: []string{"sub-group", "[0 2]"},
		f: func(m *marks, _ context.Context, g *Group) error {
			m.markLine(func() { g.Sub(0, 2) })
			return nil
		}},
	{name: "lists of a sub-group differ", kind: ErrMismatch, rank: anyRank, world: 3, words: []string{"sub-group", "[0 1]", "[0 1 2]"},
		f: func(m *marks, _ context.Context, g *Group) error {
			list := []int{0, 1, 2}
			if g.Rank() == 2 {
				m.markLine(func() { g.Sub(list...) })
			}
			g.Sub(list[:2]...)
			return nil
		}},
}

// mistakesOfRanks are failures of a single rank, not of a collective.
var mistakesOfRanks = []mistake{
	{name: "a panic", kind: nil, rank: 1, words: []string{"panic: of its own", "panicsHere", "mistakes_test.go"},
		f: func(_ *marks, _ context.Context, g *Group) error {
			if g.Rank() == 1 {
				panicsHere()
			}
			g.Barrier()
			return nil
		}},
	{name: "an error", kind: errOwn, rank: 1,
		f: func(_ *marks, _ context.Context, g *Group) error {
			if g.Rank() == 1 {
				return fmt.Errorf("reading a shard: %w", errOwn)
			}
			g.Barrier()
			return nil
		}},
	{name: "a panic with an error", kind: errOwn, rank: 1, words: []string{"panic: "},
		f: func(_ *marks, _ context.Context, g *Group) error {
			if g.Rank() == 1 {
				panic(errOwn)
			}
			g.AllReduce(ones(g, 4), Sum).Wait()
			return nil
		}},
	{name: "an end by Goexit", kind: nil, rank: 1, words: []string{"runtime.Goexit"},
		f: func(_ *marks, _ context.Context, g *Group) error {
			if g.Rank() == 1 {
				runtime.Goexit()
			}
			g.Barrier()
			return nil
		}},
	{name: "an op that fails", kind: tensor.ErrShape, rank: 1, words: []string{"matmul", "[2, 3]"},
		f: func(m *marks, _ context.Context, g *Group) error {
			x := ones(g, 6).Reshape(2, 3)
			if g.Rank() == 1 {
				m.markLine(func() { x.MatMul(x) })
			}
			g.Barrier()
			return nil
		}},
	{name: "the others ignore what they are told", kind: errOwn, rank: 0,
		f: func(_ *marks, _ context.Context, g *Group) error {
			if g.Rank() == 0 {
				return errOwn
			}
			if err := tensor.Try(g.Barrier); !errors.Is(err, ErrAborted) || !errors.Is(err, errOwn) {
				panic(fmt.Sprintf("the other rank is told %v", err))
			}
			if g.Err() == nil {
				panic("the group knows of no failure")
			}
			return nil
		}},
}

func panicsHere() { panic("of its own") }

// mistakesOfModels are wrong uses of DDP.
var mistakesOfModels = []mistake{
	{name: "a rank has more parameters", kind: ErrMismatch, rank: anyRank, words: []string{"ddp", "1.weight", "lack"},
		f: func(m *marks, _ context.Context, g *Group) error {
			model := nn.NewSequential(nn.NewLinear(2, 2))
			if g.Rank() == 1 {
				model = nn.NewSequential(nn.NewLinear(2, 2), nn.NewLinear(2, 2))
			}
			m.markLine(func() { DDP(nn.To(model, g.Device()), g) })
			return nil
		}},
	{name: "shapes differ", kind: ErrMismatch, rank: anyRank, words: []string{"ddp", "weight", "[2, 3]", "[3, 3]"},
		f: func(m *marks, _ context.Context, g *Group) error {
			model := nn.NewLinear(3, 2+g.Rank())
			m.markLine(func() { DDP(nn.To(model, g.Device()), g) })
			return nil
		}},
	{name: "types differ", kind: ErrMismatch, rank: anyRank, words: []string{"ddp", "weight", "float32", "float64"},
		f: func(m *marks, _ context.Context, g *Group) error {
			model := nn.NewLinear(3, 2, nn.Typed([]dtype.Type{dtype.F32, dtype.F64}[g.Rank()]))
			m.markLine(func() { DDP(nn.To(model, g.Device()), g) })
			return nil
		}},
	{name: "a parameter is frozen on one rank", kind: ErrMismatch, rank: anyRank, words: []string{"ddp", "bias", "gradient false"},
		f: func(m *marks, _ context.Context, g *Group) error {
			model := nn.To(nn.NewLinear(3, 2), g.Device())
			model.Bias.SetRequiresGrad(g.Rank() == 0)
			m.markLine(func() { DDP(model, g) })
			return nil
		}},
	{name: "all is frozen", kind: tensor.ErrGrad, rank: anyRank, words: []string{"ddp", "no parameter requires a gradient"},
		f: func(m *marks, _ context.Context, g *Group) error {
			model := nn.To(nn.NewLinear(3, 2), g.Device())
			model.Weight.SetRequiresGrad(false)
			model.Bias.SetRequiresGrad(false)
			m.markLine(func() { DDP(model, g) })
			return nil
		}},
	{name: "the model is on another device", kind: tensor.ErrDevice, rank: 1, words: []string{"ddp", "weight", ":0", "nn.To"},
		f: func(m *marks, _ context.Context, g *Group) error {
			model := nn.To(nn.NewLinear(3, 2), g.Devices()[0])
			if g.Rank() == 1 {
				m.markLine(func() { DDP(model, g) })
			}
			DDP(model, g)
			return nil
		}},
	{name: "Backward twice on one rank", kind: ErrLeft, rank: 0, words: []string{"gradients of 4.weight … 0.bias", "rank 1"},
		f: func(m *marks, _ context.Context, g *Group) error {
			model := averaged(g)
			stepped(g, model)
			if g.Rank() == 0 {
				g.Do(func(s *tensor.Scope) {
					x, y := batch(s, dtype.F32, 0, 0, 3)
					loss := nn.CrossEntropy(model.Forward(x), y)
					m.markLine(func() { loss.Backward() })
				})
			}
			return nil
		}},
	{name: "a rank never comes to Backward", kind: ErrTimeout, rank: 0, wait: 500 * time.Millisecond,
		words: []string{"gradients of 4.bias … 0.weight", "rank 1 did not come", "sleepsTooLong"},
		f: func(m *marks, ctx context.Context, g *Group) error {
			model := averaged(g)
			if g.Rank() == 1 {
				sleepsTooLong(ctx)
				return nil
			}
			g.Do(func(s *tensor.Scope) {
				x, y := batch(s, dtype.F32, 0, 0, 3)
				loss := nn.CrossEntropy(model.Forward(x), y)
				m.markLine(func() { loss.Backward() })
			})
			return nil
		}},
	{name: "a communication hook panics", kind: errOwn, rank: 1, words: []string{"panic: "},
		f: func(_ *marks, _ context.Context, g *Group) error {
			stepped(g, averaged(g, WithHook(func(g *Group, b Bucket) func() {
				if g.Rank() == 1 {
					panic(errOwn)
				}
				b.Average(b.Grads)
				return nil
			})))
			return nil
		}},
	{name: "a hook of a gradient panics", kind: errOwn, rank: 1, words: []string{"panic: ", "panicsInHook"},
		f: func(_ *marks, _ context.Context, g *Group) error {
			model := averaged(g)
			if g.Rank() == 1 {
				nn.Parameters(model)[2].RegisterHook(panicsInHook)
			}
			stepped(g, model)
			return nil
		}},
	{name: "forward fails while others are in Backward", kind: tensor.ErrShape, rank: 1, words: []string{"linear"},
		f: func(m *marks, _ context.Context, g *Group) error {
			model := averaged(g)
			if g.Rank() == 1 {
				g.Do(func(s *tensor.Scope) { m.markLine(func() { model.Forward(s.Ones(3, 11)) }) })
			}
			stepped(g, model)
			return nil
		}},
	{name: "the program returns while others are in Backward", kind: errOwn, rank: 1,
		f: func(_ *marks, _ context.Context, g *Group) error {
			model := averaged(g)
			if g.Rank() == 1 {
				return errOwn
			}
			stepped(g, model)
			return nil
		}},
	{name: "a parameter has been freed", kind: tensor.ErrFreed, rank: 1, words: []string{"freed"},
		f: func(m *marks, _ context.Context, g *Group) error {
			model := averaged(g)
			if g.Rank() == 1 {
				nn.Parameters(model)[1].Free()
				g.Do(func(s *tensor.Scope) {
					x, _ := batch(s, dtype.F32, 0, 0, 3)
					m.markLine(func() { model.Forward(x) })
				})
			}
			stepped(g, model)
			return nil
		}},
	{name: "a weight that is none", kind: tensor.ErrValue, rank: 1, words: []string{"weigh", "-1"},
		f: func(m *marks, _ context.Context, g *Group) error {
			r := g.NewReducer(nn.To(mlp(dtype.F32), g.Device()))
			if g.Rank() == 1 {
				m.markLine(func() { r.Weigh(-1) })
			}
			g.Barrier()
			return nil
		}},
	{name: "an option that is nil", kind: tensor.ErrValue, rank: anyRank, words: []string{"ddp", "option 1 is nil"},
		f: func(m *marks, _ context.Context, g *Group) error {
			model := nn.To(mlp(dtype.F32), g.Device())
			m.markLine(func() { DDP(model, g, Compress(), nil) })
			return nil
		}},
}

func panicsInHook(*tensor.Tensor) *tensor.Tensor { panic(errOwn) }

// bounded calls Run, and fails the test if Run does not return within 40 seconds. The argument
// timeout is the run's Timeout; 0 means one minute.
func bounded(t *testing.T, l DeviceList, timeout time.Duration, f func(ctx context.Context, g *Group) error) (err error) {
	t.Helper()
	if timeout == 0 {
		timeout = time.Minute
	}
	done := make(chan error, 1)
	go func() {
		done <- Run(context.Background(), l, f, Timeout(timeout), Grace(10*time.Second), InProcess())
	}()
	select {
	case err = <-done:
	case <-time.After(40 * time.Second):
		var all [1 << 20]byte
		t.Fatalf("the run does not end:\n%s", all[:runtime.Stack(all[:], true)])
	}
	return err
}

// TestMistakes makes one mistake in each run. All runs share the devices, because a failed run must
// leave them usable.
func TestMistakes(t *testing.T) {
	all := lists(t, 2, 3)
	for part, list := range map[string][]mistake{"calls": mistakesOfCalls, "ranks": mistakesOfRanks, "models": mistakesOfModels} {
		for _, c := range list {
			for _, kind := range []string{"cpu", "cuda"} {
				t.Run(part+"/"+c.name+"/"+kind, func(t *testing.T) {
					l := all[fmt.Sprintf("%s×%d", kind, max(c.world, 2))]
					m := &marks{}
					err := bounded(t, l, c.wait, func(ctx context.Context, g *Group) error { return c.f(m, ctx, g) })
					c.check(t, l, m, err)
				})
			}
		}
	}
}

func (c *mistake) check(t *testing.T, l DeviceList, m *marks, err error) {
	t.Helper()
	var blamed *RankError
	if !errors.As(err, &blamed) {
		t.Fatalf("Run returns %T %v", err, err)
	}
	if c.kind != nil && !errors.Is(err, c.kind) {
		t.Errorf("the error is not one of %q", c.kind)
	}
	if c.rank >= 0 && blamed.Rank != c.rank {
		t.Errorf("rank %d is blamed, not %d", blamed.Rank, c.rank)
	}
	if d := l.devices[blamed.Rank].Name(); blamed.World != len(l.devices) || blamed.Device != d {
		t.Errorf("it blames rank %d of %d on %s", blamed.Rank, blamed.World, blamed.Device)
	}
	words := append([]string{fmt.Sprintf("rank %d of %d, on %s", blamed.Rank, blamed.World, blamed.Device)}, c.words...)
	for _, w := range append(words, m.lines...) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q", w)
		}
	}
	if strings.Contains(err.Error(), "did not return within") {
		t.Error("ranks were left behind")
	}
	var p *PanicError
	if panics := strings.Contains(c.name, "panic"); panics != errors.As(err, &p) || panics && len(p.Stack) == 0 {
		t.Errorf("the error wraps a panic of the program: %v", p != nil)
	}
	if t.Failed() {
		t.Logf("the error is: %v", err)
	}
}
