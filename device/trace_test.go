package device_test

import (
	"errors"
	"fmt"
	"log"
	"slices"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/device/devicetest"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// counter is a tracer that counts events.
type counter struct {
	mu      sync.Mutex
	events  map[string]int
	kernels []device.KernelEvent
	wants   device.TraceWants
}

func (c *counter) add(k string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events == nil {
		c.events = map[string]int{}
	}
	c.events[k]++
}

func (c *counter) Wants() device.TraceWants { return c.wants }
func (c *counter) Begin(s device.Span) device.SpanID {
	c.add(s.Kind.String() + " " + s.Name)
	return device.NewSpanID()
}
func (c *counter) End(device.SpanID) {}
func (c *counter) Recorded(uint64)   {}
func (c *counter) Kernel(k device.KernelEvent) {
	c.add("kernel " + k.Primitive)
	c.kernels = append(c.kernels, k)
}
func (c *counter) Copy(e device.CopyEvent)     { c.add("copy " + e.Kind.String()) }
func (c *counter) Sync(e device.SyncEvent)     { c.add("sync " + e.Call) }
func (c *counter) Memory(m device.MemoryEvent) { c.add("memory") }

// TestOneTracer sets a second tracer while another one is set. SetTracer must refuse it until the
// first is removed.
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

// testDevice is a device whose method Run calls the field run.
type testDevice struct {
	device.Device
	run func(s device.Stream, op device.Op, told *device.KernelEvent) error
}

func (p *testDevice) Name() string                 { return "puppet" }
func (p *testDevice) DefaultStream() device.Stream { return &testStream{dev: p} }
func (p *testDevice) Run(s device.Stream, op device.Op, told *device.KernelEvent) error {
	return p.run(s, op, told)
}

func (*testDevice) Owns(device.Buffer) string { return "" }

type testStream struct {
	device.Stream
	dev *testDevice
}

func (s *testStream) Device() device.Device { return s.dev }

// testBuffer is a buffer without memory.
type testBuffer struct{ device.Buffer }

func (testBuffer) Size() int { return 1 << 60 }

// TestRunTells checks that Run reports each op that has run. The event must describe the op and
// contain the device's launches.
func TestRunTells(t *testing.T) {
	dev := &testDevice{}
	launch := device.LaunchEvent{Kernel: "k"}
	for _, shapes := range []bool{true, false} {
		for _, op := range devicetest.Ops(dense) {
			c, ran := &counter{wants: device.TraceWants{KernelShapes: shapes}}, false
			dev.run = func(s device.Stream, o device.Op, told *device.KernelEvent) error {
				if _, ok := s.(*testStream); !ok || o != op {
					t.Errorf("%s: stream %v, op %+v", op.Name(), s, o)
				}
				ran = true
				told.Launches, told.Recorded = append(told.Launches, launch), true
				return nil
			}
			before := device.Now()
			device.SetTracer(c)
			err := device.Run(dev, nil, op)
			device.SetTracer(nil)
			if err != nil || !ran || len(c.kernels) != 1 {
				t.Fatalf("%s: error %v, ran %v, told %+v", op.Name(), err, ran, c.kernels)
			}
			k, first := c.kernels[0], op.Operand(0)
			for i := 1; first.View.Absent(); i++ {
				first = op.Operand(i)
			}
			if k.Device != dev || k.Primitive != op.Name() || k.Work != op.Work() || k.Work == (device.Work{}) ||
				k.Type != first.View.Type || k.Start < before || k.End < k.Start || !k.Recorded ||
				len(k.Launches) != 1 || k.Launches[0] != launch {
				t.Errorf("%s: told %+v", op.Name(), k)
			}
			if _, ok := k.Stream.(*testStream); !ok {
				t.Errorf("%s: told of stream %v", op.Name(), k.Stream)
			}
			var want []shape.Dims
			for i := 0; shapes && op.Operand(i).View != nil; i++ {
				if v := op.Operand(i).View; !v.Absent() {
					want = append(want, v.Shape)
				}
			}
			if !slices.Equal(k.Shapes, want) {
				t.Errorf("%s: told shapes %v, want %v", op.Name(), k.Shapes, want)
			}
		}
	}
}

// TestRunTellsNothing runs ops that are refused, fail or have nothing to do. Run must report no
// event.
func TestRunTellsNothing(t *testing.T) {
	c := &counter{}
	device.SetTracer(c)
	defer device.SetTracer(nil)
	x, none := dense(dtype.F32, 2, 3), dense(dtype.F32, 0, 3)
	failed := errors.New("failed")
	ran := 0
	dev := &testDevice{run: func(_ device.Stream, _ device.Op, told *device.KernelEvent) error {
		ran++
		if told != nil {
			return failed
		}
		return nil
	}}
	var refused *device.OperandError
	if err := device.Run(dev, nil, &device.Softmax{Out: x, X: none}); !errors.As(err, &refused) || ran != 0 {
		t.Errorf("an op that does not fit: %v, and it ran %d times", err, ran)
	}
	if err := device.Run(dev, nil, &device.Softmax{Out: x, X: x}); err != failed || ran != 1 {
		t.Errorf("an op that fails: %v, and it ran %d times", err, ran)
	}
	if err := device.Run(dev, nil, &device.Softmax{Out: none, X: none}); err != nil || ran != 2 {
		t.Errorf("an op without work: %v, and it ran %d times", err, ran)
	}
	if len(c.events) != 0 {
		t.Errorf("told: %v", c.events)
	}
}

// BenchmarkTracingOff measures the cost of an event without a tracer, which is one atomic load.
func BenchmarkTracingOff(b *testing.B) {
	for b.Loop() {
		if device.Tracing() != nil {
			b.Fatal("tracing")
		}
	}
}

// A tracer is called for every primitive on every device. The tracer of this example counts the
// calls.
func ExampleSetTracer() {
	dev, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	s := dev.DefaultStream()
	c := &counter{wants: device.TraceWants{Memory: true}}
	device.SetTracer(c)
	defer device.SetTracer(nil)
	b, err := dev.Alloc(12, s, device.Origin{Op: "example"})
	if err != nil {
		log.Fatal(err)
	}
	defer b.Free()
	ones := expr.MustLower([]*expr.Expr{expr.C(1)}, []dtype.Type{dtype.F32}, nil, -1)
	v := device.View{Buf: b, Type: dtype.F32, Layout: shape.Dense(shape.Of(3))}
	if err := device.Run(dev, s, &device.Map{Program: ones, Outs: []device.View{v}}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.events["kernel map"], c.events["memory"])
	// Output:
	// 1 1
}
