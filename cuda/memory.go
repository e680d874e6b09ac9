package cuda

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/pool"
	"github.com/flambeau-go/flambeau/internal/worklist"
)

// backing implements the memory pool's segments and events with calls of the driver. A
// pool.StreamID is either the driver's handle of a stream, or the ID of a recording's arena.
type backing struct{ d *Device }

// checkedBacking is a backing that also tells the emulator where blocks begin and end. The emulator
// can then check accesses.
type checkedBacking struct {
	backing
	c cu.Checker
}

var (
	_ pool.Backing = backing{}
	_ pool.Marker  = checkedBacking{}
)

func (b backing) Alloc(size uint64) (uintptr, error) {
	d := b.d
	if err := d.enter(); err != nil {
		return 0, err
	}
	defer d.leave()
	p, err := d.api.MemAlloc(size)
	if err == nil {
		return uintptr(p), nil
	}
	if errors.Is(err, cu.ErrOutOfMemory) {
		return 0, fmt.Errorf("%w: %w", pool.ErrNoMemory, err)
	}
	return 0, d.fault("", err)
}

// Free returns a segment to the driver. The pool has waited for the work that uses the segment. An
// error cannot be returned here, but a sticky error makes the device unusable.
func (b backing) Free(addr uintptr, _ uint64) {
	d := b.d
	if d.enter() != nil {
		return // the context is lost, and all of its memory with it
	}
	defer d.leave()
	_ = d.fault("", d.api.MemFree(cu.DevicePtr(addr)))
}

func (b backing) Capacity() (free, total uint64) {
	d := b.d
	if d.enter() != nil {
		return 0, uint64(d.info.Memory)
	}
	defer d.leave()
	free, total, err := d.api.MemGetInfo()
	if err != nil {
		return 0, uint64(d.info.Memory)
	}
	return free, total
}

// poolEvent is an event on which the pool waits before it reuses a block. Its stream may belong to
// another device.
type poolEvent struct {
	d *Device
	h cu.Event
}

func (e poolEvent) Release() {
	if e.h != 0 {
		e.d.recycle(e.h)
	}
}

func (b backing) Record(s pool.StreamID) (pool.Event, error) {
	d := b.d
	h, _ := d.p.arenaStream(s)
	if o, ok := d.p.owners.Load(h); ok {
		d = o.(*Device)
	}
	if d.dead.Load() != nil {
		return poolEvent{d, 0}, nil // the device has failed, so there is no work to wait for
	}
	e, err := d.record(h)
	if err != nil && d.dead.Load() == nil {
		return nil, err
	}
	return poolEvent{d, e}, nil
}

func (backing) Done(e pool.Event) bool {
	p := e.(poolEvent)
	return p.h == 0 || p.d.done(p.h)
}

func (backing) Wait(e pool.Event) {
	p := e.(poolEvent)
	if p.h == 0 || p.d.enter() != nil {
		return
	}
	defer p.d.leave()
	if t := device.Tracing(); t != nil {
		defer p.d.tracedWait(t, nil, "wait for memory")()
	}
	_ = p.d.fault("", p.d.api.EventSynchronize(p.h))
}

func (b checkedBacking) BlockAllocated(s pool.StreamID, addr uintptr, requested, rounded uint64, label string) {
	h, l := b.d.p.arenaStream(s)
	if l.block(addr, requested, rounded, label, false) {
		return
	}
	b.c.BlockAllocated(h, cu.DevicePtr(addr), requested, rounded, label)
}

func (b checkedBacking) BlockFreed(s pool.StreamID, addr uintptr, rounded uint64) {
	h, l := b.d.p.arenaStream(s)
	if l.block(addr, 0, rounded, "", true) {
		return
	}
	b.c.BlockFreed(h, cu.DevicePtr(addr), rounded)
}

// poolOptions chooses the pool's segment sizes for a device with the given memory in bytes.
// PyTorch's segment sizes (20 MiB for blocks of 1 to 10 MiB) would fragment a small device, which
// is usually emulated. On a device with less than 1 GiB, segments have 2 MiB, and a larger block
// gets its own segment. On a device with less than 64 MiB, segments are smaller: about 1/32 of the
// memory, but at least 64 KiB.
func poolOptions(name string, memory uint64) pool.Options {
	o := pool.Options{Name: name, ErrOOM: device.ErrOutOfMemory, GCRatio: 1}
	if memory < 1<<30 {
		seg := uint64(2 << 20)
		for seg > 64<<10 && seg > memory/32 {
			seg /= 2
		}
		sized(&o, seg)
		o.GCMinBytes = max(memory/4, 1)
	}
	return o
}

func (d *Device) newPool() (*pool.Pool, error) {
	o := poolOptions(d.name, uint64(d.info.Memory))
	o.StreamName = func(s pool.StreamID) string { return d.streamName(cu.Stream(s)) }
	if z, ok := d.api.(cu.Sized); ok {
		sized(&o, z.Segment())
	}
	if err := d.expandableOptions(&o); err != nil {
		return nil, err
	}
	// only the emulator checks accesses, and only if it has memory (not in mode=meta)
	if c, ok := d.api.(cu.Checker); ok && !d.p.meta {
		return pool.New(checkedBacking{backing{d}, c}, o), nil
	}
	return pool.New(backing{d}, o), nil
}

// buffer is a block of device memory. The flag freed detects most uses after Free.
type buffer struct {
	dev   *Device
	block *pool.Block
	gen   uint64
	size  int
	addr  uintptr
	freed atomic.Bool
	// the set of lanes (streams of a recording), other than the owner, that use the buffer
	lanes atomic.Uint64
	// life is the lifetime of memory that was allocated in a recording. Otherwise it is nil.
	life *lifetime
}

var _ device.Buffer = (*buffer)(nil)

// Alloc returns a buffer with undefined contents for work on s. Its address is a multiple of 512.
func (d *Device) Alloc(bytes int, s device.Stream, o device.Origin) (device.Buffer, error) {
	if bytes < 0 {
		return nil, d.refusal("alloc", "bytes", fmt.Sprintf("%d is negative", bytes))
	}
	st, err := d.stream("alloc", s)
	if err != nil {
		return nil, err
	}
	if f := d.dead.Load(); f != nil {
		return nil, f
	}
	po := pool.Origin{Where: o.Where, Op: o.Op, Scope: o.Scope, Collected: o.Collected, Dims: o.Shape.Rank()}
	if o.Type != 0 {
		po.DType = o.Type.String()
	}
	for i := range po.Dims {
		po.Shape[i] = o.Shape.At(i)
	}
	blk, err := d.pool.Alloc(uint64(bytes), st.arena(), po)
	if err != nil {
		d.stopRefusing()
		return nil, err
	}
	if t := device.Tracing(); t != nil {
		d.reportMemory(t, blk.Addr(), bytes, false, false, o)
	}
	b := &buffer{dev: d, block: blk, gen: blk.Generation(), size: bytes, addr: blk.Addr()}
	if l := st.rec.Load(); l != nil {
		b.life = &lifetime{l.r, worklist.Alive}
	}
	return b, nil
}

func (b *buffer) Device() device.Device { return b.dev }
func (b *buffer) Size() int             { return b.size }
func (b *buffer) Addr() uintptr         { return b.addr }
func (b *buffer) Host() []byte          { return nil }

// Use records that the buffer is used by the work queued on s so far. The buffer's memory is not
// reused before that work is done. The stream s may belong to another device of this driver. A call
// of Use after Free panics, because the memory may already belong to another buffer.
func (b *buffer) Use(s device.Stream) {
	if b.freed.Load() {
		panic(b.dev.refusal("use", "buffer", "the buffer has been freed"))
	}
	if st, ok := s.(*stream); ok && st.dev.p == b.dev.p && !b.sharedBy(st) {
		b.block.Use(pool.StreamID(st.handle))
	}
}

// Free gives the memory back. A second call is ignored.
func (b *buffer) Free() {
	if !b.freed.Swap(true) {
		b.life.over()
		if !b.held() {
			b.dev.pool.Free(b.block, b.gen)
		}
		if t := device.Tracing(); t != nil {
			b.dev.reportMemory(t, b.addr, b.size, true, false, device.Origin{})
		}
	}
}

// Queue gives the memory back like Free, but later. It neither blocks nor allocates, so that
// cleanups of the garbage collector can call it.
func (b *buffer) Queue() {
	if !b.freed.Swap(true) {
		b.life.over()
		if !b.held() {
			b.dev.pool.Queue(b.block, b.gen)
		}
		if t := device.Tracing(); t != nil {
			b.dev.reportMemory(t, b.addr, b.size, true, true, device.Origin{})
		}
	}
}

// SetMemoryLimit bounds the memory in bytes that the device's pool takes from the driver. With 0
// bytes there is no bound. At the limit Alloc fails with an error that wraps
// [device.ErrOutOfMemory].
func (d *Device) SetMemoryLimit(bytes int) { d.pool.SetLimit(uint64(max(bytes, 0))) }

// SetMemoryFraction bounds the memory that the device's pool takes from the driver to the fraction
// f of the GPU's memory. With 0 there is no bound.
func (d *Device) SetMemoryFraction(f float64) error {
	if !(f >= 0 && f <= 1) {
		return d.refusal("set memory fraction", "fraction", fmt.Sprintf("%v is not between 0 and 1", f))
	}
	limit := uint64(f * float64(d.info.Memory))
	if f > 0 {
		limit = max(limit, 1) // a limit of 0 would mean no limit
	}
	d.pool.SetLimit(limit)
	return nil
}

// Stats returns the counts of the pool's memory.
func (d *Device) Stats() device.Stats {
	s := d.pool.Stats()
	return device.Stats{
		Allocated: int(s.AllocatedBytes.Current), AllocatedPeak: int(s.AllocatedBytes.Peak),
		Reserved: int(s.ReservedBytes.Current), ReservedPeak: int(s.ReservedBytes.Peak),
		AllocatedTotal: int(s.AllocatedBytes.Allocated), Allocations: int(s.Allocations), Frees: int(s.Frees),
		Segments: int(s.Segments.Current), Retries: int(s.Retries), OOMs: int(s.OOMs),
	}
}

// ResetPeak sets the peaks to the current values.
func (d *Device) ResetPeak() { d.pool.ResetPeak() }

// Empty returns the pool's unused memory to the driver. The result is the number of bytes.
func (d *Device) Empty() int { return int(d.pool.Empty()) }
