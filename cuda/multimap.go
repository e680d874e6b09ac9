package cuda

import (
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
)

var _ device.Preparer = (*Device)(nil)

// multiMap plans one launch for all groups of operands. A small upload first stores the groups'
// addresses on the device.
func (t *scratch) multiMap(o *device.MultiMap) ([]kernels.Launch, error) {
	table, blocks, err := kernels.MultiMapTable(o.Program, groups(o.Outs), groups(o.Ins))
	if err != nil || blocks == 0 {
		return nil, err
	}
	at, err := t.alloc(len(table))
	if err != nil {
		return nil, err
	}
	send := func() error { return t.d.send(t.s, at, table) }
	if tr := device.Tracing(); tr != nil {
		err = t.d.tracedCopy(tr, t.s, device.CopyEvent{Kind: device.HostToDevice, Op: "table of multi-map", Bytes: len(table), Blocked: true, Own: true}, send)
	} else {
		err = send()
	}
	if err != nil {
		return nil, err
	}
	return kernels.MultiMap(o.Program, at, blocks, operand(&o.Params), operand(&o.Found))
}

func groups(list [][]device.View) [][]kernels.Operand {
	o := make([][]kernels.Operand, len(list))
	for k := range list {
		o[k] = operands(list[k])
	}
	return o
}

// Prepare loads the kernel of a MultiMap in advance ([device.Preparer]). This kernel depends only
// on the program and on whether Found is absent. Kernels of other ops also depend on the alignment
// of the operands' addresses, so they are loaded at their first launch.
func (d *Device) Prepare(op device.Op) error {
	o, ok := op.(*device.MultiMap)
	if !ok {
		return nil
	}
	list, err := kernels.MultiMap(o.Program, 0, 1, kernels.Operand{}, kernels.Operand{Type: o.Found.Type})
	if err != nil {
		return err
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	_, err = d.function(list[0].Kernel)
	return err
}
