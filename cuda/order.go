package cuda

import (
	"fmt"

	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
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
	return d.launch(st, list)
}

func (d *Device) checkScan(kind device.ScanKind, out *device.View, ins []device.View) error {
	const op = "scan"
	want := 1
	if kind == device.ScanLinear {
		want = 2
	}
	if len(ins) != want || kind > device.ScanLinear {
		return &ViewError{op, "in", fmt.Sprintf("%d operands of a scan of kind %d", len(ins), kind)}
	}
	if err := d.out(op, "out", out); err != nil {
		return err
	}
	if out.Shape.Rank() != 3 {
		return &ViewError{op, "out", fmt.Sprintf("shape %v, want rank 3", out.Shape)}
	}
	for i := range ins {
		if err := d.in(op, numbered("in", i, want), &ins[i]); err != nil {
			return err
		}
		if ins[i].Shape != out.Shape || ins[i].Type != ins[0].Type {
			return mismatch(op, numbered("in", i, want), &ins[i], ins[0].Type, out.Shape)
		}
	}
	t := dtype.I64
	if ins[0].Type.IsFloat() && kind != device.ScanMax && kind != device.ScanMin {
		t = ins[0].Type
	}
	if out.Type != t || (kind == device.ScanLogSumExp || kind == device.ScanLinear) && !t.IsFloat() {
		return &ViewError{op, "out", fmt.Sprintf("of %v for operands of %v", out.Type, ins[0].Type)}
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
	if out.Shape.Rank() != 2 || x.Shape.Rank() != 2 || out.Shape.At(0) != x.Shape.At(0) || out.Shape.At(1) > x.Shape.At(1) || out.Type != dtype.I64 {
		return &ViewError{op, "out", fmt.Sprintf("%v of %v for x of shape %v", out.Shape, out.Type, x.Shape)}
	}
	t := &scratch{d: d, s: st, op: op}
	defer t.free()
	list, err := kernels.Argsort(operand(&out), operand(&x), descending, t.alloc)
	if err != nil {
		return err
	}
	return d.launch(st, list)
}
