package cuda_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// historyOfSteps records the memory history of two training steps on an emulated GPU.
func historyOfSteps(t *testing.T) (*nn.Sequential, *cuda.Device) {
	gpu := emulated(t, "64MiB")
	if err := cuda.RecordMemoryHistory(gpu); err != nil {
		t.Fatal(err)
	}
	m := nn.To(nn.NewSequential(nn.NewLinear(32, 64), nn.GELU{}, nn.NewLinear(64, 10)), gpu)
	opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 0.01})
	for range 2 {
		tensor.Do(func(s *tensor.Scope) {
			x := s.On(gpu).Randn(16, 32)
			var loss *tensor.Tensor
			s.Do(func(f *tensor.Scope) { loss = m.Forward(x.In(f)).Square().Mean(); f.Close(loss) }, tensor.Named("forward"))
			loss.Backward()
			opt.Step()
		}, tensor.Named("step"))
	}
	return m, gpu
}

// TestMemoryHistory looks for a training step's memory by op, shape, call site, scope and category.
// Every search must find it.
func TestMemoryHistory(t *testing.T) {
	m, gpu := historyOfSteps(t)
	s, err := cuda.MemorySnapshot(gpu)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Recording || s.Device != "cuda:0" || !s.Emulated || s.Product != gpu.Info().Name || s.Total != 64<<20 || s.Dropped != 0 {
		t.Fatalf("snapshot of %s (%s), emulated %v, recording %v, total %d, dropped %d", s.Device, s.Product, s.Emulated, s.Recording, s.Total, s.Dropped)
	}
	if got := gpu.Stats(); uint64(got.Allocated) != s.Allocated || uint64(got.Reserved) != s.Reserved || uint64(got.AllocatedPeak) != s.AllocatedPeak {
		t.Errorf("stats %+v, snapshot %d of %d", got, s.Allocated, s.Reserved)
	}
	allocs := map[string]int{}
	inForward := 0
	for _, e := range s.Events {
		if e.Action == device.ActionAlloc {
			allocs[e.Category]++
			own := s.Owners[e.Owner]
			if own.Op == "" || !strings.HasPrefix(own.Where, "cuda/history_test.go:") || e.Stack == 0 {
				t.Errorf("an allocation of %+v", own)
			}
			if own.Scope == "step/forward" {
				inForward++
			}
		}
	}
	for _, c := range []string{device.CategoryParameter, device.CategoryGradient, device.CategoryOptimizer, device.CategoryActivation, device.CategoryOther} {
		if allocs[c] == 0 {
			t.Errorf("no allocation of category %q in %v", c, allocs)
		}
	}
	if inForward == 0 || inForward == len(s.Events) {
		t.Errorf("%d of %d events are of the scope step/forward", inForward, len(s.Events))
	}
	live := func() map[string]int {
		n := map[string]int{}
		for _, g := range s.Segments {
			for _, b := range g.Blocks {
				if b.State == device.BlockActiveAllocated {
					n[b.Category]++
				}
			}
		}
		return n
	}
	// There are 4 parameters, 4 gradients, and 2 moments of each parameter. A step must keep no
	// other memory.
	if n := live(); n[device.CategoryParameter] != 4 || n[device.CategoryOptimizer] < 8 || n[device.CategoryActivation] != 0 {
		t.Errorf("live blocks by category: %v", n)
	}
	var grads []uintptr
	for _, p := range nn.Parameters(m) {
		grads = append(grads, p.Grad().DataPtr())
	}
	if n := s.Label("the gradients", grads...); n != 4 {
		t.Errorf("%d gradients were found", n)
	}
	if n := live(); n["the gradients"] != 4 {
		t.Errorf("live blocks by category: %v", n)
	}
	if n := s.Label("nothing", 0, 1<<62); n != 0 {
		t.Errorf("%d blocks at addresses that are none", n)
	}
	cuda.StopMemoryHistory(gpu)
	if s := gpu.MemorySnapshot(); s.Recording || len(s.Events) != 0 || s.Allocated == 0 {
		t.Errorf("after the end: recording %v, %d events", s.Recording, len(s.Events))
	}
}

// TestMemoryHistoryOnCPU checks that the CPU's larger buffers are recorded like those of a GPU.
func TestMemoryHistoryOnCPU(t *testing.T) {
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	h := cpu.(device.MemoryHistorian)
	h.RecordMemoryHistory(device.MaxHistoryEntries(1000))
	defer h.StopMemoryHistory()
	tensor.Do(func(s *tensor.Scope) { s.On(cpu).Zeros(1<<10, 1<<10) })
	found := false
	for _, e := range h.MemorySnapshot().Events {
		found = found || e.Action == device.ActionAlloc && e.Requested == 4<<20
	}
	if !found {
		t.Error("the allocation of 4 MiB is not in the history")
	}
}

// noHistory is a device that is not a [device.MemoryHistorian].
type noHistory struct{ device.Device }

func TestNoHistory(t *testing.T) {
	d := noHistory{emulated(t, "8MiB")}
	_, err := cuda.MemorySnapshot(d)
	for _, err := range []error{err, cuda.RecordMemoryHistory(d), cuda.StopMemoryHistory(nil)} {
		if !errors.Is(err, device.ErrNoHistory) {
			t.Errorf("got %v", err)
		}
	}
}

// The memory history says which op allocated memory, and at which line of the program. Package
// profile/memsnap draws it.
func ExampleRecordMemoryHistory() {
	gpu := emulate("64MiB")
	if err := cuda.RecordMemoryHistory(gpu, device.MaxHistoryEntries(10_000)); err != nil {
		fmt.Println(err)
		return
	}
	w := tensor.Ones(4, 4).To(gpu)
	snap, err := cuda.MemorySnapshot(gpu)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(snap.Label(device.CategoryParameter, w.DataPtr()))
	for _, e := range snap.Events {
		if e.Action == device.ActionAlloc {
			o := snap.Owners[e.Owner]
			fmt.Println(e.Action, e.Requested, o.Op, o.Shape, o.Type, e.Category)
		}
	}
	// Output:
	// 1
	// alloc 64 to [4 4] float32 parameter
}
