package cpu

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// A ViewError is an operand that a primitive cannot take. Nothing has been read or written.
type ViewError struct {
	Op     string // the primitive: "map", "matmul"
	Arg    string // the operand: "out", "in 1"
	Reason string
}

func (e *ViewError) Error() string { return fmt.Sprintf("cpu: %s: %s: %s", e.Op, e.Arg, e.Reason) }

// checkView makes sure that every element of v lies in memory of this device. Everything below relies on it.
func (d *Device) checkView(op string, v *device.View) string {
	b, ok := v.Buf.(*buffer)
	switch {
	case !ok || b == nil:
		return "not a buffer of the CPU"
	case b.dev != d:
		return "the buffer belongs to another device"
	case b.freed.Load():
		return "the buffer has been freed"
	case v.Type.Size() == 0:
		return "of type " + v.Type.String()
	case v.Shape.Rank() != v.Strides.Rank():
		return fmt.Sprintf("shape %v and strides %v differ in length", v.Shape, v.Strides)
	}
	for i := range v.Shape.Rank() {
		if v.Shape.At(i) < 0 {
			return fmt.Sprintf("shape %v is negative", v.Shape)
		}
	}
	if lo, hi, some := v.Span(); some && (lo < 0 || (hi+1)*v.Type.Size() > len(b.mem)) {
		return fmt.Sprintf("elements %d to %d of %v do not lie in a buffer of %d bytes", lo, hi, v.Type, len(b.mem))
	}
	return ""
}

func (d *Device) checkOut(op string, arg string, v *device.View) error {
	if why := d.checkView(op, v); why != "" {
		return &ViewError{op, arg, why}
	}
	if !v.Contiguous() && v.Overlaps() {
		return &ViewError{op, arg, fmt.Sprintf("strides %v of shape %v let elements share memory", v.Strides, v.Shape)}
	}
	return nil
}

func (d *Device) checkIn(op string, arg string, v *device.View) error {
	if why := d.checkView(op, v); why != "" {
		return &ViewError{op, arg, why}
	}
	return nil
}

func (d *Device) checkMap(op string, p *expr.Program, outs, ins []device.View, params []uint64) error {
	if len(outs) != len(p.Out) {
		return &ViewError{op, "out", fmt.Sprintf("%d views for %d results", len(outs), len(p.Out))}
	}
	var s shape.Dims
	if len(outs) > 0 {
		s = outs[0].Shape
	}
	for i := range outs {
		if err := d.checkOut(op, "out", &outs[i]); err != nil {
			return d.checkOut(op, numbered("out", i, len(outs)), &outs[i]) // now with its number, which takes time to write
		}
		if outs[i].Type != p.Out[i] || outs[i].Shape != s {
			return mismatch(op, numbered("out", i, len(outs)), &outs[i], p.Out[i], s)
		}
	}
	return d.checkOperands(op, p, s, ins, params)
}

func (d *Device) checkOperands(op string, p *expr.Program, s shape.Dims, ins []device.View, params []uint64) error {
	if len(ins) != len(p.In) {
		return &ViewError{op, "in", fmt.Sprintf("%d views for %d operands", len(ins), len(p.In))}
	}
	if len(params) < len(p.Params) {
		return &ViewError{op, "params", fmt.Sprintf("%d values for %d parameters", len(params), len(p.Params))}
	}
	for i := range ins {
		if why := d.checkView(op, &ins[i]); why != "" {
			return &ViewError{op, numbered("in", i, 2), why}
		}
		if ins[i].Type != p.In[i] || ins[i].Shape != s {
			return mismatch(op, numbered("in", i, 2), &ins[i], p.In[i], s)
		}
	}
	return nil
}

func numbered(s string, i, n int) string {
	if n == 1 {
		return s
	}
	return fmt.Sprintf("%s %d", s, i)
}

func mismatch(op, arg string, v *device.View, t dtype.Type, s shape.Dims) error {
	return &ViewError{op, arg, fmt.Sprintf("%v of %v, want %v of %v", v.Shape, v.Type, s, t)}
}
