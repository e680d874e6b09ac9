package profile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestGPU profiles a step on the emulated GPU. There must be times by op, by kernel and by layer.
func TestGPU(t *testing.T) {
	tr := newTrainer(emulate(t))
	tr.step()
	p := recorded(t, profile.Options{Memory: true, FLOPs: true, Modules: nn.ModuleNames(tr.m, "net")}, func(*profile.Profile) {
		tr.step()
		tr.step()
	})
	a := p.KeyAverages()
	total := a.Total()
	step := rowOf(t, a, "step")
	if total.CUDASelf <= 0 || step.CUDATotal != total.CUDASelf {
		t.Errorf("the GPU worked for %v, %v of it in the steps", total.CUDASelf, step.CUDATotal)
	}
	var kernels, ops time.Duration
	launches := 0
	for _, r := range a.Rows {
		switch r.Kind {
		case "kernel", "copy":
			kernels += r.CUDASelf
			if r.Kind == "kernel" {
				launches += r.Count
			}
			if r.CUDASelf < time.Duration(r.Count)*time.Microsecond || r.CPUTotal != 0 {
				t.Errorf("%+v", r)
			}
		default:
			ops += r.CUDASelf
		}
	}
	if kernels != total.CUDASelf || ops != total.CUDASelf {
		t.Errorf("kernels took %v, the ops that launched them %v, the total says %v", kernels, ops, total.CUDASelf)
	}
	if r := rowOf(t, a, "cuLaunchKernel"); r.Count != launches || r.CPUSelf <= 0 {
		t.Errorf("%d launches of %d kernels", r.Count, launches)
	}
	by := p.KeyAverages(profile.ByModule())
	if m := by.Total(); m.CUDASelf != total.CUDASelf || m.FLOPs != total.FLOPs {
		t.Errorf("layers sum to %v and %d operations, all to %v and %d", m.CUDASelf, m.FLOPs, total.CUDASelf, total.FLOPs)
	}
	net, conv, fc := rowOf(t, by, "net"), rowOf(t, by, "conv"), rowOf(t, by, "fc")
	if act := rowOf(t, by, "net.ReLU_0"); net.CUDATotal != net.CUDASelf+conv.CUDATotal+fc.CUDATotal+act.CUDATotal || fc.CUDATotal <= 0 {
		t.Errorf("net %v, within it %v, %v and %v", net.CUDATotal, conv.CUDATotal, fc.CUDATotal, act.CUDATotal)
	}
	table, err := a.Table(profile.SortBy("cuda_time_total"), profile.Rows(5))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Self CUDA %", "CUDA time avg", "Self CUDA Mem", "Self CUDA time total: ", "emulated"} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in\n%s", want, table)
		}
	}
	rows := 0
	for _, r := range p.Roofline().Rows {
		rows++
		if r.Device != "cuda:0" || r.Kernel == "" || r.Fraction() <= 0 || r.Fraction() > 1 || r.By == "" {
			t.Errorf("%+v: %.3f", r, r.Fraction())
		}
	}
	if rows < 10 {
		t.Errorf("%d kernels have a bound", rows)
	}
}

// TestActivities checks that the table has columns for the GPU only with Options.CUDA, and columns
// for the CPU only with Options.CPU.
func TestActivities(t *testing.T) {
	tr := newTrainer(emulate(t))
	for _, o := range []profile.Options{{CPU: true}, {CUDA: true}} {
		p := recorded(t, o, func(*profile.Profile) { tr.step() })
		table, err := p.KeyAverages().Table()
		if err != nil || strings.Contains(table, "Self CUDA") != o.CUDA || strings.Contains(table, "Self CPU") != o.CPU {
			t.Errorf("%+v: %v\n%s", o, err, table)
		}
		if strings.Contains(table, "have no time") {
			t.Error("times that are not wanted are missed")
		}
	}
}

// lineAfter returns a position in this file, in the form that reports show. The position is offset
// lines below the call of lineAfter.
func lineAfter(offset int) string {
	_, file, line, _ := runtime.Caller(1)
	return fmt.Sprintf("profile/%s:%d", filepath.Base(file), line+offset)
}

// TestTransfers makes copies between host and GPU. Transfers must list exactly these, with their
// lines.
func TestTransfers(t *testing.T) {
	dev := emulate(t)
	cpu := open(t)
	plain := tensor.Ones(1000)
	pinned := tensor.Ones(500).PinMemory(dev)
	var sites [5]string
	p := recorded(t, profile.Options{}, func(*profile.Profile) {
		tensor.Do(func(s *tensor.Scope) {
			sites[0] = lineAfter(1)
			x := plain.In(s).To(dev)
			sites[1] = lineAfter(1)
			y := pinned.In(s).To(dev, tensor.NonBlocking())
			sum := x.Sum().Add(y.Sum())
			for range 3 {
				sites[2] = lineAfter(1)
				if v := sum.Item(); v != 1500 {
					t.Errorf("sum %v", v)
				}
			}
			sites[3] = lineAfter(1)
			back := y.To(cpu, tensor.NonBlocking())
			sites[4] = lineAfter(1)
			if err := dev.Synchronize(); err != nil {
				t.Error(err)
			}
			_ = back
		})
	})
	type row struct {
		site, op, what  string
		count, bytes    int
		pinned, blocked bool
	}
	want := map[row]bool{
		{sites[0], "to", "HtoD", 1, 4000, false, true}:                                 true,
		{sites[1], "to", "HtoD", 1, 2000, true, false}:                                 true,
		{sites[2], "item", "DtoH", 3, 12, false, true}:                                 true,
		{sites[3], "to", "DtoH", 1, 2000, true, false}:                                 true,
		{sites[4], "cuda.Device.Synchronize", "device synchronize", 1, 0, false, true}: true,
	}
	r := p.Transfers()
	for _, v := range r.Rows {
		k := row{v.Site, v.Op, v.What, v.Count, v.Bytes, v.Pinned, v.Blocked}
		if !want[k] {
			t.Errorf("%+v is reported", k)
		}
		delete(want, k)
		if v.Device != "cuda:0" || v.Host <= 0 || v.What != "device synchronize" && v.GPU <= 0 {
			t.Errorf("%+v", v)
		}
	}
	for k := range want {
		t.Errorf("%+v is not reported", k)
	}
	for i := 1; i < len(r.Rows); i++ {
		if a, b := r.Rows[i-1], r.Rows[i]; a.Blocked == b.Blocked && max(a.Host, a.GPU) < max(b.Host, b.GPU) || !a.Blocked && b.Blocked {
			t.Error("rows are not in the order of their cost")
		}
	}
	table := r.Table()
	for _, hint := range []string{"Item waits for all", "a wait is needed only", "Host blocked: "} {
		if !strings.Contains(table, hint) {
			t.Errorf("no %q in\n%s", hint, table)
		}
	}
	big := recorded(t, profile.Options{}, func(*profile.Profile) { tensor.Ones(4096).To(dev).Free() })
	if table := big.Transfers().Table(); !strings.Contains(table, "PinMemory") {
		t.Errorf("no advice about page-locked memory in\n%s", table)
	}
}

// TestStepsOnGPU checks that a profile reads the times of a step one step later, without waiting.
// After many steps no time may be missing.
func TestStepsOnGPU(t *testing.T) {
	tr := newTrainer(emulate(t))
	p := recorded(t, profile.Options{}, func(p *profile.Profile) {
		for range 4 {
			tr.step()
			if err := p.Step(); err != nil {
				t.Fatal(err)
			}
		}
	})
	a := p.KeyAverages()
	kernels, launches := 0, rowOf(t, a, "cuLaunchKernel").Count
	for _, r := range a.Rows {
		if r.Kind == "kernel" {
			kernels += r.Count
		}
	}
	if kernels != launches || kernels == 0 {
		t.Errorf("%d kernels have times, %d were launched", kernels, launches)
	}
}

// TestReport writes a .txt file. It must have all tables of a report, with the names of layers and
// kernels.
func TestReport(t *testing.T) {
	tr := newTrainer(emulate(t))
	p := recorded(t, profile.Options{FLOPs: true}, func(*profile.Profile) { tr.step() })
	path := filepath.Join(t.TempDir(), "profile.txt")
	if err := p.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"By name\n", "By layer\n", "waits\n", "could do\n", "the emulator's cost model", "net_0", "sgd (table of multi-map)"} {
		if !strings.Contains(string(text), part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}

// TestGraph records ops in a CUDA graph. They have not run and must not be counted. Each replay
// must count as one piece of device work.
func TestGraph(t *testing.T) {
	dev := emulate(t)
	x := tensor.Root().On(dev).Ones(300)
	p := recorded(t, profile.Options{Memory: true}, func(*profile.Profile) {
		g, err := tensor.Capture(dev, func(s *tensor.Scope) {
			x.In(s).Square()
			x.In(s).AddScalar(1)
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := g.Replay(); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	})
	a := p.KeyAverages()
	var kernels []profile.Average
	for _, r := range a.Rows {
		if r.Kind == "kernel" {
			kernels = append(kernels, r)
		}
	}
	replay := rowOf(t, a, "replay")
	if len(kernels) != 1 || kernels[0].Key != "graph of 2 operations" || kernels[0].Count != 3 || replay.Count != 3 || replay.CUDATotal != kernels[0].CUDATotal {
		t.Errorf("%+v\n%+v", replay, kernels)
	}
	// in the cost model a kernel takes 2 µs to start
	if each := kernels[0].CUDATime(); each < 4*time.Microsecond || each > 20*time.Microsecond {
		t.Errorf("a replay takes %v", each)
	}
}

// TestStreamsAreNotKept checks that a profile keeps no reference to a stream. The driver must be
// able to reuse streams while the profile exists.
func TestStreamsAreNotKept(t *testing.T) {
	dev := emulate(t)
	x := tensor.Root().On(dev).Ones(8)
	seen := map[uint64]bool{}
	recorded(t, profile.Options{}, func(*profile.Profile) {
		for range 40 {
			func() {
				st, err := dev.NewStream(0)
				if err != nil {
					t.Fatal(err)
				}
				seen[st.ID()] = true
				tensor.Do(func(s *tensor.Scope) { x.In(s).AddScalar(1) }, tensor.Stream(st))
				if err := st.Synchronize(); err != nil {
					t.Fatal(err)
				}
				x.Fill(1) // the latest use of x is now on another stream
			}()
			runtime.GC()
			time.Sleep(time.Millisecond) // let cleanups run
		}
	})
	if len(seen) > 30 {
		t.Errorf("40 streams one after the other are %d of the driver's", len(seen))
	}
}
