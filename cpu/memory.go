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

// pooled is the size in bytes from which a buffer comes from the pool.
const pooled = 8 << 10

// memory is the pool's backing. It has only one stream, and its events are always done, because a
// method returns when its work is done.
type memory struct {
	hostmem.Memory
	shared atomic.Bool // the pool stays within the common limit of all devices
}

// reserved is how many bytes the pools of all devices have taken from the system.
var reserved atomic.Uint64

// Alloc allocates as [hostmem.Memory] does, within the common limit of all devices.
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

// buffer is a block of memory. By the flag freed, most uses after Free are found and reported as
// errors.
type buffer struct {
	dev   *Device
	mem   []byte
	block *pool.Block // block of the pool; nil: the buffer is Go memory
	gen   uint64
	freed atomic.Bool
	// release belongs to memory that the driver does not own. It is called once, when the buffer is
	// freed. The field is kept after that, because the values that release references keep the
	// memory valid.
	release func()
}

var _ device.Borrower = (*Device)(nil)

// Borrow returns a buffer on the caller's memory. If release is not nil, it is called once, when
// the buffer is freed or queued, from any goroutine. It must not block. The buffer references
// release as long as it is reachable, so that everything that release references stays reachable
// too.
func (d *Device) Borrow(mem []byte, release func()) device.Buffer {
	if release == nil {
		release = func() {}
	}
	return &buffer{dev: d, mem: mem, release: release}
}

// giveBack tells the tracer and the owner of borrowed memory that the memory is free, or will be
// soon.
func (b *buffer) giveBack(queued bool) {
	if b.release != nil {
		b.release()
	}
	if t := device.Tracing(); t != nil {
		b.told(t, true, queued, device.Origin{})
	}
}

// Alloc returns a buffer with undefined contents.
func (d *Device) Alloc(bytes int, _ device.Stream, o device.Origin) (device.Buffer, error) {
	if bytes < 0 {
		return nil, flaw(d.name, "alloc", "bytes", fmt.Sprintf("%d is negative", bytes))
	}
	if bytes < pooled {
		b := small(bytes)
		b.dev = d
		if t := device.Tracing(); t != nil {
			b.told(t, false, false, o)
		}
		return b, nil
	}
	blk, err := d.pool.Alloc(uint64(bytes), 0, poolOrigin(&o))
	if err != nil && d.mem.shared.Load() && errors.Is(err, device.ErrOutOfMemory) && emptyBut(d) > 0 {
		// other devices had kept free memory, which has now been given back
		blk, err = d.pool.Alloc(uint64(bytes), 0, poolOrigin(&o))
	}
	if err != nil {
		return nil, err
	}
	// The block is outside Go's heap, or in Go memory that the pool's backing references.
	addr := blk.Addr()
	p := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	b := &buffer{dev: d, mem: unsafe.Slice((*byte)(p), bytes), block: blk, gen: blk.Generation()}
	if t := device.Tracing(); t != nil {
		b.told(t, false, false, o)
	}
	return b, nil
}

// small returns a buffer of Go memory. The least ones are one object with their memory. Words are
// aligned for every type.
func small(bytes int) *buffer {
	var b *buffer
	var words *uint64
	switch {
	case bytes == 0:
		return new(buffer)
	case bytes <= 16:
		own := new(struct {
			buffer
			words [2]uint64
		})
		b, words = &own.buffer, &own.words[0]
	case bytes <= 128:
		own := new(struct {
			buffer
			words [16]uint64
		})
		b, words = &own.buffer, &own.words[0]
	default:
		b, words = new(buffer), &make([]uint64, (bytes+7)/8)[0]
	}
	b.mem = unsafe.Slice((*byte)(unsafe.Pointer(words)), bytes)
	return b
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

// Queue is Free for cleanups of the garbage collector.
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

// bytesOf returns n bytes of the device's buffer buf, beginning at off.
func (d *Device) bytesOf(op, arg string, buf device.Buffer, off, n int) ([]byte, error) {
	if reason := device.OutsideBytes(d, buf, off, n); reason != "" {
		return nil, flaw(d.name, op, arg, reason)
	}
	return buf.(*buffer).mem[off : off+n], nil
}

// Upload copies src to dst, beginning at byte offset off.
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

// Download copies from src, beginning at byte offset off, to dst.
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

// CopyFrom copies to a buffer of this device from a buffer of this or another device of the CPU.
// Ranges of one buffer may overlap.
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

// move copies src to dst, which must not overlap. If the range is long, all workers take part.
func (d *Device) move(dst, src []byte) {
	if len(src) <= 2*moveGrain {
		copy(dst, src)
		return
	}
	d.crew.parallel((len(src)+moveGrain-1)/moveGrain, 1, &mover{dst, src})
}

var _ device.MemoryHistorian = (*Device)(nil)

// RecordMemoryHistory records every allocation of at least 8 KiB and its free from now on, with
// the call's stack. Smaller buffers are Go memory, which runtime/pprof shows.
func (d *Device) RecordMemoryHistory(opts ...device.HistoryOption) {
	d.pool.RecordHistory(device.NewHistorySettings(opts...))
}

// StopMemoryHistory ends the recording and discards its events.
func (d *Device) StopMemoryHistory() { d.pool.StopHistory() }

// MemorySnapshot returns the device's segments and blocks of at least 8 KiB, and the recorded
// events.
func (d *Device) MemorySnapshot() *device.MemorySnapshot {
	s := d.pool.MemorySnapshot()
	s.Product = d.Info().Name
	return s
}

// tracedCopy begins a copy of host memory. The returned function ends it and reports the copy to
// the tracer.
func (d *Device) tracedCopy(t device.Tracer, s device.Stream, op string, bytes int) func() {
	start := device.Now()
	return func() {
		t.Copy(device.CopyEvent{Device: d, Stream: s, Kind: device.HostToHost, Op: op, Bytes: bytes, Blocked: true, Start: start, End: device.Now()})
	}
}

// told reports an allocation or a free to a tracer.
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
