package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// Long rows are sorted by 8-bit digits of the keys, the lowest digit first. Each pass over a row
// sorts by one digit. A pass keeps the order of elements with equal digits, and reads and writes
// each element once. In a pass, a block sorts a tile. For each digit, it learns from the blocks
// of earlier tiles how many of their elements have that digit. The method is by D. Merrill, M.
// Garland: Single-pass parallel prefix scan with decoupled look-back, 2016, and A. Adinets, D.
// Merrill: Onesweep, 2022, arXiv:2206.01784.
//
// A block draws a ticket when it starts, and waits only for blocks with lower tickets. Blocks with
// lower tickets have started too, and the block with the lowest ticket does not wait. So every
// block ends.

const (
	digitBits = 8
	digits    = 1 << digitBits // number of values of a digit, and of threads of a block
	sortWarps = rowThreads / 32
)

// radixItems is the number of elements of a tile for each thread. With 64-bit keys it is half as
// large. Tests lower it. A tile must have fewer elements than radixPrefix.
var radixItems = 16

const radixPrefix = 1 << 13

// radixPart is the least number of elements whose digits one block counts. At most radixCounters
// blocks count digits, unless there are more rows.
const (
	radixPart     = 1 << 14
	radixCounters = 1 << 10
)

// radix plans the sorting of long rows. The first launch counts the digits for all passes. Each
// pass is one further launch.
func (a *sortPlan) radix(dst sortTarget, scratch Scratch) ([]Launch, error) {
	const op = "argsort"
	wide, items, passes := a.wide(), radixItems, max(1, ceilDiv(a.bits(), digitBits))
	if wide {
		items /= 2
	}
	tiles := ceilDiv(a.n, items*rowThreads)
	if a.n > 1<<31-1-radixPrefix || a.rows > (1<<31-1)/tiles {
		return nil, fail(op, "%d rows of %d elements are too many", a.rows, a.n)
	}
	parts := min(ceilDiv(a.n, radixPart), max(1, radixCounters/a.rows))
	per := ceilDiv(ceilDiv(a.n, parts), rowThreads) * rowThreads
	parts = ceilDiv(a.n, per)

	// The state begins with a ticket counter for each pass. After these, each tile has an array in
	// which its block writes how many of its elements have each digit.
	const ticketWords = 64
	states := ticketWords + passes*a.rows*tiles*digits
	state, err := scratch(4 * states)
	if err != nil {
		return nil, err
	}
	bases, err := scratch(4 * passes * a.rows * digits)
	if err != nil {
		return nil, err
	}
	counts := bases
	if parts > 1 {
		if counts, err = scratch(4 * passes * a.rows * parts * digits); err != nil {
			return nil, err
		}
	}
	kernel, err := kernelOf(radixCount{source: a.sortSource, passes: passes, whole: parts == 1})
	if err != nil {
		return nil, err
	}
	p := make(packer, 0, 128)
	a.pack(&p)
	p.u32(uint32(a.rows))
	p.u32(uint32(parts))
	p.u32(uint32(per))
	p.u64(uint64(states / 4))
	p.u64(state)
	p.u64(counts)
	l, err := p.launch(kernel, a.rows*parts)
	if err != nil {
		return nil, err
	}
	list := []Launch{l}
	if parts > 1 {
		if kernel, err = kernelOf(radixBases{}); err != nil {
			return nil, err
		}
		p := make(packer, 0, 32)
		p.u32(uint32(parts))
		p.u64(counts)
		p.u64(bases)
		if l, err = p.launch(kernel, passes*a.rows); err != nil {
			return nil, err
		}
		list = append(list, l)
	}

	// Each pass reads one of two arrays and writes the other. The last pass writes the results.
	var arrays [2]sortTarget
	size := 4
	if wide {
		size = 8
	}
	for i := range min(2, passes-1) {
		if arrays[i].keys, err = scratch(size * a.rows * a.n); err != nil {
			return nil, err
		}
		if arrays[i].order, err = scratch(4 * a.rows * a.n); err != nil {
			return nil, err
		}
	}
	for i := range passes {
		from := *a
		if i > 0 {
			from = a.next(arrays[(i-1)%2], a.n)
		}
		s := radixPass{source: from.sortSource, arrays: a.index || i < passes-1, items: items}
		if kernel, err = kernelOf(s); err != nil {
			return nil, err
		}
		p := make(packer, 0, 160)
		from.pack(&p)
		target := dst
		if i < passes-1 {
			target = arrays[i%2]
		}
		target.pack(&p, s.arrays)
		p.u32(uint32(tiles))
		p.u32(uint32(i * digitBits))
		p.u64(state + uint64(4*i))
		p.u64(state + uint64(4*(ticketWords+i*a.rows*tiles*digits)))
		p.u64(bases + uint64(4*i*a.rows*digits))
		if l, err = p.launch(kernel, a.rows*tiles); err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

// next returns the plan for sorting the n elements of each row that an earlier kernel has selected.
// The argument picked says where these elements are stored.
func (a *sortPlan) next(picked sortTarget, n int) sortPlan {
	t := dtype.I32
	if a.wide() {
		t = dtype.I64
	}
	return sortPlan{sortSource: sortSource{typ: t, picked: true}, rows: a.rows, n: n, pickedAt: picked, keyBits: a.bits()}
}

// digitOf returns the digit of a key that starts at bit shift.
func digitOf(key ptx.Value, shift ptx.Operand) ptx.Value {
	d := key.Shr(shift)
	if d.Type().Bits() == 64 {
		d = d.Cvt(ptx.U32)
	}
	return d.And(num(digits - 1))
}

// blockPrefix returns the sum of v over the threads with smaller indices. The array warps has a
// word for each warp. A barrier is needed before the array is used again.
func blockPrefix(b *ptx.Builder, v ptx.Value, warps ptx.Ptr) ptx.Value {
	sum := v
	for d := 1; d < 32; d *= 2 {
		sum = b.LaneID().Ge(num(d)).Select(sum.Add(sum.Shuffle(ptx.ShuffleUp, num(d))), sum)
	}
	b.If(b.LaneID().Eq(num(31)), func() { warps.At(b.WarpID()).Store(sum) })
	b.Barrier()
	before := sum.Sub(v)
	for w := range sortWarps - 1 {
		before = before.Add(b.WarpID().Gt(num(w)).Select(warps.At(num(w)).Load(), num(0)))
	}
	return before
}

// rankOf returns how many earlier elements of the warp have the same digit as this element. The
// warp's counters hold the numbers of elements handled so far, by digit. rankOf adds this element.
func rankOf(b *ptx.Builder, digit ptx.Value, counters ptx.Ptr) ptx.Value {
	peers := b.U32(1<<32 - 1) // mask of the lanes that have this lane's digit
	for bit := range digitBits {
		set := digit.And(num(1 << bit)).Ne(num(0))
		peers = peers.And(set.Ballot().Xor(set.Select(b.U32(0), num(1<<32-1))))
	}
	counter := counters.At(digit)
	before := counter.Load()
	lower := peers.And(b.U32(1).Shl(b.LaneID()).Sub(num(1))).Popc()
	b.WarpBarrier()
	b.If(lower.Eq(num(0)), func() { counter.Store(before.Add(peers.Popc())) })
	b.WarpBarrier()
	return before.Add(lower)
}

// digitTotals counts the elements with this thread's digit. It returns the count of each warp, and
// the sum of these counts.
func digitTotals(b *ptx.Builder, counters ptx.Ptr) (part [sortWarps]ptx.Value, total ptx.Value) {
	total = b.U32(0)
	for w := range part {
		part[w] = counters.At(num(w * digits)).At(b.ThreadID(0)).Load()
		total = total.Add(part[w])
	}
	return part, total
}

// startDigits sets each warp's counter of this thread's digit. The counter gets the index in the
// block at which the warp's elements with that digit start. For warp 0 this index is the argument
// start.
func startDigits(b *ptx.Builder, counters ptx.Ptr, part [sortWarps]ptx.Value, start ptx.Value) {
	for w, n := range part {
		counters.At(num(w * digits)).At(b.ThreadID(0)).Store(start)
		start = start.Add(n)
	}
}

// radixCount describes a kernel that counts the digits of a part of a row, for all passes. It also
// clears the memory through which the blocks of a pass exchange counts.
type radixCount struct {
	source sortSource
	passes int
	// whole says that the part is the whole row. The kernel then stores where each digit starts.
	whole bool
}

func (s radixCount) name() string {
	name := fmt.Sprintf("sort_count_%s_%d", s.source.name(), s.passes)
	if s.whole {
		name += "_whole"
	}
	return name
}

func (s radixCount) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	roomForRegisters(b)
	in := s.source.declare(b)
	rows, parts, per := b.Param("rows", ptx.U32), b.Param("parts", ptx.U32), b.Param("per", ptx.U32)
	states, state := b.Param("states", ptx.U64), b.Pointer("state", ptx.U32)
	to := b.Pointer("to", ptx.U32)
	counts := b.Shared("counts", ptx.U32, s.passes*digits)
	thread := b.ThreadID(0)
	row := b.BlockID(0).Div(parts)
	part := b.BlockID(0).Sub(row.Mul(parts))
	in = in.atRow(row)
	b.Comment("nobody has a ticket, no tile has told anything")
	zero := b.U32(0)
	id, step := globalIndex(b, true)
	b.For(id, states, step, func(i ptx.Value, _ ptx.Loop) { state.At(i.Mul(num(4))).StoreVec(zero, zero, zero, zero) })
	for k := range s.passes {
		counts.At(num(k * digits)).At(thread).Store(zero)
	}
	b.Barrier()
	first := part.Mul(per)
	end := first.Add(per).Min(in.n)
	count := func(i, element ptx.Value) {
		in.report(b, element, row, i)
		key := in.key(b, element)
		for k := range s.passes {
			counts.At(num(k*digits)).At(digitOf(key, num(k*digitBits))).Atomic(ptx.AtomicAdd, num(1))
		}
	}
	const ahead = 4 // number of pending loads
	tail := first.Add(end.Sub(first).Div(num(ahead * rowThreads)).Mul(num(ahead * rowThreads)))
	b.For(first.Add(thread), tail, num(ahead*rowThreads), func(i ptx.Value, _ ptx.Loop) {
		var v [ahead]ptx.Value
		for k := range v {
			v[k] = in.element(b, i.Add(num(k*rowThreads)))
		}
		for k, x := range v {
			count(i.Add(num(k*rowThreads)), x)
		}
	})
	b.For(tail.Add(thread), end, num(rowThreads), func(i ptx.Value, _ ptx.Loop) { count(i, in.element(b, i)) })
	b.Barrier()
	var warps ptx.Ptr
	if s.whole {
		warps = b.Shared("warps", ptx.U32, sortWarps)
	}
	for k := range s.passes {
		v := counts.At(num(k * digits)).At(thread).Load()
		if s.whole {
			v = blockPrefix(b, v, warps)
			b.Barrier()
		}
		line := b.U32(uint32(k)).Mad(rows, row).MulWide(parts).Add(part.Cvt(ptx.U64))
		to.At(line.Mul(num(digits))).At(thread).Store(v)
	}
	return [3]int{rowThreads, 1, 1}
}

// radixBases describes a kernel that adds up the counts of a row's parts. It stores where each
// digit of a pass starts.
type radixBases struct{}

func (radixBases) name() string { return "sort_bases" }

func (radixBases) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	parts, from, to := b.Param("parts", ptx.U32), b.Pointer("from", ptx.U32), b.Pointer("to", ptx.U32)
	warps := b.Shared("warps", ptx.U32, sortWarps)
	thread := b.ThreadID(0)
	from = from.At(b.BlockID(0).MulWide(parts).Mul(num(digits))).At(thread)
	sum := b.Var(b.U32(0))
	const ahead = 8
	tail := parts.And(num(^uint32(ahead - 1)))
	b.For(b.U32(0), tail, num(ahead), func(i ptx.Value, _ ptx.Loop) {
		var v [ahead]ptx.Value
		for k := range v {
			v[k] = from.At(i.Add(num(k)).Mul(num(digits))).Load()
		}
		for _, x := range v {
			sum.Set(sum.Get().Add(x))
		}
	})
	b.For(tail, parts, num(1), func(i ptx.Value, _ ptx.Loop) {
		sum.Set(sum.Get().Add(from.At(i.Mul(num(digits))).Load()))
	})
	to.At(b.BlockID(0).MulWide(b.U32(digits))).At(thread).Store(blockPrefix(b, sum.Get(), warps))
	return [3]int{rowThreads, 1, 1}
}

// radixPass describes a kernel that sorts rows by one digit, tile by tile.
type radixPass struct {
	// The field picked of source is true in all passes except the first.
	source sortSource
	// arrays says that the pass stores keys and positions. Otherwise it stores the first k
	// positions.
	arrays bool
	items  int // number of elements of each thread
}

func (s radixPass) name() string {
	name := fmt.Sprintf("sort_pass_%s_%d", s.source.name(), s.items)
	if !s.arrays {
		name += "_last"
	}
	return name
}

func (s radixPass) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	b.MinBlocks(2)
	wide := s.source.wide()
	in := s.source.declare(b)
	out := declareSorted(b, s.arrays, wide)
	tiles, shift := b.Param("tiles", ptx.U32), b.Param("shift", ptx.U32)
	tickets, state, bases := b.Pointer("tickets", ptx.U32), b.Pointer("state", ptx.U32), b.Pointer("bases", ptx.U32)

	tile := s.items * rowThreads
	sortedKeys, sortedOrder := b.Shared("sorted_keys", keyType(wide), tile), b.Shared("sorted_order", ptx.U32, tile)
	counters := b.Shared("counters", ptx.U32, sortWarps*digits) // counts of each warp, by digit
	places := b.Shared("places", ptx.U32, digits)
	sums, drawn := b.Shared("sums", ptx.U32, sortWarps), b.Shared("drawn", ptx.U32, 1)

	thread := b.ThreadID(0)
	b.If(thread.Eq(num(0)), func() { drawn.Store(tickets.Atomic(ptx.AtomicAdd, num(1))) })
	for w := range sortWarps {
		counters.At(num(w * digits)).At(thread).Store(num(0))
	}
	b.Barrier()
	ticket := drawn.Load()
	row := ticket.Div(tiles)
	number := ticket.Sub(row.Mul(tiles)) // index of the tile in its row
	first := number.Mul(num(tile))
	count := in.n.Sub(first).Min(num(tile))
	out = out.atRow(row, in.n, s.arrays)
	in = in.atRow(row)

	b.Comment("each warp has neighbours, in the order of its items and lanes")
	at := make([]ptx.Value, s.items)
	key, digit, rank := make([]ptx.Value, s.items), make([]ptx.Value, s.items), make([]ptx.Value, s.items)
	for i := range s.items {
		at[i] = b.WarpID().Mad(num(32*s.items), b.LaneID()).Add(num(32 * i))
		there := at[i].Min(count.Sub(num(1)))
		key[i] = in.element(b, first.Add(there))
	}
	own := counters.At(b.WarpID().Mul(num(digits)))
	for i := range s.items {
		key[i] = in.key(b, key[i])
		// Elements after the end of the row get the last digit, and are sorted after all elements
		// of the row.
		digit[i] = at[i].Lt(count).Select(digitOf(key[i], shift), num(digits-1))
		rank[i] = rankOf(b, digit[i], own)
	}
	b.Barrier()

	b.Comment("a thread has a digit: what the tile has of it, and what is before")
	part, total := digitTotals(b, counters)
	told := state.At(ticket.MulWide(b.U32(digits))).At(thread).Volatile()
	b.IfElse(number.Eq(num(0)), func() { told.Store(total.Add(num(radixPrefix))) }, func() { told.Store(total.Add(num(1))) })
	local := blockPrefix(b, total, sums)
	startDigits(b, counters, part, local)
	b.Comment("a tile tells its own number and 1, or that of all up to it and radixPrefix")
	before := b.Var(b.U32(0))
	b.If(number.Ne(num(0)), func() {
		back := b.Var(b.Const(ptx.S64, num(-digits)))
		b.Loop(func(l ptx.Loop) {
			v := told.At(back.Get()).Load()
			l.ContinueIf(v.Eq(num(0)))
			all := v.Ge(num(radixPrefix))
			before.Set(before.Get().Add(v).Sub(all.Select(b.U32(radixPrefix), num(1))))
			l.BreakIf(all)
			back.Set(back.Get().Sub(num(digits)))
		})
		told.Store(before.Get().Add(total).Add(num(radixPrefix)))
	})
	places.At(thread).Store(bases.At(row.MulWide(b.U32(digits))).At(thread).Load().Add(before.Get()).Sub(local))
	b.Barrier()

	b.Comment("the tile in order, then each digit's run to its place")
	position := make([]ptx.Value, s.items)
	for i := range s.items {
		position[i] = in.place(first.Add(at[i].Min(count.Sub(num(1)))))
	}
	for i := range s.items {
		to := own.At(digit[i]).Load().Add(rank[i])
		sortedKeys.At(to).Store(key[i])
		sortedOrder.At(to).Store(position[i])
	}
	b.Barrier()
	b.For(thread, count, num(rowThreads), func(i ptx.Value, _ ptx.Loop) {
		k := sortedKeys.At(i).Load()
		to := places.At(digitOf(k, shift)).Load().Add(i)
		if s.arrays {
			out.keys.At(to).Store(k)
			out.order.At(to).Store(sortedOrder.At(i).Load())
			return
		}
		b.If(to.Lt(out.k), func() { out.out.store(b, to, sortedOrder.At(i).Load().Cvt(ptx.S64)) })
	})
	return [3]int{rowThreads, 1, 1}
}
