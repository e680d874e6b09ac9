package pool

import (
	"errors"
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
)

// request is one allocation that the pool has not finished.
type request struct {
	size    uint64 // requested size in bytes
	rounded uint64
	stream  StreamID
	origin  *Origin
	block   *Block // block that was found for the request; nil until then
}

// Alloc returns a block of at least size bytes for work on the stream. For size 0 it returns a
// valid block without memory. If there is too little memory, the pool tries in several steps to
// free some (the out-of-memory ladder). If that fails too, the error is an *OOMError, which wraps
// Options.ErrOOM. Other errors of the backing are wrapped.
func (p *Pool) Alloc(size uint64, stream StreamID, origin Origin) (*Block, error) {
	if size > math.MaxInt64-p.o.LargeRound-p.o.Round {
		return nil, p.outOfMemory(size, stream, &origin, nil)
	}
	rounded := (size + p.o.Round - 1) &^ (p.o.Round - 1)
	if h := p.recording.Load(); h != nil {
		origin.stack = h.callers(1)
	}
	p.mu.Lock()
	if p.queue.Load() != nil {
		p.drainLocked()
	}
	if p.pending > 0 && p.paused == 0 {
		p.pollLocked()
	}
	if b := p.takeLocked(size, rounded, stream, &origin); b != nil {
		p.mu.Unlock()
		return b, nil
	}
	// Copy the origin to Go's heap only here, where an allocation is slow anyway.
	kept := origin
	return p.allocSlow(&request{size: size, rounded: rounded, stream: stream, origin: &kept})
}

// allocSlow grows the pool for a request for which it has no free block. If the pool cannot grow,
// allocSlow runs the steps of the out-of-memory ladder. The caller holds the lock, and allocSlow
// releases it.
func (p *Pool) allocSlow(r *request) (*Block, error) {
	if p.waiter == nil {
		err := p.growLocked(r, false)
		p.mu.Unlock()
		if err == nil {
			return r.block, nil
		}
		if !errors.Is(err, ErrNoMemory) {
			return nil, p.growError(r, err)
		}
	} else {
		// Another request runs the out-of-memory ladder. Memory that becomes free goes to that
		// request first.
		p.mu.Unlock()
	}
	return p.climb(r)
}

func (p *Pool) growError(r *request, err error) error {
	return fmt.Errorf("pool: %s, for %d bytes on %s: %w", p.o.Name, r.size, p.streamName(r.stream), err)
}

func (p *Pool) arenaLocked(stream StreamID) *arena {
	if a := p.lastArena; a != nil && a.stream == stream {
		return a
	}
	for _, a := range p.arenas {
		if a.stream == stream {
			p.lastArena = a
			return a
		}
	}
	a := &arena{stream: stream}
	p.arenas = append(p.arenas, a)
	p.lastArena = a
	return a
}

// takeLocked returns a free block of the stream for a request, or nil if no free block fits.
func (p *Pool) takeLocked(size, rounded uint64, stream StreamID, origin *Origin) *Block {
	var b *Block
	if rounded == 0 {
		b = p.newBlockLocked()
		b.stream.Store(uint64(stream))
	} else {
		a := p.arenaLocked(stream)
		small := rounded <= p.o.SmallMax
		if small {
			b = a.small.bestFit(rounded, p.o.Round)
		} else {
			b = a.large.bestFit(rounded)
		}
		if b == nil {
			return nil
		}
		p.unindexLocked(b)
		if rest := b.size - rounded; rest > p.o.SplitMin || rest > 0 && (small || b.seg.space != nil) {
			p.splitLocked(b, rounded)
		}
	}
	s := &p.stats
	s.Allocations++
	b.state, b.requested, b.origin, b.number = stateLive, size, *origin, s.Allocations
	s.AllocatedBytes.add(b.size)
	s.ActiveBytes.add(b.size)
	s.RequestedBytes.add(size)
	s.Allocated.add(1)
	s.Active.add(1)
	s.class(b).allocated(b, size)
	if origin.Collected {
		p.collectable += b.size
		p.collectableEver += b.size
		if p.o.GCRatio > 0 && p.collectable > p.gcNext {
			p.backgroundGCLocked()
		}
	}
	if p.history != nil {
		p.history.blockLocked(device.ActionAlloc, b, origin.stack)
	}
	if p.marker != nil && b.size > 0 {
		p.marker.BlockAllocated(b.Stream(), b.addr, size, b.size, origin.Describe())
	}
	return b
}

// splitLocked cuts a block to the given size, and puts the remainder into the index as a free
// block. The block itself must not be in the index.
func (p *Pool) splitLocked(b *Block, size uint64) {
	r := p.newBlockLocked()
	r.seg, r.addr, r.size = b.seg, b.addr+uintptr(size), b.size-size
	r.stream.Store(b.stream.Load())
	r.prev, r.next = b, b.next
	if b.next != nil {
		b.next.prev = r
	}
	if b.seg.tail == b {
		b.seg.tail = r
	}
	b.next, b.size = r, size
	p.indexLocked(r)
}

// indexLocked puts a free block into the index of its arena, where requests of the block's stream
// find it.
func (p *Pool) indexLocked(b *Block) {
	b.state = stateFree
	if b.split = b.prev != nil || b.next != nil; b.split {
		p.stats.InactiveSplitBytes.add(b.size)
		p.stats.InactiveSplit.add(1)
		p.stats.class(b).divided(b)
	}
	if b.seg.small {
		b.seg.home.small.insert(b, p.o.Round, int(p.o.SmallSegment/p.o.Round))
	} else {
		b.seg.home.large.insert(b)
	}
}

func (p *Pool) unindexLocked(b *Block) {
	if b.split {
		p.stats.InactiveSplitBytes.sub(b.size)
		p.stats.InactiveSplit.sub(1)
		p.stats.class(b).joined(b)
	}
	if b.seg.small {
		b.seg.home.small.remove(b, p.o.Round)
	} else {
		b.seg.home.large.remove(b)
	}
}

// Free releases a block that Alloc returned with generation gen. The block's own stream can reuse
// it immediately. If Use named other streams, the block is reusable when the work that is now
// queued on them is done. If gen is not the block's current generation, Free has no effect except
// on the statistics.
func (p *Pool) Free(b *Block, gen uint64) {
	p.checkOwn(b)
	var at *stack
	if h := p.recording.Load(); h != nil {
		at = h.callers(1)
	}
	p.mu.Lock()
	p.freeStack = at
	p.freeLocked(b, gen)
	p.freeStack = nil
	p.mu.Unlock()
}

func (p *Pool) checkOwn(b *Block) {
	if b.pool != p {
		panic(fmt.Errorf("pool: a block of %s was freed in the pool of %s", b.pool.o.Name, p.o.Name))
	}
}

// freeLocked implements Free. It reports whether gen is the current generation.
func (p *Pool) freeLocked(b *Block, gen uint64) bool {
	if b.state != stateLive || b.gen != gen {
		p.stats.StaleFrees++
		return false
	}
	b.gen++
	if p.history != nil {
		p.history.blockLocked(device.ActionFreeRequested, b, p.freeStack)
	}
	s := &p.stats
	s.Frees++
	s.AllocatedBytes.sub(b.size)
	s.RequestedBytes.sub(b.requested)
	s.Allocated.sub(1)
	s.class(b).freed(b)
	if b.origin.Collected {
		p.collectable -= b.size
	}
	if len(b.uses) > 0 {
		b.state = statePending
		b.events = 0
		p.recordLocked(b)
		return true
	}
	p.releaseLocked(b)
	return true
}

// releaseLocked makes a freed block available for reuse. The work of other streams on it must be
// done.
func (p *Pool) releaseLocked(b *Block) {
	p.stats.ActiveBytes.sub(b.size)
	p.stats.Active.sub(1)
	p.stats.class(b).idle(b)
	if p.history != nil {
		p.history.blockLocked(device.ActionFreeCompleted, b, nil)
	}
	// the pool must not keep alive the objects that the origin refers to
	b.origin.Where, b.origin.stack = nil, nil
	if b.seg == nil {
		p.recycleLocked(b)
		return
	}
	if p.marker != nil {
		p.marker.BlockFreed(b.Stream(), b.addr, b.size)
	}
	p.coalesceLocked(b)
	if p.waiter != nil {
		p.offerLocked()
	}
}

// coalesceLocked merges a newly free block with free blocks next to it, and puts the result into
// the index.
func (p *Pool) coalesceLocked(b *Block) {
	seg := b.seg
	if n := b.next; n != nil && n.state == stateFree {
		p.unindexLocked(n)
		b.size += n.size
		if b.next = n.next; b.next != nil {
			b.next.prev = b
		}
		if seg.tail == n {
			seg.tail = b
		}
		p.recycleLocked(n)
	}
	if v := b.prev; v != nil && v.state == stateFree {
		p.unindexLocked(v)
		v.size += b.size
		if v.next = b.next; v.next != nil {
			v.next.prev = v
		}
		if seg.tail == b {
			seg.tail = v
		}
		p.recycleLocked(b)
		b = v
	}
	p.indexLocked(b)
}

// offerLocked serves the request that runs the out-of-memory ladder, from memory that has just
// become free. Other requests get memory only after it.
func (p *Pool) offerLocked() {
	if r := p.waiter; r != nil && r.block == nil {
		if r.block = p.takeLocked(r.size, r.rounded, r.stream, r.origin); r.block != nil {
			p.signal()
		}
	}
}

// growLocked allocates a segment from the backing and takes the block for the request from it. It
// releases the lock during the allocation. If exact is set, the segment is as small as the request
// permits.
func (p *Pool) growLocked(r *request, exact bool) error {
	if p.expandable {
		if exact {
			return fmt.Errorf("no smaller segment: %w", ErrNoMemory)
		}
		return p.expandLocked(r)
	}
	size := p.segmentSize(r.rounded)
	if exact {
		if r.rounded == size {
			return fmt.Errorf("no smaller segment: %w", ErrNoMemory)
		}
		size = r.rounded
	}
	if p.adoptLocked(r) {
		return nil
	}
	if p.limit > 0 {
		held := p.stats.ReservedBytes.Current + p.reserving
		if held > p.limit || size > p.limit-held {
			return fmt.Errorf("the pool's limit of %s: %w", human(p.limit), ErrNoMemory)
		}
	}
	p.reserving += size
	p.mu.Unlock()
	addr, err := p.backing.Alloc(size)
	if err == nil && uint64(addr)%p.o.Round != 0 {
		p.backing.Free(addr, size)
		err = fmt.Errorf("segment at %#x is not aligned to %d bytes", addr, p.o.Round)
	}
	p.mu.Lock()
	p.reserving -= size
	if err != nil {
		return fmt.Errorf("segment of %s: %w", human(size), err)
	}
	seg := &segment{addr: addr, size: size, small: r.rounded <= p.o.SmallMax, home: p.arenaLocked(r.stream), index: len(p.segments)}
	p.segments = append(p.segments, seg)
	p.stats.ReservedBytes.add(size)
	p.stats.Segments.add(1)
	p.stats.of(seg.small).reserved(size)
	if p.history != nil {
		p.history.segmentLocked(device.ActionSegmentAlloc, addr, size, r.stream, r)
	}
	b := p.newBlockLocked()
	b.seg, b.addr, b.size = seg, addr, size
	b.stream.Store(uint64(r.stream))
	seg.first = b
	p.indexLocked(b)
	if r.block == nil { // otherwise a Free has served the request in the meantime
		r.block = p.takeLocked(r.size, r.rounded, r.stream, r.origin)
	}
	if p.waiter != r {
		p.offerLocked()
	}
	return nil
}

// segmentSize returns the size of the segment that is allocated for a block of the given size.
func (p *Pool) segmentSize(rounded uint64) uint64 {
	switch {
	case rounded <= p.o.SmallMax:
		return p.o.SmallSegment
	case rounded < p.o.MediumMax:
		return p.o.MediumSegment
	}
	return (rounded + p.o.LargeRound - 1) / p.o.LargeRound * p.o.LargeRound
}
