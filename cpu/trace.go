package cpu

import "github.com/flambeau-go/flambeau/device"

// tracedCopy begins a copy of host memory that a tracer hears of when what it returns is called.
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
