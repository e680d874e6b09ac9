package pool

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestContention lets four goroutines repeatedly allocate a block and hold it for a moment, on a
// device with room for three blocks. Every request must succeed, because another goroutine soon
// frees a block.
func TestContention(t *testing.T) {
	d := newFake(3 * 1280)
	o := tiny()
	o.GC = func() {}
	o.CollectWait = 2 * time.Second // a long wait, because the machine may be busy
	p := New(d, o)
	var inUse, most atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				b, err := p.Alloc(1200, 0, Origin{})
				if err != nil {
					t.Error(err)
					return
				}
				n := inUse.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				time.Sleep(20 * time.Microsecond)
				inUse.Add(-1)
				p.Free(b, b.Generation())
			}
		})
	}
	wg.Wait()
	s := p.Stats()
	if most.Load() > 3 || s.OOMs != 0 || s.Retries == 0 || s.Allocations != 800 || s.Allocated.Current != 0 {
		t.Errorf("%d at once, %d OOM, %d retries, %d allocations, %d live", most.Load(), s.OOMs, s.Retries, s.Allocations, s.Allocated.Current)
	}
	recount(t, p, s)
}

// TestHandOver lets a request wait in the out-of-memory ladder until another goroutine frees a
// block. The request must get that block, even if the other goroutine immediately allocates again.
func TestHandOver(t *testing.T) {
	d := newFake(1280)
	o := tiny()
	o.CollectWait = 10 * time.Second
	climbing := make(chan struct{})
	var onSecond func()
	climbs := 0
	// only one goroutine at a time runs the ladder, so GC is not called concurrently
	o.GC = func() {
		if climbs++; climbs == 1 {
			close(climbing)
		} else {
			onSecond()
		}
	}
	p := New(d, o)
	held := must(t, p, 1280, 0)
	got := make(chan *Block)
	go func() {
		b, err := p.Alloc(1280, 0, Origin{})
		if err != nil {
			t.Error(err)
		}
		got <- b
	}()
	<-climbing
	hand := make(chan *Block, 1)
	onSecond = func() { b := <-hand; p.Free(b, b.Generation()) }
	p.Free(held, held.Generation())
	// the waiting request has its block before its goroutine wakes up
	if s := p.Stats(); s.AllocatedBytes.Current != 1280 {
		t.Error("the freed block lies in the cache")
	}
	second := make(chan error)
	go func() { // there is no free block for this request either, so it waits behind the first
		b, err := p.Alloc(1280, 0, Origin{})
		if err == nil {
			p.Free(b, b.Generation())
		}
		second <- err
	}()
	first := <-got
	if first == nil {
		t.FailNow()
	}
	hand <- first
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// TestStress mixes all operations on several goroutines. The race detector, and statistics that are
// computed again at the end, find errors. Each owner also marks the address range of its block and
// later checks the mark, which reveals memory with two owners.
func TestStress(t *testing.T) {
	const goroutines, rounds = 4, 3000
	d := newFake(64 << 10)
	o := tiny()
	o.CollectWait = 50 * time.Microsecond
	o.GC = runtime.Gosched
	o.GCRatio, o.GCMinBytes, o.GCInterval = 0.5, 1024, time.Microsecond
	o.Pressure = runtime.Gosched
	p := New(d, o)
	marks := make([]atomic.Uint32, (64<<10)*4/8)
	paint := func(b *Block, from, to uint32) bool {
		first := (uint64(b.Addr()) - 0x10000) / 8
		for i := first; i < first+b.Rounded()/8; i++ {
			if !marks[i%uint64(len(marks))].CompareAndSwap(from, to) {
				return false
			}
		}
		return true
	}
	var oom, done atomic.Uint64
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			mine := []*Block{}
			drop := func(i int) {
				b := mine[i]
				mine[i] = mine[len(mine)-1]
				mine = mine[:len(mine)-1]
				if !paint(b, uint32(g+1), 0) {
					t.Errorf("goroutine %d: a block of its own was painted over", g)
				}
				gen := b.Generation()
				if r.IntN(3) == 0 {
					p.Queue(b, gen)
				} else {
					p.Free(b, gen)
				}
				if r.IntN(20) == 0 {
					p.Free(b, gen) // this generation is no longer valid
					p.Queue(b, gen)
				}
			}
			for range rounds {
				switch k := r.IntN(20); {
				case k < 10:
					b, err := p.Alloc(uint64(r.IntN(1500)), StreamID(r.IntN(3)), Origin{Collected: k < 5})
					if err != nil {
						if !errors.Is(err, ErrNoMemory) {
							t.Error(err)
						}
						oom.Add(1)
						for len(mine) > 0 {
							drop(0)
						}
						continue
					}
					if !paint(b, 0, uint32(g+1)) {
						t.Errorf("goroutine %d got memory that another holds", g)
					}
					mine = append(mine, b)
				case k < 15 && len(mine) > 0:
					drop(r.IntN(len(mine)))
				case k < 17 && len(mine) > 0:
					s := StreamID(r.IntN(3))
					mine[r.IntN(len(mine))].Use(s)
					d.work(s)
				case k == 17:
					d.finish(StreamID(r.IntN(3)), 5)
				case k == 18 && r.IntN(10) == 0:
					p.Empty()
				case k == 19 && r.IntN(10) == 0:
					p.Snapshot()
					p.Largest(3)
					p.ResetPeak()
				}
				done.Add(1)
			}
			for len(mine) > 0 {
				drop(0)
			}
		})
	}
	wg.Wait()
	for s := range StreamID(3) {
		d.finish(s, 1<<40)
	}
	for { // wait until collections in the background have ended
		p.mu.Lock()
		running := p.gcRunning
		p.mu.Unlock()
		if !running {
			break
		}
		runtime.Gosched()
	}
	s := p.Stats()
	recount(t, p, s)
	p.Empty()
	if s.Allocated.Current != 0 || s.Active.Current != 0 || d.used != 0 || d.open != 0 {
		t.Errorf("left: %d live, %d active, %d bytes of the device, %d events", s.Allocated.Current, s.Active.Current, d.used, d.open)
	}
	t.Logf("%d operations, %d OOM, %d retries, %d stale, %d queued, %d early collections", done.Load(), oom.Load(), s.Retries, s.StaleFrees, s.QueuedFrees, s.EarlyCollections)
}

// handleObject stands for a tensor that the program does not free: a cleanup of the garbage
// collector frees its block.
type handleObject struct {
	b   *Block
	gen uint64
	_   [64]byte
}

type released struct {
	p   *Pool
	b   *Block
	gen uint64
}

func collected(p *Pool, size uint64, s StreamID) (*handleObject, error) {
	b, err := p.Alloc(size, s, Origin{Collected: true})
	if err != nil {
		return nil, err
	}
	h := &handleObject{b: b, gen: b.Generation()}
	runtime.AddCleanup(h, func(r released) { r.p.Queue(r.b, r.gen) }, released{p, b, h.gen})
	return h, nil
}

// TestGarbageAtTheLimit runs a program that never frees memory. It must complete, because the pool
// starts garbage collections. It runs with one goroutine and with four.
func TestGarbageAtTheLimit(t *testing.T) {
	for _, goroutines := range []int{1, 4} {
		d := newFake(64 << 20)
		p := New(d, Options{})
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				// keep only the last objects, so that few blocks are live at any time
				var last [4]*handleObject
				for i := range 400 / goroutines {
					h, err := collected(p, 1<<20+uint64(i%3)<<19, StreamID(g%2))
					if err != nil {
						t.Errorf("%d goroutines, allocation %d: %v", goroutines, i, err)
						return
					}
					last[i%len(last)] = h
				}
				runtime.KeepAlive(&last)
			})
		}
		wg.Wait()
		s := p.Stats()
		if s.Collections == 0 || s.QueuedFrees == 0 {
			t.Errorf("%d collections, %d queued", s.Collections, s.QueuedFrees)
		}
		t.Logf("%d goroutines: %d collections, %d retries, %d of %d blocks came back", goroutines, s.Collections, s.Retries, s.QueuedFrees, s.Allocations)
	}
}

// TestPromptFreesNeedNoCollector checks that the pool starts no collection if owners free their
// blocks. Sizes and streams change, the device is always nearly full, and Go starts no collection
// either.
func TestPromptFreesNeedNoCollector(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	d := newFake(64 << 20)
	p := New(d, Options{})
	r := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		var blocks []*Block
		for s, sum := StreamID(r.IntN(2)), uint64(0); sum < 30<<20; {
			size := uint64(1 + r.IntN(8<<20))
			b := must(t, p, size, s)
			sum += b.Rounded()
			blocks = append(blocks, b)
		}
		for _, b := range blocks {
			p.Free(b, b.Generation())
		}
	}
	if s := p.Stats(); s.Collections != 0 || s.EarlyCollections != 0 || s.Retries == 0 || s.OOMs != 0 {
		t.Errorf("%d collections, %d early, %d retries", s.Collections, s.EarlyCollections, s.Retries)
	}
}

// TestEarlyCollection sets GCRatio. The bytes of unreachable blocks must then stay near GCRatio
// times the live bytes, which is far below the limit.
func TestEarlyCollection(t *testing.T) {
	run := func(ratio float64) Stats {
		p := New(newFake(4<<30), Options{GCRatio: ratio, GCMinBytes: 32 << 20, GCInterval: time.Millisecond})
		live := make([]*handleObject, 32) // 64 MiB of objects that stay live
		for i := range 500 {
			h, err := collected(p, 2<<20, 0)
			if err != nil {
				t.Fatal(err)
			}
			if i < len(live) {
				live[i] = h
			}
			time.Sleep(50 * time.Microsecond) // like a program that works between two allocations
		}
		s := p.Stats()
		runtime.KeepAlive(live)
		return s
	}
	with := run(1)
	if with.EarlyCollections == 0 || with.Collections != 0 || with.AllocatedBytes.Peak > 1<<30 {
		t.Errorf("GCRatio 1: %d early collections, %d on the ladder, peak %s", with.EarlyCollections, with.Collections, human(with.AllocatedBytes.Peak))
	}
	without := run(0)
	if without.EarlyCollections != 0 {
		t.Errorf("GCRatio 0: %d early collections", without.EarlyCollections)
	}
	t.Logf("peak %s with, %s without; %d early collections", human(with.AllocatedBytes.Peak), human(without.AllocatedBytes.Peak), with.EarlyCollections)
}

// TestEarlyCollectionIgnoresOwnedBlocks allocates blocks that their owners free. Such blocks must
// cause no early collections.
func TestEarlyCollectionIgnoresOwnedBlocks(t *testing.T) {
	o := tiny()
	o.GCRatio, o.GCMinBytes = 1, 1
	o.GC = func() { t.Error("collected") }
	p := New(newFake(0), o)
	for range 500 {
		must(t, p, 1280, 0)
	}
}

// TestRoomIsKeptForTheLadder makes memory available on a full device while one request runs the
// out-of-memory ladder. That request must get the memory, even if another request comes at the same
// time.
func TestRoomIsKeptForTheLadder(t *testing.T) {
	d := newFake(1280)
	o := tiny()
	o.CollectWait = 1
	var p *Pool
	other := make(chan error, 1)
	once := false
	o.GC = func() {
		if once {
			return
		}
		once = true
		d.mu.Lock()
		d.total = 2560 // room for one more block
		d.mu.Unlock()
		go func() {
			_, err := p.Alloc(1280, 5, Origin{})
			other <- err
		}()
		// give the other request time to ask the device
		time.Sleep(20 * time.Millisecond)
	}
	p = New(d, o)
	must(t, p, 1280, 0)
	must(t, p, 1280, 0)
	if err := <-other; !errors.Is(err, ErrNoMemory) {
		t.Errorf("the other: %v", err)
	}
}

// freeingDevice frees a block while the pool is allocating a segment.
type freeingDevice struct {
	*fakeDevice
	during func()
}

func (d *freeingDevice) Alloc(size uint64) (uintptr, error) {
	if f := d.during; f != nil {
		d.during = nil
		f()
	}
	return d.fakeDevice.Alloc(size)
}

// TestServedWhileGrowing lets another goroutine free a suitable block while the pool allocates a
// segment for a request. The request must get that block, and the segment must be kept as free
// memory.
func TestServedWhileGrowing(t *testing.T) {
	d := &freeingDevice{fakeDevice: newFake(1280)}
	o := tiny()
	o.CollectWait = 1
	p := New(d, o)
	held := must(t, p, 1280, 0)
	p.o.Pressure = func() {
		d.total = 2560
		d.during = func() { p.Free(held, held.Generation()) }
	}
	b := must(t, p, 1280, 0)
	s := p.Stats()
	if s.Allocated.Current != 1 || s.ReservedBytes.Current != 2560 {
		t.Errorf("%d blocks live, %d reserved", s.Allocated.Current, s.ReservedBytes.Current)
	}
	p.Free(b, b.Generation())
	if p.Empty() != 2560 {
		t.Error("memory was lost")
	}
}
