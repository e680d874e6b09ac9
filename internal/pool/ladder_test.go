package pool

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

func must(t *testing.T, p *Pool, size uint64, s StreamID, o ...Origin) *Block {
	t.Helper()
	b, err := p.Alloc(size, s, append(o, Origin{Dims: -1})[0])
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestLadderOrder fills a device of three segments. The log of the fake device, and hooks, must
// show the steps of the out-of-memory ladder in the right order.
func TestLadderOrder(t *testing.T) {
	errOOM := errors.New("device: out of memory")
	setup := func(collected bool) (*fakeDevice, *Pool, []*Block) {
		d := newFake(3 * 1280)
		o := tiny()
		o.ErrOOM = errOOM
		o.CollectWait = time.Millisecond
		o.Pressure = func() { d.note("pressure") }
		o.GC = func() { d.note("gc") }
		p := New(d, o)
		var blocks []*Block
		for range 3 {
			blocks = append(blocks, must(t, p, 1280, 0, Origin{Dims: -1, Collected: collected}))
		}
		d.logging = true
		return d, p, blocks
	}
	check := func(t *testing.T, d *fakeDevice, want ...string) {
		t.Helper()
		if !reflect.DeepEqual(d.log, want) {
			t.Errorf("tried\n  %s\nwant\n  %s", strings.Join(d.log, ", "), strings.Join(want, ", "))
		}
	}
	t.Run("collected blocks live: collect first, to the end", func(t *testing.T) {
		d, p, _ := setup(true)
		_, err := p.Alloc(1000, 0, Origin{})
		if !errors.Is(err, errOOM) || !errors.Is(err, ErrNoMemory) {
			t.Fatal(err)
		}
		check(t, d, "alloc 1024", "alloc 1024", "pressure", "alloc 1024", "gc", "alloc 1024", "alloc 1000", "alloc 1024", "alloc 1000")
		if s := p.Stats(); s.Retries != 1 || s.OOMs != 1 || s.Collections != 1 {
			t.Errorf("retries, OOMs, collections: %d %d %d", s.Retries, s.OOMs, s.Collections)
		}
	})
	t.Run("none live: reclaim before the collection", func(t *testing.T) {
		d, p, blocks := setup(false)
		// Stream 1 can use the memory of this block, which belongs to stream 0, only when the pool
		// has given its segment back.
		p.Free(blocks[1], blocks[1].Generation())
		d.log = nil
		b := must(t, p, 1280, 1)
		check(t, d, "alloc 1280", "alloc 1280", "pressure", "alloc 1280", "record 0", "wait 0", "free 1280", "alloc 1280")
		if b.Stream() != 1 || p.Stats().Collections != 0 {
			t.Error("a collection was run")
		}
	})
	t.Run("pending blocks are waited for", func(t *testing.T) {
		d, p, blocks := setup(false)
		d.work(5)
		blocks[2].Use(5)
		p.Free(blocks[2], blocks[2].Generation())
		b := must(t, p, 1280, 0)
		check(t, d, "record 5", "alloc 1280", "alloc 1280", "pressure", "alloc 1280", "wait 5")
		if b.Addr() == 0 || p.Stats().Syncs != 1 {
			t.Error("no wait")
		}
	})
	t.Run("pressure suffices", func(t *testing.T) {
		d, p, blocks := setup(true)
		gen := blocks[0].Generation()
		p.o.Pressure = func() { d.note("pressure"); p.Free(blocks[0], gen) }
		must(t, p, 1280, 0)
		check(t, d, "alloc 1280", "alloc 1280", "pressure")
	})
	t.Run("the queue grows after the collection", func(t *testing.T) {
		d, p, blocks := setup(true)
		gen := blocks[0].Generation()
		p.o.CollectWait = 10 * time.Second
		p.o.GC = func() {
			d.note("gc")
			time.AfterFunc(3*time.Millisecond, func() { p.Queue(blocks[0], gen) })
		}
		began := time.Now()
		must(t, p, 1280, 0)
		check(t, d, "alloc 1280", "alloc 1280", "pressure", "alloc 1280", "gc")
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the queue's growth was noticed after %v", took)
		}
	})
	t.Run("garbage of another stream is collected, then returned", func(t *testing.T) {
		d, p, blocks := setup(true)
		gen := blocks[0].Generation()
		p.o.CollectWait = 10 * time.Second
		p.o.GC = func() { d.note("gc"); p.Queue(blocks[0], gen) }
		began := time.Now()
		must(t, p, 1280, 3)
		check(t, d, "alloc 1280", "alloc 1280", "pressure", "alloc 1280", "gc", "record 0", "wait 0", "free 1280", "alloc 1280")
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("a still queue held the ladder up for %v", took)
		}
	})
	t.Run("a late cleanup within the wait still counts", func(t *testing.T) {
		_, p, blocks := setup(true)
		g0, g1 := blocks[0].Generation(), blocks[1].Generation()
		small := must(t, p, 0, 0)
		p.o.CollectWait = 10 * time.Second
		p.o.GC = func() {
			p.Queue(small, small.Generation()) // a release that frees too little memory
			time.AfterFunc(30*time.Millisecond, func() { p.Queue(blocks[0], g0) })
			time.AfterFunc(60*time.Millisecond, func() { p.Queue(blocks[1], g1) })
		}
		must(t, p, 1280, 0)
	})
	t.Run("collected memory that others took: collect again", func(t *testing.T) {
		d := newFake(2 * 1280)
		o := tiny()
		o.CollectWait = time.Millisecond
		rounds := 0
		var p *Pool
		var other, own *Block
		o.GC = func() {
			switch rounds++; rounds {
			case 1: // free the block, but let stream 5 immediately allocate it again
				p.Queue(other, other.Generation())
				if b := must(t, p, 1280, 5); b.Addr() == 0 {
					t.Error("not from the cache")
				}
			case 2:
				p.Queue(own, own.Generation())
			}
		}
		p = New(d, o)
		other, own = must(t, p, 1280, 5, Origin{Collected: true}), must(t, p, 1280, 0, Origin{Collected: true})
		must(t, p, 1280, 0)
		if s := p.Stats(); rounds != 2 || s.Collections != 2 || s.Retries != 1 {
			t.Errorf("%d rounds, %d collections, %d retries", rounds, s.Collections, s.Retries)
		}
	})
	t.Run("no hope: no ladder", func(t *testing.T) {
		d, p, _ := setup(true)
		for _, size := range []uint64{3*1280 + 1, 1 << 40, 1<<64 - 1} {
			if _, err := p.Alloc(size, 0, Origin{}); !errors.Is(err, errOOM) {
				t.Errorf("%d: %v", size, err)
			}
		}
		if log := strings.Join(d.log, " "); strings.Contains(log, "gc") || strings.Contains(log, "pressure") {
			t.Error(log)
		}
	})
	t.Run("other errors of the backing are passed on", func(t *testing.T) {
		d, p, _ := setup(true)
		d.allocErr = errors.New("context is lost")
		_, err := p.Alloc(8, 0, Origin{})
		var oom *OOMError
		if !errors.Is(err, d.allocErr) || errors.As(err, &oom) || errors.Is(err, errOOM) {
			t.Errorf("%v", err)
		}
		check(t, d, "alloc 256")
	})
}

// TestLimit sets a limit of the pool, in bytes or as a fraction. It must work like a full device,
// and it must be possible to change it.
func TestLimit(t *testing.T) {
	for _, o := range []Options{{Limit: 2560}, {Fraction: 0.25}, {Limit: 1 << 40, Fraction: 0.25}} {
		full := tiny()
		full.Limit, full.Fraction = o.Limit, o.Fraction
		full.CollectWait = 1
		d := newFake(10240)
		p := New(d, full)
		a, b := must(t, p, 1280, 0), must(t, p, 1280, 0)
		if _, err := p.Alloc(8, 0, Origin{}); !errors.Is(err, ErrNoMemory) {
			t.Fatalf("above the limit: %v", err)
		}
		p.Free(a, a.Generation())
		// the pool must give back the large segment to make room for a small one
		c := must(t, p, 8, 0)
		if d.used > 2560 || p.Stats().Limit != 2560 {
			t.Errorf("the device holds %d, limit %d", d.used, p.Stats().Limit)
		}
		// 1024 of 2560 bytes are left. The usual segment for a block of 600 bytes is too large, but
		// a smaller segment fits.
		e := must(t, p, 600, 0)
		p.SetLimit(0)
		f := must(t, p, 5000, 0)
		for _, x := range []*Block{b, c, e, f} {
			p.Free(x, x.Generation())
		}
		if p.Empty(); d.used != 0 {
			t.Errorf("%d bytes stay", d.used)
		}
	}
}

type place string

func (w place) String() string { return string(w) }

type slicePlace []string // a type that cannot be compared and so cannot be a map key

func (w slicePlace) String() string { return w[0] }

func TestOOMText(t *testing.T) {
	o := tiny()
	o.CollectWait = 1
	o.ErrOOM = errors.New("device: out of memory")
	d := newFake(16 << 10)
	p := New(d, o)
	var pcs [1]uintptr
	runtime.Callers(1, pcs[:])
	_, _, line, _ := runtime.Caller(0)
	line--
	weights := Origin{PC: pcs[0], Op: "matmul", DType: "float32", Shape: [8]int{64, 784}, Dims: 2, Scope: "forward"}
	for range 3 {
		must(t, p, 2048, 0, weights)
	}
	must(t, p, 3072, 1, Origin{Where: place("in the scope opened at train.go:28"), Op: "relu", DType: "bfloat16"})
	must(t, p, 1024, 1, Origin{Where: slicePlace{"at odd.go:1"}, Dims: -1})
	for i := range 12 {
		must(t, p, 8, 0, Origin{Op: fmt.Sprint("op", i), Dims: -1})
	}
	x := must(t, p, 1280, 0)
	p.Free(x, x.Generation())
	must(t, p, 600, 0)
	_, err := p.Alloc(5000, 0, Origin{Op: "conv2d", DType: "float32", Shape: [8]int{1250}, Dims: 1})
	var oom *OOMError
	if !errors.As(err, &oom) || !errors.Is(err, o.ErrOOM) {
		t.Fatal(err)
	}
	text := err.Error()
	for _, want := range []string{
		"out of memory on fake:0: asked for 4.88 KiB (5000 bytes) for [1250] float32, result of conv2d; ",
		"capacity 16.00 KiB, free ",
		"reserved 11.50 KiB, of which allocated 10.68 KiB, waiting for other streams 0 B, cached 840 B; ",
		"largest free block on stream 0 680 B",
		"6.00 KiB in 3 blocks: [64, 784] float32, result of matmul at ",
		fmt.Sprintf(`ladder_test.go:%d, in scope "forward"`, line),
		"\n  3.00 KiB: [] bfloat16, result of relu in the scope opened at train.go:28\n",
		"\n  1.00 KiB: at odd.go:1",
		"\n  600 B: origin not recorded",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\n"); n != 11 || len(oom.Owners) != 10 {
		t.Errorf("%d lines, %d owners", n, len(oom.Owners))
	}
	if l := p.Largest(2); len(l) != 2 || l[0].Blocks != 3 || l[0].Bytes != 6144 || l[0].Each != 2048 || l[1].Op != "relu" {
		t.Errorf("Largest: %v", l)
	}
	if len(p.Largest(-1)) != 0 || len(p.Largest(1000)) != 16 {
		t.Errorf("Largest: %d", len(p.Largest(1000)))
	}
}

// TestPanickingHook lets a hook panic. The panic must reach the caller of Alloc, and the pool must
// work afterwards.
func TestPanickingHook(t *testing.T) {
	o := tiny()
	o.CollectWait = 1
	p := New(newFake(1280), o)
	held := must(t, p, 1280, 0)
	p.o.Pressure = func() {
		p.Free(held, held.Generation()) // this block becomes the request's
		panic("hook")
	}
	func() {
		defer func() {
			if recover() != "hook" {
				t.Error("the panic was lost")
			}
		}()
		p.Alloc(1280, 0, Origin{})
	}()
	b := must(t, p, 1280, 0)
	p.Free(b, b.Generation())
	if p.Empty() != 1280 {
		t.Error("the block that was offered to the request was lost with it")
	}
}
