package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
)

// gatherSpec describes a kernel that picks elements along an axis by index. The kernel does not
// interpret the bits of elements, so all types of the same size share it.
type gatherSpec struct {
	size   int // size of an element in bytes
	index  dtype.Type
	rank   int
	vector int // number of elements that have the same index and are moved together
	wide   bool
}

func (s gatherSpec) name() string {
	wide := ""
	if s.wide {
		wide = "w"
	}
	return fmt.Sprintf("gather_b%d_%v_r%d_v%d%s", 8*s.size, s.index, s.rank, s.vector, wide)
}

// Gather plans out[i] = src[i'] for each position i. The coordinates i' are those of i, except that
// the coordinate along axis is index[i]. out and index (I64 or I32) have the same shape. For an
// index outside of the axis it stores 0, and reports the index in the fault record with tag.
func Gather(out, src, index Operand, axis int, fault uint64, tag uint32) ([]Launch, error) {
	const op = "gather"
	if err := checkIndexed(op, out, src, index, axis); err != nil || out.Shape.Size() == 0 {
		return nil, err
	}
	// The kernel adds the index times the stride of the axis, so the stride along the axis is set
	// to 0 here.
	fixed := src.Strides.With(axis, 0)
	sp := newSpace(out.Shape, out.Strides, fixed, index.Strides).atLeastRank1()
	size := out.Type.Size()
	s := gatherSpec{size: size, index: index.Type, rank: sp.rank(), vector: 1}
	axisStride := src.Strides.At(axis)
	reach := (src.Shape.At(axis) - 1) * max(axisStride, -axisStride)
	s.wide = sp.wide() || reach > narrowLimit
	inner := sp.size[s.rank-1]
	if v := 16 / size; v > 1 && inner%v == 0 && sp.innerStride(0) == 1 && sp.innerStride(1) == 1 && sp.innerStride(2) == 0 &&
		axisStride%v == 0 && aligned([]Operand{out, src}, sp, mapSpec{}, v) {
		s.vector = v
	}
	k, err := kernelOf(s)
	if err != nil {
		return nil, err
	}
	n := sp.elements() / s.vector
	sp.countVectors(s.vector)
	p := make(packer, 0, 128)
	p.index(s.wide, n)
	p.packCoordinates(sp.size, s.wide)
	for i, o := range []Operand{out, src, index} {
		p.u64(o.start())
		p.packStrides(sp.stride[i], s.wide)
	}
	p.u64(uint64(src.Shape.At(axis)))
	p.u64(uint64(axisStride))
	p.packFault(fault, tag)
	l, err := p.launch(k, min(ceilDiv(n, mapThreads), maxBlocks))
	return []Launch{l}, err
}

// checkIndexed checks the operands of gather and scatter. The operand a must have the shape of the
// index. The operand b is indexed along axis.
func checkIndexed(op string, a, b, index Operand, axis int) error {
	rank := index.Shape.Rank()
	if a.Shape != index.Shape || b.Shape.Rank() != rank || axis < 0 || axis >= rank {
		return fail(op, "shapes %v, %v and index %v along axis %d do not fit", a.Shape, b.Shape, index.Shape, axis)
	}
	for d := range rank {
		if d != axis && b.Shape.At(d) < index.Shape.At(d) {
			return fail(op, "shape %v is smaller than index %v in dimension %d", b.Shape, index.Shape, d)
		}
	}
	if a.Type != b.Type || index.Type != dtype.I64 && index.Type != dtype.I32 {
		return fail(op, "types %v, %v with index %v: equal types and an int64 or int32 index are wanted", a.Type, b.Type, index.Type)
	}
	return nil
}

// bitsOf returns the PTX type with which elements of the given size are moved.
func bitsOf(size int) ptx.Type {
	switch size {
	case 1:
		return ptx.U8
	case 2:
		return ptx.U16
	case 4:
		return ptx.U32
	}
	return ptx.U64
}

func (s gatherSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	t := bitsOf(s.size)
	n := b.Param("n", indexType(s.wide))
	coords := declareCoordinates(b, "d", s.rank, s.wide)
	operand := func(name string, t ptx.Type) (ptx.Ptr, []ptx.Value) {
		return b.Pointer(name, t), declareStrides(b, name+"s", s.rank, s.wide)
	}
	out, outStrides := operand("out", t)
	src, srcStrides := operand("src", t)
	index, indexStrides := operand("index", storage(s.index))
	bound, axisStride := b.Param("bound", ptx.S64), b.Param("axis", ptx.S64)
	fault := declareFault(b)
	id, step := globalIndex(b, s.wide)
	b.For(id, n, step, func(i ptx.Value, _ ptx.Loop) {
		c := coords.split(i)
		at := index.At(dot(b, c, indexStrides, s.wide)).Load().Cvt(ptx.S64)
		to := out.At(dot(b, c, outStrides, s.wide))
		b.IfElse(at.Bitcast(ptx.U64).Lt(bound.Bitcast(ptx.U64)), func() {
			from := src.At(dot(b, c, srcStrides, s.wide)).At(at.Mul(axisStride))
			s.move(to, func() []ptx.Value { return s.load(from) })
		}, func() {
			fault.report(b, at, bound, i.Cvt(ptx.U64).Mul(num(s.vector)).Bitcast(ptx.S64))
			s.move(to, func() []ptx.Value { return s.zeros(b) })
		})
	})
	return [3]int{mapThreads, 1, 1}
}

// load reads one element, or 16 bytes of elements as a vector.
func (s gatherSpec) load(p ptx.Ptr) []ptx.Value {
	if s.vector == 1 {
		return []ptx.Value{p.Load()}
	}
	return p.As(ptx.B32).LoadVec(4)
}

func (s gatherSpec) zeros(b *ptx.Builder) []ptx.Value {
	if s.vector == 1 {
		return []ptx.Value{b.Const(bitsOf(max(s.size, 2)), num(0)).Cvt(bitsOf(s.size))}
	}
	return repeat(b.Bits(ptx.B32, 0), 4)
}

func (s gatherSpec) move(to ptx.Ptr, from func() []ptx.Value) {
	if v := from(); s.vector == 1 {
		to.Store(v[0])
	} else {
		to.As(ptx.B32).StoreVec(v...)
	}
}

// withoutAxis returns the iteration space over all dimensions except axis, with the given strides
// of the operands.
func withoutAxis(dims shape.Dims, axis int, strides ...shape.Dims) space {
	list := make([]shape.Dims, len(strides))
	for i, s := range strides {
		list[i] = s.Remove(axis)
	}
	return newSpace(dims.Remove(axis), list...).atLeastRank1()
}
