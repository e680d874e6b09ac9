package cuda

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

var _ device.FiniteMapper = (*Device)(nil)

// MultiMap runs p on each group of views in one launch; see [device.MultiMapper].
func (d *Device) MultiMap(s device.Stream, p *expr.Program, outs, ins [][]device.View, params device.View) error {
	return d.multiMap(s, p, outs, ins, params, 0)
}

// MultiMapFinite is MultiMap that looks for infinities and NaN, in the same launch; see [device.FiniteMapper].
func (d *Device) MultiMapFinite(s device.Stream, p *expr.Program, outs, ins [][]device.View, params, found device.View) error {
	const op = "multi-map"
	if err := d.in(op, "found", &found); err != nil {
		return err
	}
	if found.Type != dtype.F32 || found.Size() != 1 {
		return &ViewError{op, "found", found.Type.String() + " of shape " + found.Shape.String() + ", want one float32"}
	}
	if len(p.In) == 0 {
		return &ViewError{op, "program", "it has no operand to look at"}
	}
	v := operand(&found)
	return d.multiMap(s, p, outs, ins, params, v.Addr+uint64(v.Offset*v.Type.Size()))
}
