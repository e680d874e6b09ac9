package kernels

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// sortRun is the greatest number of elements that a block sorts, a multiple of rowThreads. Tests lower it.
var sortRun = 2048

// sortSpec describes a kernel in which a block sorts a row, or a run of one, by a bitonic network (K. E. Batcher: Sorting networks
// and their applications, 1968). Elements that are less than a warp apart meet by shuffles, others in shared memory.
//
// What is sorted is an integer key and the position; they are one 64-bit word, the key above the position, where the key has 32
// bits.
type sortSpec struct {
	typ        dtype.Type
	descending bool
	width      int  // elements, a power of 2; what the row lacks is greater than all
	runs       bool // the sorted run is stored for merging, else the positions
}

func (s sortSpec) name() string {
	name := fmt.Sprintf("sort_%v_%d", s.typ, s.width)
	if s.descending {
		name += "_descending"
	}
	if s.runs {
		name += "_runs"
	}
	return name
}

func packsKeys(t dtype.Type) bool { return t != dtype.F64 && t != dtype.I64 }

// sortedMemory is scratch memory for n elements in the form that is sorted.
func sortedMemory(packed bool, n int, scratch Scratch) ([]uint64, error) {
	keys, err := scratch(8 * n)
	if err != nil || packed {
		return []uint64{keys}, err
	}
	at, err := scratch(4 * n)
	return []uint64{keys, at}, err
}

// Argsort plans out = the positions of the first elements of each row of x in order; see
// [device.Argsort]. Rows that a block cannot sort are sorted in runs, which are then merged, two at
// a time.
func Argsort(out, x Operand, descending bool, scratch Scratch) ([]Launch, error) {
	const op = "argsort"
	rows, n, k := x.Shape.At(0), x.Shape.At(1), out.Shape.At(1)
	if rows == 0 || k == 0 {
		return nil, nil
	}
	if n > 1<<31-1-sortRun {
		return nil, fail(op, "rows of %d elements exceed 2³¹", n)
	}
	s := sortSpec{typ: x.Type, descending: descending, width: sortRun, runs: n > sortRun}
	for _, w := range []int{1024, 256, 64} {
		if n <= w && w < sortRun {
			s.width = w
		}
	}
	chunks := ceilDiv(n, s.width)
	if rows > (1<<31-1)/(chunks*(sortRun/rowThreads)) {
		return nil, fail(op, "%d rows of %d elements are too many", rows, n)
	}
	kernel, err := kernelOf(s)
	if err != nil {
		return nil, err
	}
	p := make(packer, 0, 128)
	p.u32(uint32(n))
	p.u32(uint32(chunks))
	p.packRows(x, false)
	packed := packsKeys(x.Type)
	if !s.runs {
		p.u32(uint32(k))
		p.packRows(out, false)
		l, err := p.launch(kernel, rows)
		return []Launch{l}, err
	}
	length := chunks * sortRun
	from, err := sortedMemory(packed, rows*length, scratch)
	if err != nil {
		return nil, err
	}
	to, err := sortedMemory(packed, rows*length, scratch)
	if err != nil {
		return nil, err
	}
	for _, addr := range from {
		p.u64(addr)
	}
	l, err := p.launch(kernel, rows*chunks)
	list := []Launch{l}
	for run := sortRun; run < length && err == nil; run *= 2 {
		m := mergeSpec{packed: packed, last: 2*run >= length}
		if kernel, err = kernelOf(m); err != nil {
			break
		}
		p := make(packer, 0, 128)
		p.u32(uint32(length))
		p.u32(uint32(run))
		for _, addr := range from {
			p.u64(addr)
		}
		if m.last {
			p.u32(uint32(k))
			p.packRows(out, false)
		} else {
			for _, addr := range to {
				p.u64(addr)
			}
		}
		l, err = p.launch(kernel, rows*(length/rowThreads))
		list = append(list, l)
		from, to = to, from
	}
	return list, err
}

// sortKeys are the programs of keys.
var sortKeys = map[sortSpec]*expr.Program{}

func init() {
	for _, t := range dtype.Types() {
		for _, descending := range []bool{false, true} {
			to := dtype.I32
			if !packsKeys(t) {
				to = dtype.I64
			}
			sortKeys[sortSpec{typ: t, descending: descending}] = expr.MustLower([]*expr.Expr{device.SortKey(t, descending)}, []dtype.Type{to}, []dtype.Type{t}, -1)
		}
	}
}

// sortable returns what is sorted of an element and its position.
func (s sortSpec) sortable(b *ptx.Builder, x, at ptx.Value) []ptx.Value {
	key := lower(b, sortKeys[sortSpec{typ: s.typ, descending: s.descending}], environment{x: func(int) ptx.Value { return x }})[0]
	if packsKeys(s.typ) {
		return []ptx.Value{b.Join(ptx.S64, at.Bitcast(ptx.B32), key.Bitcast(ptx.B32))}
	}
	return []ptx.Value{key, at}
}

// sortedPlace is the position in what is sorted.
func sortedPlace(v []ptx.Value) ptx.Value {
	if len(v) > 1 {
		return v[1].Cvt(ptx.S64)
	}
	return v[0].And(num(math.MaxUint32))
}

// isBefore reports whether a is before b; no two are equal but those that fill a run up.
func isBefore(a, b []ptx.Value) ptx.Value {
	if len(a) == 1 {
		return a[0].Lt(b[0])
	}
	return a[0].Lt(b[0]).Or(a[0].Eq(b[0]).And(a[1].Lt(b[1])))
}

// sortedArrays are pointers to the parts of what is sorted.
func sortedArrays(packed bool, array func(name string, t ptx.Type) ptx.Ptr) []ptx.Ptr {
	list := []ptx.Ptr{array("keys", ptx.S64)}
	if !packed {
		list = append(list, array("places", ptx.U32))
	}
	return list
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

func (s sortSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	threads := min(s.width, rowThreads)
	n, chunks := b.Param("n", ptx.U32), b.Param("chunks", ptx.U32)
	x := declareRows(b, "x", s.typ, false)
	packed := packsKeys(s.typ)
	var k ptx.Value
	var out rowOperand
	var to []ptx.Ptr
	if s.runs {
		to = sortedArrays(packed, func(name string, t ptx.Type) ptx.Ptr { return b.Pointer("to_"+name, t) })
	} else {
		k = b.Param("k", ptx.U32)
		out = declareRows(b, "y", dtype.I64, false)
	}
	row := b.BlockID(0).Div(chunks)
	first := b.BlockID(0).Sub(row.Mul(chunks)).Mul(num(s.width))
	x = x.at(row)
	shared := sortedArrays(packed, func(name string, t ptx.Type) ptx.Ptr { return b.Shared(name, t, s.width) })
	lane := b.ThreadID(0)
	// every runs f for the elements of this thread, a warp's being neighbours.
	every := func(f func(i ptx.Value)) {
		if s.width == threads {
			f(lane)
			return
		}
		b.For(b.U32(0), num(s.width), num(threads), func(i ptx.Value, _ ptx.Loop) { f(i.Add(lane)) })
	}
	// meet exchanges v, element i, with those a power of 2 below a warp apart, from j down, in a stage of runs of size.
	meet := func(i ptx.Value, v []ptx.Value, size ptx.Value, j int) []ptx.Value {
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
	every(func(i ptx.Value) {
		at := first.Add(i)
		element := x.load(b, at.Min(n.Sub(num(1)))) // an element that there is
		v := s.sortable(b, element, at)
		most := b.Const(ptx.S64, num(math.MaxInt64))
		v[0] = at.Lt(n).Select(v[0], most)
		for size := 2; size <= 32; size *= 2 {
			v = meet(i, v, b.U32(uint32(size)), size/2)
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
				i := t.Add(t.And(j.Sub(num(1)).Not())) // the lower of the pair
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
		every(func(i ptx.Value) { storeTo(shared, i, meet(i, loadFrom(shared, i), size.Get(), 16)) })
		size.Set(size.Get().Shl(num(1)))
		stages.BreakIf(size.Get().Gt(num(s.width)))
	})
	b.Barrier()
	if s.runs {
		start := b.BlockID(0).Cvt(ptx.U64).Mul(num(s.width))
		every(func(i ptx.Value) { storeTo(to, start.Add(i.Cvt(ptx.U64)), loadFrom(shared, i)) })
	} else {
		out = out.at(row)
		every(func(i ptx.Value) {
			b.If(i.Lt(k), func() { out.store(b, i, sortedPlace(loadFrom(shared, i))) })
		})
	}
	return [3]int{threads, 1, 1}
}

// mergeSpec describes a kernel that merges sorted runs, two at a time: each element's place is its own in its run and the number of
// those before it in the other, which is searched by halving.
type mergeSpec struct {
	packed bool
	last   bool // the positions of the first elements are stored, else the merged runs
}

func (s mergeSpec) name() string {
	name := "merge"
	if !s.packed {
		name += "_pairs"
	}
	if s.last {
		name += "_last"
	}
	return name
}

func (s mergeSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	length, run := b.Param("length", ptx.U32), b.Param("run", ptx.U32)
	from := sortedArrays(s.packed, func(name string, t ptx.Type) ptx.Ptr { return b.Pointer("from_"+name, t) })
	var k ptx.Value
	var out rowOperand
	var to []ptx.Ptr
	if s.last {
		k = b.Param("k", ptx.U32)
		out = declareRows(b, "y", dtype.I64, false)
	} else {
		to = sortedArrays(s.packed, func(name string, t ptx.Type) ptx.Ptr { return b.Pointer("to_"+name, t) })
	}
	blocks := length.Div(num(rowThreads)) // of a row
	row := b.BlockID(0).Div(blocks)
	i := b.BlockID(0).Sub(row.Mul(blocks)).Mad(num(rowThreads), b.ThreadID(0))
	start := row.MulWide(length)
	for p := range from {
		from[p] = from[p].At(start)
	}
	own := i.Div(run)
	other := own.Xor(num(1)).Mul(run) // where the other run starts; behind the row if there is none
	low, high := other.Min(length), other.Add(run).Min(length)
	v := loadFrom(from, i)
	lo, hi := b.Var(low), b.Var(high)
	second := own.And(num(1)).Ne(num(0))
	b.While(func() ptx.Value { return lo.Get().Lt(hi.Get()) }, func(ptx.Loop) {
		mid := lo.Get().Add(hi.Get()).Shr(num(1))
		w := loadFrom(from, mid)
		// Of equal elements those of the first run come first.
		ahead := second.And(isBefore(v, w).Not()).Or(isBefore(w, v))
		lo.Set(ahead.Select(mid.Add(num(1)), lo.Get()))
		hi.Set(ahead.Select(hi.Get(), mid))
	})
	place := i.Sub(own.And(num(1)).Mul(run)).Add(lo.Get().Sub(low))
	if s.last {
		out = out.at(row)
		b.If(place.Lt(k), func() { out.store(b, place, sortedPlace(v)) })
	} else {
		for p := range to {
			to[p] = to[p].At(start)
		}
		storeTo(to, place, v)
	}
	return [3]int{rowThreads, 1, 1}
}
