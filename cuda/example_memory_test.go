package cuda_test

import (
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// MaxMemoryAllocated returns the peak since the last reset. So it can measure how much memory a
// step needs.
func ExampleMaxMemoryAllocated() {
	gpu := emulate("64MiB")
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(1024, 1024) // 4 MiB
		cuda.ResetPeakMemoryStats(gpu)
		x.Add(x).Sum() // 4 MiB more, and a scalar
	}, tensor.On(gpu))
	fmt.Println(cuda.MemoryAllocated(gpu)>>20, cuda.MaxMemoryAllocated(gpu)>>20)
	fmt.Println(cuda.MemoryReserved(gpu) > 8<<20, cuda.EmptyCache(gpu) > 8<<20, cuda.MemoryReserved(gpu))
	// Output:
	// 0 8
	// true true 0
}

// MemoryStats returns the pool's statistics under torch's names.
func ExampleMemoryStats() {
	gpu := emulate("64MiB")
	tensor.Do(func(s *tensor.Scope) {
		s.Ones(3)
		m := cuda.MemoryStats(gpu)
		fmt.Println(m["requested_bytes.all.current"], m["allocated_bytes.all.current"], m["allocation.small_pool.current"], m["num_ooms"])
	}, tensor.On(gpu))
	// Output: 12 512 1 0
}

// MemorySummary returns the table that torch.cuda.memory_summary prints.
func ExampleMemorySummary() {
	gpu := emulate("64MiB")
	tensor.Do(func(s *tensor.Scope) {
		s.Ones(1 << 20)
		fmt.Println(cuda.MemorySummary(gpu, true)[:6*78])
	}, tensor.On(gpu))
	// Output:
	// |===========================================================================|
	// |                 Flambeau CUDA memory summary, device ID 0                 |
	// |---------------------------------------------------------------------------|
	// |            CUDA OOMs: 0            |        cudaMalloc retries: 0         |
	// |===========================================================================|
	// |        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
}

// A process that shares a GPU limits its fraction of the memory.
func ExampleSetMemoryFraction() {
	gpu := emulate("64MiB")
	if err := cuda.SetMemoryFraction(gpu, 0.25); err != nil {
		log.Fatal(err)
	}
	err := tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) { s.Zeros(5 << 20) }, tensor.On(gpu)) // allocates 20 MiB
	})
	fmt.Println(errors.Is(err, device.ErrOutOfMemory), strings.Contains(err.Error(), "limit 16.00 MiB"), cuda.MemoryFraction(gpu))
	// Output: true true 0.25
}

// HostMemoryStats counts the page-locked memory of all GPUs of a driver.
func ExampleHostMemoryStats() {
	gpu := emulate("64MiB")
	x := tensor.From([]float32{1, 2, 3}).PinMemory(gpu)
	defer x.Free()
	m := cuda.HostMemoryStats(gpu)
	fmt.Println(m["active_requests.current"], m["allocated_bytes.current"], m["num_host_alloc"])
	// Output: 1 4096 1
}

// MemGetInfo returns how much memory is free according to the driver, which also counts the memory
// of other programs. MaxMemoryReserved counts only the memory that this program has reserved.
func ExampleMemGetInfo() {
	gpu := emulate("64MiB")
	x := tensor.Ones(1024, 1024).To(gpu) // 4 MiB
	defer x.Free()
	free, total, err := cuda.MemGetInfo(gpu)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(free>>20, total>>20, cuda.MaxMemoryReserved(gpu)>>20)
	// Output: 60 64 4
}

// ResetAccumulatedMemoryStats sets the totals to zero. So a program can measure how much memory one
// of its parts allocates in total.
func ExampleResetAccumulatedMemoryStats() {
	gpu := emulate("64MiB")
	step := func() {
		tensor.Do(func(s *tensor.Scope) { s.Zeros(1024, 1024) }, tensor.On(gpu))
	}
	step()
	cuda.ResetAccumulatedMemoryStats(gpu)
	step()
	step()
	fmt.Println(cuda.MemoryStats(gpu)["allocated_bytes.all.allocated"]>>20, "MiB")
	// Output: 8 MiB
}

// With expandable segments, a segment grows by pages of 2 MiB, and its free memory can serve any
// size (expandable_segments:True).
func ExampleDevice_SetExpandableSegments() {
	gpu := emulate("64MiB").(*cuda.Device)
	if err := gpu.SetExpandableSegments(true); err != nil {
		log.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		s.Zeros(1<<20 + 1) // slightly more than 4 MiB
		fmt.Println(gpu.ExpandableSegments(), cuda.MemoryReserved(gpu)>>20, "MiB")
	}, tensor.On(gpu))
	// Output: true 6 MiB
}

// FailAlloc makes a later request for memory fail. A test uses it to see how a program handles a
// lack of memory.
func ExampleDevice_FailAlloc() {
	gpu := emulate("64MiB").(*cuda.Device)
	if err := gpu.FailAlloc(1); err != nil {
		log.Fatal(err)
	}
	step := func() { tensor.Do(func(s *tensor.Scope) { s.Zeros(1 << 20) }, tensor.On(gpu)) }
	fmt.Println(errors.Is(tensor.Try(step), device.ErrOutOfMemory), tensor.Try(step))
	// Output: true <nil>
}

// After a reset, the statistics of page-locked memory count only what the program does from then
// on. EmptyPinned gives unused blocks back.
func ExampleResetPeakHostMemoryStats() {
	gpu := emulate("64MiB")
	pin := func(n int) { tensor.Do(func(s *tensor.Scope) { s.Zeros(n).PinMemory(gpu) }) }
	pin(1 << 20)
	cuda.ResetPeakHostMemoryStats(gpu)
	cuda.ResetAccumulatedHostMemoryStats(gpu)
	pin(1 << 10)
	m := cuda.HostMemoryStats(gpu)
	fmt.Println(m["active_bytes.peak"]>>10, "KiB in use at most,", m["active_requests.allocated"], "block asked for")
	fmt.Println(gpu.(device.PinnedAllocator).EmptyPinned() >= 4<<20, cuda.HostMemoryStats(gpu)["allocated_bytes.current"])
	// Output:
	// 4 KiB in use at most, 1 block asked for
	// true 0
}

// A snapshot shows memory by category. It finds gradients, activations and an optimizer's state by
// the recorded call stacks. The program labels its other memory itself.
func ExampleMemorySnapshot() {
	gpu := emulate("64MiB")
	if err := cuda.RecordMemoryHistory(gpu, device.MaxHistoryEntries(1000)); err != nil {
		log.Fatal(err)
	}
	model := nn.To(nn.NewLinear(64, 64, nn.NoBias()), gpu)
	opt := optim.NewAdam(nn.Parameters(model), optim.AdamConfig{LR: 1e-3})
	var snap *device.MemorySnapshot
	tensor.Do(func(s *tensor.Scope) {
		y := model.Forward(s.On(gpu).Ones(32, 64))
		y.Sum().Backward()
		opt.Step()
		var err error
		if snap, err = cuda.MemorySnapshot(gpu); err != nil { // y is still in use
			log.Fatal(err)
		}
	})
	snap.Label(device.CategoryParameter, model.Weight.DataPtr())
	held := map[string]uint64{}
	for _, segment := range snap.Segments {
		for _, b := range segment.Blocks {
			held[b.Category] += b.Requested >> 10
		}
	}
	for _, c := range []string{device.CategoryParameter, device.CategoryGradient, device.CategoryOptimizer, device.CategoryActivation} {
		fmt.Println(c, held[c], "KiB")
	}
	fmt.Println(cuda.StopMemoryHistory(gpu))
	// Output:
	// parameter 16 KiB
	// gradient 16 KiB
	// optimizer state 32 KiB
	// activation 8 KiB
	// <nil>
}
