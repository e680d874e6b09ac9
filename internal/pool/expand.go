package pool

import (
	"errors"
	"fmt"
	"slices"

	"github.com/flambeau-go/flambeau/device"
)

// Expander is implemented by a Backing with virtual memory. If Options.Expandable is set, the pool
// reserves a range of addresses for each stream and size class. It maps pages into the range when
// blocks need them, and gives whole free pages back. One segment then grows in place. Without this,
// there are many segments of fixed sizes, with free parts that are too small for any request.
//
// The pool holds its lock when it calls Reserve, Unreserve and Map. It does not hold its lock when
// it calls Unmap.
type Expander interface {
	// Granularity returns the page size, or 0 if there is no virtual memory. Addresses and sizes in
	// the other methods are multiples of it.
	Granularity() uint64
	// Reserve returns a range of addresses without memory. The range is aligned to Granularity.
	Reserve(size uint64) (addr uintptr, err error)
	// Unreserve releases a range in which nothing is mapped.
	Unreserve(addr uintptr, size uint64)
	// Map maps memory to all pages of [addr, addr+size). If it fails, it maps none. It returns the
	// same errors as Backing.Alloc.
	Map(addr uintptr, size, page uint64) error
	// Unmap unmaps a range of whole pages. The argument page is their size, as in the call of Map.
	// The pool has waited for the work that uses the pages.
	Unmap(addr uintptr, size, page uint64)
}

// space is a reserved range of addresses. Each mapped part (run) of it is a segment of the pool.
type space struct {
	addr  uintptr
	size  uint64
	page  uint64
	home  *arena
	small bool
	runs  []*segment // segments of the space, sorted by address; no two segments are adjacent
	busy  []span     // ranges that the pool is unmapping at the moment, without its lock
}

type span struct {
	addr uintptr
	size uint64
}

func (s span) end() uintptr { return s.addr + uintptr(s.size) }

func (g *segment) end() uintptr { return g.addr + uintptr(g.size) }

// SetExpandable sets whether the pool grows by pages from now on. Existing segments stay unchanged.
// It returns false if the backing has no virtual memory.
func (p *Pool) SetExpandable(enabled bool) bool {
	can := p.expander != nil && p.expander.Granularity() > 0
	p.mu.Lock()
	p.expandable = enabled && can
	p.mu.Unlock()
	return can
}

// Expandable reports whether the pool grows by pages.
func (p *Pool) Expandable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.expandable
}

// pageSize returns the page size for small or for large blocks, a multiple of the backing's
// granularity.
func (p *Pool) pageSize(small bool) uint64 {
	g := p.expander.Granularity()
	want := p.o.Page
	if !small {
		want = max(p.o.Page, p.o.LargePage)
	}
	return max((want+g-1)/g*g, g)
}

// gap is a range of addresses without memory. If pages are mapped there, a block for a request
// fits.
type gap struct {
	space *space
	addr  uintptr
	size  uint64
}

// fitLocked finds a gap in the space where a block of the given size fits. Among such gaps it takes
// the one that needs the fewest new pages. If this gap needs fewer pages than the gap in best,
// fitLocked stores it in best.
func (s *space) fitLocked(size uint64, best *gap) {
	// New pages must lie between the mapped parts, and outside of the ranges that are being
	// unmapped.
	spans := make([]span, 0, len(s.runs)+len(s.busy)+1)
	for _, r := range s.runs {
		spans = append(spans, span{r.addr, r.size})
	}
	if len(s.busy) > 0 {
		spans = append(spans, s.busy...)
		slices.SortFunc(spans, func(a, b span) int {
			if a.addr < b.addr {
				return -1
			}
			return 1
		})
	}
	spans = append(spans, span{s.addr + uintptr(s.size), 0})
	at := s.addr
	for _, next := range spans {
		room := uint64(next.addr - at)
		if room > 0 {
			before, after := s.freeBefore(at), s.freeAfter(next.addr)
			need := (size - min(size, before) + s.page - 1) / s.page * s.page
			if need > room && before+room+after >= size {
				need = room
			}
			if need <= room && (best.space == nil || need < best.size) {
				*best = gap{s, at, need}
			}
		}
		at = next.end()
	}
}

// freeBefore returns the number of free bytes just before addr, where a mapped part must end.
func (s *space) freeBefore(addr uintptr) uint64 {
	for _, r := range s.runs {
		if r.end() == addr {
			if b := r.tail; b.state == stateFree {
				return b.size
			}
		}
	}
	return 0
}

// freeAfter returns the number of free bytes just after addr, where a mapped part must begin.
func (s *space) freeAfter(addr uintptr) uint64 {
	for _, r := range s.runs {
		if r.addr == addr && r.first.state == stateFree {
			return r.first.size
		}
	}
	return 0
}

// expandLocked maps pages for a request and takes the block for the request from them.
func (p *Pool) expandLocked(r *request) error {
	small := r.rounded <= p.o.SmallMax
	home := p.arenaLocked(r.stream)
	var g gap
	for _, s := range p.spaces {
		if s.home == home && s.small == small {
			s.fitLocked(r.rounded, &g)
		}
	}
	if g.space == nil {
		s, err := p.reserveLocked(r, home, small)
		if err != nil {
			return err
		}
		s.fitLocked(r.rounded, &g)
	}
	if p.limit > 0 {
		held := p.stats.ReservedBytes.Current + p.reserving
		if held > p.limit || g.size > p.limit-held {
			p.dropSpacesLocked()
			return fmt.Errorf("the pool's limit of %s: %w", human(p.limit), ErrNoMemory)
		}
	}
	if err := p.expander.Map(g.addr, g.size, g.space.page); err != nil {
		p.dropSpacesLocked()
		return fmt.Errorf("%s of pages: %w", human(g.size), err)
	}
	p.stats.ReservedBytes.add(g.size)
	p.stats.ExpandableBytes.add(g.size)
	p.stats.of(small).ReservedBytes.add(g.size)
	if p.history != nil {
		p.history.segmentLocked(device.ActionSegmentMap, g.addr, g.size, r.stream, r)
	}
	p.joinLocked(g)
	if r.block == nil {
		r.block = p.takeLocked(r.size, r.rounded, r.stream, r.origin)
	}
	if p.waiter != r {
		p.offerLocked()
	}
	return nil
}

// reserveLocked reserves addresses for a stream and class. It reserves the size of the device's
// memory and an eighth more, because some gaps between mapped parts are too small to be used.
func (p *Pool) reserveLocked(r *request, home *arena, small bool) (*space, error) {
	_, total := p.backing.Capacity()
	if total > 0 && r.rounded > total {
		return nil, fmt.Errorf("more than the device has: %w", ErrNoMemory)
	}
	page := p.pageSize(small)
	size := max(total+total/8, r.rounded, 16*page)
	size = (size + page - 1) / page * page
	addr, err := p.expander.Reserve(size)
	if err != nil {
		return nil, fmt.Errorf("%s of addresses: %w", human(size), err)
	}
	if uint64(addr)%p.o.Round != 0 || addr == 0 {
		p.expander.Unreserve(addr, size)
		return nil, fmt.Errorf("addresses at %#x are not aligned to %d bytes", addr, p.o.Round)
	}
	s := &space{addr: addr, size: size, page: page, home: home, small: small}
	p.spaces = append(p.spaces, s)
	return s, nil
}

// joinLocked makes newly mapped pages a free block of their space. It merges them with the mapped
// parts just before and just after them.
func (p *Pool) joinLocked(g gap) {
	s := g.space
	b := p.newBlockLocked()
	b.addr, b.size = g.addr, g.size
	b.stream.Store(uint64(s.home.stream))
	i, _ := slices.BinarySearchFunc(s.runs, g.addr, func(r *segment, a uintptr) int {
		if r.addr < a {
			return -1
		}
		return 1
	})
	var run *segment
	if i > 0 && s.runs[i-1].end() == g.addr {
		run = s.runs[i-1]
		i--
		run.size += g.size
		b.seg = run
		b.prev = run.tail
		run.tail.next = b
		run.tail = b
	} else {
		run = &segment{addr: g.addr, size: g.size, small: s.small, home: s.home, space: s, first: b, tail: b, index: len(p.segments)}
		b.seg = run
		p.segments = append(p.segments, run)
		p.stats.Segments.add(1)
		p.stats.of(s.small).Segments.add(1)
		s.runs = slices.Insert(s.runs, i, run)
	}
	if i+1 < len(s.runs) && s.runs[i+1].addr == run.end() {
		next := s.runs[i+1]
		for o := next.first; o != nil; o = o.next {
			o.seg = run
		}
		b.next, next.first.prev = next.first, b
		run.tail = next.tail
		run.size += next.size
		s.runs = slices.Delete(s.runs, i+1, i+2)
		p.forgetLocked(next)
	}
	p.coalesceLocked(b)
}

// forgetLocked removes a segment from the pool's list.
func (p *Pool) forgetLocked(seg *segment) {
	last := len(p.segments) - 1
	p.segments[seg.index] = p.segments[last]
	p.segments[seg.index].index = seg.index
	p.segments[last] = nil
	p.segments = p.segments[:last]
	p.stats.Segments.sub(1)
	p.stats.of(seg.small).Segments.sub(1)
}

// unmapping is a range of whole free pages that the pool is unmapping.
type unmapping struct {
	space *space
	span
}

// carveLocked removes whole free pages from the spaces of streams for which idle returns true. The
// parts of free blocks outside of these pages stay free blocks.
func (p *Pool) carveLocked(idle func(StreamID) bool) (out []unmapping) {
	for _, s := range p.spaces {
		if s.home.held {
			continue
		}
		for i := 0; i < len(s.runs); i++ {
			for b := s.runs[i].first; b != nil; b = b.next {
				if b.state != stateFree {
					continue
				}
				from := (b.addr-s.addr+uintptr(s.page)-1)/uintptr(s.page)*uintptr(s.page) + s.addr
				to := (b.addr+uintptr(b.size)-s.addr)/uintptr(s.page)*uintptr(s.page) + s.addr
				if from >= to || s.home.held || !idle(s.home.stream) {
					continue
				}
				g := span{from, uint64(to - from)}
				out = append(out, unmapping{s, g})
				if p.history != nil {
					p.history.segmentLocked(device.ActionSegmentUnmap, g.addr, g.size, s.home.stream, nil)
				}
				if p.cutLocked(s, i, b, g) {
					i--
				}
				// if the segment continues after the pages, the loop visits the rest as the next
				// segment
				break
			}
		}
	}
	for _, u := range out {
		u.space.busy = append(u.space.busy, u.span)
	}
	return out
}

// cutLocked removes the pages g, which lie in the free block b, from segment i of the space. If no
// block is left before the pages, it returns true. Index i is then the segment after the pages.
func (p *Pool) cutLocked(s *space, i int, b *Block, g span) bool {
	run := s.runs[i]
	p.unindexLocked(b)
	end := b.addr + uintptr(b.size)
	after := b.next
	before := b.prev
	if head := uint64(g.addr - b.addr); head > 0 { // b becomes the free part before the pages
		b.size, b.next = head, nil
		before = b
	} else {
		if before != nil {
			before.next = nil
		}
	}
	if rest := uint64(end - g.end()); rest > 0 {
		t := p.newBlockLocked()
		t.addr, t.size, t.next = g.end(), rest, after
		t.stream.Store(uint64(s.home.stream))
		if after != nil {
			after.prev = t
		}
		after = t
	}
	if after != nil {
		after.prev = nil
	}
	if before != b {
		p.recycleLocked(b)
	}
	tail, stop := run.tail, run.end()
	switch {
	case before == nil && after == nil:
		s.runs = slices.Delete(s.runs, i, i+1)
		p.forgetLocked(run)
		return true
	case after == nil:
		run.size, run.tail = uint64(g.addr-run.addr), before
	case before == nil:
		run.addr, run.size, run.first = g.end(), uint64(stop-g.end()), after
		if after.next == nil {
			run.tail = after
		}
	default:
		run.size, run.tail = uint64(g.addr-run.addr), before
		r := &segment{addr: g.end(), size: uint64(stop - g.end()), small: s.small, home: s.home, space: s, first: after, tail: tail, index: len(p.segments)}
		if after.next == nil {
			r.tail = after
		}
		p.segments = append(p.segments, r)
		p.stats.Segments.add(1)
		p.stats.of(s.small).Segments.add(1)
		s.runs = slices.Insert(s.runs, i+1, r)
		run = r
	}
	for o := after; o != nil; o = o.next {
		o.seg = run
	}
	if before == b {
		p.indexLocked(b)
	}
	if after != nil && after.state == stateSpare {
		p.indexLocked(after)
	}
	return before == nil
}

func (p *Pool) unmap(list []unmapping) {
	for _, u := range list {
		p.expander.Unmap(u.addr, u.size, u.space.page)
	}
}

// unmappedLocked ends what carveLocked began: the given ranges are unmapped, and may be mapped
// again.
func (p *Pool) unmappedLocked(list []unmapping) {
	for _, u := range list {
		u.space.busy = slices.DeleteFunc(u.space.busy, func(s span) bool { return s == u.span })
	}
	p.dropSpacesLocked()
}

// dropSpacesLocked releases the addresses of spaces in which nothing is mapped.
func (p *Pool) dropSpacesLocked() {
	p.spaces = slices.DeleteFunc(p.spaces, func(s *space) bool {
		if len(s.runs) > 0 || len(s.busy) > 0 {
			return false
		}
		p.expander.Unreserve(s.addr, s.size)
		return true
	})
}

// errNoVirtual is the value with which New panics if Options requires virtual memory that the
// backing does not have.
var errNoVirtual = errors.New("option Expandable: the backing has no virtual memory")
