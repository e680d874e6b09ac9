package cuda

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// A ViewError is an operand that an operation cannot take. Nothing has been queued.
type ViewError struct {
	Op     string // the operation: "map", "matmul"
	Arg    string // the operand: "out", "in 1"
	Reason string
}

func (e *ViewError) Error() string { return fmt.Sprintf("cuda: %s: %s: %s", e.Op, e.Arg, e.Reason) }

// Raised makes the error one that tensor.Try returns: see [device.Raised].
func (e *ViewError) Raised() {}

// buffer returns the driver's own form of a buffer of this device that may be used.
func (d *Device) buffer(b device.Buffer) (own *buffer, why string) {
	own, ok := b.(*buffer)
	switch {
	case !ok || own == nil:
		return nil, "not a buffer of a CUDA device"
	case own.dev != d:
		return nil, fmt.Sprintf("the buffer belongs to %s, not to %s", own.dev.name, d.name)
	case own.freed.Load():
		return nil, "the buffer has been freed"
	}
	return own, ""
}

// in makes sure that every element of v lies in memory of this device. Kernels rely on it.
func (d *Device) in(op, arg string, v *device.View) error {
	if why := d.flaw(v); why != "" {
		return &ViewError{op, arg, why}
	}
	return nil
}

func (d *Device) flaw(v *device.View) string {
	b, why := d.buffer(v.Buf)
	switch {
	case why != "":
		return why
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
	if lo, hi, some := v.Span(); some && (lo < 0 || hi >= b.size/v.Type.Size()) {
		return fmt.Sprintf("elements %d to %d of %v do not lie in a buffer of %d bytes", lo, hi, v.Type, b.size)
	}
	return ""
}

// out is in for a result, whose elements must not share memory.
func (d *Device) out(op, arg string, v *device.View) error {
	if err := d.in(op, arg, v); err != nil {
		return err
	}
	if !v.Contiguous() && v.Overlaps() {
		return &ViewError{op, arg, fmt.Sprintf("strides %v of shape %v let elements share memory", v.Strides, v.Shape)}
	}
	return nil
}

// bytes returns the address of n bytes of a buffer.
func (d *Device) bytes(op, arg string, buf device.Buffer, off, n int) (uintptr, error) {
	b, why := d.buffer(buf)
	if why == "" && (off < 0 || n < 0 || off > b.size-n) {
		why = fmt.Sprintf("%d bytes at offset %d do not lie in a buffer of %d bytes", n, off, b.size)
	}
	if why != "" {
		return 0, &ViewError{op, arg, why}
	}
	return b.addr + uintptr(off), nil
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

// checkMap checks a program's results and operands, which have one shape.
func (d *Device) checkMap(op string, p *expr.Program, outs, ins []device.View) error {
	if len(outs) != len(p.Out) {
		return &ViewError{op, "out", fmt.Sprintf("%d views for %d results", len(outs), len(p.Out))}
	}
	var s shape.Dims
	if len(outs) > 0 {
		s = outs[0].Shape
	}
	for i := range outs {
		arg := numbered("out", i, len(outs))
		if err := d.out(op, arg, &outs[i]); err != nil {
			return err
		}
		if outs[i].Type != p.Out[i] || outs[i].Shape != s {
			return mismatch(op, arg, &outs[i], p.Out[i], s)
		}
	}
	return d.checkOperands(op, p, s, ins)
}

func (d *Device) checkOperands(op string, p *expr.Program, s shape.Dims, ins []device.View) error {
	if len(ins) != len(p.In) {
		return &ViewError{op, "in", fmt.Sprintf("%d views for %d operands", len(ins), len(p.In))}
	}
	for i := range ins {
		arg := numbered("in", i, len(ins))
		if err := d.in(op, arg, &ins[i]); err != nil {
			return err
		}
		if ins[i].Type != p.In[i] || ins[i].Shape != s {
			return mismatch(op, arg, &ins[i], p.In[i], s)
		}
	}
	return nil
}

func checkParams(op string, p *expr.Program, n int) error {
	if n < len(p.Params) {
		return &ViewError{op, "params", fmt.Sprintf("%d values for %d parameters", n, len(p.Params))}
	}
	return nil
}

func (d *Device) checkReduce(r *device.Reduction, out *device.View, ins []device.View, params []uint64) error {
	const op = "reduce"
	if r == nil || r.Map == nil || len(r.Map.Out) != 1 || len(ins) == 0 {
		return &ViewError{op, "map", "want a program of at least one operand and with one result"}
	}
	if r.Kind > device.ArgMin {
		return &ViewError{op, "kind", fmt.Sprintf("there is no kind %d", r.Kind)}
	}
	if err := d.out(op, "out", out); err != nil {
		return err
	}
	s := ins[0].Shape
	fits := out.Shape.Rank() == s.Rank()
	for k := 0; fits && k < s.Rank(); k++ {
		fits = out.Shape.At(k) == s.At(k) || out.Shape.At(k) == 1
	}
	if !fits {
		return &ViewError{op, "out", fmt.Sprintf("shape %v is not %v with dimensions of size 1", out.Shape, s)}
	}
	if err := d.checkOperands(op, r.Map, s, ins); err != nil {
		return err
	}
	if err := checkParams(op, r.Map, len(params)); err != nil {
		return err
	}
	if out.Size() > 0 && s.Size() == 0 && r.Kind >= device.ArgMax {
		return &ViewError{op, "in 0", fmt.Sprintf("%v of no elements, shape %v", r.Kind, s)}
	}
	f := r.Finish
	if f == nil {
		return nil
	}
	combined := r.Map.Out[0].Compute()
	if r.Kind >= device.ArgMax {
		combined = dtype.I64
	}
	if len(f.In) > 1 || len(f.Out) != 1 || f.Out[0] != out.Type || len(f.In) == 1 && f.In[0].Compute() != combined {
		return &ViewError{op, "finish", fmt.Sprintf("takes %v and gives %v, want one operand computed as %v, and %v", f.In, f.Out, combined, out.Type)}
	}
	return checkParams(op, f, len(params))
}

func (d *Device) checkMatMul(out, a, b *device.View) error {
	const op = "matmul"
	if err := d.out(op, "out", out); err != nil {
		return err
	}
	for i, v := range [...]*device.View{out, a, b} {
		arg := [...]string{"out", "a", "b"}[i]
		if err := d.in(op, arg, v); err != nil {
			return err
		}
		if v.Shape.Rank() != 3 {
			return &ViewError{op, arg, fmt.Sprintf("shape %v, want [batch, rows, columns]", v.Shape)}
		}
		if v.Type != out.Type {
			return &ViewError{op, arg, fmt.Sprintf("%v, but out is %v", v.Type, out.Type)}
		}
	}
	s := out.Shape
	if a.Shape.At(0) != s.At(0) || a.Shape.At(1) != s.At(1) || b.Shape.At(0) != s.At(0) || b.Shape.At(2) != s.At(2) || a.Shape.At(2) != b.Shape.At(1) {
		return &ViewError{op, "out", fmt.Sprintf("shapes %v·%v do not give %v", a.Shape, b.Shape, s)}
	}
	return nil
}
