package train

import (
	"strings"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// phase is a part of a training step.
type phase uint8

const (
	building phase = iota
	forward
	backward
	updating
	between
)

func (p phase) String() string {
	return [...]string{"building", "forward", "backward", "optimizer", "between passes"}[p]
}

// kind is the purpose of a block of memory.
type kind uint8

const (
	workspace kind = iota
	weights
	gradient
	remembered
	activation
	older // allocated before the step
)

type block struct {
	bytes int
	op    string
	kind  kind
}

// change is the allocation of a block, or its release if freed is true.
type change struct {
	b     *block
	freed bool
}

// ignoringTracer is a tracer that ignores all events. Tracers that handle only some events embed
// it.
type ignoringTracer struct{}

func (ignoringTracer) Wants() device.TraceWants        { return device.TraceWants{} }
func (ignoringTracer) Begin(device.Span) device.SpanID { return 0 }
func (ignoringTracer) End(device.SpanID)               {}
func (ignoringTracer) Recorded(uint64)                 {}
func (ignoringTracer) Kernel(device.KernelEvent)       {}
func (ignoringTracer) Copy(device.CopyEvent)           {}
func (ignoringTracer) Sync(device.SyncEvent)           {}
func (ignoringTracer) Memory(device.MemoryEvent)       {}

// planTrace traces the work of one device.
type planTrace struct {
	ignoringTracer
	dev     device.Device
	machine *Machine
	report  *Report

	mu       sync.Mutex
	phase    phase
	live     map[uintptr]*block
	modules  map[string]bool // names of the launched kernels
	measured bool
	start    []*block // blocks in use when the measured step began
	changes  []change // changes since the measured step began
	peak     int
	peakAt   int // number of changes before the peak
	peakOp   string
}

var _ device.Tracer = (*planTrace)(nil)

// Wants requests memory events. If the plan is for a CPU, it also requests the shapes of kernels,
// because the CPU's measured rates depend on them.
func (t *planTrace) Wants() device.TraceWants {
	return device.TraceWants{Memory: true, KernelShapes: t.machine.cpu != nil}
}

// Kernel adds a primitive's work and time to the report.
func (t *planTrace) Kernel(k device.KernelEvent) {
	if k.Device != t.dev {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.measured {
		return
	}
	r := t.report
	f := k.Work.FLOPs
	switch t.phase {
	case forward:
		r.FLOPs.Forward += f
	case backward:
		r.FLOPs.Backward += f
	default:
		r.FLOPs.Optimizer += f
	}
	if k.Class == device.ByProducts {
		r.FLOPs.MatMul += f
	}
	r.Bytes += k.Work.Bytes
	n := max(1, len(k.Launches))
	r.Kernels += n
	r.Seconds += t.machine.seconds(&k, n)
	if r.Least != nil {
		t.countGPU(&k)
	}
}

// Copy adds a copy's time to the report.
func (t *planTrace) Copy(c device.CopyEvent) {
	if c.Device != t.dev {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.measured {
		return
	}
	t.report.Seconds += t.machine.copySeconds(&c)
	if t.report.Least != nil && c.Kind == device.DeviceToDevice {
		for i := range gpus {
			t.report.Least[gpus[i].Name] += gpus[i].withinSeconds(&c)
		}
	}
}

// Memory records an allocation or a release. On a CPU it leaves out small buffers, which the pool
// does not count.
func (t *planTrace) Memory(m device.MemoryEvent) {
	if m.Device != t.dev || m.Pinned || t.dev.Info().Host && m.Bytes < device.PlainBytes {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var b *block
	if m.Freed {
		if b = t.live[m.Addr]; b == nil {
			return
		}
		delete(t.live, m.Addr)
	} else {
		b = &block{bytes: m.Bytes, op: m.Origin.Op}
		t.live[m.Addr] = b
	}
	if !t.measured {
		return
	}
	t.changes = append(t.changes, change{b, m.Freed})
	if m.InUse > t.peak {
		t.peak, t.peakAt, t.peakOp = m.InUse, len(t.changes), b.op+", "+t.phase.String()
	}
}

func (t *planTrace) enter(p phase) {
	t.mu.Lock()
	t.phase = p
	t.mu.Unlock()
}

// begin starts the report after the model has been built.
func (t *planTrace) begin(p *PlannedStep) {
	t.report = &Report{Parameters: nn.Count(p.Model)}
	if !strings.HasPrefix(t.machine.Kind, "cpu") {
		t.report.Least = map[string]float64{}
	}
	for _, x := range nn.Named(p.Model) {
		t.mark(x.Tensor, weights)
	}
}

// mark records k as the purpose of a tensor's memory.
func (t *planTrace) mark(x *tensor.Tensor, k kind) {
	if x == nil || x.Device() != t.dev {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if b := t.live[x.Storage().Addr()]; b != nil && (b.kind == workspace || b.kind == older) {
		b.kind = k
	}
}

// measure begins the measured step, which Plan reports.
func (t *planTrace) measure() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.live {
		if b.kind != weights {
			b.kind = older
		}
		t.start = append(t.start, b)
	}
	t.dev.ResetPeak()
	t.peak = t.dev.Stats().Allocated
	t.measured = true
}

// forwarded marks the blocks that are in use after the forward pass as activations.
func (t *planTrace) forwarded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range t.live {
		if b.kind == workspace {
			b.kind = activation
		}
	}
}

// gradients marks the memory of the parameters' gradients.
func (t *planTrace) gradients(p *PlannedStep) {
	for _, x := range nn.Parameters(p.Model) {
		t.mark(x.Grad(), gradient)
	}
}

// finish completes the report.
func (t *planTrace) finish(p *PlannedStep) {
	if p.Optimizer != nil {
		t.markTree(p.Optimizer.StateDict())
	}
	st := t.dev.Stats()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.measured = false
	r := t.report
	r.Peak, r.Reserved, r.At = st.AllocatedPeak, st.ReservedPeak, t.peakOp
	sum := map[kind]int{}
	for _, b := range t.start {
		sum[b.kind] += b.bytes
	}
	for _, c := range t.changes[:t.peakAt] {
		if c.freed {
			sum[c.b.kind] -= c.b.bytes
		} else {
			sum[c.b.kind] += c.b.bytes
		}
	}
	d := Breakdown{Weights: sum[weights], Gradients: sum[gradient], Optimizer: sum[remembered], Activations: sum[activation],
		Workspace: sum[workspace], Other: sum[older]}
	d.Rounding = r.Peak - d.total()
	r.Modules = len(t.modules)
	r.Breakdown = d
}

// markTree marks the tensors of an optimizer's state.
func (t *planTrace) markTree(v any) {
	switch v := v.(type) {
	case *tensor.Tensor:
		t.mark(v, remembered)
	case map[string]any:
		for _, e := range v {
			t.markTree(e)
		}
	case map[int64]any:
		for _, e := range v {
			t.markTree(e)
		}
	case []any:
		for _, e := range v {
			t.markTree(e)
		}
	}
}
