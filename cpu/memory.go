package cpu

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/pool"
	"github.com/flambeau-go/flambeau/internal/pool/hostmem"
	"github.com/flambeau-go/flambeau/internal/worklist"
)

// memory is where the pool gets its memory from. Its events are always done, because a method
// returns only when its work is done. Each recording has its own arena in the pool. All other work
// shares one arena.
type memory struct {
	hostmem.Memory
	shared atomic.Bool // whether the limit for all devices together applies to this one
}

// reserved is the number of bytes that the pools of all devices have taken from the system.
var reserved atomic.Uint64

// Alloc allocates memory as [hostmem.Memory] does. It fails if that would exceed the limit for all
// devices together.
func (m *memory) Alloc(size uint64) (uintptr, error) {
	for limit := initialLimit(); ; {
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

// buffer is a block of memory. The flag freed is set by Free: most later uses are then reported as
// errors.
type buffer struct {
	dev   *Device
	mem   []byte
	block *pool.Block // block of the pool; nil if the buffer is Go memory
	gen   uint64
	freed atomic.Bool
	guard *stream   // while this stream is recorded, Host panics; may be nil
	life  *lifetime // lifetime of the memory if a recording allocated it, else nil
	// release is set for memory that the driver does not own. It is called once, when the buffer is
	// freed. The field keeps its value after that, because objects that release refers to may keep
	// the memory valid.
	release func()
}

var _ device.Borrower = (*Device)(nil)

// Borrow returns a buffer on the caller's memory. If the function release is not nil, it is called
// once, when the buffer is freed or queued. release may be called from any goroutine, and must not
// block. Everything that release refers to stays reachable as long as the buffer does.
func (d *Device) Borrow(mem []byte, release func()) device.Buffer {
	if release == nil {
		release = func() {}
	}
	return &buffer{dev: d, mem: mem, release: release}
}

// giveBack reports to the tracer that the memory is freed or queued to be freed. For borrowed
// memory it also calls release.
func (b *buffer) giveBack(queued bool) {
	if b.release != nil {
		b.release()
	}
	if t := device.Tracing(); t != nil {
		b.report(t, true, queued, device.Origin{})
	}
}

// Alloc returns a buffer with undefined contents. In a recording, even small buffers come from the
// pool: the recording can then reuse them.
func (d *Device) Alloc(bytes int, s device.Stream, o device.Origin) (device.Buffer, error) {
	if bytes < 0 {
		return nil, operandError(d.name, "alloc", "bytes", fmt.Sprintf("%d is negative", bytes))
	}
	r := recordingOf(s)
	if bytes < device.PlainBytes && r == nil || bytes == 0 {
		b := small(bytes)
		b.dev = d
		if t := device.Tracing(); t != nil {
			b.report(t, false, false, o)
		}
		return b, nil
	}
	var arena pool.StreamID
	if r != nil {
		arena = r.arena
	}
	blk, err := d.pool.Alloc(uint64(bytes), arena, poolOrigin(&o))
	if err != nil && d.mem.shared.Load() && errors.Is(err, device.ErrOutOfMemory) && emptyExcept(d) > 0 {
		// All other devices have now given their cached memory back, so try again.
		blk, err = d.pool.Alloc(uint64(bytes), arena, poolOrigin(&o))
	}
	if err != nil {
		return nil, err
	}
	// This conversion is valid: the block is outside Go's heap, or the pool keeps the Go memory
	// alive.
	addr := blk.Addr()
	p := *(*unsafe.Pointer)(unsafe.Pointer(&addr))
	b := &buffer{dev: d, mem: unsafe.Slice((*byte)(p), bytes), block: blk, gen: blk.Generation()}
	if r != nil {
		b.life = &lifetime{r, worklist.Alive}
	}
	if t := device.Tracing(); t != nil {
		b.report(t, false, false, o)
	}
	return b, nil
}

// small returns a buffer of Go memory. For the smallest sizes, the buffer and its memory are one
// object. The memory consists of words, which are aligned for every type.
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
	case bytes <= 48:
		own := new(struct {
			buffer
			words [6]uint64
		})
		b, words = &own.buffer, &own.words[0]
	case bytes <= 128:
		own := new(struct {
			buffer
			words [16]uint64
		})
		b, words = &own.buffer, &own.words[0]
	case bytes <= 256:
		own := new(struct {
			buffer
			words [32]uint64
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

// Host returns the memory. It panics for a buffer from Guard while the stream is recorded.
func (b *buffer) Host() []byte {
	if b.guard != nil {
		if err := refused(b.guard, "access to memory", "the host would read or write it now, and not in replays"); err != nil {
			panic(err)
		}
	}
	return b.mem
}

func (b *buffer) Use(device.Stream) {}

func (b *buffer) Addr() uintptr { return address(b.mem) }

// Free gives the memory back. A second call is ignored.
func (b *buffer) Free() {
	switch {
	case b.freed.Swap(true):
	case b.block != nil:
		b.life.noteFreed()
		b.dev.pool.Free(b.block, b.gen)
		fallthrough
	default:
		b.giveBack(false)
	}
}

// Queue frees the memory like Free. The garbage collector's cleanups call it.
func (b *buffer) Queue() {
	switch {
	case b.freed.Swap(true):
	case b.block != nil:
		b.life.noteFreed()
		b.dev.pool.Queue(b.block, b.gen)
		fallthrough
	default:
		b.giveBack(true)
	}
}

// bytesOf returns n bytes of buf, a buffer of the device, from the given offset on.
func (d *Device) bytesOf(op, arg string, buf device.Buffer, offset, n int) ([]byte, error) {
	if reason := device.OutsideBytes(d, buf, offset, n); reason != "" {
		return nil, operandError(d.name, op, arg, reason)
	}
	return buf.(*buffer).mem[offset : offset+n], nil
}

// Upload copies src to the bytes of dst from the given offset on.
func (d *Device) Upload(s device.Stream, dst device.Buffer, offset int, src []byte) error {
	if err := refused(s, "upload", uploadsOnce); err != nil {
		return err
	}
	m, err := d.bytesOf("upload", "dst", dst, offset, len(src))
	if err == nil {
		if t := device.Tracing(); t != nil {
			defer d.tracedCopy(t, s, "upload", len(src))()
		}
		d.move(m, src)
	}
	return err
}

// Download fills dst with the bytes of src from the given offset on.
func (d *Device) Download(s device.Stream, dst []byte, src device.Buffer, offset int) error {
	if err := refused(s, "download", hostWaits); err != nil {
		return err
	}
	m, err := d.bytesOf("download", "src", src, offset, len(dst))
	if err == nil {
		if t := device.Tracing(); t != nil {
			defer d.tracedCopy(t, s, "download", len(dst))()
		}
		d.move(dst, m)
	}
	return err
}

// CopyFrom copies size bytes of src to dst. dst is a buffer of this device, and src is a buffer of
// any device of the CPU. The two ranges may overlap if src and dst are the same buffer.
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
	if r := recordingOf(s); r != nil && r.add(item{dst: to, src: from}) {
		return nil
	}
	transfer(d, to, from)
	return nil
}

// transfer copies src to dst. The two may overlap. On a device without memory both are empty.
func transfer(d host, dst, src []byte) {
	own, ok := d.(*Device)
	if !ok {
		return
	}
	if a, b := address(dst), address(src); a < b+uintptr(len(src)) && b < a+uintptr(len(dst)) {
		copy(dst, src)
		return
	}
	own.move(dst, src)
}

// address returns the address of a slice's first byte.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// moveGrain is the number of bytes that a worker copies at a time.
const moveGrain = 256 << 10

type mover struct{ dst, src []byte }

func (m *mover) run(lo, hi int) {
	end := min(hi*moveGrain, len(m.src))
	copy(m.dst[lo*moveGrain:end], m.src[lo*moveGrain:end])
}

// move copies src to dst. The two must not overlap. If the range is long, all workers take part.
func (d *Device) move(dst, src []byte) {
	if len(src) <= 2*moveGrain {
		copy(dst, src)
		return
	}
	d.workers.parallel((len(src)+moveGrain-1)/moveGrain, 1, &mover{dst, src})
}

var _ device.MemoryHistorian = (*Device)(nil)

// RecordMemoryHistory starts to record all allocations of at least 8 KiB and their frees, each with
// its stack. Smaller buffers are Go memory, which runtime/pprof shows.
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

// tracedCopy notes the time at which a copy of host memory begins. The caller calls the returned
// function after the copy, to report it to the tracer.
func (d *Device) tracedCopy(t device.Tracer, s device.Stream, op string, bytes int) func() {
	start := device.Now()
	return func() {
		t.Copy(device.CopyEvent{Device: d, Stream: s, Kind: device.HostToHost, Op: op, Bytes: bytes, Blocked: true, Recorded: recordingOf(s) != nil, Start: start, End: device.Now()})
	}
}

// report reports an allocation or a free to a tracer.
func (b *buffer) report(t device.Tracer, freed, queued bool, o device.Origin) {
	if !t.Wants().Memory || b.release != nil {
		return
	}
	in := -1
	if !queued && b.block != nil {
		in = int(b.dev.pool.InUse())
	}
	t.Memory(device.MemoryEvent{Device: b.dev, Addr: b.Addr(), Bytes: len(b.mem), Freed: freed, Origin: o, InUse: in})
}
