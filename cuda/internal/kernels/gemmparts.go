package kernels

import (
	"math"

	"github.com/flambeau-go/flambeau/ptx"
)

// A product may be divided along k: the blocks of a tile sum up a part each. That may be all
// tiles, or those behind the whole ones, which would keep a few multiprocessors busy while the
// others have nothing left. It is one launch. Each block leaves its sums in scratch memory and
// counts itself at its tile. The one that comes last adds the sums of all parts in their order, so
// that the result does not depend on which it is, and does what is to be done with them. Nobody
// waits for another block, so blocks need not run side by side.
//
// What the others wrote is visible to the last block. A barrier orders the threads of a block
// before the one that counts. Its atomic releases and acquires for the device. A barrier orders
// that before the threads that read (PTX ISA, "Memory Consistency Model", causality order).

// Counters gives the address of [CounterWords] words of 32 bits for the launches of one stream,
// which come one after the other. They are zero where no launch is under way: they begin as zeros,
// and whoever comes last at a tile has made its word zero again. A launch that ends between has
// ended the context.
type Counters func() (addr uint64, err error)

// CounterWords is how many tiles of a product may be divided along k.
const CounterWords = 4096

// division is how a product is divided among blocks. The first tiles of each matrix are whole. A
// block of any other tile sums up a chunk of k. A kernel that loops over tiles has at most that
// many workers.
type division struct{ whole, chunk, workers int }

// undivided has whole tiles alone.
func undivided(k int) division { return division{chunk: max(k, 1)} }

func (d division) parts(k int) int { return max(1, ceilDiv(k, d.chunk)) }

// blocks is how many a matrix of so many tiles takes.
func (d division) blocks(tiles, k int) int { return d.whole + (tiles-d.whole)*d.parts(k) }

// productParts is where blocks leave their sums, and which one this block is.
type productParts struct {
	sums, counters ptx.Ptr
	count          ptx.Value // of the parts of a tile
	slot           ptx.Value // the number of the tile among those that are divided
	part           ptx.Value // count where the tile is whole
}

// declareParts declares the parameters as launchParts packs them. It returns the tile, and where
// its part of k begins and ends at most.
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

// partSums are sums of a thread, in whole vectors of 16 bytes. where runs what it is given in the
// threads that have them.
type partSums struct {
	where func(do func())
	list  []*ptx.Var
}

func everywhere(do func()) { do() }

// join leaves the sums of this part and calls finish in the block that comes last at the tile, with
// those of all parts in their places. A block of a whole tile finishes at once. thread counts the
// threads that have sums.
func (q productParts) join(b *ptx.Builder, thread ptx.Value, threads int, groups []partSums, finish func()) {
	done := b.Var(b.U32(1))
	b.If(q.part.Lt(q.count), func() { done.Set(q.joined(b, thread, threads, groups).Select(b.U32(1), num(0))) })
	b.If(done.Get().Ne(num(0)), finish)
}

// joined reports whether this block is the last at the tile, and has the sums of all parts.
func (q productParts) joined(b *ptx.Builder, thread ptx.Value, threads int, groups []partSums) ptx.Value {
	t := q.sums.Elem()
	vector, size := 16/t.Size(), 0 // elements of a part
	for _, g := range groups {
		size += len(g.list) * threads
	}
	// A part's vectors lie thread by thread, so that neighbours are neighbours in memory.
	mine := q.sums.At(q.slot.Mul(q.count).MulWide(num(size))).At(thread.Mul(num(vector)))
	each := func(p ptx.Ptr, f func(p ptx.Ptr, v []*ptx.Var)) {
		at := 0
		for _, g := range groups {
			g.where(func() {
				for i := 0; i < len(g.list); i += vector {
					f(p.At(num((at+i)*threads)), g.list[i:i+vector])
				}
			})
			at += len(g.list)
		}
	}
	b.Comment("leave the sums of this part")
	each(mine.At(q.part.MulWide(num(size))), func(p ptx.Ptr, v []*ptx.Var) { p.StoreVec(get(v)...) })
	b.Barrier()
	b.Comment("who comes last has those of all parts, and leaves a zero for the next launch")
	before, others := b.Var(b.U32(0)), q.count.Sub(num(1))
	b.If(b.ThreadID(0).Eq(num(0)), func() {
		before.Set(q.counters.At(q.slot).AtomicOrdered(ptx.AtomicInc, others))
	})
	last := before.Get().Eq(others).AnyOfBlock()
	b.If(last, func() {
		zero := b.Const(t, num(0))
		if t.IsFloat() { // the one zero that leaves all others as they are
			zero = b.Const(t, ptx.Float(math.Copysign(0, -1)))
		}
		for _, g := range groups {
			for _, v := range g.list {
				v.Set(zero)
			}
		}
		b.For(b.U32(0), q.count, num(1), func(part ptx.Value, _ ptx.Loop) {
			each(mine.At(part.MulWide(num(size))), func(p ptx.Ptr, v []*ptx.Var) {
				for i, x := range p.LoadVec(vector) {
					v[i].Set(v[i].Get().Add(x))
				}
			})
		})
	})
	return last
}

// splitMatMul plans a product that is divided along k.
func splitMatMul(f productForm, o ProductOperands, d division, scratch Scratch) ([]Launch, error) {
	f = f.inParts()
	batch, m, n, k := o.Out.Shape.At(0), o.Out.Shape.At(1), o.Out.Shape.At(2), o.A.Shape.At(2)
	partial, err := scratch(batch * (f.tiles(m, n) - d.whole) * d.parts(k) * f.partBytes())
	if err != nil {
		return nil, err
	}
	counters, err := o.Counters()
	if err != nil {
		return nil, err
	}
	return launchParts(f, o, d, partial, counters)
}

// divisible reports whether all tiles of the product in that form can be divided along k.
func (o *ProductOperands) divisible(f productForm, scratch Scratch) bool {
	batch, m, n := o.Out.Shape.At(0), o.Out.Shape.At(1), o.Out.Shape.At(2)
	return scratch != nil && o.mayDivide() && batch*f.tiles(m, n) <= CounterWords
}

// mayDivide reports whether some tiles of the product may be divided along k.
func (o *ProductOperands) mayDivide() bool {
	return o.Counters != nil && o.Out.Shape.At(0) <= maxGridY
}
