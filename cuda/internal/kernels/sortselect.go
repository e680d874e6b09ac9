package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// If only the first few elements of a row in sorted order are wanted, a long row is not sorted.
// Each block finds the first elements of one part of the row. It determines the key of the last
// wanted element digit by digit, the highest digit first. To find a digit, it counts the elements
// that have each value of the digit, among those whose higher digits are equal to the key's. The
// elements found in all parts form a shorter row. This row is shortened in the same way, until it
// is short enough to be sorted.

// selectMost is the largest number of first elements for which a row is not sorted completely. It
// is half of the smallest part.
const selectMost = 1 << 10

// selectSpec describes a kernel that finds the first elements of a part of a row.
type selectSpec struct {
	source sortSource
	items  int // number of elements of each thread
}

func (s selectSpec) name() string {
	return fmt.Sprintf("sort_select_%s_%d", s.source.name(), s.items)
}

// selectFirst plans the selection of each row's first elements, and their sorting.
func (a *sortPlan) selectFirst(to sortTarget, scratch Scratch) ([]Launch, error) {
	var list []Launch
	from := *a
	for from.n > sortRun {
		s := selectSpec{source: from.sortSource, items: 32}
		if a.wide() {
			s.items = 16
		}
		parts := ceilDiv(from.n, s.items*rowThreads)
		per := ceilDiv(from.n, parts)
		parts = ceilDiv(from.n, per)
		if from.n > 1<<31-1-radixPrefix || a.rows > (1<<31-1)/parts {
			return nil, fail("argsort", "%d rows of %d elements are too many", a.rows, a.n)
		}
		n := (parts-1)*to.k + min(to.k, from.n-(parts-1)*per)
		found := sortTarget{}
		var err error
		if found.keys, err = scratch(keyType(a.wide()).Size() * a.rows * n); err != nil {
			return nil, err
		}
		if found.order, err = scratch(4 * a.rows * n); err != nil {
			return nil, err
		}
		kernel, err := kernelOf(s)
		if err != nil {
			return nil, err
		}
		p := make(packer, 0, 128)
		from.pack(&p)
		found.pack(&p, true)
		p.u32(uint32(parts))
		p.u32(uint32(per))
		p.u32(uint32(to.k))
		p.u32(uint32(n))
		p.u32(uint32((ceilDiv(a.bits(), digitBits) - 1) * digitBits))
		l, err := p.launch(kernel, a.rows*parts)
		if err != nil {
			return nil, err
		}
		list = append(list, l)
		from = a.next(found, n)
	}
	last, err := from.sort(to, scratch)
	return append(list, last...), err
}

func (s selectSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	b.MinBlocks(2)
	in := s.source.declare(b)
	out := declareSorted(b, true, s.source.wide())
	parts, per := b.Param("parts", ptx.U32), b.Param("per", ptx.U32)
	k, all, top := b.Param("k", ptx.U32), b.Param("all", ptx.U32), b.Param("top", ptx.U32)
	counts := b.Shared("counts", ptx.U32, digits)
	sums, found := b.Shared("sums", ptx.U32, sortWarps), b.Shared("found", ptx.U32, 2)
	thread := b.ThreadID(0)
	row := b.BlockID(0).Div(parts)
	part := b.BlockID(0).Sub(row.Mul(parts))
	first := part.Mul(per)
	count := in.n.Sub(first).Min(per)
	in, out = in.atRow(row), out.atRow(row, all, true)

	b.Comment("each warp has neighbours, in the order of its items and lanes")
	at, key := make([]ptx.Value, s.items), make([]ptx.Value, s.items)
	for i := range s.items {
		at[i] = b.WarpID().Mad(num(32*s.items), b.LaneID()).Add(num(32 * i))
		key[i] = in.element(b, first.Add(at[i].Min(count.Sub(num(1)))))
	}
	for i := range key {
		key[i] = in.key(b, key[i])
	}
	b.Comment("the digits of the last of those that are wanted")
	wanted := k.Min(count)
	// begins holds the upper digits of the last wanted key, as far as they are known.
	begins := b.Var(b.Const(key[0].Type(), num(0)))
	// rest is the number of wanted elements whose keys begin with these digits.
	rest := b.Var(wanted)
	shift := b.Var(top.Bitcast(ptx.S32))
	b.Loop(func(l ptx.Loop) {
		counts.At(thread).Store(num(0))
		b.Barrier()
		digit := shift.Get().Bitcast(ptx.U32)
		for i := range key {
			same := key[i].Shr(digit).Shr(num(digitBits)).Eq(begins)
			b.If(at[i].Lt(count).And(same), func() {
				counts.At(digitOf(key[i], digit)).Atomic(ptx.AtomicAdd, num(1))
			})
		}
		b.Barrier()
		n := counts.At(thread).Load()
		before := blockPrefix(b, n, sums)
		b.If(before.Lt(rest).And(before.Add(n).Ge(rest)), func() {
			found.Store(thread)
			found.At(num(1)).Store(rest.Get().Sub(before))
		})
		b.Barrier()
		last := found.Load()
		if s.source.wide() {
			last = last.Cvt(ptx.U64)
		}
		begins.Set(begins.Get().Shl(num(digitBits)).Or(last))
		rest.Set(found.At(num(1)).Load())
		shift.Set(shift.Get().Sub(num(digitBits)))
		l.BreakIf(shift.Get().Lt(num(0)))
	})
	b.Comment("what is before it, then as many of its equals as there is room for, in order")
	last, equals := begins.Get(), rest.Get()
	lessThan := func(i int) ptx.Value { return at[i].Lt(count).And(key[i].Lt(last)).Ballot() }
	equalTo := func(i int) ptx.Value { return at[i].Lt(count).And(key[i].Eq(last)).Ballot() }
	// counts of a warp: smaller elements in the lower half, equal elements in the upper half
	both := b.U32(0)
	for i := range key {
		both = both.Add(lessThan(i).Popc()).Add(equalTo(i).Popc().Shl(num(16)))
	}
	b.If(b.LaneID().Eq(num(0)), func() { counts.At(b.WarpID()).Store(both) })
	b.Barrier()
	before := b.U32(0)
	for w := range sortWarps - 1 {
		before = before.Add(b.WarpID().Gt(num(w)).Select(counts.At(num(w)).Load(), num(0)))
	}
	less, equal := before.And(num(0xffff)), before.Shr(num(16))
	below := b.U32(1).Shl(b.LaneID()).Sub(num(1))
	start := part.Mul(k)
	for i := range key {
		lows, same := lessThan(i), equalTo(i)
		isLess, isEqual := key[i].Lt(last), key[i].Eq(last)
		nth := equal.Add(same.And(below).Popc())
		slot := isLess.Select(less.Add(lows.And(below).Popc()), wanted.Sub(equals).Add(nth))
		take := at[i].Lt(count).And(isLess.Or(isEqual.And(nth.Lt(equals))))
		b.If(take, func() {
			to := start.Add(slot)
			out.keys.At(to).Store(key[i])
			out.order.At(to).Store(in.place(first.Add(at[i])))
		})
		less, equal = less.Add(lows.Popc()), equal.Add(same.Popc())
	}
	return [3]int{rowThreads, 1, 1}
}
