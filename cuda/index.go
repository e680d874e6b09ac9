package cuda

import (
	"fmt"

	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// Gather sets out[i…] = src[i… with index[i…] along axis]; see [device.Device]. An index outside the axis comes out of the
// next wait for s.
func (d *Device) Gather(s device.Stream, out, src, index device.View, axis int, tag uint32) error {
	const op = "gather"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	if err := d.out(op, "out", &out); err != nil {
		return err
	}
	if err := d.in(op, "src", &src); err != nil {
		return err
	}
	if err := d.checkIndexed(op, "out", &out, "src", &src, &index, axis); err != nil {
		return err
	}
	list, err := kernels.Gather(operand(&out), operand(&src), operand(&index), axis, d.index.record(st.slot), tag)
	if err != nil {
		return err
	}
	return d.launch(st, list)
}

// ScatterAdd adds src[i…] to dst[i… with index[i…] along axis], in the order of the positions; see [device.Device]. The sum
// of truth values is "or". Positions whose index is outside the axis are left out, and come out of the next wait for s.
func (d *Device) ScatterAdd(s device.Stream, dst, src, index device.View, axis int, tag uint32) error {
	const op = "scatter-add"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	if err := d.out(op, "dst", &dst); err != nil {
		return err
	}
	if err := d.in(op, "src", &src); err != nil {
		return err
	}
	if err := d.checkIndexed(op, "src", &src, "dst", &dst, &index, axis); err != nil {
		return err
	}
	t := &scratch{d: d, s: st, op: op}
	defer t.free()
	add := func(dst, src kernels.Operand) ([]kernels.Launch, error) {
		return kernels.ScatterAdd(dst, src, operand(&index), axis, d.index.record(st.slot), tag, t.alloc)
	}
	var list []kernels.Launch
	if dst.Type == dtype.Bool {
		list, err = t.scatterOr(operand(&dst), operand(&src), add)
	} else {
		list, err = add(operand(&dst), operand(&src))
	}
	if err != nil {
		return err
	}
	return d.launch(st, list)
}

// checkIndexed checks what is common to Gather (dense is out, table is src) and ScatterAdd (dense is src, table is dst).
func (d *Device) checkIndexed(op, denseName string, dense *device.View, tableName string, table, index *device.View, axis int) error {
	if err := d.in(op, "index", index); err != nil {
		return err
	}
	switch {
	case index.Type != dtype.I64 && index.Type != dtype.I32:
		return &ViewError{op, "index", fmt.Sprintf("of %v, want int64 or int32", index.Type)}
	case dense.Type != table.Type:
		return &ViewError{op, denseName, fmt.Sprintf("%v, but %s is %v", dense.Type, tableName, table.Type)}
	case dense.Shape != index.Shape:
		return &ViewError{op, "index", fmt.Sprintf("shape %v, but %s has %v", index.Shape, denseName, dense.Shape)}
	case table.Shape.Rank() != index.Shape.Rank() || axis < 0 || axis >= table.Shape.Rank():
		return &ViewError{op, "axis", fmt.Sprintf("%d for shapes %v and %v", axis, table.Shape, index.Shape)}
	}
	for k := range table.Shape.Rank() {
		if k != axis && index.Shape.At(k) > table.Shape.At(k) {
			return &ViewError{op, "index", fmt.Sprintf("shape %v is larger than %v in dimension %d", index.Shape, table.Shape, k)}
		}
	}
	return nil
}

// The kernels count truth values as int32, which is exact up to 2³¹-1 terms.
var (
	countTrue = expr.MustLower([]*expr.Expr{expr.X(0).Cvt(dtype.I32)}, []dtype.Type{dtype.I32}, []dtype.Type{dtype.Bool}, -1)
	anyTrue   = expr.MustLower([]*expr.Expr{expr.X(0).Ne(expr.C(0))}, []dtype.Type{dtype.Bool}, []dtype.Type{dtype.I32}, -1)
)

// integers is scratch memory for int32 of that shape.
func (t *scratch) integers(s shape.Dims) (kernels.Operand, error) {
	addr, err := t.alloc(s.Size() * dtype.I32.Size())
	return kernels.Operand{Addr: addr, Type: dtype.I32, Layout: shape.Dense(s)}, err
}

// counted plans the conversion of truth values to int32 in scratch memory.
func (t *scratch) counted(o kernels.Operand) (kernels.Operand, []kernels.Launch, error) {
	i, err := t.integers(o.Shape)
	if err != nil {
		return i, nil, err
	}
	l, err := kernels.Map(countTrue, []kernels.Operand{i}, []kernels.Operand{o}, nil)
	return i, l, err
}

// scatterOr plans a scatter-add of truth values.
func (t *scratch) scatterOr(dst, src kernels.Operand, add func(dst, src kernels.Operand) ([]kernels.Launch, error)) ([]kernels.Launch, error) {
	id, list, err := t.counted(dst)
	if err != nil {
		return nil, err
	}
	is, l, err := t.counted(src)
	if err != nil {
		return nil, err
	}
	list = append(list, l...)
	if l, err = add(id, is); err != nil {
		return nil, err
	}
	list = append(list, l...)
	l, err = kernels.Map(anyTrue, []kernels.Operand{dst}, []kernels.Operand{id}, nil)
	return append(list, l...), err
}

// product plans a matrix product of truth values over "or" and "and".
func (t *scratch) product(out, a, b kernels.Operand) ([]kernels.Launch, error) {
	ia, list, err := t.counted(a)
	if err != nil {
		return nil, err
	}
	ib, l, err := t.counted(b)
	if err != nil {
		return nil, err
	}
	list = append(list, l...)
	sum, err := t.integers(out.Shape)
	if err != nil {
		return nil, err
	}
	if l, err = kernels.MatMul(sum, ia, ib); err != nil {
		return nil, err
	}
	list = append(list, l...)
	l, err = kernels.Map(anyTrue, []kernels.Operand{out}, []kernels.Operand{sum}, nil)
	return append(list, l...), err
}
