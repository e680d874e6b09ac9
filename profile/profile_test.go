package profile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// net is a small convolutional network.
type net struct {
	nn.Base
	Conv *nn.Conv2d
	Act  nn.ReLU
	Fc   *nn.Linear
}

func newNet() *net {
	return &net{Conv: nn.NewConv2d(1, 4, 3), Fc: nn.NewLinear(4*6*6, 10)}
}

func (m *net) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&x, &y)()
	return m.Fc.Forward(m.Act.Forward(m.Conv.Forward(x)).Flatten(1, -1))
}

// trainer trains a net on one batch.
type trainer struct {
	dev device.Device
	m   *net
	opt optim.Optimizer
}

func newTrainer(dev device.Device) *trainer {
	m := newNet()
	nn.To(m, dev)
	return &trainer{dev, m, optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1})}
}

func (t *trainer) step() {
	tensor.Do(func(s *tensor.Scope) {
		loss := nn.CrossEntropy(t.m.Forward(s.On(t.dev).Randn(2, 1, 8, 8)), s.On(t.dev).RandInt(0, 10, 2))
		loss.Backward()
		t.opt.Step()
		t.opt.ZeroGrad()
	}, tensor.Named("step"))
}

func open(t testing.TB) device.Device {
	dev, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

func emulate(t testing.TB) device.Device {
	devs, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	return devs[0]
}

// recorded runs f while a profile records, and returns the profile.
func recorded(t testing.TB, o profile.Options, f func(p *profile.Profile)) *profile.Profile {
	t.Helper()
	p, err := profile.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if err := p.Stop(); err != nil {
				t.Fatal(err)
			}
		}()
		f(p)
	}()
	return p
}

func rowOf(t *testing.T, a *profile.Averages, key string) profile.Average {
	t.Helper()
	var keys []string
	for _, r := range a.Rows {
		if r.Key == key {
			return r
		}
		keys = append(keys, r.Key)
	}
	t.Fatalf("no row %q among %q", key, keys)
	return profile.Average{}
}

// nearTime reports whether two sums of times are equal up to a microsecond. They may differ a
// little, because each time in a sum was truncated to a nanosecond.
func nearTime(a, b time.Duration) bool { return a-b < time.Microsecond && b-a < time.Microsecond }

// TestCPU profiles a step on the CPU. Ops, gradients, layers and scopes must have rows. Self times
// must add up to the whole. A layer's row must include the work of its gradients.
func TestCPU(t *testing.T) {
	tr := newTrainer(open(t))
	tr.step()
	p := recorded(t, profile.Options{Memory: true, FLOPs: true, Shapes: true, Stacks: true, Modules: nn.ModuleNames(tr.m, "net")}, func(*profile.Profile) {
		tr.step()
		tr.step()
	})
	a := p.KeyAverages()
	step := rowOf(t, a, "step")
	if step.Kind != "scope" || step.Count != 2 || step.CPUTotal < step.CPUSelf || step.CPUSelf <= 0 {
		t.Errorf("%+v", step)
	}
	total := a.Total()
	if !nearTime(total.CPUSelf, step.CPUTotal) {
		t.Errorf("self times sum to %v, the steps took %v", total.CPUSelf, step.CPUTotal)
	}
	for _, key := range []string{"net", "conv", "fc", "conv2d", "linear", "linear.grad", "cross_entropy", "LinearBackward", "Conv2dBackward", "CrossEntropyBackward", "AccumulateGrad", "Optimizer.step", "sgd"} {
		if r := rowOf(t, a, key); r.Count < 2 || r.CPUTotal <= 0 || r.CUDATotal != 0 {
			t.Errorf("%+v", r)
		}
	}
	// relu may count as one or two operations for each element
	if r := rowOf(t, a, "relu"); r.FLOPs != 2*2*4*6*6 && r.FLOPs != 2*2*2*4*6*6 {
		t.Errorf("relu: %d operations", r.FLOPs)
	}
	by := p.KeyAverages(profile.ByModule())
	if m := by.Total(); !nearTime(m.CPUSelf, total.CPUSelf) || m.FLOPs != total.FLOPs || m.CPUMemorySelf != total.CPUMemorySelf {
		t.Errorf("layers sum to %+v, all to %+v", m, total)
	}
	// The forward pass, the gradient of the weight, and the gradient of the input have 2·(2·144·10)
	// operations each. The bias's sums and the gradient of the previous activation are fused with
	// the products.
	if r := rowOf(t, by, "fc"); r.Count != 2 || r.FLOPs < 2*3*2*2*144*10 || r.FLOPs > 2*3*2*2*144*10+2000 {
		t.Errorf("fc: %d operations in %d calls", r.FLOPs, r.Count)
	}
	if r, own := rowOf(t, by, "net"), rowOf(t, by, "net.ReLU_0"); r.CPUTotal <= rowOf(t, by, "conv").CPUTotal || own.Count != 2 {
		t.Errorf("net takes %v of the CPU, what it holds more; its activation has %d calls", r.CPUTotal, own.Count)
	}
	shapes := 0
	for _, r := range p.KeyAverages(profile.ByShape()).Rows {
		if r.Key == "linear.grad" {
			shapes++
			if n := len(r.Shapes); n != 2 && n != 3 {
				t.Errorf("linear.grad of %v", r.Shapes)
			}
		}
	}
	if shapes < 2 {
		t.Errorf("products of %d shapes", shapes)
	}
	if r := rowOf(t, p.KeyAverages(profile.ByStack(1)), "cross_entropy"); len(r.Stack) != 1 || !strings.HasPrefix(r.Stack[0], "profile/profile_test.go:") {
		t.Errorf("cross_entropy is called from %q", r.Stack)
	}
}

func TestTable(t *testing.T) {
	tr := newTrainer(open(t))
	p := recorded(t, profile.Options{Memory: true, FLOPs: true}, func(*profile.Profile) { tr.step() })
	table, err := p.KeyAverages().Table(profile.SortBy("cpu_time_total"), profile.Rows(3), profile.Header("a step"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if len(lines) != 2+3+3+1+1 || strings.Trim(lines[0], "=") != "" || lines[1] != "a step" || len(lines[0]) != len(lines[2]) || !strings.HasPrefix(lines[len(lines)-1], "Self CPU time total: ") {
		t.Errorf("%d lines:\n%s", len(lines), table)
	}
	for _, c := range []string{"Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "CPU Mem", "Self CPU Mem", "# of Calls", "FLOPs"} {
		if !strings.Contains(lines[3], c) {
			t.Errorf("no column %q in %q", c, lines[3])
		}
	}
	if strings.Contains(lines[3], "CUDA") || !strings.Contains(lines[5], "step") {
		t.Errorf("the first row is not the step, or there are columns of a GPU:\n%s", table)
	}
	for _, key := range []string{"cpu_time", "cuda_time", "device_time", "cpu_time_total", "cuda_time_total", "self_cpu_time_total", "self_cuda_time_total", "cpu_memory_usage",
		"cuda_memory_usage", "self_cpu_memory_usage", "self_cuda_memory_usage", "count", "flops", "bytes", "key"} {
		a := p.KeyAverages()
		if err := a.Sort(key); err != nil {
			t.Error(err)
		}
	}
	a := p.KeyAverages()
	if err := a.Sort("count"); err != nil || a.Rows[0].Count < a.Rows[len(a.Rows)-1].Count {
		t.Error("rows are not sorted")
	}
	if table, err := a.Table(profile.TimeUnit("ms")); err != nil || strings.Contains(table, "us ") || !strings.Contains(table, "ms\n") {
		t.Errorf("%v\n%s", err, table)
	}
	if _, err := a.Table(profile.TimeUnit("h")); !errors.Is(err, profile.ErrKey) {
		t.Errorf("a unit: %v", err)
	}
	shares := 0.0
	for _, r := range a.Rows {
		shares += float64(r.CPUSelf) / float64(a.Total().CPUSelf)
	}
	if shares < 0.9999 || shares > 1.0001 {
		t.Errorf("self times are %v of their total", shares)
	}
	_, err = a.Table(profile.SortBy("cuda_tiem"))
	var e *profile.Error
	if !errors.Is(err, profile.ErrKey) || !errors.As(err, &e) || !strings.Contains(err.Error(), "cuda_time_total") {
		t.Errorf("an unknown key: %v", err)
	}
}

// TestStartStop checks that only one profile can run at a time, that Stop may be called again, and
// that Step after Stop is an error.
func TestStartStop(t *testing.T) {
	p, err := profile.Start(profile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := profile.Start(profile.Options{}); !errors.Is(err, profile.ErrRunning) {
		t.Errorf("a second profile: %v", err)
	}
	path := filepath.Join(t.TempDir(), "early.json")
	if err := p.WriteFile(path); !errors.Is(err, profile.ErrEmpty) {
		t.Errorf("written before anything is recorded: %v", err)
	}
	if rows := p.KeyAverages().Rows; len(rows) != 0 {
		t.Errorf("%d rows of a profile that runs", len(rows))
	}
	for range 2 {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
	if err := p.Step(); !errors.Is(err, profile.ErrStopped) {
		t.Errorf("a step after the end: %v", err)
	}
	if device.Tracing() != nil {
		t.Error("something still traces")
	}
	for _, o := range []profile.Options{{MaxEvents: -1}, {Schedule: profile.Schedule{Wait: 1}}, {Schedule: profile.Schedule{Active: 1, Warmup: -1}}} {
		var e *profile.Error
		if _, err := profile.Start(o); !errors.As(err, &e) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestSchedule profiles steps with a schedule. Only the schedule's active steps may be recorded,
// and each cycle must be a recording of its own.
func TestSchedule(t *testing.T) {
	var cycles [][]string
	o := profile.Options{Schedule: profile.Schedule{SkipFirst: 1, Wait: 1, Warmup: 1, Active: 2, Repeat: 2}, OnTraceReady: func(p *profile.Profile) error {
		var keys []string
		for _, r := range p.KeyAverages().Rows {
			keys = append(keys, fmt.Sprintf("%s×%d", r.Key, r.Count))
		}
		cycles = append(cycles, keys)
		return nil
	}}
	p := recorded(t, o, func(p *profile.Profile) {
		for i := range 12 {
			tracing := device.Tracing() != nil
			if want := o.Schedule.Action(i) != profile.None; tracing != want {
				t.Errorf("step %d: tracing %v, want %v", i, tracing, want)
			}
			profile.Span(fmt.Sprintf("step %d", i))()
			if err := p.Step(); err != nil {
				t.Fatal(err)
			}
		}
	})
	if got := fmt.Sprint(cycles); got != "[[ProfilerStep*×2 step 3×1 step 4×1] [ProfilerStep*×2 step 7×1 step 8×1]]" {
		t.Error(got)
	}
	if p.StepNumber() != 12 {
		t.Errorf("%d steps", p.StepNumber())
	}
	// Stop must call the handler for an unfinished cycle too, and return the handler's error.
	broken := errors.New("disk full")
	p, err := profile.Start(profile.Options{Schedule: profile.Schedule{Active: 3}, OnTraceReady: func(*profile.Profile) error { return broken }})
	if err != nil {
		t.Fatal(err)
	}
	profile.Span("half")()
	if err := p.Stop(); !errors.Is(err, broken) || len(p.KeyAverages().Rows) != 2 {
		t.Errorf("%v, %d rows", err, len(p.KeyAverages().Rows))
	}
}

// TestConcurrent profiles several goroutines that train their own models. For one model, another
// goroutine runs Backward.
func TestConcurrent(t *testing.T) {
	dev := open(t)
	const n = 4
	p := recorded(t, profile.Options{Memory: true, Shapes: true, Stacks: true}, func(p *profile.Profile) {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				tr := newTrainer(dev)
				for range 3 {
					defer profile.Span(fmt.Sprint("worker ", i))()
					tr.step()
				}
			})
		}
		for range 5 {
			if err := p.Step(); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
	})
	a := p.KeyAverages()
	if r := rowOf(t, a, "step"); r.Count != 3*n {
		t.Errorf("%d steps", r.Count)
	}
	for i := range n {
		if r := rowOf(t, a, fmt.Sprint("worker ", i)); r.Count != 3 {
			t.Errorf("%+v", r)
		}
	}
	if m := p.KeyAverages(profile.ByModule()).Total(); !nearTime(m.CPUSelf, a.Total().CPUSelf) {
		t.Errorf("layers sum to %v, all to %v", m.CPUSelf, a.Total().CPUSelf)
	}
}

// TestBackwardElsewhere runs Backward on another goroutine. The gradients of a layer's ops must
// still belong to the layer.
func TestBackwardElsewhere(t *testing.T) {
	fc := nn.NewLinear(8, 8)
	p := recorded(t, profile.Options{}, func(*profile.Profile) {
		s := tensor.NewScope(tensor.Named("here"))
		loss := fc.Forward(s.Ones(4, 8).RequiresGrad()).Sum()
		done := make(chan bool)
		go func() {
			loss.Backward()
			close(done)
		}()
		<-done
		s.Close()
	})
	if r := rowOf(t, p.KeyAverages(profile.ByModule()), "Linear_0"); r.FLOPs < 3*2*4*8*8 {
		t.Errorf("%d operations, want those of three products", r.FLOPs)
	}
	if r := rowOf(t, p.KeyAverages(), "here"); r.FLOPsTotal < 3*2*4*8*8 {
		t.Errorf("the scope has %d operations, want those of three products", r.FLOPsTotal)
	}
}

// TestDropped records more events than the limit. The profile must drop events, report this, and
// keep running.
func TestDropped(t *testing.T) {
	tr := newTrainer(open(t))
	p := recorded(t, profile.Options{Memory: true, MaxEvents: 50}, func(*profile.Profile) { tr.step() })
	a := p.KeyAverages()
	table, err := a.Table()
	if err != nil || !strings.Contains(table, "events were dropped: there was room for 50") {
		t.Errorf("%v\n%s", err, table)
	}
	n := 0
	for _, r := range a.Rows {
		n += r.Count
	}
	if n > 50 || n < 10 {
		t.Errorf("%d events", n)
	}
}

// TestOff checks that an op allocates nothing for the tracer while no profile runs.
func TestOff(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { profile.Span("x")() }); n != 0 {
		t.Errorf("%v allocations for a span", n)
	}
	x := tensor.Ones(1)
	y := x
	named := nn.NewLinear(1, 1)
	nn.Parameters(named)
	for _, fc := range []*nn.Linear{{}, named} {
		if n := testing.AllocsPerRun(100, func() { fc.Enter(&x, &y)() }); n != 0 {
			t.Errorf("%v allocations for a layer's call", n)
		}
	}
}

func TestWriteErrors(t *testing.T) {
	p := recorded(t, profile.Options{}, func(*profile.Profile) { profile.Span("x")() })
	dir := t.TempDir()
	var e *profile.Error
	if err := p.WriteFile(filepath.Join(dir, "trace.xml")); !errors.As(err, &e) || !strings.Contains(err.Error(), ".json") {
		t.Errorf("an unknown form: %v", err)
	}
	if err := p.WriteFile(filepath.Join(dir, "none", "trace.json")); !errors.Is(err, os.ErrNotExist) || !errors.As(err, &e) {
		t.Errorf("a folder that is not there: %v", err)
	}
	if err := p.ExportStacks(filepath.Join(dir, "x.stacks"), "time"); !errors.Is(err, profile.ErrKey) {
		t.Errorf("an unknown metric: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("files are left: %v", left)
	}
}

func TestMeasurePeak(t *testing.T) {
	peak, err := profile.MeasurePeak(open(t))
	if err != nil || peak.FLOPs < 1e8 || peak.Bytes < 1e8 || peak.Source != "measured" {
		t.Errorf("%+v, %v", peak, err)
	}
}
