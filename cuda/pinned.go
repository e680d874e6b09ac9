package cuda

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
)

// pinnedPool caches page-locked host memory. All devices of a driver share it, because all of them
// can access the memory.
type pinnedPool struct {
	// linked list of blocks that were given back; copies from or to them may still run
	queued atomic.Pointer[pinnedBlock]

	mu   sync.Mutex
	idle map[int][]*pinnedBlock // blocks that can be reused, by size
	// blocks that were given back while copies from or to them were pending
	late  []*pinnedBlock
	stats device.Stats
	host  hostStats

	// all blocks taken from the driver; changes replace the slice
	all atomic.Pointer[[]*pinnedBlock]
}

// holds reports whether b lies in the pool's page-locked memory. The driver copies such memory
// asynchronously: the copy may continue after the call that began it has returned.
func (p *pinnedPool) holds(b []byte) bool {
	list := p.all.Load()
	if list == nil || len(b) == 0 {
		return false
	}
	at := uintptr(unsafe.Pointer(&b[0]))
	for _, k := range *list {
		if from := uintptr(k.p); at >= from && at < from+uintptr(k.size) {
			return true
		}
	}
	return false
}

// updateBlocks adds b to the list of all blocks. If b is nil, it instead removes the blocks for
// which drop returns true. The caller holds p.mu.
func (p *pinnedPool) updateBlocks(b *pinnedBlock, drop func(*pinnedBlock) bool) {
	var list []*pinnedBlock
	if old := p.all.Load(); old != nil {
		list = slices.Clone(*old)
	}
	if b != nil {
		list = append(list, b)
	} else {
		list = slices.DeleteFunc(list, drop)
	}
	if len(list) == 0 {
		p.all.Store(nil)
		return
	}
	p.all.Store(&list)
}

// pinnedBlock is a block of page-locked memory.
type pinnedBlock struct {
	p    unsafe.Pointer
	size int
	next *pinnedBlock

	mu     sync.Mutex
	busy   []*event // for each stream, an event after its last copy from or to the block
	graphs int      // number of recordings that copy from or to the block
}

// pinnedSize rounds n up to a multiple of a step. The step is an eighth of the greatest power of
// two below n, but at least 4 KiB. This wastes at most an eighth of a large block, and lets a block
// serve requests of slightly different sizes.
func pinnedSize(n int) int {
	const page = 4 << 10
	step := max(page, 1<<bits.Len(uint(max(n, 1)-1))>>4)
	return (max(n, 1) + step - 1) / step * step
}

// pinnedBuffer is a page-locked block that a program uses. The flag freed detects most uses after
// Free.
type pinnedBuffer struct {
	dev   *Device
	block *pinnedBlock
	size  int
	freed atomic.Bool
}

var (
	_ device.Buffer          = (*pinnedBuffer)(nil)
	_ device.PinnedAllocator = (*Device)(nil)
)

func (b *pinnedBuffer) Device() device.Device { return b.dev }
func (b *pinnedBuffer) Size() int             { return b.size }
func (b *pinnedBuffer) Addr() uintptr         { return uintptr(b.block.p) }
func (b *pinnedBuffer) Host() []byte          { return unsafe.Slice((*byte)(b.block.p), b.size) }
func (b *pinnedBuffer) Use(device.Stream)     {}

// Free gives the memory back. A second call is ignored.
func (b *pinnedBuffer) Free() {
	if !b.freed.Swap(true) {
		b.dev.p.pinned.release(b.block)
		if t := device.Tracing(); t != nil && t.Wants().Memory {
			t.Memory(device.MemoryEvent{Device: b.dev, Addr: b.Addr(), Bytes: b.size, Freed: true, Pinned: true, InUse: -1})
		}
	}
}

// Queue does the same as Free. Neither method blocks or allocates.
func (b *pinnedBuffer) Queue() { b.Free() }

func (p *pinnedPool) release(b *pinnedBlock) {
	for {
		head := p.queued.Load()
		b.next = head
		if p.queued.CompareAndSwap(head, b) {
			return
		}
	}
}

// settle empties the list queued. It moves a block to idle if its copies are done, and to late
// otherwise. The caller holds p.mu.
func (p *pinnedPool) settle() {
	for b := p.queued.Swap(nil); b != nil; {
		next := b.next
		b.next = nil
		p.late = append(p.late, b)
		p.stats.Allocated -= b.size
		p.stats.Frees++
		b = next
	}
	left := p.late[:0]
	for _, b := range p.late {
		if b.done() {
			p.idle[b.size] = append(p.idle[b.size], b)
			p.host.requests.sub(1)
			p.host.active.sub(b.size)
		} else {
			left = append(left, b)
		}
	}
	clear(p.late[len(left):])
	p.late = left
}

// done reports whether all copies from and to the block are done, and releases their events if so.
func (b *pinnedBlock) done() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.graphs > 0 {
		return false
	}
	for _, e := range b.busy {
		if !e.Done() {
			return false
		}
	}
	for _, e := range b.busy {
		e.Release()
	}
	b.busy = b.busy[:0]
	return true
}

// uses records that a copy from or to the block was just queued on s.
func (b *pinnedBlock) uses(s *stream) error {
	if l := s.rec.Load(); l != nil && l.r.keeps(b) {
		return nil
	}
	ev, err := s.Record()
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, e := range b.busy {
		if e.s.handle == s.handle { // this stream's new event is after its older event
			e.Release()
			b.busy[i] = ev.(*event)
			return nil
		}
	}
	b.busy = append(b.busy, ev.(*event))
	return nil
}

// idleBlock returns an idle block of the given size, or of up to 1.5 times that size. The caller
// holds p.mu.
func (p *pinnedPool) idleBlock(size int) *pinnedBlock {
	best := 0
	for s, list := range p.idle {
		if len(list) > 0 && s >= size && s <= size+size/2 && (best == 0 || s < best) {
			best = s
		}
	}
	if best == 0 {
		return nil
	}
	list := p.idle[best]
	b := list[len(list)-1]
	list[len(list)-1] = nil
	p.idle[best] = list[:len(list)-1]
	return b
}

// AllocPinned returns page-locked host memory. All devices of the driver can copy from and to it.
func (d *Device) AllocPinned(bytes int, o device.Origin) (device.Buffer, error) {
	if bytes < 0 {
		return nil, d.refusal("alloc pinned", "bytes", fmt.Sprintf("%d is negative", bytes))
	}
	if int64(bytes) > 1<<46 {
		return nil, fmt.Errorf("%s: %d bytes of page-locked memory: %w", d.name, bytes, device.ErrOutOfMemory)
	}
	p := &d.p.pinned
	size := pinnedSize(bytes)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	b := p.idleBlock(size)
	if b == nil {
		at, err := d.reserve(size)
		if errors.Is(err, device.ErrOutOfMemory) {
			p.mu.Unlock() // emptyStaging locks a mutex that must be locked before p.mu
			n := d.p.emptyStaging()
			p.mu.Lock()
			if n > 0 {
				p.stats.Retries++
				at, err = d.reserve(size)
			}
		}
		if err != nil {
			if errors.Is(err, device.ErrOutOfMemory) {
				p.stats.OOMs++
			}
			return nil, err
		}
		b = &pinnedBlock{p: at, size: size}
		p.updateBlocks(b, nil)
	}
	p.stats.Allocated += b.size
	p.stats.AllocatedPeak = max(p.stats.AllocatedPeak, p.stats.Allocated)
	p.stats.AllocatedTotal += b.size
	p.stats.Allocations++
	p.host.requests.add(1)
	p.host.active.add(b.size)
	if t := device.Tracing(); t != nil && t.Wants().Memory {
		t.Memory(device.MemoryEvent{Device: d, Addr: uintptr(b.p), Bytes: bytes, Pinned: true, Origin: o, InUse: p.stats.Allocated})
	}
	return &pinnedBuffer{dev: d, block: b, size: bytes}, nil
}

// reserve takes page-locked memory from the driver and counts it. If the driver has none left,
// reserve first gives idle blocks back. The caller holds the pool's mu.
func (d *Device) reserve(size int) (unsafe.Pointer, error) {
	p := &d.p.pinned
	at, err := d.lock(size)
	if errors.Is(err, device.ErrOutOfMemory) && d.unlock() > 0 {
		p.stats.Retries++
		at, err = d.lock(size)
	}
	if err != nil {
		return nil, err
	}
	p.stats.Reserved += size
	p.stats.ReservedPeak = max(p.stats.ReservedPeak, p.stats.Reserved)
	p.stats.Segments++
	p.host.blocks.add(1)
	p.host.bytes.add(size)
	return at, nil
}

// giveBack undoes reserve: it returns the memory to the driver. The caller holds the pool's mu, and
// the device's context is current.
func (d *Device) giveBack(at unsafe.Pointer, size int) bool {
	p := &d.p.pinned
	begin := time.Now()
	if d.fault("", d.api.MemFreeHost(at)) != nil {
		return false
	}
	p.host.free.since(begin)
	p.host.blocks.sub(1)
	p.host.bytes.sub(size)
	p.stats.Segments--
	p.stats.Reserved -= size
	return true
}

// lock allocates page-locked memory from the driver. The caller holds the pool's mu.
func (d *Device) lock(size int) (unsafe.Pointer, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	begin := time.Now()
	at, err := d.api.MemHostAlloc(uint64(size), cu.HostPortable)
	if err == nil {
		d.p.pinned.host.alloc.since(begin)
	}
	return at, d.fault("", err)
}

// unlock gives all idle blocks back to the driver, and returns the number of bytes. The caller
// holds the pool's mu.
func (d *Device) unlock() int {
	if d.enter() != nil {
		return 0
	}
	defer d.leave()
	p := &d.p.pinned
	n := 0
	gone := map[*pinnedBlock]bool{}
	for size, list := range p.idle {
		for _, b := range list {
			if d.giveBack(b.p, b.size) {
				gone[b] = true
				n += b.size
			}
		}
		delete(p.idle, size)
	}
	p.updateBlocks(nil, func(b *pinnedBlock) bool { return gone[b] })
	return n
}

// PinnedStats returns the statistics of the driver's page-locked memory. A freed block with pending
// copies counts as reserved, but not as allocated. The library's own memory for uploads of ordinary
// memory, up to 4 MiB a device, also counts as reserved only.
func (d *Device) PinnedStats() device.Stats {
	p := &d.p.pinned
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	return p.stats
}

// EmptyPinned gives unused page-locked memory back to the system, and returns the number of bytes.
func (d *Device) EmptyPinned() int {
	n := d.p.emptyStaging()
	p := &d.p.pinned
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settle()
	return n + d.unlock()
}

// locked checks that buf is page-locked memory, and returns n of its bytes from byte offset off on.
func (d *Device) locked(op, arg string, buf device.Buffer, off, n int) (*pinnedBuffer, []byte, error) {
	b, ok := buf.(*pinnedBuffer)
	switch {
	case !ok || b == nil || b.dev.p != d.p:
		return nil, nil, d.refusal(op, arg, "not page-locked memory of this driver")
	case b.freed.Load():
		return nil, nil, d.refusal(op, arg, "the buffer has been freed")
	case off < 0 || n < 0 || off > b.size-n:
		return nil, nil, d.refusal(op, arg, fmt.Sprintf("%d bytes at offset %d do not lie in a buffer of %d bytes", n, off, b.size))
	}
	return b, b.Host()[off : off+n], nil
}

// UploadPinned queues a copy from page-locked memory to the device.
func (d *Device) UploadPinned(s device.Stream, dst device.Buffer, dstOff int, src device.Buffer, srcOff, size int) error {
	const op = "upload pinned"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	to, err := d.bytes(op, "dst", dst, dstOff, size)
	if err != nil {
		return err
	}
	b, from, err := d.locked(op, "src", src, srcOff, size)
	if err != nil || size == 0 {
		return err
	}
	if t := device.Tracing(); t != nil {
		err = d.tracedCopy(t, st, device.CopyEvent{Kind: device.HostToDevice, Op: op, Bytes: size, Pinned: true}, func() error { return d.send(st, uint64(to), from) })
	} else {
		err = d.send(st, uint64(to), from)
	}
	if err != nil {
		return err
	}
	return b.block.uses(st)
}

// DownloadPinned queues a copy from the device to page-locked memory.
func (d *Device) DownloadPinned(s device.Stream, dst device.Buffer, dstOff int, src device.Buffer, srcOff, size int) error {
	const op = "download pinned"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	from, err := d.bytes(op, "src", src, srcOff, size)
	if err != nil {
		return err
	}
	b, to, err := d.locked(op, "dst", dst, dstOff, size)
	if err != nil || size == 0 {
		return err
	}
	if t := device.Tracing(); t != nil {
		err = d.tracedCopy(t, st, device.CopyEvent{Kind: device.DeviceToHost, Op: op, Bytes: size, Pinned: true}, func() error { return d.receive(st, to, uint64(from)) })
	} else {
		err = d.receive(st, to, uint64(from))
	}
	if err != nil {
		return err
	}
	return b.block.uses(st)
}

// receive queues a copy of len(dst) bytes from the device's address src to page-locked memory.
func (d *Device) receive(s *stream, dst []byte, src uint64) error {
	if l := s.rec.Load(); l != nil {
		l.record(recorded{kind: recordedSave, src: src, host: unsafe.Pointer(&dst[0]), n: uint64(len(dst))})
		return nil
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	d.count.down.Add(1)
	d.count.downBytes.Add(uint64(len(dst)))
	err := d.api.MemcpyDtoHAsync(unsafe.Pointer(&dst[0]), cu.DevicePtr(src), uint64(len(dst)), s.handle)
	runtime.KeepAlive(dst)
	return d.fault("", err)
}
