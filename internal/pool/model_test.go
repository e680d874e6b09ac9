package pool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// model simulates what a pool may do. It does not use the pool's implementation.
type model struct {
	t      *testing.T
	d      *fakeDevice
	p      *Pool
	r      *rand.Rand
	live   []*owned
	past   []access // accesses to freed blocks that may still be in progress
	stale  []handle
	queued []handle

	staleFrees, allocs, frees, queuedFrees uint64
	sum, peak                              totals
}

type totals struct{ allocated, requested, blocks uint64 }

type owned struct {
	b      *Block
	gen    uint64
	addr   uintptr
	size   uint64 // requested size
	round  uint64
	stream StreamID
	uses   []StreamID
}

// access is an access of a stream to the bytes from addr to addr+size. The access has ended when
// the stream has finished as many units of work as the field end says.
type access struct {
	addr   uintptr
	size   uint64
	stream StreamID
	end    uint64
}

type handle struct {
	b   *Block
	gen uint64
}

func (m *model) fatalf(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf(format, args...)
}

func overlap(a uintptr, n uint64, b uintptr, k uint64) bool {
	return a < b+uintptr(k) && b < a+uintptr(n)
}

func (m *model) alloc() {
	var size uint64
	switch m.r.IntN(10) {
	case 0:
		size = 0
	case 1, 2:
		size = uint64(m.r.IntN(2000))
	case 3:
		size = 128 + uint64(m.r.IntN(3))
	default:
		size = uint64(m.r.IntN(200))
	}
	stream := StreamID(m.r.IntN(3))
	origin := Origin{Op: "model", Dims: -1, Collected: m.r.IntN(2) == 0}
	b, err := m.p.Alloc(size, stream, origin)
	m.drained()
	if err != nil {
		var oom *OOMError
		if !errors.As(err, &oom) {
			m.fatalf("Alloc(%d): %v", size, err)
		}
		return
	}
	m.allocs++
	o := &owned{b: b, gen: b.Generation(), addr: b.Addr(), size: size, round: b.Rounded(), stream: stream}
	switch {
	case b.Size() != size || b.Stream() != stream || b.Origin() != origin:
		m.fatalf("Alloc(%d, %d) returned size %d, stream %d, origin %v", size, stream, b.Size(), b.Stream(), b.Origin())
	case size == 0 && (o.addr != 0 || o.round != 0):
		m.fatalf("an empty block at %#x of %d bytes", o.addr, o.round)
	case size > 0 && (o.round < size || o.round%8 != 0 || o.addr%8 != 0 || o.addr == 0):
		m.fatalf("Alloc(%d) at %#x rounded %d", size, o.addr, o.round)
	case size > 0 && size <= 128 && o.round != (size+7)&^7:
		m.fatalf("Alloc(%d) took %d bytes of a small segment", size, o.round)
	case size > 128 && o.round-size > 96+7 && o.round != 1280:
		// so many bytes are unused that the pool should have split the block
		m.fatalf("Alloc(%d) took %d bytes", size, o.round)
	}
	inside := size == 0
	for a, n := range m.d.segments {
		inside = inside || (o.addr >= a && o.addr+uintptr(o.round) <= a+uintptr(n))
	}
	inside = inside || m.d.mapped(o.addr, o.round)
	if !inside {
		m.fatalf("[%#x+%d] lies in no segment", o.addr, o.round)
	}
	for _, l := range m.live {
		if l.b == b {
			m.fatalf("one struct has two owners")
		}
		if overlap(o.addr, o.round, l.addr, l.round) {
			m.fatalf("[%#x+%d] overlaps the live [%#x+%d]", o.addr, o.round, l.addr, l.round)
		}
	}
	past := m.past[:0]
	for _, u := range m.past {
		if m.d.finished[u.stream] >= u.end {
			continue
		}
		if u.stream != stream && overlap(o.addr, o.round, u.addr, u.size) {
			m.fatalf("[%#x+%d] went to stream %d while stream %d works on [%#x+%d] (at %d of %d)",
				o.addr, o.round, stream, u.stream, u.addr, u.size, m.d.finished[u.stream], u.end)
		}
		past = append(past, u)
	}
	m.past = past
	m.d.work(stream) // the owner's first access to the block
	m.live = append(m.live, o)
	m.sum.allocated += o.round
	m.sum.requested += size
	m.sum.blocks++
	m.peak.allocated = max(m.peak.allocated, m.sum.allocated)
	m.peak.requested = max(m.peak.requested, m.sum.requested)
	m.peak.blocks = max(m.peak.blocks, m.sum.blocks)
}

// gone notes that the owner has freed block i.
func (m *model) gone(i int) *owned {
	o := m.live[i]
	m.live[i] = m.live[len(m.live)-1]
	m.live = m.live[:len(m.live)-1]
	m.frees++
	m.sum.allocated -= o.round
	m.sum.requested -= o.size
	m.sum.blocks--
	for _, s := range append([]StreamID{o.stream}, o.uses...) {
		m.past = append(m.past, access{o.addr, o.round, s, m.d.queued[s]})
	}
	if len(m.stale) < 50 {
		m.stale = append(m.stale, handle{o.b, o.gen})
	} else {
		m.stale[m.r.IntN(50)] = handle{o.b, o.gen}
	}
	return o
}

func (m *model) find(h handle) int {
	for i, o := range m.live {
		if o.b == h.b && o.gen == h.gen {
			return i
		}
	}
	return -1
}

// drained applies the queued releases to the model, after the pool has performed them.
func (m *model) drained() {
	for _, h := range m.queued {
		if i := m.find(h); i >= 0 {
			m.gone(i)
			m.queuedFrees++
		} else {
			m.staleFrees++
		}
	}
	m.queued = m.queued[:0]
}

func (m *model) step() {
	switch k := m.r.IntN(100); {
	case k < 38 || len(m.live) == 0:
		if len(m.live) < 60 {
			m.alloc()
		}
	case k < 60:
		i := m.r.IntN(len(m.live))
		o := m.live[i]
		m.gone(i)
		m.p.Free(o.b, o.gen)
	case k < 70:
		o := m.live[m.r.IntN(len(m.live))]
		m.queued = append(m.queued, handle{o.b, o.gen})
		m.p.Queue(o.b, o.gen)
	case k < 80:
		o := m.live[m.r.IntN(len(m.live))]
		s := StreamID(m.r.IntN(3))
		o.b.Use(s)
		if s != o.stream && o.size > 0 {
			o.uses = append(o.uses, s)
		}
		m.d.work(s)
	case k < 83:
		if len(m.stale) > 0 {
			h := m.stale[m.r.IntN(len(m.stale))]
			m.p.Free(h.b, h.gen)
			m.staleFrees++
		}
	case k < 85:
		if len(m.stale) > 0 {
			h := m.stale[m.r.IntN(len(m.stale))]
			m.queued = append(m.queued, h)
			m.p.Queue(h.b, h.gen)
		}
	case k < 95:
		m.d.finish(StreamID(m.r.IntN(3)), uint64(m.r.IntN(12)))
	case k < 97:
		m.stats()
	case k < 98:
		m.p.Empty()
		m.drained()
	case k < 99:
		m.p.PauseEvents()
		for range m.r.IntN(4) {
			if len(m.live) > 0 {
				i := m.r.IntN(len(m.live))
				o := m.gone(i)
				m.p.Free(o.b, o.gen)
			}
		}
		m.p.ResumeEvents()
	default:
		m.p.ResetPeak()
		m.peak = m.sum
	}
}

// stats compares the pool's statistics with the model and with the blocks of a snapshot.
func (m *model) stats() {
	s := m.p.Stats()
	m.drained()
	if s.StaleFrees != m.staleFrees || s.Allocations != m.allocs || s.Frees != m.frees || s.QueuedFrees != m.queuedFrees {
		m.fatalf("stale, allocations, frees, queued: %d %d %d %d; model %d %d %d %d",
			s.StaleFrees, s.Allocations, s.Frees, s.QueuedFrees, m.staleFrees, m.allocs, m.frees, m.queuedFrees)
	}
	got := totals{s.AllocatedBytes.Current, s.RequestedBytes.Current, s.Allocated.Current}
	if got != m.sum {
		m.fatalf("current %+v; model %+v", got, m.sum)
	}
	got = totals{s.AllocatedBytes.Peak, s.RequestedBytes.Peak, s.Allocated.Peak}
	if got != m.peak {
		m.fatalf("peak %+v; model %+v", got, m.peak)
	}
	if s.ReservedBytes.Current != m.d.used || s.Segments.Current < uint64(len(m.d.segments)) || len(m.d.pages) == 0 && s.Segments.Current > uint64(len(m.d.segments)) ||
		s.ExpandableBytes.Current != uint64(len(m.d.pages))*fakePage {
		m.fatalf("reserved %d in %d segments; the device holds %d in %d", s.ReservedBytes.Current, s.Segments.Current, m.d.used, len(m.d.segments))
	}
	for i, q := range []Stat{s.ExpandableBytes, s.AllocatedBytes, s.RequestedBytes, s.ActiveBytes, s.InactiveSplitBytes, s.ReservedBytes, s.Allocated, s.Active, s.InactiveSplit, s.Segments} {
		if q.Allocated-q.Freed != q.Current || q.Peak < q.Current {
			m.fatalf("stat %d: %+v", i, q)
		}
	}
	var collectable uint64
	for _, o := range m.live {
		if o.b.Origin().Collected {
			collectable += o.round
		}
	}
	if s.CollectableBytes != collectable {
		m.fatalf("collectable %d, model %d", s.CollectableBytes, collectable)
	}
	recount(m.t, m.p, s)
	// Each pending block must have been used by a stream whose work on it is not finished.
	var waiting uint64
	seen := map[uintptr]bool{}
	for _, seg := range m.p.Snapshot() {
		for _, b := range seg.Blocks {
			if b.State == "pending" {
				seen[b.Addr] = true
			}
		}
	}
	for a := range seen {
		found := false
		for _, u := range m.past {
			found = found || (u.addr == a && m.d.finished[u.stream] < u.end)
		}
		if !found {
			m.fatalf("the block at %#x is pending, but all its streams are done", a)
		}
		waiting++
	}
	if s.Pending != waiting {
		m.fatalf("pending %d, snapshot has %d", s.Pending, waiting)
	}
}

// recount computes the statistics from a snapshot and compares them with s. It checks that the
// blocks fill their segments, and that no two neighbouring blocks are free.
func recount(t *testing.T, p *Pool, s Stats) {
	t.Helper()
	var active, split, reserved, blocks, splits uint64
	for _, seg := range p.Snapshot() {
		reserved += seg.Size
		at := seg.Addr
		free := false
		for _, b := range seg.Blocks {
			if b.Addr != at || b.Size == 0 {
				t.Fatalf("segment %#x: block at %#x of %d where %#x was due", seg.Addr, b.Addr, b.Size, at)
			}
			at += uintptr(b.Size)
			if b.State != "free" {
				active += b.Size
				blocks++
				free = false
				continue
			}
			if free {
				t.Fatalf("segment %#x: two free neighbours at %#x", seg.Addr, b.Addr)
			}
			free = true
			if len(seg.Blocks) > 1 {
				split += b.Size
				splits++
			}
		}
		if at != seg.Addr+uintptr(seg.Size) {
			t.Fatalf("segment %#x: blocks end at %#x, not at %#x", seg.Addr, at, seg.Addr+uintptr(seg.Size))
		}
	}
	if s.ReservedBytes.Current != reserved || s.ActiveBytes.Current != active || s.InactiveSplitBytes.Current != split || s.InactiveSplit.Current != splits {
		t.Fatalf("reserved %d, active %d, inactive split %d in %d; recounted %d, %d, %d in %d", s.ReservedBytes.Current, s.ActiveBytes.Current,
			s.InactiveSplitBytes.Current, s.InactiveSplit.Current, reserved, active, split, splits)
	}
	checkClasses(t, s)
	if s.Active.Current < blocks {
		t.Fatalf("active blocks %d, recounted at least %d", s.Active.Current, blocks)
	}
	checkClasses(t, s)
	checkIndex(t, p)
}

// checkIndex checks that the index of each arena contains exactly its free blocks, and that the
// bitmaps and trees are consistent.
func checkIndex(t *testing.T, p *Pool) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	runs := 0
	for _, s := range p.spaces {
		for i, r := range s.runs {
			runs++
			if p.segments[r.index] != r || r.addr < s.addr || r.end() > s.addr+uintptr(s.size) || i > 0 && s.runs[i-1].end() >= r.addr {
				t.Fatalf("run %d of the space at %#x is out of place", i, s.addr)
			}
		}
	}
	free := map[*Block]bool{}
	for i, seg := range p.segments {
		if s := seg.space; s != nil && (seg.tail == nil || seg.tail.next != nil || seg.tail.seg != seg || !slices.Contains(s.runs, seg) || seg.home != s.home ||
			uint64(seg.addr-s.addr)%s.page != 0 || seg.size%s.page != 0) {
			t.Fatalf("the expandable segment at %#x is in disorder", seg.addr)
		}
		if seg.index != i || seg.first.prev != nil {
			t.Fatalf("segment %d has index %d", i, seg.index)
		}
		for b := seg.first; b != nil; b = b.next {
			if b.next != nil && b.next.prev != b {
				t.Fatal("neighbour links disagree")
			}
			if b.seg != seg || b.Stream() != seg.home.stream {
				t.Fatal("a block of another segment or stream")
			}
			if b.state == stateFree {
				free[b] = true
			}
		}
	}
	list := func(a *arena, small bool, h *Block, size uint64) {
		var before *Block
		for b := h; b != nil; b = b.listNext {
			longer := small && b.seg.space != nil && size == p.o.SmallSegment && b.size > size
			if !free[b] || b.seg.home != a || b.seg.small != small || b.size != size && !longer || b.listPrev != before {
				t.Fatalf("the index of stream %d holds a wrong block", a.stream)
			}
			delete(free, b)
			before = b
		}
	}
	for _, a := range p.arenas {
		for i, h := range a.small.heads {
			if (a.small.words[i/64]>>(i%64)&1 == 1) != (h != nil) {
				t.Fatalf("bit %d of the bitmap is wrong", i)
			}
			if w := i / 64; (a.small.summary[w/64]>>(w%64)&1 == 1) != (a.small.words[w] != 0) {
				t.Fatalf("bit %d of the bitmap's summary is wrong", w)
			}
			list(a, true, h, uint64(i)*p.o.Round)
		}
		var walk func(n *Block, low, high, top uint64)
		walk = func(n *Block, low, high, top uint64) {
			if n == nil {
				return
			}
			if n.size <= low || n.size >= high || priority(n.size) > top {
				t.Fatalf("the tree is out of order at size %d", n.size)
			}
			list(a, false, n, n.size)
			walk(n.left, low, n.size, priority(n.size))
			walk(n.right, n.size, high, priority(n.size))
		}
		walk(a.large.root, 0, 1<<63, ^uint64(0))
	}
	for _, seg := range p.segments {
		if seg.space != nil {
			runs--
		}
	}
	if runs != 0 {
		t.Fatalf("%d runs are no segments", runs)
	}
	if len(free) != 0 {
		t.Fatalf("%d free blocks are not indexed", len(free))
	}
}

// returned checks memory that the pool gives back. It must hold no live block, and unfinished work
// must not use it.
func (m *model) returned(addr uintptr, size uint64) {
	for _, l := range m.live {
		queued := slices.ContainsFunc(m.queued, func(h handle) bool { return h.b == l.b && h.gen == l.gen })
		if !queued && overlap(addr, size, l.addr, l.round) {
			m.fatalf("[%#x+%d] goes back with the live [%#x+%d]", addr, size, l.addr, l.round)
		}
	}
	for _, u := range m.past {
		if m.d.finished[u.stream] < u.end && overlap(addr, size, u.addr, u.size) {
			m.fatalf("[%#x+%d] goes back while stream %d works on [%#x+%d]", addr, size, u.stream, u.addr, u.size)
		}
	}
}

// TestModel runs random operations on three streams and compares the pool with a model. Live blocks
// must not overlap. Memory must not be reused or given back too early. The statistics must be
// exact, and at the end all free blocks next to each other must be merged. With FLAMBEAU_SOAK=1
// there are a million allocations and frees in each case.
func TestModel(t *testing.T) {
	ops, least := 25_000, uint64(10_000)
	if os.Getenv("FLAMBEAU_SOAK") == "1" {
		ops, least = 2_300_000, 1_000_000
	}
	for _, c := range []struct {
		name  string
		total uint64
		limit uint64
		pages bool // whether the pool has expandable segments
	}{{"room", 0, 0, false}, {"tight device", 9000, 0, false}, {"limit", 0, 12000, false}, {"very tight", 4096, 0, false},
		{"pages, room", 0, 0, true}, {"pages, tight device", 9000, 0, true}, {"pages, limit", 0, 12000, true}, {"pages, very tight", 4096, 0, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newFake(c.total)
			o := tiny()
			o.Limit = c.limit
			gcs := 0
			o.GC = func() { gcs++ }
			o.CollectWait = 1 // do not wait, because no cleanup queues a release
			m := &model{t: t, d: d, p: New(d, o), r: rand.New(rand.NewPCG(7, c.total+c.limit))}
			if c.pages {
				o.LargePage = 2 * fakePage
				m = &model{t: t, d: d, p: New(pagedDevice{d}, expandable(o)), r: rand.New(rand.NewPCG(7, c.total+c.limit))}
			}
			d.gone = m.returned
			for range ops {
				m.step()
			}
			s := m.p.Stats()
			m.drained()
			if n := m.allocs + m.frees; n < least {
				t.Errorf("%d allocations and frees, want %d", n, least)
			}
			if tight := c.total+c.limit > 0; tight != (s.OOMs > 0) || tight != (s.Retries > s.OOMs) || tight != (gcs > 0) {
				t.Errorf("%d retries, %d out of memory, %d collections", s.Retries, s.OOMs, gcs)
			}
			for len(m.live) > 0 {
				o := m.gone(0)
				m.p.Free(o.b, o.gen)
			}
			for s := range StreamID(3) {
				d.finish(s, 1<<40)
			}
			m.stats()
			for _, seg := range m.p.Snapshot() {
				if len(seg.Blocks) != 1 {
					t.Fatalf("segment %#x is still in %d blocks", seg.Addr, len(seg.Blocks))
				}
			}
			if s.StaleFrees == 0 || s.QueuedFrees == 0 {
				t.Error("the run had no stale or no queued frees")
			}
			held := d.used
			if got := m.p.Empty(); got != held || d.used != 0 || len(d.segments) != 0 || len(d.pages) != 0 || len(d.reserved) != 0 || d.open != 0 {
				t.Fatalf("Empty returned %d of %d; left %d bytes, %d segments, %d events", got, held, d.used, len(d.segments), d.open)
			}
			t.Logf("%d allocations, %d retries, %d OOM, %d syncs, %d stale, %d queued, peak %d, %s", s.Allocations, s.Retries, s.OOMs, s.Syncs,
				s.StaleFrees, s.QueuedFrees, s.ReservedBytes.Peak, fmt.Sprint(m.peak))
		})
	}
}
