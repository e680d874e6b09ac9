package pool

import (
	"testing"
	"unsafe"
)

func zeroAllocs(t *testing.T, name string, f func()) {
	t.Helper()
	for range 100 { // later rounds allocate no Go memory
		f()
	}
	if n := testing.AllocsPerRun(1000, f); n != 0 {
		t.Errorf("%s: %v allocations a run", name, n)
	}
}

// TestNoAllocations counts the Go allocations of the pool on every path. Only the first calls may
// allocate Go memory.
func TestNoAllocations(t *testing.T) {
	d := newFake(0)
	p := New(d, Options{GCRatio: 1})
	origin := Origin{PC: 1, Op: "matmul", Scope: "step", DType: "float32", Shape: [8]int{64, 784}, Dims: 2, Collected: true}
	alloc := func(size uint64, s StreamID) *Block {
		b, err := p.Alloc(size, s, origin)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, size := range []uint64{0, 1, 4096, 1 << 20, 3 << 20, 64 << 20} {
		zeroAllocs(t, human(size), func() {
			b := alloc(size, 0)
			p.Free(b, b.Generation())
		})
	}
	zeroAllocs(t, "mixed, split and coalesced", func() {
		var blocks [12]*Block
		for i := range blocks {
			blocks[i] = alloc(uint64(i*i)*40_000, StreamID(i%2))
		}
		for _, b := range blocks {
			p.Free(b, b.Generation())
		}
	})
	zeroAllocs(t, "queued", func() {
		b := alloc(4096, 0)
		p.Queue(b, b.Generation())
	})
	// A use on another stream needs an event, which is a Go object of the fake device. The pool
	// itself must not allocate.
	for range 100 {
		b := alloc(4096, 0)
		b.Use(1)
		p.Free(b, b.Generation())
	}
	if n := testing.AllocsPerRun(1000, func() {
		b := alloc(4096, 0)
		b.Use(1)
		p.Free(b, b.Generation())
	}); n > 1 {
		t.Errorf("foreign use: %v allocations a run, of which the event is one", n)
	}
	if s := unsafe.Sizeof(Block{}); s > 384 {
		t.Errorf("a Block is %d bytes", s)
	}
}

func benchPair(b *testing.B, size uint64, hold int) {
	p := New(newFake(0), Options{})
	origin := Origin{PC: 1, Op: "matmul", Scope: "step", DType: "float32", Shape: [8]int{64, 784}, Dims: 2}
	// allocate blocks of many sizes, and free every other block, so that there are many free blocks
	for i := range hold {
		x, err := p.Alloc(uint64(i+1)*1024, 0, origin)
		if err != nil {
			b.Fatal(err)
		}
		if i%2 == 0 {
			defer p.Free(x, x.Generation())
		} else {
			p.Free(x, x.Generation())
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		x, err := p.Alloc(size, 0, origin)
		if err != nil {
			b.Fatal(err)
		}
		p.Free(x, x.Generation())
	}
}

func BenchmarkPair(b *testing.B) {
	// each block is cut from a large free block, because no smaller one is free
	b.Run("100KiB/round 64", func(b *testing.B) {
		p := New(newFake(0), Options{Round: 64})
		for b.Loop() {
			x, err := p.Alloc(100<<10, 0, Origin{})
			if err != nil {
				b.Fatal(err)
			}
			p.Free(x, x.Generation())
		}
	})
	b.Run("4KiB/empty pool", func(b *testing.B) { benchPair(b, 4096, 0) })
	b.Run("4KiB/1000 blocks", func(b *testing.B) { benchPair(b, 4096, 1000) })
	b.Run("3MiB/empty pool", func(b *testing.B) { benchPair(b, 3<<20, 0) })
	b.Run("3MiB/8000 blocks", func(b *testing.B) { benchPair(b, 3<<20, 8000) })
}

// BenchmarkStep allocates 64 blocks with the sizes of a training step, and frees them in the order
// of a backward pass.
func BenchmarkStep(b *testing.B) {
	p := New(newFake(0), Options{})
	var blocks [64]*Block
	for b.Loop() {
		for i := range blocks {
			x, err := p.Alloc(uint64(1+i%7)*400_000, 0, Origin{Op: "matmul"})
			if err != nil {
				b.Fatal(err)
			}
			blocks[i] = x
		}
		for i := len(blocks) - 1; i >= 0; i-- {
			p.Free(blocks[i], blocks[i].Generation())
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/64, "ns/pair")
}

func BenchmarkPairParallel(b *testing.B) {
	p := New(newFake(0), Options{})
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			x, err := p.Alloc(4096, 0, Origin{Op: "matmul"})
			if err != nil {
				b.Fatal(err)
			}
			p.Free(x, x.Generation())
		}
	})
}
