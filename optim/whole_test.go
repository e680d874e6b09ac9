package optim_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// writeTree writes the bits of every number in a tree, and frees the tree's tensors.
func writeTree(b *strings.Builder, v any) {
	switch v := v.(type) {
	case *tensor.Tensor:
		fmt.Fprintf(b, "%v %x;", v.Shape(), v.Bytes())
		// Free makes the memory available at once. Otherwise it would be freed at some later
		// time, and an allocation that is supposed to fail might succeed.
		v.Free()
	case []any:
		for _, e := range v {
			writeTree(b, e)
		}
	case nil, bool, int64, float64, string:
		fmt.Fprintf(b, "%v;", v)
	default:
		m := reflect.ValueOf(v)
		keys := map[string]reflect.Value{}
		for _, k := range m.MapKeys() {
			keys[fmt.Sprint(k)] = k
		}
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			b.WriteString(k + "=")
			writeTree(b, m.MapIndex(keys[k]).Interface())
		}
	}
}

func bits(params []*tensor.Tensor, grads bool, trees ...any) string {
	var b strings.Builder
	for _, p := range params {
		writeTree(&b, p.Detach())
		if grads && p.Grad() != nil {
			writeTree(&b, p.Grad().Detach())
		}
	}
	for _, t := range trees {
		writeTree(&b, t)
	}
	return b.String()
}

// A subject is an operation that must change everything or nothing, and its tensors on a device. A
// test runs it several times: ready prepares the subject, work runs the operation, and bits returns
// the state.
type subject struct {
	ready func(index int)
	work  func()
	bits  func() string
}

// stride returns the distance from allocation n to the next tested allocation. It increases with n.
// With FLAMBEAU_SOAK=1 it is always 1.
func stride(n int) int {
	if os.Getenv("FLAMBEAU_SOAK") == "1" {
		return 1
	}
	return 1 + n/2
}

// collect runs the garbage collector and waits for the cleanups that it starts. On a busy machine
// cleanups may start late.
func collect() {
	ran := make(chan struct{})
	runtime.AddCleanup(new([8]*int), func(ran chan struct{}) { close(ran) }, ran)
	runtime.GC()
	<-ran
	time.Sleep(time.Millisecond) // cleanups of the same collection may still run
}

// atEachAllocation repeats the work of a subject, and lets a different allocation of the driver
// fail each time. A failure must change no bit and leave no memory allocated. The result of a later
// success must be bitwise equal to that of a second subject, for which no allocation fails.
func atEachAllocation(t *testing.T, gpu *cuda.Device, name string, turns, least int, mk func(gpu *cuda.Device) subject) {
	t.Helper()
	x, twin := mk(gpu), mk(gpu)
	failures := 0
	for turn := range turns {
		x.ready(turn)
		twin.ready(turn)
		twin.work()
		before := x.bits()
		for n := 1; ; n += stride(n) {
			// If unreachable memory were freed later, an allocation that is supposed to fail could
			// succeed.
			collect()
			ballast := fillUp(t, gpu)
			held := gpu.Stats().Allocated
			if err := gpu.FailAlloc(n); err != nil {
				t.Fatal(err)
			}
			err := tensor.Try(x.work)
			if e := gpu.FailAlloc(0); e != nil {
				t.Fatal(e)
			}
			now := gpu.Stats().Allocated
			for _, b := range ballast {
				b.Free()
			}
			if err == nil {
				break
			}
			if !errors.Is(err, device.ErrOutOfMemory) {
				t.Fatalf("%s, turn %d, allocation %d: %v", name, turn, n, err)
			}
			failures++
			if left := now - held; left > 0 {
				t.Errorf("%s, turn %d: the failure of allocation %d leaves %d bytes", name, turn, n, left)
			}
			if x.bits() != before {
				t.Fatalf("%s, turn %d: the failure of allocation %d changes something:\nbefore %s\nnow    %s", name, turn, n, before, x.bits())
			}
		}
		if x.bits() != twin.bits() {
			t.Errorf("%s, turn %d: what succeeds after failures has other bits", name, turn)
		}
	}
	if failures < least {
		t.Errorf("%s: only %d allocations to fail", name, failures)
	}
}

// fillUp allocates all unused memory of the device's pool, so that the next allocation must come
// from the driver.
func fillUp(t *testing.T, gpu *cuda.Device) (list []device.Buffer) {
	t.Helper()
	for _, size := range []int{16 << 10, 8 << 10, 4 << 10, 3 << 10, 2560, 2 << 10, 1 << 10, 512} {
		for {
			before := gpu.Stats().Reserved
			b, err := gpu.Alloc(size, nil, device.Origin{Op: "ballast"})
			if err != nil {
				t.Fatal(err)
			}
			if gpu.Stats().Reserved != before { // the pool had no free block of this size
				b.Free()
				gpu.Empty()
				break
			}
			list = append(list, b)
		}
	}
	return list
}

// matrices returns parameters of several shapes, one of which is strided.
func matrices(gpu *cuda.Device) []*tensor.Tensor {
	on := tensor.Root().On(gpu)
	return []*tensor.Tensor{on.Full(0.5, 20, 30).RequiresGrad(), on.Ones(7, 5).T().RequiresGrad(), on.Full(-1, 40, 30).RequiresGrad(), on.Ones(3, 3).RequiresGrad()}
}

func give(params []*tensor.Tensor, turn int) {
	for i, p := range params {
		g := tensor.Root().On(p.Device()).Typed(p.Type()).Full(0.25*float64(i+1)-0.1*float64(turn), p.Shape().Slice()...)
		p.SetGrad(g)
	}
}

// If memory runs out at any point of Step, Step has changed nothing. This holds for every
// optimizer, in the step that allocates the state and in later steps.
func TestEveryStepIsWholeOrNothing(t *testing.T) {
	gpu := emulatedGPU(t, "mem=32MiB,segment=1KiB")
	list := maps.Clone(makers)
	list["Adam with all"] = func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewAdamGroups(with(l, lr, func(v float64) optim.AdamConfig { return optim.AdamConfig{LR: v, AMSGrad: true, WeightDecay: 0.1} })...)
	}
	list["SGD with momentum"] = func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewSGDGroups(with(l, lr, func(v float64) optim.SGDConfig { return optim.SGDConfig{LR: v, Momentum: 0.9, Nesterov: true} })...)
	}
	list["RMSprop with all"] = func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewRMSpropGroups(with(l, lr, func(v float64) optim.RMSpropConfig { return optim.RMSpropConfig{LR: v, Momentum: 0.9, Centered: true} })...)
	}
	list["Muon"] = func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewMuonGroups(with(l, lr, func(v float64) optim.MuonConfig { return optim.MuonConfig{LR: v, Iterations: 1} })...)
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		atEachAllocation(t, gpu, name, 2, 2, func(gpu *cuda.Device) subject {
			p := matrices(gpu)
			opt := list[name]([][]*tensor.Tensor{p[:2], p[2:]}, []float64{0.1, 0.05})
			return subject{func(turn int) { give(p, turn) }, opt.Step, func() string { return bits(p, false, opt.StateDict(), float64(opt.Steps())) }}
		})
	}
}

// Step of LBFGS calls its closure and changes the parameters many times. If Step fails, it undoes
// all of these changes.
func TestLBFGSStepIsWholeOrNothing(t *testing.T) {
	gpu := emulatedGPU(t, "mem=32MiB,segment=1KiB")
	for _, search := range []string{"", "strong_wolfe"} {
		atEachAllocation(t, gpu, "LBFGS "+search, 2, 10, func(gpu *cuda.Device) subject {
			v := newValley(gpu, 1)
			opt := optim.NewLBFGS(v.params(), optim.LBFGSConfig{LR: 0.001, MaxIter: 3, History: 2, LineSearch: search})
			return subject{func(int) {
				for _, p := range v.params() {
					p.ZeroGrad()
				}
			}, func() {
				defer func() { // the gradients come from the closure, not from the optimizer
					for _, p := range v.params() {
						p.ZeroGrad()
					}
				}()
				opt.Step(v.value)
			}, func() string { return bits(v.params(), false, opt.StateDict(), float64(opt.Steps())) }}
		})
	}
}

// Clipping changes all gradients or none.
func TestClippingIsWholeOrNothing(t *testing.T) {
	gpu := emulatedGPU(t, "mem=32MiB,segment=1KiB")
	work := map[string]func(p []*tensor.Tensor){
		"norm":  func(p []*tensor.Tensor) { optim.ClipGradNorm(p, 0.5).Free() },
		"value": func(p []*tensor.Tensor) { optim.ClipGradValue(p, 0.2) },
	}
	for name, f := range work {
		atEachAllocation(t, gpu, "clipping by "+name, 2, 1, func(gpu *cuda.Device) subject {
			p := append(matrices(gpu), tensor.Root().On(gpu).Ones(5, 4).RequiresGrad())
			return subject{func(turn int) {
				give(p, turn)
				tensor.Do(func(s *tensor.Scope) { // one of the gradients is expanded
					p[4].SetGrad(tensor.Root().On(gpu).Full(0.7).Expand(5, 4))
				})
			}, func() { f(p) }, func() string { return bits(p, true) }}
		})
	}
}

// averaging returns a function that makes a subject on a device. The subject has the averages f of
// a model, and the functions ready and work.
func averaging(f func(m any) *optim.Averaged, ready func(a *optim.Averaged), work func(a *optim.Averaged)) func(gpu *cuda.Device) subject {
	return func(gpu *cuda.Device) subject {
		m := nn.NewSequential(nn.NewLinear(30, 40), nn.NewBatchNorm1d(40), nn.NewLinear(40, 3))
		nn.To(m, gpu)
		a := f(m)
		params := nn.Parameters(m)
		fill := func(v float64) {
			tensor.Do(func(s *tensor.Scope) {
				for i, p := range params {
					p.In(s).Fill(v + 0.1*float64(i))
				}
			}, tensor.NoGrad())
		}
		return subject{func(turn int) {
			fill(float64(turn))
			if ready != nil {
				ready(a)
				fill(float64(turn) + 0.3)
			}
		}, func() { work(a) }, func() string { return bits(params, false, a.StateDict()) }}
	}
}

// averages maps the name of each kind of average to its constructor.
var averages = map[string]func(m any) *optim.Averaged{
	"EMA": func(m any) *optim.Averaged { return optim.NewEMA(m, 0.9, optim.AverageBuffers()) },
	"SWA": func(m any) *optim.Averaged { return optim.NewSWA(m) },
}

// The method With exchanges the averages and a model's values completely or not at all.
func TestAveragingIsWholeOrNothing(t *testing.T) {
	gpu := emulatedGPU(t, "mem=32MiB,segment=1KiB")
	for name, f := range averages {
		atEachAllocation(t, gpu, name+" With", 3, 1, averaging(f, (*optim.Averaged).Update, func(a *optim.Averaged) { a.With(func() {}) }))
	}
}

// Update recovers from the failure of any single allocation. Its result is bitwise equal to that of
// an update without failures. If allocations keep failing, Update raises an error and changes
// nothing.
func TestAverageUpdateGetsOverFailures(t *testing.T) {
	for name, f := range averages {
		// The segments are so small that Update cannot return unused memory to the driver.
		gpu := emulatedGPU(t, "mem=32MiB,segment=1KiB")
		mk := averaging(f, nil, (*optim.Averaged).Update)
		x, twin := mk(gpu), mk(gpu)
		refused, short := 0, 0
		for turn := range 8 {
			x.ready(turn)
			twin.ready(turn)
			before := x.bits()
			twin.work()
			ballast := fillUp(t, gpu)
			// The GPU gets no more memory than it has now.
			gpu.SetMemoryLimit(int(gpu.Stats().Reserved))
			err := tensor.Try(x.work)
			gpu.SetMemoryLimit(0)
			if short++; !errors.Is(err, device.ErrOutOfMemory) || x.bits() != before {
				t.Fatalf("%s, turn %d: %v, and the bits changed: %v", name, turn, err, x.bits() != before)
			}
			ooms := gpu.Stats().OOMs
			if err := gpu.FailAlloc(1 + turn/2); err != nil {
				t.Fatal(err)
			}
			if err := tensor.Try(x.work); err != nil {
				t.Fatalf("%s, turn %d: %v", name, turn, err)
			}
			if err := gpu.FailAlloc(0); err != nil {
				t.Fatal(err)
			}
			refused += int(gpu.Stats().OOMs - ooms)
			for _, b := range ballast {
				b.Free()
			}
			if x.bits() != twin.bits() {
				t.Fatalf("%s, turn %d: other bits than without failures", name, turn)
			}
		}
		if refused < 4 || short != 8 {
			t.Errorf("%s: %d allocations failed and %d updates", name, refused, short)
		}
	}
}
