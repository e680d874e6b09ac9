package cuda

import (
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
)

var (
	_ device.Scanner = (*Device)(nil)
	_ device.Sorter  = (*Device)(nil)
)

// Scan combines along dimension 1 of rank-3 views; see [device.Scanner].
func (d *Device) Scan(s device.Stream, kind device.ScanKind, out device.View, ins []device.View, reverse bool) error {
	const op = "scan"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	if err := d.checkScan(kind, &out, ins); err != nil {
		return err
	}
	t := &scratch{d: d, s: st, op: op}
	defer t.free()
	list, err := kernels.Scan(kind, operand(&out), operands(ins), reverse, t.alloc)
	if err != nil {
		return err
	}
	if tr := device.Tracing(); tr != nil {
		return d.launchAs(tr, "scan-"+kind.String(), st, list, device.ScanWork(kind, out, ins), out.Type, []device.View{out}, ins)
	}
	return d.launch(st, list)
}

func (d *Device) checkScan(kind device.ScanKind, out *device.View, ins []device.View) error {
	const op = "scan"
	if err := d.out(op, "out", out); err != nil {
		return err
	}
	for i := range ins {
		if err := d.in(op, numbered("in", i, len(ins)), &ins[i]); err != nil {
			return err
		}
	}
	if arg, why := device.CheckScan(kind, out, ins); why != "" {
		return &ViewError{op, arg, why}
	}
	return nil
}

// Argsort sets each row of out to the positions of the first elements of that row of x in order; see [device.Sorter].
func (d *Device) Argsort(s device.Stream, out, x device.View, descending bool) error {
	const op = "argsort"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	if err := d.out(op, "out", &out); err != nil {
		return err
	}
	if err := d.in(op, "x", &x); err != nil {
		return err
	}
	if arg, why := device.CheckArgsort(&out, &x); why != "" {
		return &ViewError{op, arg, why}
	}
	t := &scratch{d: d, s: st, op: op}
	defer t.free()
	list, err := kernels.Argsort(operand(&out), operand(&x), descending, t.alloc)
	if err != nil {
		return err
	}
	if tr := device.Tracing(); tr != nil {
		return d.launchAs(tr, op, st, list, device.ArgsortWork(out, x), x.Type, []device.View{out, x})
	}
	return d.launch(st, list)
}
