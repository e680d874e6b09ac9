package kernels

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// The blocks of a tile with divided sums may share the work of adding up partial sums. A block that
// has stored its sums polls for a while until the other blocks have stored theirs. It then adds up
// and stores a share of the tile. If it has waited too long, it ends. Blocks end in the order in
// which they arrived, so the remaining blocks know their shares without an exchange. The last block
// never polls. It takes a share immediately, or all of the tile if no other block is left. So no
// block depends on a block that has not begun, and the blocks need not run at the same time. The
// partial sums of an element are added in the order of the parts of k, whichever block adds them.
//
// A tile has two counters. The lower half of the first counter counts the blocks that have arrived.
// Its upper half counts the blocks that ended before the last block arrived. The second counter
// counts the blocks that have stored their shares. The last block to store resets both counters to
// zero.

// mostPolls limits how often a block polls for the other blocks of its tile. Each poll takes some
// 800 clock cycles, so the limit is about 10 µs. Blocks share the work only if all of them fit on
// the device at once. So they finish at about the same time.
const mostPolls = 24

// shareAhead is the number of partial sums that a thread reads from shared memory before it adds
// the first one.
const shareAhead = 8

// plain reports whether a kernel's results are sums of products, without bias, activation, or sums
// of rows or columns.
func (s tensorSpec) plain() bool {
	return !s.odd && s.bias == dtype.Invalid && s.actSpec == actSpec{} && s.sums == sumsSpec{}
}

// plain reports whether the results are sums of products, without bias, activation, or sums of rows
// or columns.
func (o *ProductOperands) plain() bool {
	return o.Act == nil && o.Bias.Type == dtype.Invalid && o.summing() == sumsSpec{}
}

// shares reports whether the blocks of a number of tiles may share the work of adding up partial
// sums. All these blocks must fit on the device at once.
func (g *GPU) shares(s tensorSpec, tiles, parts int) bool {
	s.share = true
	return s.plain() && parts > 1 && 2*tiles <= CounterWords && tiles*parts <= g.Cores*g.resident(s)
}

// sharedVectors returns the number of 16-byte vectors in the sums of a tile.
func (s tensorSpec) sharedVectors() int { return s.partBytes() / 16 }

// joinTogether emits code in which all blocks of a tile add up its partial sums.
func (g *tensorBuilder) joinTogether(q productParams) {
	b, p := g.Builder, q.parts
	from := p.storePart(b, g.ThreadID(0), g.s.form.threads(), g.partSums())
	b.Barrier()
	rank, helpers := g.arrive(p)
	b.If(rank.Lt(helpers), func() {
		g.storeShare(from, g.ofBlock(q.out()), p.count, rank, helpers)
		b.If(b.ThreadID(0).Eq(num(0)), func() {
			arrived, stored := p.sharedCounters()
			b.If(stored.AtomicOrdered(ptx.AtomicInc, helpers.Sub(num(1))).Eq(helpers.Sub(num(1))), func() {
				arrived.Atomic(ptx.AtomicExchange, num(0))
			})
		})
	})
}

// sharedCounters returns the two counters of the block's tile.
func (q productParts) sharedCounters() (arrived, stored ptx.Ptr) {
	arrived = q.counters.At(q.slot.Mul(num(2)))
	return arrived, arrived.At(num(1))
}

// arrive returns two numbers: rank is the index of the share that the block adds up, and helpers is
// the number of shares of the tile. If rank is at least helpers, the block has no share.
func (g *tensorBuilder) arrive(p productParts) (rank, helpers ptx.Value) {
	b := g.Builder
	words := g.shared.As(ptx.U32)
	b.If(b.ThreadID(0).Eq(num(0)), func() {
		b.Comment("wait a while for the other parts")
		arrived, _ := p.sharedCounters()
		first := arrived.AtomicOrdered(ptx.AtomicAdd, num(1))
		number := first.And(num(0xffff))
		now, ended, polls := b.Var(first.Add(num(1))), b.Var(b.U32(0)), b.Var(b.U32(0))
		b.Loop(func(l ptx.Loop) {
			seen := now.Get()
			l.BreakIf(seen.And(num(0xffff)).Eq(p.count))
			b.If(polls.Get().Ge(num(mostPolls)).And(seen.Shr(num(16)).Eq(number)), func() {
				ended.Set(arrived.CompareAndSwap(seen, seen.Add(num(1<<16))).Eq(seen).Select(b.U32(math.MaxUint32), num(0)))
				l.BreakIf(ended.Get().Ne(num(0)))
			})
			polls.Set(polls.Get().Add(num(1)))
			now.Set(arrived.AtomicOrdered(ptx.AtomicAdd, num(0)))
		})
		gone := now.Get().Shr(num(16))
		words.StoreVec(number.Sub(gone).Or(ended.Get()), p.count.Sub(gone))
	})
	b.Barrier()
	v := words.LoadVec(2)
	b.Barrier()
	return v[0], v[1]
}

// storeShare adds up the partial sums of a share of the tile and stores the results. The partial
// sums pass through shared memory, so that many asynchronous copies are pending at once.
func (g *tensorBuilder) storeShare(src ptx.Ptr, c gemmOperand, parts, rank, helpers ptx.Value) {
	b, s, threads := g.Builder, g.s, g.s.form.threads()
	vectors := s.sharedVectors()
	each := b.U32(uint32(vectors - 1)).Div(helpers).Add(num(1))
	begin := rank.Mul(each)
	end := begin.Add(each).Min(num(vectors))
	// a step has as many vectors as shared memory has room for
	step := b.U32(uint32(s.shared() / 16)).Div(parts).Min(each)
	sums := g.shared.As(ptx.F32)
	b.For(begin, end, step, func(at ptx.Value, _ ptx.Loop) {
		width := end.Sub(at).Min(step)
		b.Comment("copy a share of all parts")
		part, column := b.Var(b.ThreadID(0).Div(width)), b.Var(b.ThreadID(0).Rem(width))
		more, beside := b.U32(uint32(threads)).Div(width), b.U32(uint32(threads)).Rem(width)
		b.For(b.ThreadID(0), width.Mul(parts), num(threads), func(i ptx.Value, _ ptx.Loop) {
			at := src.At(part.Get().MulWide(num(4 * vectors))).At(at.Add(column.Get()).Mul(num(4)))
			sums.At(i.Mul(num(4))).CopyAsync(at, 16)
			next := column.Get().Add(beside)
			over := next.Ge(width)
			part.Set(part.Get().Add(more).Add(over.Select(b.U32(1), num(0))))
			column.Set(next.Sub(over.Select(width, num(0))))
		})
		b.CommitGroup()
		b.WaitGroup(0)
		b.Barrier()
		b.Comment("add the parts in their order")
		var apart [shareAhead]ptx.Value
		for p := range apart {
			apart[p] = width.Mul(num(4 * p))
		}
		b.For(b.ThreadID(0), width, num(threads), func(i ptx.Value, _ ptx.Loop) {
			sum := make([]*ptx.Var, 4)
			for e := range sum { // adding -0 changes no value, not even -0
				sum[e] = b.Var(b.Const(ptx.F32, ptx.Float(math.Copysign(0, -1))))
			}
			add := func(first ptx.Value, n int) {
				list, of := make([][]ptx.Value, n), first.Mad(width, i).Mul(num(4))
				for p := range list {
					list[p] = sums.At(of.Add(apart[p])).LoadVec(4)
				}
				for _, v := range list {
					for e, x := range v {
						sum[e].Set(sum[e].Get().Add(x))
					}
				}
			}
			whole := parts.And(b.U32(math.MaxUint32 - (shareAhead - 1)))
			b.For(b.U32(0), whole, num(shareAhead), func(part ptx.Value, _ ptx.Loop) { add(part, shareAhead) })
			b.For(whole, parts, num(1), func(part ptx.Value, _ ptx.Loop) { add(part, 1) })
			g.storeVector(c, at.Add(i), get(sum))
		})
		b.Barrier()
	})
}

// storeVector stores four sums of a thread, the results of one mma instruction.
func (g *tensorBuilder) storeVector(c gemmOperand, number ptx.Value, v []ptx.Value) {
	b, f := g.Builder, g.s.form
	wm, wn := f.warp()
	thread, fragment := number.Rem(num(f.threads())), number.Div(num(f.threads()))
	warp, lane := thread.Shr(num(5)), thread.And(num(31))
	row := g.tileM.Add(warp.Div(num(f.warpsN)).Mul(num(wm))).Add(fragment.Div(num(wn / 8)).Mul(num(16))).Add(lane.Shr(num(2)))
	column := g.tileN.Add(warp.Rem(num(f.warpsN)).Mul(num(wn))).Add(fragment.Rem(num(wn / 8)).Mul(num(8))).Add(lane.And(num(3)).Mul(num(2)))
	for h := range 2 {
		at := row.Add(num(8 * h))
		b.If(at.Lt(g.m), func() {
			g.storePair(c, c.p.At(at.Bitcast(ptx.S32).MulWide(c.stride1)), column, v[2*h], v[2*h+1])
		})
	}
}
