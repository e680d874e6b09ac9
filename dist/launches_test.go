package dist

import (
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// launches counts primitives by device.
type launches struct {
	mu     sync.Mutex
	counts map[device.Device]int
}

func (*launches) Wants() device.TraceWants          { return device.TraceWants{} }
func (*launches) Begin(s device.Span) device.SpanID { return device.NewSpanID() }
func (*launches) End(device.SpanID)                 {}
func (*launches) Recorded(uint64)                   {}
func (*launches) Copy(device.CopyEvent)             {}
func (*launches) Sync(device.SyncEvent)             {}
func (*launches) Memory(device.MemoryEvent)         {}

func (l *launches) Kernel(k device.KernelEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[k.Device]++
}

// counted runs f and returns how many primitives it launches on each device.
func counted(t *testing.T, f func()) map[device.Device]int {
	t.Helper()
	l := &launches{counts: map[device.Device]int{}}
	if !device.SetTracer(l) {
		t.Fatal("another tracer listens")
	}
	defer device.SetTracer(nil)
	f()
	return l.counts
}

// TestLaunches counts launches. With one rank, a step must have as many launches as without package
// dist. With several ranks, each bucket adds one copy and the launches that sum it over the ranks.
func TestLaunches(t *testing.T) {
	step := func(s *tensor.Scope, m nn.Module, opt optim.Optimizer, rank, n int) {
		x, y := batch(s, dtype.F32, 0, rank*n, (rank+1)*n)
		nn.CrossEntropy(m.Forward(x), y).Backward()
		opt.Step()
		opt.ZeroGrad()
	}
	for name, l := range lists(t, 1, 2) {
		t.Run(name, func(t *testing.T) {
			dev := l.devices[0]
			m := nn.To(mlp(dtype.F32), dev)
			opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1})
			n := 4
			alone := func() {
				tensor.Do(func(s *tensor.Scope) { step(s, m, opt, 0, n) }, tensor.On(dev))
			}
			alone()
			plain := counted(t, alone)[dev]
			run(t, l, func(g *Group) {
				m := mlp(dtype.F32)
				r := g.NewReducer(nn.To(m, g.Device()), BucketBytes(600, 3000))
				opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1})
				once := func() { g.Do(func(s *tensor.Scope) { step(s, m, opt, g.Rank(), n) }) }
				for range 3 {
					once()
				}
				g.Barrier()
				var by map[device.Device]int
				if g.Rank() == 0 {
					by = counted(t, func() {
						Exchange(g, 0)
						once()
						g.Barrier()
					})
				} else {
					Exchange(g, 0)
					once()
					g.Barrier()
				}
				if g.Rank() > 0 {
					return
				}
				got, buckets := by[dev], len(r.buckets)
				switch {
				case g.World() == 1 && got != plain:
					t.Errorf("one rank launches %d primitives, the plain loop %d", got, plain)
				case g.World() == 2 && dev.Info().Host && got != plain+buckets:
					t.Errorf("a rank of two launches %d primitives, the plain loop %d, with %d buckets", got, plain, buckets)
				case g.World() == 2 && !dev.Info().Host && got != plain+2*buckets:
					// each bucket needs one more copy and one more sum than the plain loop
					t.Errorf("a GPU of two launches %d primitives, the plain loop %d, with %d buckets", got, plain, buckets)
				}
			})
		})
	}
}
