package cpu

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// primitive is one that runs and that a tracer hears of when it is over.
type primitive struct {
	t     device.Tracer
	event device.KernelEvent
}

// traced begins a primitive that a tracer hears of when done is called. Primitives on a nil stream are parts of others, whose work holds
// theirs; they are not told.
func (d *Device) traced(t device.Tracer, s device.Stream, name string, w device.Work, typ dtype.Type, shapes []shape.Dims) primitive {
	return primitive{t, device.KernelEvent{Device: d, Stream: s, Primitive: name, Work: w, Type: typ, Shapes: shapes, Start: device.Now()}}
}

func (p primitive) done() {
	p.event.End = device.Now()
	p.t.Kernel(p.event)
}

// tracedCopy is traced for copies of host memory.
func (d *Device) tracedCopy(t device.Tracer, s device.Stream, op string, bytes int) func() {
	start := device.Now()
	return func() {
		t.Copy(device.CopyEvent{Device: d, Stream: s, Kind: device.HostToHost, Op: op, Bytes: bytes, Blocked: true, Start: start, End: device.Now()})
	}
}

// told tells a tracer of memory that is handed out or taken back.
func (b *buffer) told(t device.Tracer, freed, queued bool, o device.Origin) {
	if !t.Wants().Memory || b.release != nil {
		return
	}
	in := -1
	if !queued && b.block != nil {
		in = int(b.dev.pool.InUse())
	}
	t.Memory(device.MemoryEvent{Device: b.dev, Addr: b.Addr(), Bytes: len(b.mem), Freed: freed, Origin: o, InUse: in})
}
