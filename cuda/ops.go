package cuda

import (
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// Map computes outs[k] = p(ins…) element by element; see [device.Device].
func (d *Device) Map(s device.Stream, p *expr.Program, outs, ins []device.View, params []uint64) error {
	const op = "map"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	if err := d.checkMap(op, p, outs, ins); err != nil {
		return err
	}
	if err := checkParams(op, p, len(params)); err != nil || len(outs) == 0 {
		return err
	}
	list, err := kernels.Map(p, operands(outs), operands(ins), params)
	if err != nil {
		return err
	}
	if t := device.Tracing(); t != nil {
		return d.launchAs(t, op, st, list, device.MapWork(p, outs, ins), outs[0].Type, outs, ins)
	}
	return d.launch(st, list)
}

// Reduce combines r.Map(ins…) over the dimensions in which out has size 1 and ins do not; see [device.Device].
func (d *Device) Reduce(s device.Stream, r *device.Reduction, out device.View, ins []device.View, params []uint64) error {
	const op = "reduce"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	if err := d.checkReduce(r, &out, ins, params); err != nil {
		return err
	}
	t := &scratch{d: d, s: st, op: op}
	defer t.free()
	list, err := kernels.Reduce(r, operand(&out), operands(ins), params, t.alloc)
	if err != nil {
		return err
	}
	if tr := device.Tracing(); tr != nil {
		return d.launchAs(tr, op, st, list, device.ReduceWork(r, out, ins), out.Type, []device.View{out}, ins)
	}
	return d.launch(st, list)
}

// MatMul computes out[b] = a[b]·b[b]; see [device.Device]. Of Bool it is the product over "or" and "and".
func (d *Device) MatMul(s device.Stream, out, a, b device.View) error {
	const op = "matmul"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	if err := d.checkMatMul(&out, &a, &b); err != nil {
		return err
	}
	t := &scratch{d: d, s: st, op: op}
	defer t.free()
	var list []kernels.Launch
	if out.Type == dtype.Bool {
		list, err = t.product(operand(&out), operand(&a), operand(&b))
	} else {
		list, err = kernels.MatMulSplit(operand(&out), operand(&a), operand(&b), t.alloc)
	}
	if err != nil {
		return err
	}
	if tr := device.Tracing(); tr != nil {
		return d.launchAs(tr, op, st, list, device.MatMulWork(out, a, b), out.Type, []device.View{out, a, b})
	}
	return d.launch(st, list)
}
