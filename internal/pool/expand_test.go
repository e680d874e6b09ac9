package pool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/device"
)

const fakePage = 256

// pagedDevice is a fakeDevice with virtual memory.
type pagedDevice struct{ *fakeDevice }

func expandable(o Options) Options {
	o.Expandable = true
	return o
}

func (pagedDevice) Granularity() uint64 { return fakePage }

func (d pagedDevice) Reserve(size uint64) (uintptr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if size == 0 || size%fakePage != 0 {
		panic(fmt.Sprintf("%d bytes are reserved", size))
	}
	d.next = (d.next + fakePage - 1) / fakePage * fakePage
	a := d.next
	d.next += uintptr(size) + fakePage
	d.reserved[a] = size
	return a, nil
}

func (d pagedDevice) Unreserve(addr uintptr, size uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reserved[addr] != size {
		panic("an unknown range is given back")
	}
	for a := addr; a < addr+uintptr(size); a += fakePage {
		if d.pages[a] {
			panic("a range with pages is given back")
		}
	}
	delete(d.reserved, addr)
}

func (d pagedDevice) Map(addr uintptr, size, page uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note("map %d", size)
	if size == 0 || size%page != 0 || page%fakePage != 0 || !d.inRange(addr, size) {
		panic(fmt.Sprintf("map of %#x+%d in pages of %d", addr, size, page))
	}
	if d.allocErr != nil {
		return d.allocErr
	}
	if d.total > 0 && d.used+size > d.total {
		return fmt.Errorf("fake: %w", ErrNoMemory)
	}
	d.used += size
	for a := addr; a < addr+uintptr(size); a += fakePage {
		if d.pages[a] {
			panic(fmt.Sprintf("the page at %#x is mapped twice", a))
		}
		d.pages[a] = true
	}
	return nil
}

func (d pagedDevice) Unmap(addr uintptr, size, page uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note("unmap %d", size)
	if d.gone != nil {
		d.gone(addr, size)
	}
	if size == 0 || size%page != 0 {
		panic(fmt.Sprintf("unmap of %#x+%d in pages of %d", addr, size, page))
	}
	for a := addr; a < addr+uintptr(size); a += fakePage {
		if !d.pages[a] {
			panic(fmt.Sprintf("the page at %#x is not mapped", a))
		}
		delete(d.pages, a)
	}
	d.used -= size
}

func (d *fakeDevice) inRange(addr uintptr, size uint64) bool {
	for a, n := range d.reserved {
		if addr >= a && addr+uintptr(size) <= a+uintptr(n) && (addr-a)%fakePage == 0 {
			return true
		}
	}
	return false
}

func (d *fakeDevice) mapped(addr uintptr, size uint64) bool {
	for a := addr / fakePage * fakePage; a < addr+uintptr(size); a += fakePage {
		if !d.pages[a] {
			return false
		}
	}
	return size > 0
}

// TestExpand allocates and frees blocks in pages. A segment must grow in place, the pool must give
// back whole free pages in its middle, and a new block must fill that hole.
func TestExpand(t *testing.T) {
	d := newFake(64 << 10)
	d.logging = true
	p := New(pagedDevice{d}, expandable(tiny()))
	check := func(segments, reserved uint64) {
		t.Helper()
		s := p.Stats()
		if s.Segments.Current != segments || s.ReservedBytes.Current != reserved || s.ExpandableBytes.Current != reserved {
			t.Fatalf("%d bytes in %d segments (%d expandable), want %d in %d", s.ReservedBytes.Current, s.Segments.Current, s.ExpandableBytes.Current, reserved, segments)
		}
		recount(t, p, s)
	}
	free := func(b *Block) { p.Free(b, b.Generation()) }
	a := must(t, p, 1000, 0) // this block takes 4 pages
	b := must(t, p, 1000, 0) // this block starts in the 24 free bytes of the last page of a
	c := must(t, p, 1000, 0)
	check(1, 12*fakePage)
	if b.Addr() != a.Addr()+1000 || c.Addr() != b.Addr()+1000 {
		t.Errorf("blocks at %#x, %#x, %#x are not one after another", a.Addr(), b.Addr(), c.Addr())
	}
	hole := b.Addr()
	free(b)
	// the block was bytes 1000 to 2000; the whole pages in it are bytes 1024 to 1792
	if n := p.Empty(); n != 3*fakePage {
		t.Errorf("Empty gave %d bytes back", n)
	}
	check(2, 9*fakePage)
	// the new block fills the hole; the segment does not grow
	b = must(t, p, 1000, 0)
	check(1, 12*fakePage)
	if b.Addr() != hole {
		t.Errorf("the block went to %#x, not into the hole at %#x", b.Addr(), hole)
	}
	free(a)
	p.Empty()
	check(1, 9*fakePage)
	// the new block is before b, and also uses the free part of the page that it shares with b
	a = must(t, p, 900, 0)
	check(1, 12*fakePage)
	small := must(t, p, 8, 0)
	other := must(t, p, 1000, 1)
	check(3, 12*fakePage+fakePage+4*fakePage)
	for _, x := range []*Block{a, b, c, small, other} {
		free(x)
	}
	check(3, 17*fakePage)
	if n := p.Empty(); n != 17*fakePage || d.used != 0 || len(d.reserved) != 0 {
		t.Errorf("Empty gave %d bytes back, %d and %d ranges are left", n, d.used, len(d.reserved))
	}
	check(0, 0)
}

// TestExpandAtTheLimit allocates on a full device on which another stream has free pages. These
// must be used before the allocation fails. A failed allocation must leave nothing behind.
func TestExpandAtTheLimit(t *testing.T) {
	for _, limit := range []bool{false, true} {
		d := newFake(8 * fakePage)
		o := expandable(tiny())
		o.GC, o.CollectWait = func() {}, 1
		if limit {
			d.total, o.Limit = 0, 8*fakePage
		}
		p := New(pagedDevice{d}, o)
		a, b := must(t, p, 5*fakePage, 0), must(t, p, 2*fakePage, 0)
		d.work(0)
		p.Free(a, a.Generation())
		c := must(t, p, 4*fakePage, 1)
		if d.finished[0] != 1 {
			t.Error("pages were unmapped before the work on them was done")
		}
		_, err := p.Alloc(4*fakePage, 2, Origin{Op: "too much", Dims: -1})
		var oom *OOMError
		if !errors.As(err, &oom) || oom.Allocated != 6*fakePage {
			t.Fatalf("got %v", err)
		}
		s := p.Stats()
		recount(t, p, s)
		if s.ReservedBytes.Current > 8*fakePage || len(d.reserved) != 2 {
			t.Errorf("%d bytes, %d ranges", s.ReservedBytes.Current, len(d.reserved))
		}
		p.Free(b, b.Generation())
		p.Free(c, c.Generation())
		must(t, p, 8*fakePage, 2)
		recount(t, p, p.Stats())
	}
	// An error that does not wrap ErrNoMemory must be returned unchanged.
	d := newFake(0)
	p := New(pagedDevice{d}, expandable(tiny()))
	d.allocErr = errors.New("the device is gone")
	if _, err := p.Alloc(100, 0, Origin{}); err == nil || errors.Is(err, ErrNoMemory) || len(d.reserved) != 0 {
		t.Errorf("got %v, %d ranges", err, len(d.reserved))
	}
}

// TestExpandSwitch changes the setting while blocks are live. Blocks in pages and other blocks must
// still be freed, and their memory given back.
func TestExpandSwitch(t *testing.T) {
	d := newFake(0)
	p := New(pagedDevice{d}, tiny())
	a := must(t, p, 1000, 0)
	if !p.SetExpandable(true) || !p.Expandable() {
		t.Fatal("the pool cannot expand")
	}
	b := must(t, p, 1000, 0)
	p.SetExpandable(false)
	c := must(t, p, 1000, 0)
	kinds := map[bool]int{}
	for _, s := range p.Snapshot() {
		kinds[s.Expandable]++
	}
	if kinds[true] != 1 || kinds[false] != 2 {
		t.Errorf("segments by kind: %v", kinds)
	}
	p.SetExpandable(true)
	p.Retire(0, 5)
	e := must(t, p, 1000, 5)
	recount(t, p, p.Stats())
	for _, x := range []*Block{a, b, c, e} {
		p.Free(x, x.Generation())
	}
	p.Empty()
	if d.used != 0 || len(d.reserved) != 0 || len(p.Snapshot()) != 0 {
		t.Errorf("%d bytes are left", d.used)
	}
	if q := New(newFake(0), tiny()); q.SetExpandable(true) || q.Expandable() {
		t.Error("a pool without virtual memory expands")
	}
	panics(t, "has no virtual memory", func() { New(newFake(0), expandable(tiny())) })
}

// TestExpandHistory reads the history of a pool with pages. From the events in the history,
// the test must be able to compute which pages are mapped.
func TestExpandHistory(t *testing.T) {
	d := newFake(9000)
	o := expandable(tiny())
	o.GC, o.CollectWait = func() {}, 1
	m := &model{t: t, d: d, p: New(pagedDevice{d}, o), r: rand.New(rand.NewPCG(3, 3))}
	m.p.RecordHistory(device.NewHistorySettings())
	for range 3000 {
		m.step()
	}
	s := m.p.MemorySnapshot()
	pages := map[uintptr]bool{}
	for _, e := range s.Events {
		for a := e.Addr; a < e.Addr+uintptr(e.Size); a += fakePage {
			switch e.Action {
			case device.ActionSegmentMap:
				pages[a] = true
			case device.ActionSegmentUnmap:
				delete(pages, a)
			}
		}
	}
	if uint64(len(pages))*fakePage != s.Reserved || s.Reserved == 0 {
		t.Errorf("the events leave %d pages, %d bytes are reserved", len(pages), s.Reserved)
	}
	for _, g := range s.Segments {
		if !g.Expandable {
			t.Errorf("the segment at %#x is not expandable", g.Addr)
		}
		for a := g.Addr; a < g.Addr+uintptr(g.Size); a += fakePage {
			if !pages[a] {
				t.Errorf("the page at %#x is in a segment, and in no event", a)
			}
		}
	}
}

// TestHoldPages checks that the pages of a held stream stay mapped until the stream is retired.
// Each replay of a recording uses them again.
func TestHoldPages(t *testing.T) {
	for _, pages := range []bool{false, true} {
		d := newFake(0)
		p := New(pagedDevice{d}, tiny())
		p.SetExpandable(pages)
		p.Hold(3)
		b := must(t, p, 1000, 3)
		p.Free(b, b.Generation())
		if n := p.Empty(); n != 0 {
			t.Errorf("pages=%v: %d bytes of a held stream went back", pages, n)
		}
		p.Retire(3, 0)
		if n := p.Empty(); n == 0 || d.used != 0 {
			t.Errorf("pages=%v: %d bytes went back, %d are left", pages, n, d.used)
		}
	}
}

// TestHoldTakesNoPages checks that a held stream uses no free pages of other streams. Otherwise
// Empty would unmap pages that are in use.
func TestHoldTakesNoPages(t *testing.T) {
	f := &followingPages{following{fakeDevice: newFake(0)}}
	p := New(f, expandable(tiny()))
	other := must(t, p, 1000, 1)
	p.Free(other, other.Generation())
	p.SetExpandable(false)
	p.Hold(3)
	b := must(t, p, 1000, 3)
	p.Free(b, b.Generation())
	if len(f.follows) != 0 || b.Addr() == other.Addr() {
		t.Error("a held stream has taken over pages of another one")
	}
	p.Empty()
	if again := must(t, p, 1000, 3); again.Addr() != b.Addr() {
		t.Error("what a held stream freed does not serve it again after Empty")
	} else {
		p.Free(again, again.Generation())
	}
	recount(t, p, p.Stats())
	p.Retire(3, 1)
	p.Empty()
	if f.used != 0 {
		t.Errorf("%d bytes are left", f.used)
	}
}

// followingPages is a backing with virtual memory whose streams can wait for each other.
type followingPages struct{ following }

func (f *followingPages) Granularity() uint64 { return pagedDevice{f.fakeDevice}.Granularity() }
func (f *followingPages) Reserve(size uint64) (uintptr, error) {
	return pagedDevice{f.fakeDevice}.Reserve(size)
}
func (f *followingPages) Unreserve(addr uintptr, size uint64) {
	pagedDevice{f.fakeDevice}.Unreserve(addr, size)
}
func (f *followingPages) Map(addr uintptr, size, page uint64) error {
	return pagedDevice{f.fakeDevice}.Map(addr, size, page)
}
func (f *followingPages) Unmap(addr uintptr, size, page uint64) {
	pagedDevice{f.fakeDevice}.Unmap(addr, size, page)
}
