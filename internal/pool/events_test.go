package pool

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestForeignStreams(t *testing.T) {
	d := newFake(0)
	p := New(d, tiny())
	b := must(t, p, 100, 0)
	gen, addr := b.Generation(), b.Addr()
	b.Use(0) // stream 0 is the block's own stream, so this has no effect
	d.work(1)
	d.work(2)
	b.Use(1)
	b.Use(2)
	b.Use(1)
	p.Free(b, gen)
	if s := p.Stats(); s.Pending != 1 || s.AllocatedBytes.Current != 0 || s.ActiveBytes.Current != 104 || d.open != 2 {
		t.Fatalf("after the free: %d pending, %d active, %d events", s.Pending, s.ActiveBytes.Current, d.open)
	}
	d.finish(2, 1)
	if s := p.Stats(); s.Pending != 1 || d.open != 1 {
		t.Fatalf("after one of two streams: %d pending, %d events", s.Pending, d.open)
	}
	if c := must(t, p, 100, 0); c.Addr() == addr {
		t.Fatal("the block was reused while stream 1 works on it")
	}
	d.finish(1, 1)
	if c := must(t, p, 100, 0); c.Addr() != addr || d.open != 0 || len(c.uses) != 0 || p.pending != 0 {
		t.Fatalf("at %#x, want %#x; %d events; uses %v", c.Addr(), addr, d.open, c.uses)
	}
}

// TestPauseEvents pauses events, as a capture requires, and frees a block that another stream has
// used. The free must succeed, and the pool must not query events before ResumeEvents.
func TestPauseEvents(t *testing.T) {
	d := newFake(0)
	p := New(d, tiny())
	waits := must(t, p, 1280, 0)
	d.work(1)
	waits.Use(1)
	p.Free(waits, waits.Generation())
	d.finish(1, 1)
	b := must(t, p, 1280, 0) // the new block gets the memory of the first
	b.Use(1)
	d.work(1)
	d.logging = true
	p.PauseEvents()
	p.PauseEvents()
	addr := b.Addr()
	p.Free(b, b.Generation())
	d.finish(1, 1)
	if s := p.Stats(); s.Pending != 1 || s.Deferred != 1 || p.EventError() != nil {
		t.Fatalf("%d pending, %d deferred, %v", s.Pending, s.Deferred, p.EventError())
	}
	if p.Empty() != 0 {
		t.Error("Empty waited for a capturing stream")
	}
	p.ResumeEvents()
	if c := must(t, p, 1280, 0); c.Addr() == addr {
		t.Fatal("reused while paused")
	}
	if want := []string{"alloc 1280"}; !reflect.DeepEqual(d.log, want) {
		t.Errorf("while paused the device saw %v", d.log)
	}
	p.ResumeEvents()
	if c := must(t, p, 1280, 0); c.Addr() != addr {
		t.Error("not reusable after the pause")
	}
	defer func() {
		if recover() == nil {
			t.Error("ResumeEvents without PauseEvents passed")
		}
	}()
	p.ResumeEvents()
}

// TestRecordFails frees a block whose event cannot be recorded. The block must not be reused until
// recording succeeds, and EventError must return the reason.
func TestRecordFails(t *testing.T) {
	d := newFake(1280)
	o := tiny()
	o.CollectWait = 1
	p := New(d, o)
	b := must(t, p, 1280, 0)
	b.Use(1)
	b.Use(2)
	d.recordErr = errors.New("stream is capturing")
	p.Free(b, b.Generation())
	if _, err := p.Alloc(1280, 0, Origin{}); !errors.Is(err, ErrNoMemory) {
		t.Fatalf("the block was handed out: %v", err)
	}
	s := p.Stats()
	if s.Pending != 1 || s.Deferred != 1 || !errors.Is(p.EventError(), d.recordErr) {
		t.Fatalf("%d pending, %d deferred, %v", s.Pending, s.Deferred, p.EventError())
	}
	if p.Empty() != 0 || d.used != 1280 {
		t.Fatal("its segment was returned")
	}
	d.recordErr = nil
	b = must(t, p, 1280, 0) // the out-of-memory ladder records the missing event and waits for it
	if s := p.Stats(); s.Deferred != 0 || s.Pending != 0 || d.open != 0 || p.EventError() != nil {
		t.Errorf("%d deferred, %d pending, %d events, %v", s.Deferred, s.Pending, d.open, p.EventError())
	}
	p.Free(b, b.Generation())
	d.recordErr = errors.New("stream is destroyed")
	if p.Empty() != 0 || d.used != 1280 || !errors.Is(p.EventError(), d.recordErr) {
		t.Errorf("a segment was returned without knowing that its stream is done: %v", p.EventError())
	}
	recount(t, p, p.Stats())
	d.recordErr = nil
	if p.Empty() != 1280 || p.EventError() != nil {
		t.Errorf("the segment stays: %v", p.EventError())
	}
}

func TestRetire(t *testing.T) {
	d := newFake(0)
	p := New(d, tiny())
	free := must(t, p, 1280, 1)
	live := must(t, p, 104, 1)
	used := must(t, p, 104, 0)
	waits := must(t, p, 640, 0)
	gone := must(t, p, 104, 2)
	for _, b := range []*Block{used, waits, gone} {
		b.Use(1)
	}
	live.Use(0)
	live.Use(2)
	p.PauseEvents()
	p.Free(waits, waits.Generation()) // the deferred block waits for stream 1 only
	p.ResumeEvents()
	p.Free(free, free.Generation())
	d.recordErr = errors.New("stream 1 is destroyed")
	p.Retire(1, 0)
	recount(t, p, p.Stats())
	d.recordErr = nil
	d.logging = true
	addr := free.Addr()
	if b := must(t, p, 1280, 0); b.Addr() != addr {
		t.Error("the cached block did not go to the heir")
	}
	if live.Stream() != 0 {
		t.Errorf("a live block is on stream %d", live.Stream())
	}
	for _, b := range []*Block{live, used, gone} {
		p.Free(b, b.Generation())
	}
	// the pool no longer queries stream 1; stream 2 still uses the live block
	if want := []string{"record 2"}; !reflect.DeepEqual(d.log, want) {
		t.Errorf("the device saw %v, want %v", d.log, want)
	}
	s := p.Stats()
	if s.Pending != 0 || s.AllocatedBytes.Current != 1280 || len(p.arenas) != 2 {
		t.Errorf("%d pending, %d bytes live, %d arenas", s.Pending, s.AllocatedBytes.Current, len(p.arenas))
	}
	recount(t, p, s)
}

// TestRetireDeferred retires the only stream that a deferred block still waits for. The block must
// be released exactly once.
func TestRetireDeferred(t *testing.T) {
	d := newFake(0)
	p := New(d, tiny())
	b := must(t, p, 104, 0)
	b.Use(2)
	b.Use(1)
	d.work(1)
	fails := errors.New("stream 2 fails")
	p.backing = recordFailing{d, 2, fails}
	// the block waits for stream 1, and its event on stream 2 is not recorded yet
	p.Free(b, b.Generation())
	d.finish(1, 1)
	if s := p.Stats(); s.Pending != 1 || s.Deferred != 1 || d.open != 0 {
		t.Fatalf("with stream 1 done and stream 2 unknown: %d pending, %d deferred, %d events", s.Pending, s.Deferred, d.open)
	}
	p.PauseEvents()
	p.Retire(2, 3)
	p.ResumeEvents()
	recount(t, p, p.Stats())
	if s := p.Stats(); s.Pending != 0 || s.Deferred != 0 || d.open != 0 {
		t.Errorf("%d pending, %d deferred, %d events", s.Pending, s.Deferred, d.open)
	}
}

type recordFailing struct {
	*fakeDevice
	on  StreamID
	err error
}

func (r recordFailing) Record(s StreamID) (Event, error) {
	if s == r.on {
		return nil, r.err
	}
	return r.fakeDevice.Record(s)
}

// markingDevice is a Backing that is also a Marker. It records the pool's calls of the Marker's
// methods.
type markingDevice struct {
	*fakeDevice
	t     *testing.T
	live  map[uintptr][2]uint64
	on    map[uintptr]StreamID
	label string
}

func (d *markingDevice) BlockAllocated(s StreamID, addr uintptr, requested, rounded uint64, label string) {
	for a, n := range d.live {
		if overlap(a, n[1], addr, rounded) {
			d.t.Errorf("[%#x+%d] is marked while [%#x+%d] is", addr, rounded, a, n[1])
		}
	}
	d.live[addr] = [2]uint64{requested, rounded}
	d.on[addr] = s
	d.label = label
}

func (d *markingDevice) BlockFreed(s StreamID, addr uintptr, rounded uint64) {
	if d.live[addr][1] != rounded {
		d.t.Errorf("[%#x+%d] is unmarked, marked was %d", addr, rounded, d.live[addr])
	}
	if d.on[addr] != s {
		d.t.Errorf("%#x is unmarked on stream %d, was marked on %d", addr, s, d.on[addr])
	}
	delete(d.live, addr)
}

func TestMarker(t *testing.T) {
	d := &markingDevice{fakeDevice: newFake(0), t: t, live: map[uintptr][2]uint64{}, on: map[uintptr]StreamID{}}
	p := New(d, tiny())
	var blocks []*Block
	for i := range 40 {
		b := must(t, p, uint64(i*31), StreamID(i%2), Origin{Op: fmt.Sprint("op", i), DType: "float32", Dims: 1, Shape: [8]int{i}})
		if i > 0 && d.live[b.Addr()] != [2]uint64{b.Size(), b.Rounded()} {
			t.Fatalf("block %d of %d, %d is marked %v", i, b.Size(), b.Rounded(), d.live[b.Addr()])
		}
		if i > 0 && d.on[b.Addr()] != StreamID(i%2) {
			t.Fatalf("block %d of stream %d is marked on %d", i, i%2, d.on[b.Addr()])
		}
		blocks = append(blocks, b)
		if i%3 == 0 {
			p.Free(blocks[i/2], blocks[i/2].Generation())
			blocks[i/2] = must(t, p, 8, 0)
		}
	}
	if want := "[39] float32, result of op39"; must(t, p, 8, 0, Origin{Op: "op39", DType: "float32", Dims: 1, Shape: [8]int{39}}).Size() != 8 || d.label != want {
		t.Errorf("label %q, want %q", d.label, want)
	}
	// a block that waits for another stream must stay marked until that stream is done
	b := must(t, p, 1280, 0)
	b.Use(7)
	d.work(7)
	p.Free(b, b.Generation())
	if p.Stats(); d.live[b.addr][1] != 1280 {
		t.Error("unmarked while in use")
	}
	addr := b.addr
	d.finish(7, 1)
	if p.Stats(); d.live[addr][1] != 0 {
		t.Error("still marked")
	}
}

// TestOriginIsLetGo frees a block whose origin refers to an object (the field Where). The pool must
// not keep this object alive.
func TestOriginIsLetGo(t *testing.T) {
	p := New(newFake(0), tiny())
	gone := make(chan struct{})
	func() {
		w := &struct{ place }{"somewhere"}
		runtime.AddCleanup(w, func(c chan struct{}) { close(c) }, gone)
		b := must(t, p, 8, 0, Origin{Where: w})
		p.Free(b, b.Generation())
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-time.After(time.Millisecond):
		}
	}
	t.Error("it is still reachable")
	runtime.KeepAlive(p)
}

func TestQueue(t *testing.T) {
	p := New(newFake(0), tiny())
	b := must(t, p, 1280, 0)
	g1 := b.Generation()
	p.Queue(b, g1)
	p.Queue(b, g1) // the block was already queued with this generation
	p.Queue(b, 0)  // no block has generation 0
	if b.state != stateLive {
		t.Fatal("Queue released at once")
	}
	s := p.Stats()
	if s.QueuedFrees != 1 || s.StaleFrees != 2 || s.Allocated.Current != 0 {
		t.Fatalf("%d queued, %d stale, %d live", s.QueuedFrees, s.StaleFrees, s.Allocated.Current)
	}
	c := must(t, p, 1280, 0)
	if c != b || c.Generation() == g1 {
		t.Fatalf("the struct was not recycled, or not with a new generation (%d, %d)", g1, c.Generation())
	}
	g2 := c.Generation()
	p.Queue(b, g1) // a late cleanup for the first owner
	p.Queue(c, g2) // the cleanup for the second owner replaces the queue's entry for the first
	p.Queue(b, g1) // a cleanup for the first owner again
	d := must(t, p, 8, 0)
	s = p.Stats()
	if s.QueuedFrees != 2 || s.StaleFrees != 4 || s.Allocated.Current != 1 {
		t.Fatalf("%d queued, %d stale, %d live", s.QueuedFrees, s.StaleFrees, s.Allocated.Current)
	}
	p.Free(b, g1)
	p.Free(b, g2)
	p.Free(d, d.Generation()+1)
	if s := p.Stats(); s.StaleFrees != 7 || s.Allocated.Current != 1 {
		t.Fatalf("%d stale, %d live", s.StaleFrees, s.Allocated.Current)
	}
}

// TestQueueConcurrently queues blocks in some goroutines while others drain the queue. Each block
// must be released exactly once.
func TestQueueConcurrently(t *testing.T) {
	p := New(newFake(0), tiny())
	const n, goroutines = 2000, 4
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range n {
				b, err := p.Alloc(64, 0, Origin{})
				if err != nil {
					t.Error(err)
					return
				}
				gen := b.Generation()
				runtime.Gosched()
				p.Queue(b, gen)
				p.Queue(b, gen)
			}
		})
	}
	wg.Wait()
	s := p.Stats()
	if s.QueuedFrees != n*goroutines || s.StaleFrees != n*goroutines || s.Allocated.Current != 0 {
		t.Errorf("%d queued and %d stale of %d each, %d live", s.QueuedFrees, s.StaleFrees, n*goroutines, s.Allocated.Current)
	}
	recount(t, p, s)
}

func panics(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
			t.Errorf("panic %q, want one with %q", got, want)
		}
	}()
	f()
}

func TestMisuse(t *testing.T) {
	p, other := New(newFake(0), tiny()), New(newFake(0), Options{})
	b := must(t, p, 8, 0)
	panics(t, "block of fake:0 was freed in the pool of the device", func() { other.Free(b, b.Generation()) })
	panics(t, "block of fake:0 was freed in the pool of the device", func() { other.Queue(b, b.Generation()) })
	p.Free(b, b.Generation())
	panics(t, "Use on stream 1 of a block that is free", func() { b.Use(1) })
	for want, change := range map[string]func(*Options){
		"Round 12":           func(o *Options) { o.Round = 12 },
		"must be multiples":  func(o *Options) { o.LargeRound = 1001 },
		"SmallSegment 64 ":   func(o *Options) { o.SmallSegment = 64 },
		"MediumSegment 1280": func(o *Options) { o.MediumMax = 2000 },
		"Fraction 1.5":       func(o *Options) { o.Fraction = 1.5 },
		"Fraction NaN":       func(o *Options) { o.Fraction = math.NaN() },
	} {
		o := tiny()
		change(&o)
		panics(t, want, func() { New(newFake(0), o) })
	}
	d := newFake(0)
	d.next = 0x10004
	p = New(d, tiny())
	if _, err := p.Alloc(8, 0, Origin{}); err == nil || !strings.Contains(err.Error(), "not aligned to 8") || d.used != 0 {
		t.Errorf("a misaligned segment: %v, %d bytes kept", err, d.used)
	}
}

func TestDefaultSizes(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ size, block, segment uint64 }{
		{1, 512, 2 * mib}, {513, 1024, 2 * mib}, {mib, mib, 2 * mib}, {mib + 1, mib + 512, 20 * mib}, {10*mib - 512, 10*mib - 512, 20 * mib},
		{10 * mib, 10 * mib, 10 * mib}, {11 * mib, 12 * mib, 12 * mib}, {13*mib + 1, 14 * mib, 14 * mib},
	} {
		p := New(newFake(0), Options{})
		b := must(t, p, c.size, 0)
		if s := p.Stats(); b.Rounded() != c.block || s.ReservedBytes.Current != c.segment || b.Size() != c.size {
			t.Errorf("%d bytes: block %d of a segment of %d, want %d of %d", c.size, b.Rounded(), s.ReservedBytes.Current, c.block, c.segment)
		}
	}
}

// TestBestFit checks that the pool uses the smallest block that fits and, among equal sizes, the
// block that was freed last. It must not split a large block if the remainder is small.
func TestBestFit(t *testing.T) {
	p := New(newFake(0), tiny())
	var keep, free []*Block
	for _, size := range []uint64{2048, 1280, 1536, 1280} {
		free = append(free, must(t, p, size, 0))
	}
	for range 4 { // the small blocks cannot be merged, because blocks between them stay allocated
		free = append(free, must(t, p, 48, 0))
		keep = append(keep, must(t, p, 8, 0))
	}
	for _, b := range free {
		p.Free(b, b.Generation())
	}
	addr := func(b *Block) uintptr { return b.Addr() }
	want := addr(free[3])
	if b := must(t, p, 1200, 0); b.Addr() != want || b.Rounded() != 1280 {
		t.Errorf("1200 bytes at %#x, rounded %d", b.Addr(), b.Rounded())
	}
	if b := must(t, p, 1300, 0); b.Rounded() != 1304 {
		t.Errorf("1300 bytes of 1536: rounded %d, %d remained", b.Rounded(), 1536-b.Rounded())
	}
	if b := must(t, p, 1960, 0); b.Rounded() != 2048 {
		t.Errorf("1960 bytes of 2048: rounded %d", b.Rounded())
	}
	want = addr(free[7])
	if b := must(t, p, 48, 0); b.Addr() != want {
		t.Errorf("48 bytes at %#x, want the last freed %#x", b.Addr(), want)
	}
	runtime.KeepAlive(keep)
}

// TestLaggingStream uses a stream whose work is always a hundred frees behind. The pool must not
// mix up its events, and the queue of events must not grow without limit.
func TestLaggingStream(t *testing.T) {
	d := newFake(0)
	p := New(d, tiny())
	// for each Block struct, how much work stream 1 must finish before the memory may be reused
	freed := map[*Block]uint64{}
	for i := range uint64(5000) {
		b := must(t, p, 1280, 0)
		if at := freed[b]; at > d.finished[1] {
			t.Fatalf("a block came back at %d of %d", d.finished[1], at)
		}
		b.Use(1)
		d.work(1)
		p.Free(b, b.Generation())
		freed[b] = i + 1
		if i >= 100 {
			d.finish(1, 1)
		}
	}
	if n := cap(p.events[0].waits); n > 1000 || p.pending < 99 || p.pending > 101 {
		t.Errorf("room for %d events, %d pending", n, p.pending)
	}
	d.finish(1, 1000)
	if s := p.Stats(); s.Pending != 0 || d.open != 0 {
		t.Errorf("%d pending, %d events", s.Pending, d.open)
	}
}

// TestBins compares the index for small blocks with a search in a plain list.
func TestBins(t *testing.T) {
	for _, count := range []int{1, 63, 64, 65, 4095, 4096, 4097, 65536} {
		var x bins
		r := rand.New(rand.NewPCG(uint64(count), 1))
		in := map[*Block]bool{}
		for range 2000 {
			if size := uint64(1+r.IntN(count)) * 8; len(in) < 3 || r.IntN(2) == 0 && len(in) < 12 {
				b := &Block{size: size}
				x.insert(b, 8, count)
				in[b] = true
			} else {
				for b := range in {
					x.remove(b, 8)
					delete(in, b)
					break
				}
			}
			ask := uint64(1+r.IntN(count)) * 8
			best := uint64(0)
			for b := range in {
				if b.size >= ask && (best == 0 || b.size < best) {
					best = b.size
				}
			}
			got := uint64(0)
			if b := x.bestFit(ask, 8); b != nil {
				if got = b.size; !in[b] {
					t.Fatal("a block that is not in the index")
				}
			}
			if got != best {
				t.Fatalf("%d bins: %d for %d, want %d", count, got, ask, best)
			}
		}
	}
}
