package kernels

import "github.com/flambeau-go/flambeau/ptx"

// A product kernel can also sum the rows of a, or the columns of b. It reads their elements from
// the tiles in shared memory. Only the blocks of the first column of tiles sum rows of a, and only
// those of the first row of tiles sum columns of b. Each slice of threads adds up its part of k.
// The elements of one tile are added up first, and their sum is added to the total, which reduces
// the error of long sums.

// floatSums is the state of a float32 kernel that also sums rows of a or columns of b.
type floatSums struct {
	p                  ptx.Ptr
	stride             ptx.Value
	active             ptx.Value // whether this thread computes sums of rows or columns
	thread             ptx.Value // index of the thread in its slice
	threads, perThread int       // number of threads of a slice, and number of sums of a thread
	// address of the first element that the thread adds, in the first buffer
	src ptx.Ptr
	// Distances in elements: between consecutive indices of k, and between the two buffers.
	ld, buffer int
	list       []*ptx.Var
}

// sumsFit reports whether the kernel has registers for the sums. The kernel of the large tile has
// no registers left if the copy transposes an operand, or if there is an activation.
func (s gemmSpec) sumsFit() bool {
	return s.tile != largeTile || s.a != vectorsAlongK && s.b != vectorsAlongK && s.act == ""
}

// declareSums declares the kernel parameters and the registers of the sums. Each thread gets a
// vector of 16 bytes, and uses the first floatSums.perThread elements of it. The argument thread is
// the thread's index in its slice.
func (g *gemmBuilder) declareSums(thread ptx.Value, threads int, tileM, tileN ptx.Value, shared ptx.Ptr) {
	t, name, n, other := g.s.tile, "sums", g.s.tile.bm, tileN
	ldA, ldB := t.bm+4, t.bn+4
	r := floatSums{thread: thread, threads: threads, src: shared, ld: ldA}
	switch g.s.sums {
	case sumsSpec{}:
		return
	case sumsSpec{columns: true}:
		name, n, other = "columns", t.bn, tileM
		r.src, r.ld = shared.At(num(2*t.bk*ldA)), ldB
	}
	r.p, r.stride = g.Pointer(name, ptx.F32), g.Param(name+"r", ptx.S32)
	r.perThread, r.buffer = ceilDiv(n, threads), t.bk*r.ld
	r.src = r.src.At(thread)
	if t.slices > 1 {
		r.src = r.src.At(g.slice.Mul(num(t.bk / t.slices * r.ld)))
	}
	r.active = other.Eq(num(0))
	if n < threads {
		r.active = r.active.And(thread.Lt(num(n)))
	}
	for range g.chunk {
		r.list = append(r.list, g.Var(g.F32(0)))
	}
	g.sums = r
}

// addSums adds the tile in a buffer to the sums. The argument steps is the number of indices of k
// that each slice handles in a tile.
func (g *gemmBuilder) addSums(buffer ptx.Value, steps int) {
	r := &g.sums
	if r.list == nil {
		return
	}
	g.If(r.active, func() {
		from := r.src.At(buffer.Mul(num(r.buffer)))
		for i := range r.perThread {
			sum := from.At(num(i * r.threads)).Load()
			for at := 1; at < steps; at++ {
				sum = sum.Add(from.At(num(i*r.threads + at*r.ld)).Load())
			}
			r.list[i].Set(r.list[i].Get().Add(sum))
		}
	})
}

// storeSums stores the sums. The arguments row and col are the block's first row and column.
func (g *gemmBuilder) storeSums(row, col ptx.Value) {
	r := &g.sums
	if r.list == nil {
		return
	}
	what, first, count := "rows", row, g.m
	if g.s.sums.columns {
		what, first, count = "columns", col, g.n
	}
	g.Comment("the sums of %s", what)
	g.If(r.active, func() {
		for i := range r.perThread {
			at := first.Add(r.thread).Add(num(i * r.threads))
			g.If(at.Lt(count), func() { r.p.At(at.Bitcast(ptx.S32).MulWide(r.stride)).Store(r.list[i].Get()) })
		}
	})
}
