package cpu

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/pool"
)

// meta is a CPU without memory, as [device.OpenMeta] returns it. Its pool works like that of
// [Device], but on addresses without memory. For the same program, its Stats therefore have the
// same values as those of [Device]. Stats do not count buffers of less than 8 KiB, nor the Go
// memory that primitives use internally.
type meta struct {
	memory int
	pool   *pool.Pool
	main   stream
	next   atomic.Uint64 // number of the stream that was created last
	small  atomic.Uint64 // address of the small buffer that was allocated last
}

var _ device.MetaDriver = driver{}

// OpenMeta returns a new CPU without memory.
func (driver) OpenMeta(c device.MetaConfig) (device.Device, error) {
	if c.Memory < 0 {
		return nil, &device.UnavailableError{Name: "cpu", Reason: fmt.Sprintf("%d bytes of memory are negative", c.Memory), Help: "0 is no limit"}
	}
	d := &meta{memory: c.Memory}
	if d.memory == 0 {
		d.memory = min(4<<40, math.MaxInt)
	}
	d.main.dev = d
	d.pool = pool.New(&addresses{}, poolOptions("cpu"))
	d.pool.SetLimit(uint64(d.memory))
	return d, nil
}

// addresses gives a pool addresses that have no memory.
type addresses struct{ next atomic.Uint64 }

var _ pool.Backing = (*addresses)(nil)

func (a *addresses) Alloc(size uint64) (uintptr, error) {
	const page = 2 << 20
	n := (size + 2*page - 1) / page * page // leave a gap between segments
	const first = min(1<<40, math.MaxInt/2+1)
	return uintptr(first + a.next.Add(n) - n), nil
}
func (*addresses) Free(uintptr, uint64)                     {}
func (*addresses) Capacity() (free, total uint64)           { return 0, 0 }
func (*addresses) Record(pool.StreamID) (pool.Event, error) { return noEvent{}, nil }
func (*addresses) Done(pool.Event) bool                     { return true }
func (*addresses) Wait(pool.Event)                          {}

// metaBuffer is a buffer without memory.
type metaBuffer struct {
	dev   *meta
	size  int
	addr  uintptr
	block *pool.Block // block of the pool; nil if the buffer is too small to come from the pool
	gen   uint64
	freed atomic.Bool
}

func (b *metaBuffer) Device() device.Device { return b.dev }
func (b *metaBuffer) Size() int             { return b.size }
func (b *metaBuffer) Host() []byte          { return nil }
func (b *metaBuffer) Use(device.Stream)     {}

func (b *metaBuffer) Addr() uintptr {
	return b.addr
}

// Free gives the addresses back to the pool. A second call has no effect.
func (b *metaBuffer) Free() {
	if b.freed.Swap(true) {
		return
	}
	if b.block != nil {
		b.dev.pool.Free(b.block, b.gen)
	}
	if t := device.Tracing(); t != nil {
		b.report(t, true, false, device.Origin{})
	}
}

// Queue frees the addresses like Free. The garbage collector's cleanups call it.
func (b *metaBuffer) Queue() {
	if b.freed.Swap(true) {
		return
	}
	if b.block != nil {
		b.dev.pool.Queue(b.block, b.gen)
	}
	if t := device.Tracing(); t != nil {
		b.report(t, true, true, device.Origin{})
	}
}

// Alloc returns a buffer without memory.
func (d *meta) Alloc(bytes int, s device.Stream, o device.Origin) (device.Buffer, error) {
	if bytes < 0 {
		return nil, operandError(d.Name(), "alloc", "bytes", fmt.Sprintf("%d is negative", bytes))
	}
	b := &metaBuffer{dev: d, size: bytes}
	r := recordingOf(s)
	if bytes >= device.PlainBytes || r != nil && bytes > 0 {
		var arena pool.StreamID
		if r != nil {
			arena = r.arena
		}
		var err error
		if b.block, err = d.pool.Alloc(uint64(bytes), arena, poolOrigin(&o)); err != nil {
			return nil, err
		}
		b.gen, b.addr = b.block.Generation(), b.block.Addr()
	} else {
		// give each small buffer a different address
		b.addr = uintptr(d.small.Add(device.PlainBytes) + 1<<50)
	}
	if t := device.Tracing(); t != nil {
		b.report(t, false, false, o)
	}
	return b, nil
}

// report reports an allocation or a free to a tracer.
func (b *metaBuffer) report(t device.Tracer, freed, queued bool, o device.Origin) {
	if !t.Wants().Memory {
		return
	}
	in := -1
	if !queued {
		in = b.dev.Stats().Allocated
	}
	t.Memory(device.MemoryEvent{Device: b.dev, Addr: b.Addr(), Bytes: b.size, Freed: freed, Origin: o, InUse: in})
}

func (d *meta) Name() string   { return "cpu" }
func (d *meta) String() string { return "cpu (meta)" }

// Info describes the CPU. The memory size is the one that was given when the device was opened.
func (d *meta) Info() device.Info {
	return device.Info{Kind: "cpu", Host: true, Name: processor(), Meta: true, Memory: d.memory, Cores: runtime.NumCPU(), SIMD: asm.Active(), Interpreted: interpreted()}
}

// Stats returns the counts of the pool, whose addresses have no memory.
func (d *meta) Stats() device.Stats          { return poolStats(d.pool) }
func (d *meta) ResetPeak()                   { d.pool.ResetPeak() }
func (d *meta) Empty() int                   { return int(d.pool.Empty()) }
func (d *meta) Synchronize() error           { return nil }
func (d *meta) DefaultStream() device.Stream { return &d.main }
func (d *meta) NewStream(int) (device.Stream, error) {
	return d.newStream(), nil
}
