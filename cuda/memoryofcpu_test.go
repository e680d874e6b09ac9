package cuda_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestMemoryAllocatedOfCPU checks which memory of the CPU MemoryAllocated counts: buffers of 8 KiB
// and more.
func TestMemoryAllocatedOfCPU(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		cpu := s.Device()
		for _, c := range []struct{ elements, counted int }{{1, 0}, {device.PlainBytes/4 - 1, 0}, {device.PlainBytes / 4, device.PlainBytes}, {1 << 20, 4 << 20}} {
			before := cuda.MemoryAllocated(cpu)
			s.Zeros(c.elements)
			if got := cuda.MemoryAllocated(cpu) - before; got != c.counted {
				t.Errorf("of %d elements of float32 %d bytes are counted, it should be %d", c.elements, got, c.counted)
			}
		}
	})
}
