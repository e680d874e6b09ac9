package kernels

import (
	"fmt"
	"math/bits"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// A sortSource describes what a kernel sorts: the elements of rows, rows of indices below a bound,
// or keys and positions that an earlier kernel has selected. Each element has an unsigned key, and
// elements are sorted by their keys. Elements with equal keys keep their order.
type sortSource struct {
	typ        dtype.Type
	descending bool
	// index says that indices are sorted. The key of an invalid index is the bound.
	index bool
	// picked says that the source is two arrays: keys with the size of typ, and their positions.
	picked bool
}

func (s sortSource) name() string {
	name := s.typ.String()
	if s.picked {
		return fmt.Sprintf("picked_%d", 8*s.typ.Size())
	}
	if s.index {
		name = "index_" + name
	}
	if s.descending {
		name += "_descending"
	}
	return name
}

// wide reports whether keys have 64 bits.
func (s sortSource) wide() bool { return !s.index && s.typ.Size() == 8 }

// keyBits returns the number of bits in which the keys of type t can differ. For integers these
// are the lower bits of the key. A 16-bit float has the key of a float32, which [device.SortKey]
// defines. For 16-bit floats the bits that differ are the upper bits of the key.
func keyBits(t dtype.Type) int {
	switch t {
	case dtype.Bool:
		return 1
	// a sign, 8 exponent bits and 10 mantissa bits, because even the smallest float16 numbers are
	// normal in float32
	case dtype.F16:
		return 19
	}
	return 8 * t.Size()
}

// sortKeys maps a type and a direction to the program that computes the key.
var sortKeys = map[sortSource]*expr.Program{}

func init() {
	for _, t := range dtype.Types() {
		for _, descending := range []bool{false, true} {
			to := dtype.I32
			if t.Size() == 8 {
				to = dtype.I64
			}
			sortKeys[sortSource{typ: t, descending: descending}] = expr.MustLower([]*expr.Expr{device.SortKey(t, descending)}, []dtype.Type{to}, []dtype.Type{t}, -1)
		}
	}
}

// keyType returns the type of a key of 32 or 64 bits.
func keyType(wide bool) ptx.Type {
	if wide {
		return ptx.U64
	}
	return ptx.U32
}

// A sortInput holds the kernel parameters of a sortSource.
type sortInput struct {
	sortSource
	n            ptx.Value // number of elements of a row
	x            rowOperand
	keys, order  ptx.Ptr
	bound, inner ptx.Value
	fault        faultParams
}

func (s sortSource) declare(b *ptx.Builder) sortInput {
	in := sortInput{sortSource: s, n: b.Param("n", ptx.U32)}
	if s.picked {
		in.keys, in.order = b.Pointer("keys", keyType(s.wide())), b.Pointer("order", ptx.U32)
		return in
	}
	in.x = declareRows(b, "x", s.typ, false)
	if s.index {
		in.bound, in.inner = b.Param("bound", ptx.S64), b.Param("inner", ptx.U32)
		in.fault = declareFault(b)
	}
	return in
}

// atRow returns the input with its pointers moved to a row.
func (in sortInput) atRow(row ptx.Value) sortInput {
	if in.picked {
		first := row.MulWide(in.n)
		in.keys, in.order = in.keys.At(first), in.order.At(first)
	} else {
		in.x = in.x.atRow(row)
	}
	return in
}

// element loads element i. The method key computes the key from it.
func (in sortInput) element(b *ptx.Builder, i ptx.Value) ptx.Value {
	if in.picked {
		return in.keys.At(i).Load()
	}
	return in.x.load(b, i)
}

// place returns the original position of element i.
func (in sortInput) place(i ptx.Value) ptx.Value {
	if in.picked {
		return in.order.At(i).Load()
	}
	return i
}

func (in sortInput) key(b *ptx.Builder, element ptx.Value) ptx.Value {
	if in.picked {
		return element
	}
	if in.index {
		i := element.Cvt(ptx.S64).Bitcast(ptx.U64)
		return i.Min(in.bound.Bitcast(ptx.U64)).Cvt(ptx.U32)
	}
	s := sortSource{typ: in.typ, descending: in.descending}
	key := lower(b, sortKeys[s], environment{x: func(int) ptx.Value { return element }})[0].Bitcast(keyType(in.wide()))
	n, all := keyBits(in.typ), key.Type().Bits()
	if in.typ.IsFloat() {
		key = key.Shr(num(all - n))
	}
	if in.typ != dtype.Bool && in.typ != dtype.U8 { // puts negative keys before the others
		key = key.Xor(b.Bits(key.Type(), 1<<(n-1)))
	}
	if n < all {
		key = key.And(b.Bits(key.Type(), 1<<n-1))
	}
	return key
}

// report records an index that is out of bounds in the fault record.
func (in sortInput) report(b *ptx.Builder, element, row, at ptx.Value) {
	if !in.index {
		return
	}
	i := element.Cvt(ptx.S64)
	b.If(i.Bitcast(ptx.U64).Ge(in.bound.Bitcast(ptx.U64)), func() {
		outer := row.Div(in.inner)
		line := outer.MulWide(in.n).Add(at.Cvt(ptx.U64))
		within := row.Sub(outer.Mul(in.inner)).Cvt(ptx.U64)
		in.fault.report(b, i, in.bound, line.Mul(in.inner.Cvt(ptx.U64)).Add(within).Bitcast(ptx.S64))
	})
}

// A sortPlan is a source together with its operand.
type sortPlan struct {
	sortSource
	rows, n int
	// The operand x has rank 2.
	x Operand
	// addresses of the two arrays, if picked is true
	pickedAt sortTarget
	keyBits  int // number of bits of a key
	// bound of the indices, if index is true
	bound int
	// inner is the number of positions after the axis of a scatter. Row r has the indices at outer
	// position r/inner and inner position r%inner. Reports of a wrong index need these positions.
	inner int
	fault uint64
	tag   uint32
}

func (a *sortPlan) pack(p *packer) {
	p.u32(uint32(a.n))
	if a.picked {
		a.pickedAt.pack(p, true)
		return
	}
	p.packRows(a.x, false)
	if a.index {
		p.u64(uint64(a.bound))
		p.u32(uint32(a.inner))
		p.packFault(a.fault, a.tag)
	}
}

func (a *sortPlan) bits() int {
	switch {
	case a.index:
		return bits.Len(uint(a.bound))
	case a.picked:
		return a.keyBits
	}
	return keyBits(a.typ)
}

// A sortTarget says where a sort stores its results. The operand out gets the positions of the
// first k elements of each row. If out is absent, the arrays at keys and order get all keys and
// their positions as 32-bit integers.
type sortTarget struct {
	k int
	// The operand out has type I64 and rank 2.
	out         Operand
	keys, order uint64
}

func (t *sortTarget) pack(p *packer, arrays bool) {
	if arrays {
		p.u64(t.keys)
		p.u64(t.order)
		return
	}
	p.u32(uint32(t.k))
	p.packRows(t.out, false)
}

// A sortOutput holds the kernel parameters of a sortTarget.
type sortOutput struct {
	k           ptx.Value
	out         rowOperand
	keys, order ptx.Ptr
}

func declareSorted(b *ptx.Builder, arrays, wide bool) sortOutput {
	if arrays {
		return sortOutput{keys: b.Pointer("to_keys", keyType(wide)), order: b.Pointer("to_order", ptx.U32)}
	}
	return sortOutput{k: b.Param("k", ptx.U32), out: declareRows(b, "y", dtype.I64, false)}
}

// atRow returns the output with its pointers moved to a row of n elements.
func (o sortOutput) atRow(row, n ptx.Value, arrays bool) sortOutput {
	if arrays {
		first := row.MulWide(n)
		o.keys, o.order = o.keys.At(first), o.order.At(first)
	} else {
		o.out = o.out.atRow(row)
	}
	return o
}

// Argsort plans a sort of positions, as [device.Argsort] defines it. For each row it stores the
// positions of the first elements in sorted order.
func Argsort(out, x Operand, descending bool, scratch Scratch) ([]Launch, error) {
	rows, n, k := x.Shape.At(0), x.Shape.At(1), out.Shape.At(1)
	if rows == 0 || k == 0 {
		return nil, nil
	}
	a := sortPlan{sortSource: sortSource{typ: x.Type, descending: descending}, rows: rows, n: n, x: x}
	to := sortTarget{k: k, out: out}
	if a.n > sortRun && k <= selectMost && k <= a.n/8 {
		return a.selectFirst(to, scratch)
	}
	return a.sort(to, scratch)
}

// sort plans the sorting of each row. One block sorts a short row.
func (a *sortPlan) sort(to sortTarget, scratch Scratch) ([]Launch, error) {
	if a.n > sortRun {
		if s, place, ok := a.tile(); ok {
			return a.inTile(s, place, to)
		}
		return a.radix(to, scratch)
	}
	s := blockSort{source: a.sortSource, width: sortRun}
	for _, w := range []int{1024, 256, 64} {
		if a.n <= w && w < sortRun {
			s.width = w
		}
	}
	kernel, err := kernelOf(s)
	if err != nil {
		return nil, err
	}
	p := make(packer, 0, 128)
	a.pack(&p)
	to.pack(&p, a.index)
	l, err := p.launch(kernel, a.rows)
	return []Launch{l}, err
}

// sortRun is the largest number of elements that a block sorts by a sorting network. Tests lower
// it.
var sortRun = 2048

// blockSort describes a kernel in which a block sorts a row by a bitonic network (K. E. Batcher:
// Sorting networks and their applications, 1968). Elements whose indices differ by less than 32 are
// compared by shuffles, and all others in shared memory.
//
// A 32-bit key and its position are packed into one word of 64 bits, with the key in the upper
// half.
type blockSort struct {
	source sortSource
	// number of elements, a power of 2; elements after the end of the row are greater than all
	// others
	width int
}

func (s blockSort) name() string { return fmt.Sprintf("sort_%s_%d", s.source.name(), s.width) }

// isBefore reports whether element a is sorted before element b. Only elements after the end of the
// row can be equal.
func isBefore(a, b []ptx.Value) ptx.Value {
	if len(a) == 1 {
		return a[0].Lt(b[0])
	}
	return a[0].Lt(b[0]).Or(a[0].Eq(b[0]).And(a[1].Lt(b[1])))
}

func loadFrom(list []ptx.Ptr, i ptx.Value) []ptx.Value {
	v := make([]ptx.Value, len(list))
	for k, p := range list {
		v[k] = p.At(i).Load()
	}
	return v
}

func storeTo(list []ptx.Ptr, i ptx.Value, v []ptx.Value) {
	for k, p := range list {
		p.At(i).Store(v[k])
	}
}

func (s blockSort) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	threads, wide := min(s.width, rowThreads), s.source.wide()
	in := s.source.declare(b).atRow(b.BlockID(0))
	out := declareSorted(b, s.source.index, wide).atRow(b.BlockID(0), in.n, s.source.index)
	shared := []ptx.Ptr{b.Shared("sorted_keys", ptx.U64, s.width)}
	if wide {
		shared = append(shared, b.Shared("sorted_places", ptx.U32, s.width))
	}
	lane := b.ThreadID(0)
	// forEach calls f for each element of this thread. The elements of a warp's threads are
	// neighbours.
	forEach := func(f func(i ptx.Value)) {
		if s.width == threads {
			f(lane)
			return
		}
		b.For(b.U32(0), num(s.width), num(threads), func(i ptx.Value, _ ptx.Loop) { f(i.Add(lane)) })
	}
	// compareExchange compares v, which is element i, with the elements at the distances j, j/2, …,
	// 1, and exchanges them where needed. All these distances are less than 32. The argument size
	// is the length of the sorted runs in this stage.
	compareExchange := func(i ptx.Value, v []ptx.Value, size ptx.Value, j int) []ptx.Value {
		for ; j > 0; j /= 2 {
			other := shuffleAll(v, ptx.ShuffleXor, num(j))
			low := i.And(num(j)).Eq(num(0))
			up := i.And(size).Eq(num(0))
			least := low.Select(b.U32(1), num(0)).Eq(up.Select(b.U32(1), num(0)))
			take := isBefore(other, v).Select(b.U32(1), num(0)).Eq(least.Select(b.U32(1), num(0)))
			v = selectAll(take, other, v)
		}
		return v
	}
	b.Comment("keys, sorted by warps")
	forEach(func(i ptx.Value) {
		// An index beyond the end of the row is replaced by that of the last element.
		element := in.element(b, i.Min(in.n.Sub(num(1))))
		there := i.Lt(in.n)
		key := in.key(b, element)
		if s.source.index {
			b.If(there, func() { in.report(b, element, b.BlockID(0), i) })
		}
		v := []ptx.Value{key, i}
		if !wide {
			v = []ptx.Value{b.Join(ptx.U64, i.Bitcast(ptx.B32), key.Bitcast(ptx.B32))}
		}
		v[0] = there.Select(v[0], b.U64(1<<64-1))
		for size := 2; size <= 32; size *= 2 {
			v = compareExchange(i, v, b.U32(uint32(size)), size/2)
		}
		storeTo(shared, i, v)
	})
	b.Comment("runs of twice the size")
	size := b.Var(b.U32(64))
	b.Loop(func(stages ptx.Loop) {
		distance := b.Var(size.Get().Shr(num(1)))
		b.Loop(func(steps ptx.Loop) {
			b.Barrier()
			j := distance.Get()
			steps.BreakIf(j.Lt(num(32)))
			b.For(lane, num(s.width/2), num(threads), func(t ptx.Value, _ ptx.Loop) {
				i := t.Add(t.And(j.Sub(num(1)).Not())) // index of the lower element of the pair
				a, z := loadFrom(shared, i), loadFrom(shared, i.Add(j))
				up := i.And(size.Get()).Eq(num(0))
				swap := isBefore(z, a).Select(b.U32(1), num(0)).Eq(up.Select(b.U32(1), num(0)))
				b.If(swap, func() {
					storeTo(shared, i, z)
					storeTo(shared, i.Add(j), a)
				})
			})
			distance.Set(j.Shr(num(1)))
		})
		forEach(func(i ptx.Value) { storeTo(shared, i, compareExchange(i, loadFrom(shared, i), size.Get(), 16)) })
		size.Set(size.Get().Shl(num(1)))
		stages.BreakIf(size.Get().Gt(num(s.width)))
	})
	b.Barrier()
	count := in.n
	if !s.source.index {
		count = out.k
	}
	forEach(func(i ptx.Value) {
		b.If(i.Lt(count), func() {
			v := loadFrom(shared, i)
			if !wide {
				place, key := v[0].Split(ptx.U32)
				v = []ptx.Value{key, place}
			}
			if s.source.index {
				storeTo([]ptx.Ptr{out.keys, out.order}, i, v)
			} else {
				out.out.store(b, i, in.place(v[1]).Cvt(ptx.S64))
			}
		})
	})
	return [3]int{threads, 1, 1}
}
