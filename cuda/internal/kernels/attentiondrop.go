package kernels

import (
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// keptOwn decides which weights dropout keeps, for the keys and queries of one thread. The thread
// has every 8th key from the argument key on, and every 16th of the n queries from index j on. It
// draws a block of random numbers for each weight. The decisions are bits of one register. The
// returned function reports the decision for key number r and query number n of the thread.
func (w *weighing) keptOwn(key, j ptx.Value, keys, n int) func(r, n int) ptx.Value {
	b, seed := w.Builder, w.seed
	// The seed is loaded again for each tile. Otherwise Philox's round keys, which depend on the
	// seed, would occupy registers all the time.
	if w.s.numbers {
		seed = w.numbers.Load()
	}
	bits := b.Var(b.U32(0))
	// The loop draws the blocks one after the other. If it were unrolled, it would need more
	// registers than a thread has.
	b.For(b.U32(0), b.U32(uint32(n/16*keys)), num(1), func(at ptx.Value, _ ptx.Loop) {
		block := w.rowBlock(j.Add(at.Div(num(keys)).Mul(num(16))))
		word := drawn(b, expr.Draw{}, ptx.U32, seed, block, place{key.Add(at.Rem(num(keys)).Mul(num(8))), 0, 1})
		bits.Set(bits.Get().Or(word.Gt(w.dropped).Select(b.U32(1).Shl(at), num(0))))
	})
	kept := bits.Get()
	return func(r, n int) ptx.Value { return kept.And(b.U32(1 << (n*keys + r))).Ne(num(0)) }
}

// rowBlocks returns the number of blocks of random numbers for one row of weights, as
// [device.RowNumbers] defines it.
func (w *weighing) rowBlocks() ptx.Value { return w.keys.Add(num(3)).Shr(num(2)) }

// rowBlock returns the first block of random numbers of query i.
func (w *weighing) rowBlock(i ptx.Value) ptx.Value {
	return i.Min(w.queries.Sub(num(1))).MadWide(w.rowBlocks(), w.block)
}

// keptGroup is a group of 16 weights of one row. This lane draws four of them. The field block is
// the first block of random numbers of the row. The field key is the index of the key of the
// first weight that this lane draws. This index is a multiple of 4.
type keptGroup struct{ block, key ptx.Value }

// keptBits decides which weights dropout keeps. Each group has 16 bits, one for each weight. Four
// lanes share the work. Their lane IDs differ only in the bits with the values laneStep and
// 2·laneStep. The argument rank is this lane's index among the four. The lane draws bits 4·rank to
// 4·rank+3 of each group. The returned function reports whether dropout keeps the weight with index
// bit+more of a group.
func (w *weighing) keptBits(laneStep int, rank ptx.Value, groups []keptGroup) func(group, bit int, more ptx.Value) ptx.Value {
	b := w.Builder
	words := make([]ptx.Value, ceilDiv(len(groups), 2))
	for i, g := range groups {
		if i%2 == 0 {
			words[i/2] = b.U32(0)
		}
		for k, word := range philox(b, w.seed, g.block.Add(g.key.Shr(num(2)).Cvt(ptx.U64))) {
			bit := word.Gt(w.dropped).Select(b.U32(1<<(16*(i%2)+k)), num(0))
			words[i/2] = words[i/2].Or(bit)
		}
	}
	for i, v := range words {
		v = v.Shl(rank.Shl(num(2)))
		for _, d := range []int{laneStep, 2 * laneStep} {
			v = v.Or(v.Shuffle(ptx.ShuffleXor, num(d)))
		}
		words[i] = v
	}
	return func(group, bit int, more ptx.Value) ptx.Value {
		return words[group/2].Shr(more).And(b.U32(1 << (16*(group%2) + bit))).Ne(num(0))
	}
}

// keptAlong returns a function that reports which weights of a row dropout keeps, for n keys from
// j on, where n is a multiple of 16. The weights lie in registers like a row of a tensor-core
// accumulator. The arguments of the returned function are the index n of a fragment of 8 keys,
// and the element e of the fragment, 0 or 1.
func (r weighingRow) keptAlong(lane, j ptx.Value, n int) func(n, e int) ptx.Value {
	column := lane.And(num(3))
	var groups []keptGroup
	for i := range n / 16 {
		groups = append(groups, keptGroup{r.block, j.Add(column.Shl(num(2))).Add(num(16 * i))})
	}
	kept := r.w.keptBits(1, column, groups)
	return func(n, e int) ptx.Value { return kept(n/2, 8*(n%2)+e, column.Shl(num(1))) }
}

// keptAcross is keptAlong for accumulators whose rows are 16 keys and whose columns are n queries
// from j on. The arguments of the returned function are the index n of a fragment of 8 queries, and
// the element e of the fragment, 0 to 3.
func (w *weighing) keptAcross(lane, j, key ptx.Value, n int) func(n, e int) ptx.Value {
	column, line := lane.And(num(3)), lane.Shr(num(2)).And(num(3))
	key = key.Add(line.Shr(num(1)).Shl(num(3))).Add(lane.Shr(num(4)).Shl(num(2)))
	var groups []keptGroup
	for i := range n / 8 {
		query := j.Add(column.Shl(num(1))).Add(line.And(num(1))).Add(num(8 * i))
		groups = append(groups, keptGroup{w.rowBlock(query), key})
	}
	kept := w.keptBits(4, line, groups)
	return func(n, e int) ptx.Value { return kept(n, 4*e, line) }
}

// keptEach returns a function that reports which weights dropout keeps, for the given rows and n
// keys from j on. This thread has every 16th of these keys, from key j+x on. The arguments of the
// function are the index of a row in rows, and the index of one of this thread's keys.
func (w *weighing) keptEach(rows []weighingRow, x, j ptx.Value, n int) func(r, n int) ptx.Value {
	per, part := n/16, x.And(num(3))
	all := len(rows) * per
	// index of the first of the 16 keys that four neighbouring threads share
	quad := j.Add(x.Shr(num(2)).Shl(num(2)))
	var groups []keptGroup
	for i := 0; i < all; i += 4 {
		var list [4]keptGroup // one group for each of the four threads
		for k := range list {
			at := min(i+k, all-1)
			list[k] = keptGroup{rows[at/per].block, quad.Add(num(16 * (at % per)))}
		}
		g := list[0]
		for k := 1; k < 4; k++ {
			own := part.Eq(num(k))
			g = keptGroup{own.Select(list[k].block, g.block), own.Select(list[k].key, g.key)}
		}
		groups = append(groups, g)
	}
	kept := w.keptBits(1, part, groups)
	return func(r, n int) ptx.Value {
		at := r*per + n
		return kept(at/4, at%4*4, part)
	}
}
