package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// searchSpec describes a kernel in which a thread finds a value's index in a sorted row by
// bisection.
type searchSpec struct {
	typ   dtype.Type
	right bool
}

func (s searchSpec) name() string {
	name := fmt.Sprintf("search_%v", s.typ)
	if s.right {
		name += "_right"
	}
	return name
}

// Search plans a search in sorted rows, as [device.Search] defines it. For each value it stores how
// many elements of the row come before the value.
func Search(out, sorted, values Operand, right bool) ([]Launch, error) {
	rows, m, n := values.Shape.At(0), values.Shape.At(1), sorted.Shape.At(1)
	if rows == 0 || m == 0 {
		return nil, nil
	}
	if rows > 1<<31-1 || m > 1<<31-1 || n > 1<<31-1 {
		return nil, fail("search", "%d rows of %d in which %d are looked up exceed 2³¹", rows, n, m)
	}
	if sorted.Type == dtype.Bool { // as bytes, false and true are 0 and 1, which have the same order
		sorted.Type, values.Type = dtype.U8, dtype.U8
	}
	k, err := kernelOf(searchSpec{typ: sorted.Type, right: right})
	if err != nil {
		return nil, err
	}
	p := make(packer, 0, 128)
	p.u64(uint64(rows * m))
	p.u32(uint32(m))
	p.u32(uint32(n))
	p.packRows(out, false)
	p.packRows(sorted, false)
	p.packRows(values, false)
	l, err := p.launch(k, min(ceilDiv(rows*m, mapThreads), maxBlocks))
	return []Launch{l}, err
}

func (s searchSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	count, m, n := b.Param("count", ptx.U64), b.Param("m", ptx.U32), b.Param("n", ptx.U32)
	out, sorted := declareRows(b, "y", dtype.I64, false), declareRows(b, "x", s.typ, false)
	values := declareRows(b, "v", s.typ, false)
	id, step := globalIndex(b, true)
	b.For(id, count, step, func(i ptx.Value, _ ptx.Loop) {
		row := i.Div(m.Cvt(ptx.U64))
		column := i.Sub(row.Mul(m.Cvt(ptx.U64)))
		v := values.atRow(row).load(b, column)
		x := sorted.atRow(row)
		low, high := b.Var(b.U32(0)), b.Var(n)
		if s.typ.IsFloat() {
			low.Set(v.IsNaN().Select(n, num(0)))
		}
		b.While(func() ptx.Value { return low.Get().Lt(high) }, func(ptx.Loop) {
			middle := low.Get().Add(high.Get().Sub(low.Get()).Shr(num(1)))
			e := x.load(b, middle)
			before := e.Lt(v)
			if s.right {
				before = e.Le(v)
			}
			low.Set(before.Select(middle.Add(num(1)), low.Get()))
			high.Set(before.Select(high.Get(), middle))
		})
		out.atRow(row).store(b, column, low.Get().Cvt(ptx.S64))
	})
	return [3]int{mapThreads, 1, 1}
}
