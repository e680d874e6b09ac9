package kernels

import (
	"fmt"
	"math/bits"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// tileSort describes a kernel in which one block sorts a row by digits, if the row fits into a
// tile. A key and its position are packed into one word, with the key in the upper bits.
type tileSort struct {
	source sortSource
	wide   bool // words have 64 bits
	items  int  // number of words of each thread
}

func (s tileSort) name() string {
	name := fmt.Sprintf("sort_tile_%s_%d", s.source.name(), s.items)
	if s.wide {
		name += "_wide"
	}
	return name
}

// tile returns the kernel with which one block sorts a whole row by digits. The result place is the
// number of bits that hold the position in a word. If there is no such kernel, ok is false.
func (a *sortPlan) tile() (s tileSort, place int, ok bool) {
	s = tileSort{source: a.sortSource, items: 2 * radixItems}
	place = bits.Len(uint(a.n - 1))
	if a.bits()+place > 32 {
		s.wide, s.items, place = true, radixItems, 32
	}
	return s, place, !a.wide() && a.n <= s.items*rowThreads
}

// inTile plans the sorting of each row by one block.
func (a *sortPlan) inTile(s tileSort, place int, to sortTarget) ([]Launch, error) {
	kernel, err := kernelOf(s)
	if err != nil {
		return nil, err
	}
	p := make(packer, 0, 128)
	a.pack(&p)
	to.pack(&p, a.index)
	p.u32(uint32(place))
	p.u32(uint32(place + a.bits()))
	l, err := p.launch(kernel, a.rows)
	return []Launch{l}, err
}

func (s tileSort) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	b.MinBlocks(1) // each thread holds many words in registers
	in := s.source.declare(b).atRow(b.BlockID(0))
	out := declareSorted(b, s.source.index, false).atRow(b.BlockID(0), in.n, s.source.index)
	low, high := b.Param("low", ptx.U32), b.Param("high", ptx.U32)
	words := b.Shared("words", keyType(s.wide), s.items*rowThreads)
	counters := b.Shared("counters", ptx.U32, sortWarps*digits)
	sums := b.Shared("sums", ptx.U32, sortWarps)
	own := counters.At(b.WarpID().Mul(num(digits)))

	at, elements := make([]ptx.Value, s.items), make([]ptx.Value, s.items)
	for i := range s.items {
		at[i] = b.WarpID().Mad(num(32*s.items), b.LaneID()).Add(num(32 * i))
		// An index beyond the end of the row is replaced by that of the last element.
		elements[i] = in.element(b, at[i].Min(in.n.Sub(num(1))))
	}
	word := make([]*ptx.Var, s.items)
	for i, x := range elements {
		there, key := at[i].Lt(in.n), in.key(b, x)
		if s.source.index {
			b.If(there, func() { in.report(b, x, b.BlockID(0), at[i]) })
		}
		v := key.Shl(low).Or(at[i])
		if s.wide {
			v = b.Join(ptx.U64, at[i].Bitcast(ptx.B32), key.Bitcast(ptx.B32))
		}
		word[i] = b.Var(there.Select(v, b.Bits(v.Type(), 1<<v.Type().Bits()-1)))
	}
	b.For(low, high, num(digitBits), func(shift ptx.Value, _ ptx.Loop) {
		for k := range digits / 32 {
			own.At(num(32 * k)).At(b.LaneID()).Store(num(0))
		}
		b.WarpBarrier()
		rank := make([]ptx.Value, s.items)
		for i, w := range word {
			rank[i] = rankOf(b, digitOf(w.Get(), shift), own)
		}
		b.Barrier()
		part, total := digitTotals(b, counters)
		startDigits(b, counters, part, blockPrefix(b, total, sums))
		b.Barrier()
		for i, w := range word {
			words.At(own.At(digitOf(w.Get(), shift)).Load().Add(rank[i])).Store(w)
		}
		b.Barrier()
		for i, w := range word {
			w.Set(words.At(at[i]).Load())
		}
	})
	for i, w := range word {
		v := w.Get()
		key, place := v.Shr(low), v
		if s.wide {
			key, place = key.Cvt(ptx.U32), v.Cvt(ptx.U32)
		} else {
			place = v.And(b.U32(1).Shl(low).Sub(num(1)))
		}
		if s.source.index {
			b.If(at[i].Lt(in.n), func() { storeTo([]ptx.Ptr{out.keys, out.order}, at[i], []ptx.Value{key, place}) })
		} else {
			b.If(at[i].Lt(out.k), func() { out.out.store(b, at[i], place.Cvt(ptx.S64)) })
		}
	}
	return [3]int{rowThreads, 1, 1}
}
