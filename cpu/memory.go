package cpu

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/pool"
	"github.com/flambeau-go/flambeau/internal/pool/hostmem"
)

// pooled is the size from which a buffer comes from the pool, in bytes.
const pooled = 64 << 10

// memory is the pool's backing. There is only one stream to it and its events are always done,
// because a method returns when its work is done.
type memory struct {
	hostmem.Memory
	shared atomic.Bool // whether it keeps within the bound of all devices together
}

// reserved is what the pools of all devices have from the system, in bytes.
var reserved atomic.Uint64

// Alloc is that of [hostmem.Memory], within the bound of all devices together.
func (m *memory) Alloc(size uint64) (uintptr, error) {
	for limit := most(); ; {
		held := reserved.Load()
		if m.shared.Load() && limit > 0 && (held > limit || size > limit-held) {
			return 0, fmt.Errorf("the devices of the processor have %d MiB of at most %d MiB: %w",
				held>>20, limit>>20, pool.ErrNoMemory)
		}
		if reserved.CompareAndSwap(held, held+size) {
			break
		}
	}
	addr, err := m.Memory.Alloc(size)
	if err != nil {
		reserved.Add(-size)
	}
	return addr, err
}

// Free gives a segment back to the system.
func (m *memory) Free(addr uintptr, size uint64) {
	m.Memory.Free(addr, size)
	reserved.Add(-size)
}

type noEvent struct{}

func (noEvent) Release() {}

func (*memory) Record(pool.StreamID) (pool.Event, error) { return noEvent{}, nil }
func (*memory) Done(pool.Event) bool                     { return true }
func (*memory) Wait(pool.Event)                          {}

var _ pool.Backing = (*memory)(nil)

// buffer is a block of memory. Its freed flag makes use after Free an error as far as that can be
// told.
type buffer struct {
	dev   *Device
	mem   []byte
	block *pool.Block // nil: Go memory
	gen   uint64
	freed atomic.Bool
	// release is of memory that is not the driver's own: called once when the buffer is freed, and
	// kept after that, because what it refers to keeps the memory there.
	release func()
}

var _ device.Borrower = (*Device)(nil)

// Borrow returns a buffer on memory of the caller's. If release is not nil it is called once, when
// the buffer is freed or queued, from any goroutine. It must not block. The buffer refers to
// release as long as it can be reached itself, so that what release refers to lives as long.
func (d *Device) Borrow(mem []byte, release func()) device.Buffer {
	if release == nil {
		release = func() {}
	}
	return &buffer{dev: d, mem: mem, release: release}
}

// giveBack tells who wants to know that the memory is not used any more, or will not be soon.
func (b *buffer) giveBack(queued bool) {
	if b.release != nil {
		b.release()
	}
	if t := device.Tracing(); t != nil {
		b.told(t, true, queued, device.Origin{})
	}
}

// Alloc returns a buffer; its contents are undefined.
func (d *Device) Alloc(bytes int, _ device.Stream, o device.Origin) (device.Buffer, error) {
	if bytes < 0 {
		return nil, flaw(d.name, "alloc", "bytes", fmt.Sprintf("%d is negative", bytes))
	}
	if bytes < pooled {
		b := &buffer{dev: d}
		if bytes > 0 {
			words := make([]uint64, (bytes+7)/8) // aligned for every type
			b.mem = unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), bytes)
		}
		if t := device.Tracing(); t != nil {
			b.told(t, false, false, o)
		}
		return b, nil
	}
	blk, err := d.pool.Alloc(uint64(bytes), 0, poolOrigin(&o))
	if err != nil && d.mem.shared.Load() && errors.Is(err, device.ErrOutOfMemory) && emptyBut(d) > 0 {
		blk, err = d.pool.Alloc(uint64(bytes), 0, poolOrigin(&o)) // others had kept what is free
	}
	if err != nil {
		return nil, err
	}
	// The block lies outside Go's heap, or in Go memory that the pool's backing keeps.
	addr := blk.Addr()
	p := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	b := &buffer{dev: d, mem: unsafe.Slice((*byte)(p), bytes), block: blk, gen: blk.Generation()}
	if t := device.Tracing(); t != nil {
		b.told(t, false, false, o)
	}
	return b, nil
}

func poolOrigin(o *device.Origin) pool.Origin {
	po := pool.Origin{Where: o.Where, Op: o.Op, Scope: o.Scope, Collected: o.Collected, DType: o.Type.String(), Dims: o.Shape.Rank()}
	for i := range po.Dims {
		po.Shape[i] = o.Shape.At(i)
	}
	return po
}

func (b *buffer) Device() device.Device { return b.dev }
func (b *buffer) Size() int             { return len(b.mem) }
func (b *buffer) Host() []byte          { return b.mem }
func (b *buffer) Use(device.Stream)     {}

func (b *buffer) Addr() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b.mem))) }

// Free gives the memory back. A second call is ignored.
func (b *buffer) Free() {
	switch {
	case b.freed.Swap(true):
	case b.block != nil:
		b.dev.pool.Free(b.block, b.gen)
		fallthrough
	default:
		b.giveBack(false)
	}
}

// Queue is Free for cleanups.
func (b *buffer) Queue() {
	switch {
	case b.freed.Swap(true):
	case b.block != nil:
		b.dev.pool.Queue(b.block, b.gen)
		fallthrough
	default:
		b.giveBack(true)
	}
}

// bytesOf returns the n bytes of the device's buf from off on.
func (d *Device) bytesOf(op, arg string, buf device.Buffer, off, n int) ([]byte, error) {
	if reason := device.OutsideBytes(d, buf, off, n); reason != "" {
		return nil, flaw(d.name, op, arg, reason)
	}
	return buf.(*buffer).mem[off : off+n], nil
}

// Upload copies src to dst from byte offset off on.
func (d *Device) Upload(s device.Stream, dst device.Buffer, off int, src []byte) error {
	m, err := d.bytesOf("upload", "dst", dst, off, len(src))
	if err == nil {
		if t := device.Tracing(); t != nil {
			defer d.tracedCopy(t, s, "upload", len(src))()
		}
		d.move(m, src)
	}
	return err
}

// Download copies from byte offset off of src to dst.
func (d *Device) Download(s device.Stream, dst []byte, src device.Buffer, off int) error {
	m, err := d.bytesOf("download", "src", src, off, len(dst))
	if err == nil {
		if t := device.Tracing(); t != nil {
			defer d.tracedCopy(t, s, "download", len(dst))()
		}
		d.move(dst, m)
	}
	return err
}

// CopyFrom copies to a buffer of the device from one of the same or another device of the
// CPU. Ranges of one buffer may overlap.
func (d *Device) CopyFrom(s device.Stream, dst device.Buffer, dstOff int, src device.Buffer, srcOff, size int) error {
	to, err := d.bytesOf("copy", "dst", dst, dstOff, size)
	if err != nil {
		return err
	}
	of := d
	if b, ok := src.(*buffer); ok && b != nil {
		of = b.dev
	}
	from, err := of.bytesOf("copy", "src", src, srcOff, size)
	if err != nil {
		return err
	}
	if t := device.Tracing(); t != nil {
		defer d.tracedCopy(t, s, "copy", size)()
	}
	if dst == src {
		copy(to, from)
		return nil
	}
	d.move(to, from)
	return nil
}

// moveGrain is how many bytes a worker copies at a time.
const moveGrain = 256 << 10

type mover struct{ dst, src []byte }

func (m *mover) run(lo, hi int) {
	end := min(hi*moveGrain, len(m.src))
	copy(m.dst[lo*moveGrain:end], m.src[lo*moveGrain:end])
}

// move copies src to dst, which do not overlap, with all workers if it is long.
func (d *Device) move(dst, src []byte) {
	if len(src) <= 2*moveGrain {
		copy(dst, src)
		return
	}
	d.crew.parallel((len(src)+moveGrain-1)/moveGrain, 1, &mover{dst, src})
}

var _ device.MemoryHistorian = (*Device)(nil)

// RecordMemoryHistory records every allocation of at least 64 KiB and its free from now on, with
// the stack of the call. Smaller ones are Go memory, which runtime/pprof shows.
func (d *Device) RecordMemoryHistory(opts ...device.HistoryOption) {
	d.pool.RecordHistory(device.NewHistorySettings(opts...))
}

// StopMemoryHistory ends recording and forgets what was recorded.
func (d *Device) StopMemoryHistory() { d.pool.StopHistory() }

// MemorySnapshot returns the segments and blocks of at least 64 KiB that the device holds, and the
// recorded events.
func (d *Device) MemorySnapshot() *device.MemorySnapshot {
	s := d.pool.MemorySnapshot()
	s.Product = d.Info().Name
	return s
}

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
