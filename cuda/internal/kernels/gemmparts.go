package kernels

import (
	"math"

	"github.com/flambeau-go/flambeau/ptx"
)

// Blocks may divide the sums of a product: each block of a tile then sums over one part of k.
// Either all tiles are divided, or only the last tiles. If the last tiles were not divided, they
// would occupy a few multiprocessors while all others are idle. The whole product is one launch.
// Each block stores its partial sums in scratch memory and increments the counter of its tile. The
// last block to do so adds the partial sums in the order of the parts, and finishes the tile. The
// result therefore does not depend on which block is the last. No block waits for another, so the
// blocks need not run at the same time.
//
// The last block sees everything that the tile's earlier blocks wrote, for three reasons. A barrier
// orders the threads of a block before the thread that increments the counter. The atomic increment
// releases and acquires at device scope. A second barrier orders the increment before the reads of
// all threads (PTX ISA, "Memory Consistency Model", causality order).

// A Counters function returns the address of [CounterWords] words of 32 bits for one stream, whose
// launches run one after the other. The words are zero before the first launch, and zero again
// after each launch, because the last block of a tile resets the tile's word. A launch that fails
// while it runs makes the context unusable.
type Counters func() (addr uint64, err error)

// CounterWords is the largest number of tiles whose sums are divided among blocks.
const CounterWords = 4096

// division says how the sums of a product are divided among blocks. In each matrix the first tiles
// are not divided, and the field undivided is their number. The field chunk is the number of
// elements of k over which each block of a later tile sums. The field workers is the largest number
// of blocks of a kernel that loops over tiles.
type division struct{ undivided, chunk, workers int }

// undivided returns the division in which no tile is divided.
func undivided(k int) division { return division{chunk: max(k, 1)} }

func (d division) parts(k int) int { return max(1, ceilDiv(k, d.chunk)) }

// blocks returns the number of blocks for one matrix that has the given number of tiles.
func (d division) blocks(tiles, k int) int { return d.undivided + (tiles-d.undivided)*d.parts(k) }

// productParts holds the registers with which a block stores its partial sums.
type productParts struct {
	sums, counters ptx.Ptr
	count          ptx.Value // number of parts of k in this tile
	slot           ptx.Value // index of the tile among the tiles with divided sums
	// index of the block's part of k, or count if the tile is not divided
	part ptx.Value
}

// declareParts declares the kernel parameters in the order in which launchParts packs them. It
// returns the block's tile, and the start and the length of the block's part of k.
func declareParts(b *ptx.Builder, sum ptx.Type, k ptx.Value) (q productParts, tile, start, length ptx.Value) {
	chunk, whole, rest := b.Param("chunk", ptx.U32), b.Param("whole", ptx.U32), b.Param("rest", ptx.U32)
	q.count = b.Param("parts", ptx.U32)
	q.sums, q.counters = b.Pointer("partial", sum), b.Pointer("counters", ptx.U32)
	b.Comment("the first tiles are whole, then come those of the first parts, and so on")
	id := b.BlockID(0)
	behind := id.Sub(whole)
	one, number := id.Lt(whole), behind.Rem(rest)
	q.part = one.Select(q.count, behind.Div(rest))
	q.slot = b.BlockID(1).Mad(rest, number)
	start = one.Select(b.U32(0), q.part.Mul(chunk))
	return q, one.Select(id, whole.Add(number)), start, one.Select(k, k.Sub(start).Min(chunk))
}

// partSums are sums that some threads have, in whole vectors of 16 bytes. The function do emits
// code, and guard(do) restricts this code to the threads with these sums.
type partSums struct {
	guard func(do func())
	list  []*ptx.Var
}

func everywhere(do func()) { do() }

// join emits the end of a tile. In a divided tile each block stores its partial sums. The last
// block to do so loads the total sums and runs the code that finish emits. The only block of an
// undivided tile just runs that code. The argument thread is this thread's index among the threads
// with sums.
func (q productParts) join(b *ptx.Builder, thread ptx.Value, threads int, groups []partSums, finish func()) {
	done := b.Var(b.U32(1))
	b.If(q.part.Lt(q.count), func() { done.Set(q.joined(b, thread, threads, groups).Select(b.U32(1), num(0))) })
	b.If(done.Get().Ne(num(0)), finish)
}

// joined emits the code that adds up partial sums. It returns whether this block is the last of the
// tile. If so, the block's registers get the total sums.
func (q productParts) joined(b *ptx.Builder, thread ptx.Value, threads int, groups []partSums) ptx.Value {
	t := q.sums.Elem()
	mine := q.storePart(b, thread, threads, groups).At(thread.Mul(num(16 / t.Size())))
	b.Barrier()
	b.Comment("who comes last has those of all parts, and leaves a zero for the next launch")
	before, others := b.Var(b.U32(0)), q.count.Sub(num(1))
	b.If(b.ThreadID(0).Eq(num(0)), func() {
		before.Set(q.counters.At(q.slot).AtomicOrdered(ptx.AtomicInc, others))
	})
	last := before.Get().Eq(others).AnyOfBlock()
	b.If(last, func() {
		zero := b.Const(t, num(0))
		if t.IsFloat() { // adding -0 changes no value, not even -0
			zero = b.Const(t, ptx.Float(math.Copysign(0, -1)))
		}
		for _, g := range groups {
			for _, v := range g.list {
				v.Set(zero)
			}
		}
		b.For(b.U32(0), q.count, num(1), func(part ptx.Value, _ ptx.Loop) {
			eachVector(groups, threads, mine.At(part.MulWide(num(sizeOfPart(groups, threads)))), func(p ptx.Ptr, v []*ptx.Var) {
				for i, x := range p.LoadVec(len(v)) {
					v[i].Set(v[i].Get().Add(x))
				}
			})
		})
	})
	return last
}

// sizeOfPart returns the number of elements of a block's partial sums.
func sizeOfPart(groups []partSums, threads int) (size int) {
	for _, g := range groups {
		size += len(g.list) * threads
	}
	return size
}

// eachVector calls f with each vector of 16 bytes of a thread's sums, and with its address in the
// memory of a block's partial sums. In memory the vectors of neighbouring threads are neighbours.
// The argument p is the address of the thread's first vector.
func eachVector(groups []partSums, threads int, p ptx.Ptr, f func(p ptx.Ptr, v []*ptx.Var)) {
	at, vector := 0, 16/p.Elem().Size()
	for _, g := range groups {
		g.guard(func() {
			for i := 0; i < len(g.list); i += vector {
				f(p.At(num((at+i)*threads)), g.list[i:i+vector])
			}
		})
		at += len(g.list)
	}
}

// storePart stores this block's partial sums. It returns the address of the tile's first partial
// sums.
func (q productParts) storePart(b *ptx.Builder, thread ptx.Value, threads int, groups []partSums) ptx.Ptr {
	b.Comment("leave the sums of this part")
	size := num(sizeOfPart(groups, threads))
	first := q.sums.At(q.slot.Mul(q.count).MulWide(size))
	mine := first.At(thread.Mul(num(16 / q.sums.Elem().Size()))).At(q.part.MulWide(size))
	eachVector(groups, threads, mine, func(p ptx.Ptr, v []*ptx.Var) { p.StoreVec(get(v)...) })
	return first
}

// splitMatMul plans a product whose sums over k are divided among blocks.
func splitMatMul(f productForm, o ProductOperands, d division, scratch Scratch) ([]Launch, error) {
	f = f.inParts()
	batch, m, n, k := o.Out.Shape.At(0), o.Out.Shape.At(1), o.Out.Shape.At(2), o.A.Shape.At(2)
	partial, err := scratch(batch * (f.tiles(m, n) - d.undivided) * d.parts(k) * f.partBytes())
	if err != nil {
		return nil, err
	}
	counters, err := o.Counters()
	if err != nil {
		return nil, err
	}
	return launchParts(f, o, d, partial, counters)
}

// divisible reports whether the kernel f can divide the sums of all tiles of the product.
func (o *ProductOperands) divisible(f productForm, scratch Scratch) bool {
	batch, m, n := o.Out.Shape.At(0), o.Out.Shape.At(1), o.Out.Shape.At(2)
	return scratch != nil && o.mayDivide() && batch*f.tiles(m, n) <= CounterWords
}

// mayDivide reports whether the sums of some tiles of the product may be divided.
func (o *ProductOperands) mayDivide() bool {
	return o.Counters != nil && o.Out.Shape.At(0) <= maxGridY
}
