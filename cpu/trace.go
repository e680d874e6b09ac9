package cpu

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// traced begins a primitive that a tracer hears of when the returned function runs. Primitives on a nil stream are parts of others, whose
// work holds theirs; they are not told.
func (d *Device) traced(t device.Tracer, s device.Stream, primitive string, w device.Work, typ dtype.Type, shapes []shape.Dims) func() {
	start := device.Now()
	return func() {
		t.Kernel(device.KernelEvent{Device: d, Stream: s, Primitive: primitive, Work: w, Type: typ, Shapes: shapes, Start: start, End: device.Now()})
	}
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
		in = int(b.dev.pool.Stats().AllocatedBytes.Current)
	}
	t.Memory(device.MemoryEvent{Device: b.dev, Addr: b.Addr(), Bytes: len(b.mem), Freed: freed, Origin: o, InUse: in})
}
