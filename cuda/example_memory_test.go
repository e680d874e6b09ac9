package cuda_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/tensor"
)

// How much memory a step takes: the peak between two resets.
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

// The pool's numbers under torch's names.
func ExampleMemoryStats() {
	gpu := emulate("64MiB")
	tensor.Do(func(s *tensor.Scope) {
		s.Ones(3)
		m := cuda.MemoryStats(gpu)
		fmt.Println(m["requested_bytes.all.current"], m["allocated_bytes.all.current"], m["allocation.small_pool.current"], m["num_ooms"])
	}, tensor.On(gpu))
	// Output: 12 512 1 0
}

// The table that torch.cuda.memory_summary prints.
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
