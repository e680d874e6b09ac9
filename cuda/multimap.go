package cuda

import (
	"fmt"

	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
)

// multiMap runs p on each group of views in one launch; see [device.MultiMapper], and with the address of found [device.FiniteMapper]. The
// addresses of the groups go to the device in one small copy.
func (d *Device) multiMap(s device.Stream, p *expr.Program, outs, ins [][]device.View, params device.View, found uint64) error {
	const op = "multi-map"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	if err := d.checkMulti(op, p, outs, ins, &params); err != nil {
		return err
	}
	group := func(list [][]device.View) [][]kernels.Operand {
		o := make([][]kernels.Operand, len(list))
		for k := range list {
			o[k] = operands(list[k])
		}
		return o
	}
	table, blocks, err := kernels.MultiMapTable(p, group(outs), group(ins))
	if err != nil || blocks == 0 {
		return err
	}
	t := &scratch{d: d, s: st, op: op}
	defer t.free()
	at, err := t.alloc(len(table))
	if err != nil {
		return err
	}
	if tr := device.Tracing(); tr != nil {
		err = d.tracedCopy(tr, st, device.CopyEvent{Kind: device.HostToDevice, Op: "table of multi-map", Bytes: len(table), Blocked: true},
			func() error { return d.send(st, at, table) })
	} else {
		err = d.send(st, at, table)
	}
	if err != nil {
		return err
	}
	v := operand(&params)
	list, err := kernels.MultiMapFinite(p, at, blocks, v.Addr+uint64(v.Offset*v.Type.Size()), found)
	if err != nil {
		return err
	}
	if tr := device.Tracing(); tr != nil {
		return d.launchAs(tr, op, st, list, device.MultiMapWork(p, outs, ins, params), p.Out[0], outs...)
	}
	return d.launch(st, list)
}

func (d *Device) checkMulti(op string, p *expr.Program, outs, ins [][]device.View, params *device.View) error {
	if len(outs) != len(ins) {
		return &ViewError{op, "outs", fmt.Sprintf("%d groups, but %d groups of operands", len(outs), len(ins))}
	}
	if err := d.in(op, "params", params); err != nil {
		return err
	}
	if params.Type.Size() != 8 || !params.Contiguous() || params.Size() < len(p.Params) {
		return &ViewError{op, "params", fmt.Sprintf("%v of %v, want at least %d contiguous slots of 8 bytes", params.Shape, params.Type, len(p.Params))}
	}
	for k := range outs {
		if err := d.checkMap(fmt.Sprintf("%s, group %d", op, k), p, outs[k], ins[k]); err != nil {
			return err
		}
		for _, list := range [][]device.View{outs[k], ins[k]} {
			for i := range list {
				if !list[i].Contiguous() {
					return &ViewError{fmt.Sprintf("%s, group %d", op, k), "view", fmt.Sprintf("strides %v of shape %v, want contiguous views", list[i].Strides, list[i].Shape)}
				}
			}
		}
	}
	return nil
}
