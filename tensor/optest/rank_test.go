package optest

import (
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/device"
)

// foreignWork counts allocations and kernels on device dev, by op.
type foreignWork struct {
	dev device.Device
	mu  sync.Mutex
	ops map[string]int
	all int // number of allocations and kernels on other devices
}

func (c *foreignWork) Wants() device.TraceWants             { return device.TraceWants{Memory: true} }
func (c *foreignWork) Begin(device.Span) (id device.SpanID) { return 0 }
func (c *foreignWork) End(device.SpanID)                    {}
func (c *foreignWork) Recorded(uint64)                      {}
func (c *foreignWork) Copy(device.CopyEvent)                {}
func (c *foreignWork) Sync(device.SyncEvent)                {}

func (c *foreignWork) Kernel(k device.KernelEvent) { c.note(k.Device, k.Primitive) }

func (c *foreignWork) Memory(m device.MemoryEvent) {
	if !m.Freed {
		c.note(m.Device, m.Origin.Op)
	}
}

func (c *foreignWork) note(d device.Device, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d == c.dev {
		c.ops[what]++
	} else {
		c.all++
	}
}

// TestRank tests all ops on a rank of the CPU. The rank uses host memory like the CPU, but is
// another device. No op may allocate memory on the CPU or compute there.
func TestRank(t *testing.T) {
	d, err := device.Open("cpu:1")
	if err != nil {
		t.Fatal(err)
	}
	c := &foreignWork{dev: hostDevice(), ops: map[string]int{}}
	if !device.SetTracer(c) {
		t.Fatal("there is another tracer")
	}
	defer device.SetTracer(nil)
	Run(t, d, Options{Small: true})
	for op, n := range c.ops {
		t.Errorf("%s went to the CPU %d times", op, n)
	}
	if c.all == 0 {
		t.Error("the tracer heard of no memory")
	}
}
