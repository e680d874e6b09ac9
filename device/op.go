package device

import (
	"fmt"
	"math/bits"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Op is a primitive with its operands. The function [Run] runs it. Each kind of op is a struct type
// of this package.
//
// The caller may change an op when Run has returned. Code that keeps an op longer must clone it.
type Op interface {
	// Name returns a name such as "softmax gradient".
	Name() string
	// Operand returns operand i. Results come first. If i is past the last operand, the field View
	// is nil. Callers must call Check first: Operand may panic for an op that Check refuses.
	Operand(i int) Operand
	// Check returns the name of a wrong argument, and the reason why it is wrong. If all arguments
	// are valid, the reason is empty. Check looks at shapes, types and layouts, but not at memory:
	// Device.Owns does that.
	Check() (arg, reason string)
	// Work returns how many operations and bytes the op needs. Both are zero if the op has nothing
	// to do.
	Work() Work
	// Clone returns a copy that shares no slice with the op.
	Clone() Op
}

// Operand is one view of an op.
type Operand struct {
	Name    string // name in the op: "out", "x"; the operands of a list share one name
	View    *View
	Written bool
}

// Absent reports whether v stands for an optional operand that is not given: its type is
// [dtype.Invalid]. An absent view must have no dimensions, or [Run] returns an error.
func (v *View) Absent() bool { return v.Type == dtype.Invalid }

// OperandError says why an op cannot use an operand. An op with this error was not queued and has
// written nothing.
type OperandError struct {
	Device string // name of the device: "cpu"
	Op     string // name of the op: "map"
	Arg    string // name of the operand: "out", "in 1"
	Reason string
}

// Error returns a text such as "cpu: map: in 1: the buffer has been freed".
func (e *OperandError) Error() string {
	return e.Device + ": " + e.Op + ": " + e.Arg + ": " + e.Reason
}

// Raised marks the error as one that tensor.Try returns when a function panics with it.
func (e *OperandError) Raised() {}

// Refuse returns an error that says why operand i of op is wrong.
func Refuse(d Device, op Op, i int, reason string) *OperandError {
	name, number, same := op.Operand(i).Name, 0, 0
	for k := 0; ; k++ {
		o := op.Operand(k)
		if o.View == nil {
			break
		}
		if o.Name == name {
			if k < i {
				number++
			}
			same++
		}
	}
	if same > 1 {
		name = fmt.Sprintf("%s %d", name, number)
	}
	return &OperandError{d.Name(), op.Name(), name, reason}
}

// Run queues op on s, a stream of d. If s is nil, it uses the default stream. Every op passes
// through Run to its driver. Run checks the op, reports it to the tracer and calls d.Run. It
// returns when the work is queued, with the errors that are known by then: an *[OperandError] or an
// error of the driver.
func Run(d Device, s Stream, op Op) error {
	if err := check(d, op); err != nil {
		return err
	}
	if s == nil {
		s = d.DefaultStream()
	} else if s.Device() != d {
		return &OperandError{d.Name(), op.Name(), "stream", fmt.Sprintf("it belongs to %s, not to %s", s.Device().Name(), d.Name())}
	}
	return Rerun(d, s, op)
}

// Rerun runs op on s without checking it. The replay of a recording calls Rerun for ops that [Run]
// has checked before.
func Rerun(d Device, s Stream, op Op) error {
	if t := Tracing(); t != nil {
		return runTraced(t, d, s, op)
	}
	return d.Run(s, op, nil)
}

func runTraced(t Tracer, d Device, s Stream, op Op) error {
	w := op.Work()
	if w == (Work{}) {
		return d.Run(s, op, nil)
	}
	k := KernelEvent{Device: d, Stream: s, Primitive: op.Name(), Class: classOf(op), Work: w}
	// use the type of the first result that is present
	for i := 0; k.Type == dtype.Invalid && op.Operand(i).View != nil; i++ {
		k.Type = op.Operand(i).View.Type
	}
	if t.Wants().KernelShapes {
		for i := 0; op.Operand(i).View != nil; i++ {
			if v := op.Operand(i).View; !v.Absent() {
				k.Shapes = append(k.Shapes, v.Shape)
			}
		}
	}
	k.Start = Now()
	if err := d.Run(s, op, &k); err != nil {
		return err
	}
	k.End = Now()
	t.Kernel(k)
	return nil
}

// check finds the mistakes in op that do not depend on the device's memory.
func check(d Device, op Op) error {
	if arg, reason := op.Check(); reason != "" {
		return &OperandError{d.Name(), op.Name(), arg, reason}
	}
	for i := 0; ; i++ {
		o := op.Operand(i)
		if o.View == nil {
			return nil
		}
		v := o.View
		if v.Absent() && v.Shape.Rank() == 0 {
			continue
		}
		reason := Outside(d, v)
		if reason == "" && o.Written && !v.Contiguous() && v.Overlaps() {
			reason = fmt.Sprintf("strides %v of shape %v let elements share memory", v.Strides, v.Shape)
		}
		if reason != "" {
			return Refuse(d, op, i, reason)
		}
	}
}

// maxOffset is the largest permitted offset of an element in its buffer, in elements. The size in
// bytes of a larger offset could overflow an int64.
const maxOffset int64 = 1 << 55

// Outside returns an empty reason if every element of v lies in usable memory of d. Otherwise the
// reason says what is wrong with v.
func Outside(d Device, v *View) (reason string) {
	n := v.Shape.Rank()
	if n != v.Strides.Rank() {
		return fmt.Sprintf("shape %v and strides %v differ in length", v.Shape, v.Strides)
	}
	lo, hi, empty, reaches := int64(v.Offset), int64(v.Offset), false, true
	for i := range n {
		size, stride := v.Shape.At(i), v.Strides.At(i)
		if size <= 0 {
			if size < 0 {
				return fmt.Sprintf("shape %v is negative", v.Shape)
			}
			empty = true
			continue
		}
		if stride < 0 {
			over, reach := bits.Mul64(uint64(size-1), uint64(-stride))
			reaches = reaches && over == 0 && reach <= uint64(maxOffset)
			lo -= int64(reach)
			continue
		}
		over, reach := bits.Mul64(uint64(size-1), uint64(stride))
		reaches = reaches && over == 0 && reach <= uint64(maxOffset)
		hi += int64(reach)
	}
	if v.Type.Size() == 0 {
		return "of type " + v.Type.String()
	}
	if reason := d.Owns(v.Buf); reason != "" {
		return reason
	}
	switch most := int64(v.Buf.Size() / v.Type.Size()); {
	case empty:
		return ""
	case !reaches || int64(v.Offset) < -maxOffset || int64(v.Offset) > maxOffset:
		return fmt.Sprintf("offset %d and strides %v of shape %v reach too far", v.Offset, v.Strides, v.Shape)
	case lo < 0 || hi >= most:
		return fmt.Sprintf("elements %d to %d of %v do not lie in a buffer of %d bytes", lo, hi, v.Type, v.Buf.Size())
	}
	return ""
}

// OutsideBytes is [Outside] for the n bytes of buffer b that begin at offset off.
func OutsideBytes(d Device, b Buffer, off, n int) (reason string) {
	if reason := d.Owns(b); reason != "" {
		return reason
	}
	if off < 0 || n < 0 || off > b.Size()-n {
		return fmt.Sprintf("%d bytes at offset %d do not lie in a buffer of %d bytes", n, off, b.Size())
	}
	return ""
}

// nth returns operand i of the list, or the zero Operand if i is too large.
func nth(i int, list ...Operand) Operand {
	if i < len(list) {
		return list[i]
	}
	return Operand{}
}

func clone(v []View) []View { return append([]View(nil), v...) }

// sparse returns the text of an error: v is not a contiguous view of the given type and shape.
func sparse(v *View, t dtype.Type, want shape.Dims) string {
	return fmt.Sprintf("%v of %v with strides %v, want contiguous %v of %v", v.Shape, v.Type, v.Strides, want, t)
}

// wrong returns the text of an error: v is not a view of the given type and shape.
func wrong(v *View, t dtype.Type, want shape.Dims) string {
	return fmt.Sprintf("%v of %v, want %v of %v", v.Shape, v.Type, want, t)
}
