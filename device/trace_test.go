package device_test

import (
	"fmt"
	"log"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// counter is a tracer that counts.
type counter struct {
	mu     sync.Mutex
	events map[string]int
}

func (c *counter) add(k string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events == nil {
		c.events = map[string]int{}
	}
	c.events[k]++
}

func (c *counter) Wants() device.TraceWants {
	return device.TraceWants{Shapes: true, KernelShapes: true, Memory: true}
}
func (c *counter) Begin(s device.Span) device.SpanID {
	c.add(s.Kind.String() + " " + s.Name)
	return device.NewSpanID()
}
func (c *counter) End(device.SpanID)           {}
func (c *counter) Recorded(uint64)             {}
func (c *counter) Kernel(k device.KernelEvent) { c.add("kernel " + k.Primitive) }
func (c *counter) Copy(e device.CopyEvent)     { c.add("copy " + e.Kind.String()) }
func (c *counter) Sync(e device.SyncEvent)     { c.add("sync " + e.Call) }
func (c *counter) Memory(m device.MemoryEvent) { c.add("memory") }

// One tracer at a time: the second is refused until the first is taken away.
func TestOneTracer(t *testing.T) {
	a, b := &counter{}, &counter{}
	if device.Tracing() != nil {
		t.Fatal("a tracer is set at the start")
	}
	if !device.SetTracer(a) || device.SetTracer(b) || device.Tracing() != a {
		t.Fatal("the second tracer was not refused")
	}
	device.SetTracer(nil)
	if device.Tracing() != nil || !device.SetTracer(b) {
		t.Fatal("the tracer was not taken away")
	}
	device.SetTracer(nil)
	if n := testing.AllocsPerRun(100, func() { device.Tracing() }); n != 0 {
		t.Errorf("%v allocations to ask for a tracer", n)
	}
}

// What drivers hear when nothing traces costs a load.
func BenchmarkTracingOff(b *testing.B) {
	for b.Loop() {
		if device.Tracing() != nil {
			b.Fatal("tracing")
		}
	}
}

// A tracer hears of every primitive, on whatever device; this one counts them.
func ExampleSetTracer() {
	dev, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	s := dev.DefaultStream()
	c := &counter{}
	device.SetTracer(c)
	defer device.SetTracer(nil)
	b, err := dev.Alloc(12, s, device.Origin{Op: "example"})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Free()
	ones := expr.MustLower([]*expr.Expr{expr.C(1)}, []dtype.Type{dtype.F32}, nil, -1)
	v := device.View{Buf: b, Type: dtype.F32, Layout: shape.Dense(shape.Of(3))}
	if err := dev.Map(s, ones, []device.View{v}, nil, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.events["kernel map"], c.events["memory"])
	// Output:
	// 1 1
}
