package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// scatterSpec describes a scatter without sorting. Each thread handles the indices of one line
// along the axis in order. If distinct is true, no two positions have the same target, and each
// thread handles one position.
type scatterSpec struct {
	kind  device.ScatterKind
	typ   dtype.Type
	index dtype.Type
	// rank is the rank of the iteration space without the axis. If distinct is true, the space
	// includes the axis.
	rank     int
	wide     bool
	distinct bool
}

func (s scatterSpec) name() string {
	wide := ""
	if s.wide {
		wide = "w"
	}
	by := "lines"
	if s.distinct {
		by = "distinct"
	}
	return fmt.Sprintf("scatter%v%s_%v_%v_r%d%s", s.kind, by, s.typ, s.index, s.rank, wide)
}

// Scatter plans the combination of each src[i] into dst[i']. The coordinates i' are those of i,
// except that the coordinate along axis is index[i]. Contributions to one element are combined in
// the order of their positions along the axis. If there are many contributions, parts of a fixed
// size are combined in that order first, and then the results of the parts. The result therefore
// has the same bits on every run. A caller that sets distinct promises that no two positions have
// the same target. Indices outside of the axis are skipped and reported. If the positions are
// sorted by index first ([ScatterSorts]), 16-bit elements are rounded only once, at the end.
func Scatter(kind device.ScatterKind, dst, src, index Operand, axis int, distinct bool, fault uint64, tag uint32, scratch Scratch) ([]Launch, error) {
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
	if distinct {
		a.s.distinct, a.s.rank, a.sp = true, all.atLeastRank1().rank(), all.atLeastRank1()
		l, err := a.lines()
		return []Launch{l}, err
	}
	a.order = orderOf(sp, src.Shape.At(axis), dst.Shape.At(axis))
	if a.order != byLines {
		return a.sorted(scratch)
	}
	l, err := a.lines()
	return []Launch{l}, err
}

// scatterAs returns the kind and the type with which a kernel is built. All types of the same size
// share the kernels that only move bits. For Bool, the sum is the maximum of the bytes, and the
// product is the minimum.
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

// ScatterSorts reports whether [Scatter] sorts the positions. If it does, an element of 16 bits is
// rounded only once.
func ScatterSorts(dst, src, index Operand, axis int) bool {
	sp := withoutAxis(src.Shape, axis, dst.Strides, src.Strides, index.Strides)
	return orderOf(sp, src.Shape.At(axis), dst.Shape.At(axis)) != byLines
}

// scatterOrder says which positions are sorted by index, so that all positions with the same target
// become neighbours.
type scatterOrder uint8

const (
	byLines scatterOrder = iota // nothing is sorted, and a thread handles a line in order
	// all lines share one list of indices, which is sorted
	bySlices
	bySamples // each line has its own indices, which are sorted
)

// orderOf chooses the order for the iteration space sp. The third list of strides in sp is that of
// the index. Lines with the same indices are sorted (bySlices) if there are at least four lines, or
// if a single thread would take long for a line. Lines with different indices are sorted
// (bySamples) only if there are few lines, and a single thread would take long for a line. If there
// are many, one thread for each line suffices to occupy the device. The keys of the sort have 32
// bits, so nothing is sorted if the bound of the indices is too large for them.
func orderOf(sp space, count, bound int) scatterOrder {
	const long, manyLines = 64, 1 << 14
	if int64(bound) >= 1<<32-1 {
		return byLines
	}
	// shared says that all lines have the same indices. uniform says that the distance between
	// neighbouring lines of indices is constant.
	shared, uniform := true, true
	for d, st := range sp.stride[2] {
		shared = shared && st == 0
		if d > 0 {
			uniform = uniform && sp.stride[2][d-1] == st*sp.size[d]
		}
	}
	switch {
	case shared && (sp.elements() >= 4 || count >= long):
		return bySlices
	case !shared && uniform && count >= long && sp.elements() <= manyLines:
		return bySamples
	}
	return byLines
}

type scatterPlan struct {
	s               scatterSpec
	sp              space
	dst, src, index Operand
	axis            int
	fault           uint64
	tag             uint32
	order           scatterOrder
}

// axisStride returns the distance between neighbours along the axis, in row-major indices of the
// operand index.
func (a *scatterPlan) axisStride() int { return a.index.Shape.Tail(a.axis + 1).Size() }

func (a *scatterPlan) lines() (Launch, error) {
	k, err := kernelOf(a.s)
	if err != nil {
		return Launch{}, err
	}
	p := make(packer, 0, 128)
	n := a.sp.elements()
	p.index(a.s.wide, n)
	p.packCoordinates(a.sp.size, a.s.wide)
	for i, o := range []Operand{a.dst, a.src, a.index} {
		p.u64(o.start())
		p.packStrides(a.sp.stride[i], a.s.wide)
		p.u64(uint64(o.Strides.At(a.axis)))
	}
	p.u64(uint64(a.src.Shape.At(a.axis)))
	p.u64(uint64(a.dst.Shape.At(a.axis)))
	p.u64(uint64(a.axisStride()))
	p.packFault(a.fault, a.tag)
	return p.launch(k, min(ceilDiv(n, mapThreads), maxBlocks))
}

type scatterOperand struct {
	p       ptx.Ptr
	strides []ptx.Value
	axis    ptx.Value
}

func declareScattered(b *ptx.Builder, name string, t ptx.Type, rank int, wide bool) scatterOperand {
	return scatterOperand{b.Pointer(name, t), declareStrides(b, name+"s", rank, wide), b.Param(name+"a", ptx.S64)}
}

// combineScattered combines x, the element of the target in the computing type, with v.
func combineScattered(kind device.ScatterKind, x, v ptx.Value) ptx.Value {
	switch kind {
	case device.ScatterAdd:
		return x.Add(v)
	case device.ScatterProd:
		return x.Mul(v)
	case device.ScatterMax:
		return x.MaxNaN(v)
	}
	return x.MinNaN(v)
}

// combineAt combines the element at p with v.
func (s scatterSpec) combineAt(b *ptx.Builder, p ptx.Ptr, v ptx.Value) {
	if s.kind != device.ScatterSet {
		v = combineScattered(s.kind, loadVector(b, p, s.typ, 1)[0], v)
	}
	storeVector(b, p, s.typ, []ptx.Value{v})
}

func (s scatterSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	roomForRegisters(b)
	n := b.Param("n", indexType(s.wide))
	coords := declareCoordinates(b, "d", s.rank, s.wide)
	dst := declareScattered(b, "dst", storage(s.typ), s.rank, s.wide)
	src := declareScattered(b, "src", storage(s.typ), s.rank, s.wide)
	index := declareScattered(b, "index", storage(s.index), s.rank, s.wide)
	count, bound, inner := b.Param("count", ptx.S64), b.Param("bound", ptx.S64), b.Param("inner", ptx.S64)
	fault := declareFault(b)
	id, step := globalIndex(b, s.wide)
	b.For(id, n, step, func(i ptx.Value, _ ptx.Loop) {
		c := coords.split(i)
		if s.distinct {
			at := index.p.At(dot(b, c, index.strides, s.wide)).Load().Cvt(ptx.S64)
			v := loadVector(b, src.p.At(dot(b, c, src.strides, s.wide)), s.typ, 1)[0]
			b.IfElse(at.Bitcast(ptx.U64).Lt(bound.Bitcast(ptx.U64)), func() {
				s.combineAt(b, dst.p.At(dot(b, c, dst.strides, s.wide)).At(at.Mul(dst.axis)), v)
			}, func() { fault.report(b, at, bound, i.Cvt(ptx.U64).Bitcast(ptx.S64)) })
			return
		}
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
		const ahead = 4 // number of pending loads; the combinations stay in order
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
	return [3]int{mapThreads, 1, 1}
}
