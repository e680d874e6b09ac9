package kernels

import (
	"encoding/binary"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// multiChunk is the number of elements that a block of a MultiMap computes.
const multiChunk = 8192

// oneBits holds the bits of 1 as a float32.
const oneBits = 0x3f800000

// multiSpec describes a kernel that runs one program over many groups of tensors.
type multiSpec struct {
	program programID
	finite  bool // whether the kernel also looks for infinities and NaN
}

func (s multiSpec) name() string {
	if s.finite {
		return "multimap_finite_" + s.program.name
	}
	return "multimap_" + s.program.name
}

// MultiMapTable returns the table in which the kernel of [MultiMap] finds its tensors, and the
// number of blocks. The table has to lie in device memory, aligned to 8 bytes. For a given program
// the table depends only on addresses and sizes. So a caller can use it in several steps.
//
// The table begins with two words (64-bit, little-endian) for each block. The first word is the
// offset of its group's record in the table, counted in words. The second word is the index of
// the first element that the block computes. After these words, the table has a record for each
// group: the number of elements, whether all addresses allow vectors, and the addresses, first of
// the outputs and then of the inputs.
func MultiMapTable(p *expr.Program, outs, ins [][]Operand) (table []byte, blocks int, err error) {
	const op = "multimap"
	if len(outs) != len(ins) {
		return nil, 0, fail(op, "%d groups of outputs, %d of inputs", len(outs), len(ins))
	}
	v := multiVector(p)
	var records []uint64
	type block struct{ record, first int }
	var list []block
	for g := range outs {
		all := append(append([]Operand(nil), outs[g]...), ins[g]...)
		if len(outs[g]) != len(p.Out) || len(ins[g]) != len(p.In) {
			return nil, 0, fail(op, "group %d has %d outputs and %d inputs, the program %d and %d", g, len(outs[g]), len(ins[g]), len(p.Out), len(p.In))
		}
		n := all[0].Shape.Size()
		vectors := uint64(1)
		for k, o := range all {
			if !o.Contiguous() || o.Shape.Size() != n || o.Type != programType(p, k) {
				return nil, 0, fail(op, "group %d, operand %d is %v %v with strides %v: contiguous %v of %d elements is wanted", g, k, o.Type, o.Shape, o.Strides, programType(p, k), n)
			}
			if o.start()%uint64(vectorBytes(o.Type, v)) != 0 {
				vectors = 0
			}
		}
		record := len(records)
		records = append(records, uint64(n), vectors)
		for _, o := range all {
			records = append(records, o.start())
		}
		for first := 0; first < n; first += multiChunk {
			list = append(list, block{record, first})
		}
	}
	for _, b := range list {
		table = binary.LittleEndian.AppendUint64(table, uint64(2*len(list)+b.record))
		table = binary.LittleEndian.AppendUint64(table, uint64(b.first))
	}
	for _, w := range records {
		table = binary.LittleEndian.AppendUint64(table, w)
	}
	return table, len(list), nil
}

// multiVector returns the number of elements of one vector access of a thread.
func multiVector(p *expr.Program) int {
	if p.Cost() > 400 {
		return 1
	}
	list := make([]Operand, len(p.Out)+len(p.In))
	for k := range list {
		list[k].Type = programType(p, k)
	}
	return vectorLength(list)
}

// MultiMap plans the program over the groups of a table that [MultiMapTable] made and the caller
// copied to the device. The operand params has the bits of the program's scalars in device memory,
// 8 bytes each. The operand nonFinite may be absent (of type Invalid). Otherwise it is a float32 of
// 0 or 1, and becomes 1 if an element of any group's first input is infinite or NaN.
func MultiMap(p *expr.Program, table uint64, blocks int, params, nonFinite Operand) ([]Launch, error) {
	if blocks == 0 {
		return nil, nil
	}
	finite := nonFinite.Type != dtype.Invalid
	k, err := kernelOf(multiSpec{programIDOf(p), finite}, p)
	if err != nil {
		return nil, err
	}
	a := make(packer, 0, 128)
	a.u64(table)
	a.u64(params.start())
	if finite {
		a.u64(nonFinite.start())
	}
	l, err := a.launch(k, blocks)
	return []Launch{l}, err
}

func (s multiSpec) build(b *ptx.Builder, programs []*expr.Program) [3]int {
	p := programs[0]
	table, slots := b.Pointer("table", ptx.U64), b.Pointer("params", ptx.U64)
	var found ptx.Ptr
	if s.finite {
		found = b.Pointer("found", ptx.U32)
	}
	mine := table.At(b.BlockID(0).Shl(num(1))).LoadVec(2)
	first := mine[1]
	record := table.At(mine[0])
	n := record.Load()
	count := n.Sub(first).Min(num(multiChunk)).Cvt(ptx.U32)
	m := &mapBuilder{Builder: b, s: mapSpec{vector: multiVector(p), dense: true}, p: p}
	var bad *ptx.Var
	if s.finite {
		bad = b.Var(b.U32(0))
		m.inspect = func(x ptx.Value) { // x - x is NaN if x is infinite or NaN, otherwise 0
			bad.Set(bad.Get().Or(x.Sub(x).IsNaN().Select(b.U32(oneBits), b.U32(0))))
		}
	}
	for k := range len(p.Out) + len(p.In) {
		m.base = append(m.base, b.GlobalPtr(record.At(num(2+k)).Load(), storage(programType(p, k))).At(first))
	}
	for i, t := range p.Params {
		var v ptx.Value
		switch slot := slots.At(num(i)); {
		case t == dtype.Invalid:
		case t == dtype.Bool:
			v = slot.As(ptx.U32).Load().Ne(num(0))
		default:
			v = slot.As(computing(t.Compute())).Load()
		}
		m.params = append(m.params, v)
	}
	run := func(start, end ptx.Value, v int) {
		count := 1
		if v > 1 {
			count = m.s.vectorsInFlight(p)
		}
		m.stride(start, end, b.U32(mapThreads), count, func(i ptx.Value) (func() [][]ptx.Value, func([][]ptx.Value)) {
			element := i
			if v > 1 {
				element = i.Mul(num(v))
			}
			at := func(k int) ptx.Ptr { return m.base[k].At(element) }
			return func() [][]ptx.Value { return m.load(v, at, nil) }, func(in [][]ptx.Value) { m.compute(first.Add(element.Cvt(ptx.U64)), v, at, in) }
		})
	}
	v := m.s.vector
	done := b.Var(b.U32(0))
	if v > 1 {
		b.If(record.At(num(1)).Load().Ne(num(0)), func() {
			b.Comment("vectors of %d", v)
			vectors := count.Div(num(v))
			run(b.ThreadID(0), vectors, v)
			done.Set(vectors.Mul(num(v)))
		})
	}
	b.Comment("the rest, one by one")
	run(done.Get().Add(b.ThreadID(0)), count, 1)
	if s.finite {
		b.If(bad.Get().Ne(num(0)), func() { found.Reduce(ptx.AtomicOr, bad.Get()) })
	}
	return [3]int{mapThreads, 1, 1}
}
