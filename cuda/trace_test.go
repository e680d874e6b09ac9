package cuda_test

import (
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// listener is a tracer that stores all events.
type listener struct {
	mu      sync.Mutex
	spans   map[device.SpanID]device.Span
	open    []device.SpanID
	kernels []device.KernelEvent
	in      []device.Span // for each kernel, the innermost span in which it was launched
	copies  []device.CopyEvent
	syncs   []device.SyncEvent
	memory  []device.MemoryEvent
	nodes   map[uint64]string
}

func (l *listener) Wants() device.TraceWants {
	return device.TraceWants{Times: true, Shapes: true, KernelShapes: true, Memory: true}
}

func (l *listener) Begin(s device.Span) device.SpanID {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := device.NewSpanID()
	l.spans[id] = s
	l.open = append(l.open, id)
	return id
}

func (l *listener) End(id device.SpanID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.open) - 1; n >= 0 && l.open[n] == id {
		l.open = l.open[:n]
	} else {
		panic("a span is closed that is not the innermost")
	}
}

func (l *listener) Recorded(node uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes[node] = l.spans[l.open[len(l.open)-1]].Name
}

func (l *listener) Kernel(k device.KernelEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kernels = append(l.kernels, k)
	in := device.Span{}
	if n := len(l.open); n > 0 {
		in = l.spans[l.open[n-1]]
	}
	l.in = append(l.in, in)
}

func (l *listener) Copy(c device.CopyEvent) {
	l.mu.Lock()
	l.copies = append(l.copies, c)
	l.mu.Unlock()
}
func (l *listener) Sync(s device.SyncEvent) { l.mu.Lock(); l.syncs = append(l.syncs, s); l.mu.Unlock() }
func (l *listener) Memory(m device.MemoryEvent) {
	l.mu.Lock()
	l.memory = append(l.memory, m)
	l.mu.Unlock()
}

// TestTracer traces a training step on a GPU. The tracer must get its copies, waits, changes of
// memory, and kernels with their times and the ops that launched them.
func TestTracer(t *testing.T) {
	devs, err := cuda.Emulate("emulate:2,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	dev := devs[0]
	fc := nn.NewLinear(3, 5)
	nn.To(fc, dev)
	x := tensor.Root().From([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	l := &listener{spans: map[device.SpanID]device.Span{}, nodes: map[uint64]string{}}
	if !device.SetTracer(l) {
		t.Fatal("there is a tracer")
	}
	defer device.SetTracer(nil)
	tensor.Do(func(s *tensor.Scope) {
		y := fc.Forward(x.In(s).To(dev))
		y.Mul(y).Sum().Backward()
		_ = y.Mean().Item()
		_ = y.To(devs[1])
	}, tensor.Named("step"))
	if err := dev.Synchronize(); err != nil {
		t.Fatal(err)
	}
	device.SetTracer(nil)

	if len(l.open) != 0 {
		t.Errorf("%d spans are open", len(l.open))
	}
	names := map[string]int{}
	for _, s := range l.spans {
		names[s.Kind.String()+" "+s.Name]++
	}
	for _, want := range []string{"scope step", "op to", "module Linear", "op linear", "op sum", "op mean", "op item", "backward SumBackward", "backward LinearBackward", "backward AccumulateGrad"} {
		if names[want] == 0 {
			t.Errorf("no span %q among %v", want, names)
		}
	}
	var scope device.SpanID
	for id, s := range l.spans {
		if s.Kind == device.SpanScope {
			scope = id
		}
	}
	for _, s := range l.spans {
		if s.Kind != device.SpanScope && s.Scope != scope {
			t.Errorf("%v %s does not name the scope that it is in", s.Kind, s.Name)
		}
		if s.Kind == device.SpanBackward && s.Node != 0 && l.nodes[s.Node] == "" {
			t.Errorf("%s is of a node that nobody recorded", s.Name)
		}
	}
	products := 0
	for i, k := range l.kernels {
		if k.Device != device.Device(dev) || k.End < k.Start || len(k.Launches) == 0 || len(k.Shapes) == 0 {
			t.Errorf("%s: %+v", k.Primitive, k)
		}
		if l.in[i].Name == "" {
			t.Errorf("%s is in no span", k.Primitive)
		}
		if k.Primitive == "matmul" {
			products++
			// the product may have a bias, which adds 2·5 operations
			if k.Work.FLOPs != 2*2*3*5 && k.Work.FLOPs != 2*2*3*5+2*5 {
				t.Errorf("a product of %d operations, want 60 or 70", k.Work.FLOPs)
			}
		}
		for _, e := range k.Launches {
			if e.Kernel == "" || e.Grid[0] < 1 || e.Block[0] < 1 || e.Time == nil {
				t.Fatalf("%s: launch %+v", k.Primitive, e)
			}
			start, end, err := e.Time.Resolve()
			// in the cost model, a launch takes 2 µs
			if err != nil || end-start < 2*time.Microsecond || end-start > time.Millisecond {
				t.Errorf("%s took %v to %v, %v", e.Kernel, start, end, err)
			}
		}
	}
	if products != 2 { // one in the forward pass, and one for the weight's gradient
		t.Errorf("%d products", products)
	}
	var kinds []device.CopyKind
	for _, c := range l.copies {
		kinds = append(kinds, c.Kind)
		if c.Kind == device.HostToDevice && (c.Bytes != 24 || c.Pinned || !c.Blocked) || c.Kind == device.DeviceToHost && (c.Bytes != 4 || !c.Blocked) ||
			c.Kind == device.PeerToPeer && (c.Bytes != 40 || c.Blocked) {
			t.Errorf("%v of %d bytes, pinned %v, blocked %v", c.Kind, c.Bytes, c.Pinned, c.Blocked)
		}
		if _, _, err := c.Time.Resolve(); err != nil {
			t.Error(err)
		}
	}
	if len(kinds) != 3 || kinds[0] != device.HostToDevice || kinds[1] != device.DeviceToHost || kinds[2] != device.PeerToPeer {
		t.Errorf("copies %v", kinds)
	}
	if len(l.syncs) != 1 || l.syncs[0].Call != "device synchronize" {
		t.Errorf("waits %+v", l.syncs)
	}
	held := map[device.Device]map[uintptr]int{}
	for _, m := range l.memory {
		// Skip the devices of other tests, whose memory the garbage collector frees only now.
		if m.Device != device.Device(devs[0]) && m.Device != device.Device(devs[1]) {
			continue
		}
		if held[m.Device] == nil {
			held[m.Device] = map[uintptr]int{}
		}
		was, is := held[m.Device][m.Addr]
		switch {
		case m.Freed && (!is || was != m.Bytes):
			t.Errorf("%d bytes at %#x are freed on %s, %d were there", m.Bytes, m.Addr, m.Device.Name(), was)
		case m.Freed:
			delete(held[m.Device], m.Addr)
		case is:
			t.Errorf("%#x is handed out twice", m.Addr)
		default:
			held[m.Device][m.Addr] = m.Bytes
		}
	}
	left := 0
	for _, n := range held[dev] {
		left += n
	}
	if left != 4*(15+5) { // only the gradients of weight and bias may be left
		t.Errorf("%d bytes are left on the GPU, want those of the gradients, 80", left)
	}
}
