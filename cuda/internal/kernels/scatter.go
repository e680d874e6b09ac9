package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// scatterForm is one of the kernels that Scatter is made of.
type scatterForm uint8

const (
	scatterLines    scatterForm = iota // a thread owns a line along the axis and walks the indices in order
	scatterSort                        // order positions by index, stably, by counting what comes before each
	scatterSegments                    // a block combines the run of equal indices that starts at its position
)

func (f scatterForm) String() string { return [...]string{"lines", "sort", "segments"}[f] }

// scatterSpec describes one of those kernels.
type scatterSpec struct {
	form  scatterForm
	kind  device.ScatterKind
	typ   dtype.Type
	index dtype.Type
	rank  int // of the space without the axis
	wide  bool
}

func (s scatterSpec) name() string {
	wide := ""
	if s.wide {
		wide = "w"
	}
	if s.form == scatterSort {
		return fmt.Sprintf("scatter_%v_%v", s.form, s.index)
	}
	return fmt.Sprintf("scatter%v_%v_%v_%v_r%d%s", s.kind, s.form, s.typ, s.index, s.rank, wide)
}

const (
	sortThreads = 256
	// sortedAtOnce bounds the quadratic work of the sort; more positions go in several rounds, in order.
	sortedAtOnce = 1 << 16
)

// Scatter plans the combination of src[i…] into dst[i… with index[i…] along axis]. Contributions to one element are combined in
// the order of their position along the axis, so that the result has the same bits on every run. Indices outside of the axis
// are skipped and reported. Where one index serves whole slices (the gradient of an embedding), positions are sorted by index
// first and an element is combined in the computing type.
func Scatter(kind device.ScatterKind, dst, src, index Operand, axis int, fault uint64, tag uint32, scratch Scratch) ([]Launch, error) {
	op := "scatter-" + kind.String()
	if err := checkIndexed(op, src, dst, index, axis); err != nil || src.Shape.Size() == 0 {
		return nil, err
	}
	kind, typ := scatterAs(kind, src.Type)
	sp := withoutAxis(src.Shape, axis, dst.Strides, src.Strides, index.Strides)
	s := scatterSpec{kind: kind, typ: typ, index: index.Type, rank: sp.rank()}
	all := newSpace(src.Shape, dst.Strides.With(axis, 0), src.Strides, index.Strides)
	reach := (dst.Shape.At(axis) - 1) * max(dst.Strides.At(axis), -dst.Strides.At(axis))
	s.wide = all.wide() || reach > narrowLimit
	a := scatterPlan{s: s, sp: sp, dst: dst, src: src, index: index, axis: axis, fault: fault, tag: tag}
	if !servesSlices(sp, src.Shape.At(axis), dst.Shape.At(axis)) {
		l, err := a.lines()
		return []Launch{l}, err
	}
	return a.sorted(scratch)
}

// scatterAs returns the kind and the type with which a kernel does it: what moves bits shares kernels by size, and the sum
// and product of truth values are their extremes as bytes.
func scatterAs(kind device.ScatterKind, t dtype.Type) (device.ScatterKind, dtype.Type) {
	if kind == device.ScatterSet {
		return kind, map[int]dtype.Type{1: dtype.U8, 2: dtype.I16, 4: dtype.I32, 8: dtype.I64}[t.Size()]
	}
	if t == dtype.Bool {
		if kind == device.ScatterAdd || kind == device.ScatterMax {
			return device.ScatterMax, dtype.U8
		}
		return device.ScatterMin, dtype.U8
	}
	return kind, t
}

// ScattersSlices reports whether [Scatter] sorts positions and combines slices.
func ScattersSlices(dst, src, index Operand, axis int) bool {
	return servesSlices(withoutAxis(src.Shape, axis, dst.Strides, src.Strides, index.Strides), src.Shape.At(axis), dst.Shape.At(axis))
}

// servesSlices reports whether the index, whose strides are the third of sp, serves whole slices. A slice must be worth a block,
// or there must be so many positions that one thread would be long at them; and the sort's keys have 32 bits.
func servesSlices(sp space, count, bound int) bool {
	for _, st := range sp.stride[2] {
		if st != 0 {
			return false
		}
	}
	return (sp.elements() >= 4 || count >= 64) && bound < 1<<32-1
}

type scatterPlan struct {
	s               scatterSpec
	sp              space
	dst, src, index Operand
	axis            int
	fault           uint64
	tag             uint32
}

// inner is the distance between neighbours along the axis, counted in row-major positions of the index.
func (a *scatterPlan) inner() int { return a.index.Shape.Tail(a.axis + 1).Size() }

func (a *scatterPlan) lines() (Launch, error) {
	s := a.s
	s.form = scatterLines
	k, err := kernelOf(s)
	if err != nil {
		return Launch{}, err
	}
	p := make(packer, 0, 128)
	n := a.sp.elements()
	p.index(s.wide, n)
	p.packCoordinates(a.sp.size, s.wide)
	for i, o := range []Operand{a.dst, a.src, a.index} {
		p.u64(o.start())
		p.packStrides(a.sp.stride[i], s.wide)
		p.u64(uint64(o.Strides.At(a.axis)))
	}
	p.u64(uint64(a.src.Shape.At(a.axis)))
	p.u64(uint64(a.dst.Shape.At(a.axis)))
	p.u64(uint64(a.inner()))
	p.packFault(a.fault, a.tag)
	return p.launch(k, min(ceilDiv(n, mapThreads), maxBlocks))
}

func (a *scatterPlan) sorted(scratch Scratch) ([]Launch, error) {
	count := a.src.Shape.At(a.axis)
	most := min(count, sortedAtOnce)
	order, err := scratch(most*4 + 256 + most*4)
	if err != nil {
		return nil, err
	}
	keys := order + uint64((most*4+255)/256*256)
	sort, seg := a.s, a.s
	sort = scatterSpec{form: scatterSort, index: sort.index}
	seg.form = scatterSegments
	ks, err := kernelOf(sort)
	if err != nil {
		return nil, err
	}
	kg, err := kernelOf(seg)
	if err != nil {
		return nil, err
	}
	var list []Launch
	for first := 0; first < count; first += sortedAtOnce {
		n := min(count-first, sortedAtOnce)
		p := make(packer, 0, 128)
		p.u32(uint32(n))
		p.u64(a.index.start() + uint64(first*a.index.Strides.At(a.axis)*a.index.Type.Size()))
		p.u64(uint64(a.index.Strides.At(a.axis)))
		p.u64(uint64(a.dst.Shape.At(a.axis)))
		p.u64(order)
		p.u64(keys)
		p.u64(uint64(first))
		p.u64(uint64(a.inner()))
		p.packFault(a.fault, a.tag)
		l, err := p.launch(ks, ceilDiv(n, sortThreads))
		if err != nil {
			return nil, err
		}
		q := make(packer, 0, 256)
		q.u32(uint32(n))
		q.index(a.s.wide, a.sp.elements())
		q.packCoordinates(a.sp.size, a.s.wide)
		for i, o := range []Operand{a.dst, a.src} {
			at := o.start()
			if i == 1 {
				at += uint64(first * o.Strides.At(a.axis) * o.Type.Size())
			}
			q.u64(at)
			q.packStrides(a.sp.stride[i], a.s.wide)
			q.u64(uint64(o.Strides.At(a.axis)))
		}
		q.u64(order)
		q.u64(keys)
		g, err := q.launch(kg, n, min(ceilDiv(a.sp.elements(), mapThreads), 64))
		if err != nil {
			return nil, err
		}
		list = append(list, l, g)
	}
	return list, nil
}

func (s scatterSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	roomForRegisters(b)
	switch s.form {
	case scatterSort:
		s.buildSort(b)
	case scatterSegments:
		s.buildSegments(b)
	default:
		s.buildLines(b)
	}
	return [3]int{mapThreads, 1, 1}
}

type scatterOperand struct {
	p       ptx.Ptr
	strides []ptx.Value
	axis    ptx.Value
}

func (s scatterSpec) operand(b *ptx.Builder, name string, t ptx.Type) scatterOperand {
	return scatterOperand{b.Pointer(name, t), declareStrides(b, name+"s", s.rank, s.wide), b.Param(name+"a", ptx.S64)}
}

// combine returns what x, an element of the target in the computing type, becomes with v.
func (s scatterSpec) combine(x, v ptx.Value) ptx.Value {
	switch s.kind {
	case device.ScatterAdd:
		return x.Add(v)
	case device.ScatterProd:
		return x.Mul(v)
	case device.ScatterMax:
		return x.MaxNaN(v)
	}
	return x.MinNaN(v)
}

// combineAt combines v into the element at p.
func (s scatterSpec) combineAt(b *ptx.Builder, p ptx.Ptr, v ptx.Value) {
	if s.kind != device.ScatterSet {
		v = s.combine(loadVector(b, p, s.typ, 1)[0], v)
	}
	storeVector(b, p, s.typ, []ptx.Value{v})
}

func (s scatterSpec) buildLines(b *ptx.Builder) {
	n := b.Param("n", indexType(s.wide))
	coords := declareCoordinates(b, "d", s.rank, s.wide)
	dst, src := s.operand(b, "dst", storage(s.typ)), s.operand(b, "src", storage(s.typ))
	index := s.operand(b, "index", storage(s.index))
	count, bound, inner := b.Param("count", ptx.S64), b.Param("bound", ptx.S64), b.Param("inner", ptx.S64)
	fault := declareFault(b)
	id, step := globalIndex(b, s.wide)
	b.For(id, n, step, func(i ptx.Value, _ ptx.Loop) {
		c := coords.split(i)
		to := dst.p.At(dot(b, c, dst.strides, s.wide))
		from := src.p.At(dot(b, c, src.strides, s.wide))
		where := index.p.At(dot(b, c, index.strides, s.wide))
		add := func(j, at, v ptx.Value) {
			b.IfElse(at.Bitcast(ptx.U64).Lt(bound.Bitcast(ptx.U64)), func() {
				s.combineAt(b, to.At(at.Mul(dst.axis)), v)
			}, func() {
				line := i.Cvt(ptx.U64).Bitcast(ptx.S64)
				outer := line.Div(inner)
				fault.report(b, at, bound, outer.Mul(count).Add(j).Mul(inner).Add(line.Sub(outer.Mul(inner))))
			})
		}
		load := func(j ptx.Value) (at, v ptx.Value) {
			return where.At(j.Mul(index.axis)).Load().Cvt(ptx.S64), loadVector(b, from.At(j.Mul(src.axis)), s.typ, 1)[0]
		}
		const ahead = 4 // loads under way together; the combinations stay in order
		tail := count.And(num(^(ahead - 1)))
		b.For(b.Const(ptx.S64, num(0)), tail, num(ahead), func(j ptx.Value, _ ptx.Loop) {
			var at, v [ahead]ptx.Value
			for k := range v {
				at[k], v[k] = load(j.Add(num(k)))
			}
			for k := range v {
				add(j.Add(num(k)), at[k], v[k])
			}
		})
		b.For(tail, count, num(1), func(j ptx.Value, _ ptx.Loop) {
			at, v := load(j)
			add(j, at, v)
		})
	})
}

// noKey is the sort key of indices outside of the axis and of what lies beyond the end: it comes last.
const noKey = 1<<32 - 1

// buildSort writes for each position its index and itself to the place that it has in the stable order by index. The
// place is the number of positions that come before it, which all threads count together, a tile at a time: of equal
// indices those in earlier tiles come before, those in later tiles do not.
func (s scatterSpec) buildSort(b *ptx.Builder) {
	n := b.Param("n", ptx.U32)
	index := b.Pointer("index", storage(s.index))
	stride, bound := b.Param("stride", ptx.S64), b.Param("bound", ptx.S64)
	order, keys := b.Pointer("order", ptx.U32), b.Pointer("keys", ptx.U32)
	first, inner := b.Param("first", ptx.S64), b.Param("inner", ptx.S64)
	fault := declareFault(b)
	tile := b.Shared("tile", ptx.U32, sortThreads)
	thread := b.ThreadID(0)
	j := b.GlobalID()
	at := func(k ptx.Value) ptx.Value { return index.At(k.Cvt(ptx.S64).Mul(stride)).Load().Cvt(ptx.S64) }
	key := func(k ptx.Value) ptx.Value {
		v := b.Var(b.U32(noKey))
		b.If(k.Lt(n), func() {
			i := at(k)
			v.Set(i.Bitcast(ptx.U64).Lt(bound.Bitcast(ptx.U64)).Select(i.Cvt(ptx.U32), b.U32(noKey)))
		})
		return v.Get()
	}
	mine := key(j)
	before := b.Var(b.U32(0))
	count := func(from, to ptx.Value, comes func(other, k ptx.Value) ptx.Value) {
		b.For(from, to, num(sortThreads), func(start ptx.Value, _ ptx.Loop) {
			tile.At(thread).Store(key(start.Add(thread)))
			b.Barrier()
			// All lanes read the same words, which is a broadcast.
			b.For(b.U32(0), num(sortThreads), num(8), func(t ptx.Value, _ ptx.Loop) {
				others := append(tile.At(t).LoadVec(4), tile.At(t).At(num(4)).LoadVec(4)...)
				for u, other := range others {
					k := start.Add(t).Add(num(u))
					before.Set(before.Get().Add(comes(other, k).Select(b.U32(1), num(0))))
				}
			})
			b.Barrier()
		})
	}
	own := b.BlockID(0).Mul(num(sortThreads))
	next := own.Add(num(sortThreads))
	count(b.U32(0), own, func(other, _ ptx.Value) ptx.Value { return other.Le(mine) })
	count(own, next, func(other, k ptx.Value) ptx.Value { return other.Lt(mine).Or(other.Eq(mine).And(k.Lt(j))) })
	count(next, n, func(other, _ ptx.Value) ptx.Value { return other.Lt(mine) })
	b.If(j.Lt(n), func() {
		place := before.Get()
		order.At(place).Store(j)
		keys.At(place).Store(mine)
		b.If(mine.Eq(num(noKey)), func() { fault.report(b, at(j), bound, first.Add(j.Cvt(ptx.S64)).Mul(inner)) })
	})
}

// buildSegments combines the slices of each run of equal indices; the block of a run's first position does all of it.
func (s scatterSpec) buildSegments(b *ptx.Builder) {
	n := b.Param("n", ptx.U32)
	columns := b.Param("columns", indexType(s.wide))
	coords := declareCoordinates(b, "d", s.rank, s.wide)
	dst, src := s.operand(b, "dst", storage(s.typ)), s.operand(b, "src", storage(s.typ))
	order, keys := b.Pointer("order", ptx.U32), b.Pointer("keys", ptx.U32)
	p := b.BlockID(0)
	key := keys.At(p).Load()
	b.ReturnIf(key.Eq(num(noKey)))
	b.If(p.Ne(num(0)), func() {
		b.ReturnIf(keys.At(p).At(num(-1)).Load().Eq(key)) // not the first of its run
	})
	b.Comment("the end of the run, by bisection: keys ascend")
	low, high := b.Var(p.Add(num(1))), b.Var(n)
	b.While(func() ptx.Value { return low.Get().Lt(high) }, func(ptx.Loop) {
		middle := low.Get().Add(high.Get().Sub(low).Shr(num(1)))
		same := keys.At(middle).Load().Eq(key)
		low.Set(same.Select(middle.Add(num(1)), low.Get()))
		high.Set(same.Select(high.Get(), middle))
	})
	end := low.Get()
	column, step := b.BlockID(1).Mad(b.BlockDim(0), b.ThreadID(0)), b.GridDim(1).Mul(b.BlockDim(0))
	if s.wide {
		column, step = column.Cvt(ptx.U64), step.Cvt(ptx.U64)
	}
	b.For(column, columns, step, func(c ptx.Value, _ ptx.Loop) {
		at := coords.split(c)
		from := src.p.At(dot(b, at, src.strides, s.wide))
		to := dst.p.At(dot(b, at, dst.strides, s.wide)).At(key.Cvt(ptx.S64).Mul(dst.axis))
		load := func(q ptx.Value) ptx.Value {
			return loadVector(b, from.At(order.At(q).Load().Cvt(ptx.S64).Mul(src.axis)), s.typ, 1)[0]
		}
		if s.kind == device.ScatterSet { // the last of the run wins
			s.combineAt(b, to, load(end.Sub(num(1))))
			return
		}
		acc := b.Var(loadVector(b, to, s.typ, 1)[0])
		const ahead = 8 // loads under way together; the order of the combinations stays
		tail := p.Add(end.Sub(p).Div(num(ahead)).Mul(num(ahead)))
		b.For(p, tail, num(ahead), func(q ptx.Value, _ ptx.Loop) {
			var v [ahead]ptx.Value
			for k := range v {
				v[k] = load(q.Add(num(k)))
			}
			for _, x := range v {
				acc.Set(s.combine(acc.Get(), x))
			}
		})
		b.For(tail, end, num(1), func(q ptx.Value, _ ptx.Loop) { acc.Set(s.combine(acc.Get(), load(q))) })
		storeVector(b, to, s.typ, []ptx.Value{acc.Get()})
	})
}
