package cuda

import (
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
	if t := device.Tracing(); t != nil {
		return d.launchAs(t, op, st, list, device.GatherWork(out, index), out.Type, []device.View{out, src, index})
	}
	return d.launch(st, list)
}

// Scatter combines src[i…] into dst[i… with index[i…] along axis], in the order of the positions; see [device.Device].
// Positions whose index is outside the axis are left out, and come out of the next wait for s.
func (d *Device) Scatter(s device.Stream, kind device.ScatterKind, dst, src, index device.View, axis int, tag uint32) error {
	op := "scatter-" + kind.String()
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
	if index.Size() == 0 {
		return nil
	}
	t := &scratch{d: d, s: st, op: op}
	defer t.free()
	to, from, ix := operand(&dst), operand(&src), operand(&index)
	plan := func(to, from kernels.Operand) ([]kernels.Launch, error) {
		return kernels.Scatter(kind, to, from, ix, axis, d.index.record(st.slot), tag, t.alloc)
	}
	var list []kernels.Launch
	if rounds := kind == device.ScatterAdd || kind == device.ScatterProd; rounds && dst.Type.IsHalf() && !kernels.ScattersSlices(to, from, ix, axis) {
		list, err = t.scatterWide(to, from, plan)
	} else {
		list, err = plan(to, from)
	}
	if err != nil {
		return err
	}
	if tr := device.Tracing(); tr != nil {
		return d.launchAs(tr, op, st, list, device.ScatterWork(kind, dst, src, index), dst.Type, []device.View{dst, src, index})
	}
	return d.launch(st, list)
}

// scatterWide plans a scatter of 16-bit floats in float32 copies, so that the result is rounded once.
func (t *scratch) scatterWide(dst, src kernels.Operand, plan func(dst, src kernels.Operand) ([]kernels.Launch, error)) ([]kernels.Launch, error) {
	var list []kernels.Launch
	cast := func(to, from kernels.Operand) error {
		p, err := expr.Lower([]*expr.Expr{expr.X(0)}, []dtype.Type{to.Type}, []dtype.Type{from.Type}, -1)
		if err != nil {
			return err
		}
		l, err := kernels.Map(p, []kernels.Operand{to}, []kernels.Operand{from}, nil)
		list = append(list, l...)
		return err
	}
	wide := [2]kernels.Operand{}
	for i, o := range []kernels.Operand{dst, src} {
		var err error
		if wide[i], err = t.temporary(dtype.F32, o.Shape); err != nil {
			return nil, err
		}
		if err = cast(wide[i], o); err != nil {
			return nil, err
		}
	}
	l, err := plan(wide[0], wide[1])
	if err != nil {
		return nil, err
	}
	list = append(list, l...)
	return list, cast(dst, wide[0])
}

// checkIndexed checks what is common to Gather (dense is out, table is src) and Scatter (dense is src, table is dst).
func (d *Device) checkIndexed(op, denseName string, dense *device.View, tableName string, table, index *device.View, axis int) error {
	if err := d.in(op, "index", index); err != nil {
		return err
	}
	if arg, why := device.CheckIndexed(denseName, dense, tableName, table, index, axis); why != "" {
		return &ViewError{op, arg, why}
	}
	return nil
}

// The kernels count truth values as int32, which is exact up to 2³¹-1 terms.
var (
	countTrue = expr.MustLower([]*expr.Expr{expr.X(0).Cvt(dtype.I32)}, []dtype.Type{dtype.I32}, []dtype.Type{dtype.Bool}, -1)
	anyTrue   = expr.MustLower([]*expr.Expr{expr.X(0).Ne(expr.C(0))}, []dtype.Type{dtype.Bool}, []dtype.Type{dtype.I32}, -1)
)

// temporary is scratch memory for elements of that type and shape.
func (t *scratch) temporary(typ dtype.Type, s shape.Dims) (kernels.Operand, error) {
	addr, err := t.alloc(s.Size() * typ.Size())
	return kernels.Operand{Addr: addr, Type: typ, Layout: shape.Dense(s)}, err
}

// counted plans the conversion of truth values to int32 in scratch memory.
func (t *scratch) counted(o kernels.Operand) (kernels.Operand, []kernels.Launch, error) {
	i, err := t.temporary(dtype.I32, o.Shape)
	if err != nil {
		return i, nil, err
	}
	l, err := kernels.Map(countTrue, []kernels.Operand{i}, []kernels.Operand{o}, nil)
	return i, l, err
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
	sum, err := t.temporary(dtype.I32, out.Shape)
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
