package kernels

import (
	"fmt"
	"math/bits"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
)

// A run consists of all positions with the same index, which are neighbours after sorting. A run
// is divided into parts of a fixed length, and groups of threads combine the parts at the same
// time. If a run has more than one part, a second kernel combines the results of its parts. The
// results of parts are stored in scratch memory at numbered slots. The last part of a run may be
// shorter than the others. In the sorted order, two parts of full length start at least that
// length apart, and so do two short parts. The slot is therefore 2·(start / length), plus 1 for a
// short part.

// partOf returns the length of the parts of runs, for n sorted positions. It is about the square
// root of n. The longest run then has as many parts as a part has positions. Tests lower partLeast.
func partOf(n int) int {
	return min(max(partLeast, 1<<(bits.Len(uint(n-1))/2)), 1024)
}

var partLeast = 128

// segmentSpec describes the kernels that combine runs of equal indices after sorting.
type segmentSpec struct {
	kind    device.ScatterKind
	typ     dtype.Type
	samples bool // whether each line has its own indices, instead of one list for all lines
	rank    int  // rank of the iteration space of the lines
	vector  int  // number of neighbouring lines that a thread combines together
	group   int  // number of threads that combine a part of a run
	wide    bool
	// whether the kernel is the second one, which combines the results of the parts of long runs
	join bool
}

func (s segmentSpec) name() string {
	name := fmt.Sprintf("scatter%v_%v_r%d_v%d_g%d", s.kind, s.typ, s.rank, s.vector, s.group)
	if s.samples {
		name += "_samples"
	}
	if s.wide {
		name += "w"
	}
	if s.join {
		name += "_join"
	}
	return name
}

// sorted plans a scatter that sorts the positions by their indices first.
func (a *scatterPlan) sorted(scratch Scratch) ([]Launch, error) {
	n, lines := a.src.Shape.At(a.axis), a.sp.elements()
	s := segmentSpec{kind: a.s.kind, typ: a.s.typ, samples: a.order == bySamples, rank: a.s.rank, vector: 1, group: 1, wide: a.s.wide}
	sorting := sortPlan{sortSource: sortSource{typ: a.index.Type, index: true}, rows: 1, n: n, x: a.index,
		bound: a.dst.Shape.At(a.axis), inner: a.axisStride(), fault: a.fault, tag: a.tag}
	distance := 0 // distance in elements between the indices of neighbouring lines
	if s.samples {
		sorting.rows, distance = lines, a.sp.stride[2][s.rank-1]
	} else {
		s.vector = a.lineVector()
		for s.group < mapThreads && s.group*s.vector < lines {
			s.group *= 2
		}
	}
	sorting.x.Layout = shape.Layout{Offset: a.index.Offset, Shape: shape.Of(sorting.rows, n), Strides: shape.Of(distance, a.index.Strides.At(a.axis))}
	places := sorting.rows * n
	if places > 1<<31-1-radixPrefix {
		return nil, fail("scatter", "%d indices exceed 2³¹", places)
	}
	keys, err := scratch(4 * places)
	if err != nil {
		return nil, err
	}
	order, err := scratch(4 * places)
	if err != nil {
		return nil, err
	}
	list, err := sorting.sort(sortTarget{keys: keys, order: order}, scratch)
	if err != nil {
		return nil, err
	}
	part, columns := partOf(n), lines
	if s.samples {
		columns = 1
	}
	parts := uint64(0)
	split := n > part && s.kind != device.ScatterSet
	if split {
		if parts, err = scratch(2 * ceilDiv(places, part) * columns * a.s.typ.Compute().Size()); err != nil {
			return nil, err
		}
	}
	size := a.sp.size
	if s.vector > 1 {
		a.sp.countVectors(s.vector)
	}
	columns /= s.vector
	plan := func(blocks int) error {
		k, err := kernelOf(s)
		if err != nil {
			return err
		}
		p := make(packer, 0, 256)
		p.u32(uint32(places))
		p.u32(uint32(n))
		p.u32(uint32(part))
		p.index(s.wide, columns)
		p.packCoordinates(size, s.wide)
		for i, o := range []Operand{a.dst, a.src} {
			p.u64(o.start())
			p.packStrides(a.sp.stride[i], s.wide)
			p.u64(uint64(o.Strides.At(a.axis)))
		}
		p.u64(uint64(sorting.bound))
		p.u64(keys)
		p.u64(order)
		p.u64(parts)
		l, err := p.launch(k, blocks, min(ceilDiv(columns, mapThreads), 64))
		list = append(list, l)
		return err
	}
	if err = plan(ceilDiv(places, mapThreads/s.group)); err != nil || !split {
		return list, err
	}
	s.join = true
	err = plan(ceilDiv(places, part))
	return list, err
}

// lineVector returns how many neighbouring lines a thread loads and stores together.
func (a *scatterPlan) lineVector() int {
	v := min(8, 16/a.s.typ.Size())
	if a.sp.size[a.s.rank-1]%v != 0 || a.sp.innerStride(0) != 1 || a.sp.innerStride(1) != 1 ||
		a.dst.Strides.At(a.axis)%v != 0 || a.src.Strides.At(a.axis)%v != 0 || !aligned([]Operand{a.dst, a.src}, a.sp, mapSpec{}, v) {
		return 1
	}
	return v
}

// segments is the state of segmentSpec.build while it emits the code of a kernel.
type segments struct {
	*ptx.Builder
	segmentSpec
	places, n, part       ptx.Value
	columns               ptx.Value // number of lines, counted in vectors
	coords                coordinates
	dst, src              scatterOperand
	bound                 ptx.Value
	keys, order, partials ptx.Ptr
}

func (s segmentSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	b.MinBlocks(2)
	w := &segments{Builder: b, segmentSpec: s}
	w.places, w.n, w.part = b.Param("places", ptx.U32), b.Param("n", ptx.U32), b.Param("part", ptx.U32)
	w.columns = b.Param("columns", indexType(s.wide))
	w.coords = declareCoordinates(b, "d", s.rank, s.wide)
	w.dst = declareScattered(b, "dst", storage(s.typ), s.rank, s.wide)
	w.src = declareScattered(b, "src", storage(s.typ), s.rank, s.wide)
	w.bound = b.Param("bound", ptx.S64)
	w.keys, w.order = b.Pointer("keys", ptx.U32), b.Pointer("order", ptx.U32)
	w.partials = b.Pointer("parts", computing(s.typ.Compute()))
	if s.join {
		w.joinRun()
	} else {
		w.combinePart()
	}
	return [3]int{mapThreads, 1, 1}
}

// ends returns the first index, from low on, whose key differs from the given key. If there is no
// such index below high, it returns high. Keys ascend.
func (w *segments) ends(low, high, key ptx.Value) ptx.Value {
	lo, hi := w.Var(low), w.Var(high)
	w.While(func() ptx.Value { return lo.Get().Lt(hi.Get()) }, func(ptx.Loop) {
		middle := lo.Get().Add(hi.Get().Sub(lo.Get()).Shr(num(1)))
		same := w.keys.At(middle).Load().Eq(key)
		lo.Set(same.Select(middle.Add(num(1)), lo.Get()))
		hi.Set(same.Select(hi.Get(), middle))
	})
	return lo.Get()
}

// starts returns the first index, from low on, that has the given key. The key at index high must
// be that key.
func (w *segments) starts(low, high, key ptx.Value) ptx.Value {
	lo, hi := w.Var(low), w.Var(high)
	w.While(func() ptx.Value { return lo.Get().Lt(hi.Get()) }, func(ptx.Loop) {
		middle := lo.Get().Add(hi.Get().Sub(lo.Get()).Shr(num(1)))
		same := w.keys.At(middle).Load().Eq(key)
		hi.Set(same.Select(middle, hi.Get()))
		lo.Set(same.Select(lo.Get(), middle.Add(num(1))))
	})
	return hi.Get()
}

// hasKey reports whether the key at index p is key. If isPlace is false, p lies outside of the row,
// and hasKey is false.
func (w *segments) hasKey(isPlace, p, key ptx.Value) ptx.Value {
	same := w.Var(w.U32(0))
	w.If(isPlace, func() { same.Set(w.keys.At(p).Load().Eq(key).Select(w.U32(1), num(0))) })
	return same.Get().Ne(num(0))
}

// eachColumn calls f for each vector of lines of this thread. The arguments of f are the index of
// the vector, the address of its source in src, and the address of its target in dst.
func (w *segments) eachColumn(row, key, lane ptx.Value, f func(column ptx.Value, from, to ptx.Ptr)) {
	at := func(i, column ptx.Value) {
		c := w.coords.split(i)
		from := w.src.p.At(dot(w.Builder, c, w.src.strides, w.wide))
		to := w.dst.p.At(dot(w.Builder, c, w.dst.strides, w.wide)).At(key.Cvt(ptx.S64).Mul(w.dst.axis))
		f(column, from, to)
	}
	index := func(v ptx.Value) ptx.Value {
		if w.wide {
			return v.Cvt(ptx.U64)
		}
		return v
	}
	if w.samples {
		at(index(row), index(w.U32(0)))
		return
	}
	column := index(w.BlockID(1).Mad(w.BlockDim(0), lane))
	step := index(w.GridDim(1).Mul(w.BlockDim(0)))
	w.For(column, w.columns, step, func(c ptx.Value, _ ptx.Loop) { at(c, c) })
}

// partial returns the address of the result of a part of a run, for a vector of lines.
func (w *segments) partial(slot, column ptx.Value) ptx.Ptr {
	return w.partials.At(slot.Cvt(ptx.U64).Mul(w.columns.Cvt(ptx.U64)).Add(column.Cvt(ptx.U64)).Mul(num(w.vector)))
}

// fold combines load(i) into acc, for i from start to end-1 in ascending order.
func (w *segments) fold(acc []*ptx.Var, start, end ptx.Value, load func(i ptx.Value) []ptx.Value) {
	combine := func(x []ptx.Value) {
		for k, v := range acc {
			v.Set(combineScattered(w.kind, v.Get(), x[k]))
		}
	}
	ahead := min(8, 32/w.vector) // number of pending loads; the combinations stay in order
	tail := start.Add(end.Sub(start).And(num(^uint32(ahead - 1))))
	w.For(start, tail, num(ahead), func(i ptx.Value, _ ptx.Loop) {
		x := make([][]ptx.Value, ahead)
		for k := range x {
			x[k] = load(i.Add(num(k)))
		}
		for k := range x {
			combine(x[k])
		}
	})
	w.For(tail, end, num(1), func(i ptx.Value, _ ptx.Loop) { combine(load(i)) })
}

// combinePart combines one part of a run: the part that starts at position p, which this group of
// threads handles. If no part starts there, the group returns.
func (w *segments) combinePart() {
	group, lane := w.ThreadID(0).Div(num(w.group)), w.ThreadID(0).And(num(w.group-1))
	p := w.BlockID(0).Mad(num(mapThreads/w.group), group)
	w.ReturnIf(p.Ge(w.places))
	row := p.Div(w.n)
	begin := row.Mul(w.n) // index of the row's first position
	behind := begin.Add(w.n)
	key := w.keys.At(p).Load()
	w.ReturnIf(key.Cvt(ptx.U64).Eq(w.bound.Bitcast(ptx.U64)))
	load := func(from ptx.Ptr) func(i ptx.Value) []ptx.Value {
		return func(i ptx.Value) []ptx.Value {
			return loadVector(w.Builder, from.At(w.order.At(i).Load().Cvt(ptx.S64).Mul(w.src.axis)), w.typ, w.vector)
		}
	}
	if w.kind == device.ScatterSet { // the last position of the run overwrites the others
		w.ReturnIf(w.hasKey(p.Add(num(1)).Lt(behind), p.Add(num(1)), key))
		w.eachColumn(row, key, lane, func(_ ptx.Value, from, to ptx.Ptr) {
			storeVector(w.Builder, to, w.typ, load(from)(p))
		})
		return
	}
	first := w.hasKey(p.Gt(begin), p.Sub(num(1)), key).Select(w.U32(0), num(1)).Ne(num(0))
	w.If(first.Not(), func() {
		w.ReturnIf(w.hasKey(p.Sub(begin).Ge(w.part), p.Sub(w.part), key).Not())
		start := w.starts(begin, p.Sub(w.part), key)
		w.ReturnIf(p.Sub(start).And(w.part.Sub(num(1))).Ne(num(0)))
	})
	most := p.Add(w.part.Min(behind.Sub(p)))
	end := w.ends(p.Add(num(1)), most, key)
	long := first.Not().Or(w.hasKey(p.Add(w.part).Lt(behind), most, key))
	slot := p.Div(w.part).Mul(num(2)).Add(end.Sub(p).Lt(w.part).Select(w.U32(1), num(0)))
	w.eachColumn(row, key, lane, func(column ptx.Value, from, to ptx.Ptr) {
		acc := make([]*ptx.Var, w.vector)
		for k, v := range load(from)(p) {
			acc[k] = w.Var(v)
		}
		w.If(first, func() {
			for k, v := range loadVector(w.Builder, to, w.typ, w.vector) {
				acc[k].Set(combineScattered(w.kind, v, acc[k].Get()))
			}
		})
		w.fold(acc, p.Add(num(1)), end, load(from))
		w.IfElse(long, func() {
			storeVector(w.Builder, w.partial(slot, column), w.typ.Compute(), get(acc))
		}, func() {
			storeVector(w.Builder, to, w.typ, get(acc))
		})
	})
}

// joinRun combines the results of the parts of a long run that starts within the block's range of
// indices. There is at most one such run.
func (w *segments) joinRun() {
	found := w.Shared("found", ptx.U32, 1)
	thread := w.ThreadID(0)
	w.If(thread.Eq(num(0)), func() { found.Store(w.places) })
	w.Barrier()
	from := w.BlockID(0).Mul(w.part)
	w.For(from.Add(thread), from.Add(w.part).Min(w.places), num(mapThreads), func(p ptx.Value, _ ptx.Loop) {
		begin := p.Div(w.n).Mul(w.n)
		key := w.keys.At(p).Load()
		goesOn := w.hasKey(p.Add(w.part).Lt(begin.Add(w.n)), p.Add(w.part), key)
		goesOn = goesOn.And(key.Cvt(ptx.U64).Lt(w.bound.Bitcast(ptx.U64)))
		w.If(goesOn.And(w.hasKey(p.Gt(begin), p.Sub(num(1)), key).Not()), func() { found.Store(p) })
	})
	w.Barrier()
	p := found.Load()
	w.ReturnIf(p.Eq(w.places))
	row, key := p.Div(w.n), w.keys.At(p).Load()
	if w.samples {
		w.ReturnIf(thread.Ne(num(0)))
	}
	length := w.ends(p.Add(w.part), row.Add(num(1)).Mul(w.n), key).Sub(p)
	whole := length.Div(w.part)
	slot := p.Div(w.part).Mul(num(2))
	w.eachColumn(row, key, thread, func(column ptx.Value, _, to ptx.Ptr) {
		load := func(slot ptx.Value) []ptx.Value {
			return loadVector(w.Builder, w.partial(slot, column), w.typ.Compute(), w.vector)
		}
		acc := make([]*ptx.Var, w.vector)
		for k, v := range load(slot) {
			acc[k] = w.Var(v)
		}
		w.fold(acc, w.U32(1), whole, func(i ptx.Value) []ptx.Value { return load(slot.Add(i.Mul(num(2)))) })
		w.If(whole.Mul(w.part).Ne(length), func() {
			for k, v := range load(slot.Add(whole.Mul(num(2))).Add(num(1))) {
				acc[k].Set(combineScattered(w.kind, acc[k].Get(), v))
			}
		})
		storeVector(w.Builder, to, w.typ, get(acc))
	})
}
