package pool

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// actions returns the actions of the events in a snapshot, except ActionSnapshot.
func actions(s *device.MemorySnapshot) (out []string) {
	for _, e := range s.Events {
		if e.Action != device.ActionSnapshot {
			out = append(out, e.Action.String())
		}
	}
	return out
}

// TestHistory compares every event of a history with an expected list: its order, its block or
// segment, and its cause.
func TestHistory(t *testing.T) {
	d := newFake(2048)
	o := tiny()
	at := time.Unix(1000, 0)
	o.Now = func() time.Time { at = at.Add(time.Second); return at }
	o.GC, o.CollectWait = func() {}, 1
	p := New(d, o)
	early := must(t, p, 40, 1, Origin{Op: "early", Where: place("in the scope opened at a.go:1"), Dims: -1})
	p.RecordHistory(device.NewHistorySettings())
	origin := Origin{Op: "matmul", Scope: "step/forward", DType: "float32", Shape: [8]int{4, 5}, Dims: 2, Where: place("at nowhere.go:9")}
	b, err := p.Alloc(300, 1, origin)
	if err != nil {
		t.Fatal(err)
	}
	addr := b.Addr()
	b.Use(2)
	d.work(2)
	p.Free(b, b.Generation())
	s := p.MemorySnapshot()
	if got, want := actions(s), []string{"segment_alloc", "alloc", "free_requested"}; !slices.Equal(got, want) {
		t.Fatalf("events %v, want %v", got, want)
	}
	waiting := 0
	for _, g := range s.Segments {
		for _, b := range g.Blocks {
			if b.State == device.BlockActiveAwaitingFree {
				waiting++
				if b.Addr != addr || b.Requested != 300 || s.Owners[b.Owner].Op != "matmul" {
					t.Errorf("the waiting block is %+v", b)
				}
			}
		}
	}
	if waiting != 1 {
		t.Fatalf("%d blocks wait for another stream", waiting)
	}
	d.finish(2, 10)
	p.Queue(early, early.Generation())
	p.Stats()
	if _, err := p.Alloc(1<<20, 3, Origin{Op: "huge", Dims: -1}); err == nil {
		t.Fatal("no error")
	}
	p.Empty()
	s = p.MemorySnapshot()
	want := []string{"segment_alloc", "alloc", "free_requested", "free_requested", "free_completed", "free_completed", "oom", "segment_free", "segment_free"}
	if got := actions(s); !slices.Equal(got, want) {
		t.Fatalf("events %v, want %v", got, want)
	}
	last := int64(0)
	var alloc, free, oom device.HistoryEvent
	for i, e := range s.Events {
		if e.Sequence != uint64(i+1) || e.Time <= last {
			t.Errorf("event %d has sequence %d and time %d after %d", i, e.Sequence, e.Time, last)
		}
		last = e.Time
		switch {
		case e.Action == device.ActionAlloc:
			alloc = e
		case e.Action == device.ActionFreeRequested && e.Number == alloc.Number:
			free = e
		case e.Action == device.ActionOOM:
			oom = e
		}
	}
	own := s.Owners[alloc.Owner]
	if alloc.Addr != addr || alloc.Size < 300 || alloc.Requested != 300 || alloc.Stream != 1 || alloc.Number != 2 {
		t.Errorf("alloc is %+v", alloc)
	}
	if own.Op != "matmul" || own.Scope != "step/forward" || own.Type != "float32" || !slices.Equal(own.Shape, []int{4, 5}) ||
		!strings.HasPrefix(own.Where, "pool/history_test.go:") || own.Stack != alloc.Stack {
		t.Errorf("its owner is %+v", own)
	}
	if text := own.String(); !strings.HasPrefix(text, "matmul [4, 5] float32 at pool/history_test.go:") || !strings.HasSuffix(text, " in step/forward") {
		t.Errorf("the owner reads %q", text)
	}
	for _, e := range []device.HistoryEvent{alloc, free, oom} {
		f := s.Stacks[e.Stack]
		if len(f) == 0 || !strings.HasSuffix(f[0].Function, ".TestHistory") || !strings.HasSuffix(f[0].File, "history_test.go") || f[0].Line == 0 {
			t.Errorf("%v has the stack %v", e.Action, f)
		}
	}
	if alloc.Stack == free.Stack {
		t.Error("allocation and free have one stack")
	}
	if oom.Size != 1<<20 || oom.Requested != 1<<20 || oom.Free == 0 || oom.Stream != 3 || s.Owners[oom.Owner].Op != "huge" {
		t.Errorf("oom is %+v", oom)
	}
	for _, e := range s.Events {
		if e.Action == device.ActionFreeRequested && e.Number == 1 && (e.Stack != 0 || s.Owners[e.Owner].Op != "early") {
			t.Errorf("the garbage collector's free is %+v", e)
		}
	}
	if !s.Recording || s.Dropped != 0 || s.MaxEntries != device.DefaultHistoryEntries || s.Device != "fake:0" || s.Total != 2048 || s.Reserved != 0 {
		t.Errorf("snapshot %+v", s)
	}
	p.StopHistory()
	must(t, p, 8, 1)
	if s := p.MemorySnapshot(); s.Recording || len(s.Events) != 0 || len(s.Stacks) != 1 || s.Allocated != 8 || len(s.Segments) != 1 {
		t.Errorf("after the end: %+v", s)
	}
}

// TestOwnersWithoutHistory takes a snapshot without a history. Owners must then be described by
// their origins.
func TestOwnersWithoutHistory(t *testing.T) {
	p := New(newFake(0), tiny())
	must(t, p, 8, 0, Origin{Op: "add", Where: place("at train.go:31"), Dims: -1})
	must(t, p, 8, 0, Origin{Op: "add", Where: place("in the scope opened at train.go:28"), Dims: -1})
	must(t, p, 8, 0, Origin{Op: "add", Where: place("at train.go:31"), Dims: -1})
	s := p.MemorySnapshot()
	var got []string
	for _, o := range s.Owners[1:] {
		got = append(got, o.String())
	}
	if want := []string{"add at train.go:31", "add in the scope opened at train.go:28"}; !slices.Equal(got, want) {
		t.Errorf("owners %q, want %q", got, want)
	}
	if b := s.Segments[0].Blocks; b[0].Owner != b[2].Owner || b[0].Category != device.CategoryOther {
		t.Errorf("blocks %+v", b)
	}
}

// TestHistoryNamesSites causes an out-of-memory error while a history is recorded. The error must
// name call sites, even for small blocks.
func TestHistoryNamesSites(t *testing.T) {
	o := tiny()
	o.GC, o.CollectWait = func() {}, 1
	p := New(newFake(512), o)
	p.RecordHistory(device.NewHistorySettings())
	must(t, p, 100, 0, Origin{Op: "add", Scope: "outer/inner", Where: place("in the scope opened at a.go:1"), Dims: -1})
	_, err := p.Alloc(4096, 0, Origin{Op: "huge", Dims: -1})
	if err == nil || strings.Count(err.Error(), "history_test.go:") != 0 && !strings.Contains(err.Error(), `result of add at pool/`) {
		t.Errorf("the error reads %v", err)
	}
	if text := err.Error(); !strings.Contains(text, `in scope "outer/inner"`) || strings.Contains(text, "a.go:1") {
		t.Errorf("the error reads %v", text)
	}
}

// TestHistoryRing records more events than a history keeps. The oldest must be dropped and counted.
func TestHistoryRing(t *testing.T) {
	p := New(newFake(0), tiny())
	p.RecordHistory(device.NewHistorySettings(device.MaxHistoryEntries(7)))
	for range 10 {
		b := must(t, p, 8, 0)
		p.Free(b, b.Generation())
	}
	s := p.MemorySnapshot() // so far there are events for one segment, 30 blocks and one snapshot
	if len(s.Events) != 7 || s.Dropped != 25 || s.Events[0].Sequence != 26 || s.Events[6].Action != device.ActionSnapshot || s.Events[6].Sequence != 32 {
		t.Errorf("%d events, %d dropped, first %+v, last %+v", len(s.Events), s.Dropped, s.Events[0], s.Events[len(s.Events)-1])
	}
	if s := New(newFake(0), tiny()).MemorySnapshot(); s.Recording || len(s.Events) != 0 {
		t.Errorf("an unused pool has %+v", s)
	}
}

// replay applies the events of a snapshot to an empty pool, and compares the result with the blocks
// of the snapshot. No events may have been dropped.
func replay(t *testing.T, s *device.MemorySnapshot) {
	t.Helper()
	type block struct{ size, requested, number, stream uint64 }
	live, waiting, segments := map[uintptr]block{}, map[uintptr]block{}, map[uintptr]uint64{}
	for _, e := range s.Events {
		b := block{e.Size, e.Requested, e.Number, e.Stream}
		switch e.Action {
		case device.ActionAlloc:
			if _, ok := live[e.Addr]; ok {
				t.Fatalf("event %d allocates a live block", e.Sequence)
			}
			if _, ok := waiting[e.Addr]; ok {
				t.Fatalf("event %d allocates a waiting block", e.Sequence)
			}
			live[e.Addr] = b
		case device.ActionFreeRequested:
			if live[e.Addr] != b {
				t.Fatalf("event %d frees %+v; live is %+v", e.Sequence, b, live[e.Addr])
			}
			delete(live, e.Addr)
			waiting[e.Addr] = b
		case device.ActionFreeCompleted:
			if waiting[e.Addr] != b {
				t.Fatalf("event %d completes %+v; waiting is %+v", e.Sequence, b, waiting[e.Addr])
			}
			delete(waiting, e.Addr)
		case device.ActionSegmentAlloc, device.ActionSegmentMap:
			segments[e.Addr] = e.Size
		case device.ActionSegmentFree, device.ActionSegmentUnmap:
			if segments[e.Addr] != e.Size {
				t.Fatalf("event %d gives back %d bytes at %#x of a segment of %d", e.Sequence, e.Size, e.Addr, segments[e.Addr])
			}
			delete(segments, e.Addr)
		}
	}
	var reserved uint64
	for _, n := range segments {
		reserved += n
	}
	if reserved != s.Reserved {
		t.Fatalf("the events leave %d bytes reserved, the snapshot has %d", reserved, s.Reserved)
	}
	for _, g := range s.Segments {
		for _, b := range g.Blocks {
			want := block{b.Size, b.Requested, b.Number, g.Stream}
			switch b.State {
			case device.BlockActiveAllocated:
				if live[b.Addr] != want {
					t.Fatalf("live at %#x is %+v, the events say %+v", b.Addr, want, live[b.Addr])
				}
				delete(live, b.Addr)
			case device.BlockActiveAwaitingFree:
				if waiting[b.Addr] != want {
					t.Fatalf("waiting at %#x is %+v, the events say %+v", b.Addr, want, waiting[b.Addr])
				}
				delete(waiting, b.Addr)
			}
		}
	}
	if len(live)+len(waiting) != 0 {
		t.Fatalf("the events leave blocks that the snapshot lacks: %v %v", live, waiting)
	}
}

// TestHistoryReplays runs random operations on three streams. The test must be able to compute the
// state of the pool from the recorded events.
func TestHistoryReplays(t *testing.T) {
	for seed := range uint64(4) {
		d := newFake(9000)
		o := tiny()
		o.GC, o.CollectWait = func() {}, 1
		m := &model{t: t, d: d, p: New(d, o), r: rand.New(rand.NewPCG(seed, 1))}
		m.p.RecordHistory(device.NewHistorySettings())
		for i := range 3000 {
			m.step()
			if i%500 == 0 {
				replay(t, m.p.MemorySnapshot())
				m.drained()
			}
		}
		replay(t, m.p.MemorySnapshot())
	}
}

// TestHistoryTables records many equal stacks and owners. Each must be stored once, in tables of
// limited size.
func TestHistoryTables(t *testing.T) {
	p := New(newFake(0), Options{})
	p.RecordHistory(device.NewHistorySettings())
	for i := range maxInterned + 100 {
		b := must(t, p, 8, 0, Origin{Op: "x", Shape: [8]int{i}, Dims: 1})
		p.Free(b, b.Generation())
	}
	h := p.history
	if len(h.owners) > maxInterned || len(h.owners) < 100 || h.kept > 10 {
		t.Errorf("%d owners and %d stacks are kept", len(h.owners), h.kept)
	}
	for i := range maxInterned + 10 {
		h.mu.Lock()
		h.kept++
		h.mu.Unlock()
		if i%1000 == 0 {
			h.callers(0)
		}
	}
	if h.callers(0); h.kept > maxInterned {
		t.Errorf("%d stacks are kept", h.kept)
	}
}

// TestHistoryConcurrently starts, stops and reads a history while other goroutines allocate and
// free.
func TestHistoryConcurrently(t *testing.T) {
	p := New(newFake(0), Options{})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				b, err := p.Alloc(uint64(i%5000), StreamID(g%2), Origin{Op: "x", Dims: -1, Collected: i%2 == 0})
				if err != nil {
					t.Error(err)
					return
				}
				if i%3 == 0 {
					p.Queue(b, b.Generation())
				} else {
					p.Free(b, b.Generation())
				}
			}
		})
	}
	for i := range 60 {
		switch i % 3 {
		case 0:
			p.RecordHistory(device.NewHistorySettings(device.MaxHistoryEntries(1000)))
		case 1:
			if s := p.MemorySnapshot(); !s.Recording {
				t.Error("not recording")
			}
		default:
			p.StopHistory()
		}
		time.Sleep(200 * time.Microsecond)
	}
	close(stop)
	wg.Wait()
}

func TestCategories(t *testing.T) {
	const m = "github.com/flambeau-go/flambeau/"
	for _, c := range []struct {
		want   string
		frames string // expected frames, innermost first
	}{
		{device.CategoryOther, "main.main"},
		{device.CategoryOther, ""},
		{device.CategoryOther, m + "tensor.(*Scope).Rand main.main"},
		{device.CategoryParameter, m + "tensor.alloc " + m + "nn/initial.KaimingUniform " + m + "nn.NewLinear main.main"},
		{device.CategoryParameter, m + "tensor.alloc " + m + "nn.NewBatchNorm2d main.main"},
		{device.CategoryParameter, m + "tensor.(*Tensor).MoveTo " + m + "nn.To[...] main.main"},
		{device.CategoryActivation, m + "tensor.alloc " + m + "nn.(*Linear).Forward " + m + "nn.(*Sequential).Forward main.main"},
		// a layer of the program itself
		{device.CategoryActivation, m + "tensor.alloc main.(*Net).Forward main.main"},
		{device.CategoryGradient, m + "tensor.alloc " + m + "tensor.(*engine).back " + m + "tensor.(*Tensor).Backward main.main"},
		{device.CategoryActivation, m + "nn.(*Linear).Forward " + m + "tensor.(*engine).back " + m + "tensor.(*Tensor).Backward main.main"},
		{device.CategoryGradient, m + "tensor.(*matmulOp).Forward " + m + "tensor.(*engine).back " + m + "tensor.(*Tensor).Backward main.main"},
		{device.CategoryOptimizer, m + "tensor.alloc " + m + "optim.(*Adam).Step main.main"},
		{device.CategoryOptimizer, m + "tensor.alloc " + m + "optim.NewAdamW main.main"},
	} {
		var frames []device.Frame
		for _, f := range strings.Fields(c.frames) {
			frames = append(frames, device.Frame{Function: f})
		}
		if got := categoryOf(frames); got != c.want {
			t.Errorf("%s: category %q, want %q", c.frames, got, c.want)
		}
	}
}

func ExampleOrigin_Describe() {
	fmt.Println(Origin{Op: "matmul", DType: "float32", Shape: [8]int{64, 784}, Dims: 2, Scope: "forward"}.Describe())
	// Output: [64, 784] float32, result of matmul, in scope "forward"
}

// BenchmarkHistory measures allocations and frees of 4 KiB while a history is recorded.
// BenchmarkPair measures them without a history.
func BenchmarkHistory(b *testing.B) {
	p := New(newFake(0), Options{})
	p.RecordHistory(device.NewHistorySettings())
	for b.Loop() {
		x, err := p.Alloc(4096, 0, Origin{Op: "matmul"})
		if err != nil {
			b.Fatal(err)
		}
		p.Free(x, x.Generation())
	}
}
