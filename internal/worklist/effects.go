package worklist

import (
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/device"
)

// Span is a range of memory, from address Lo up to, but not including, address Hi.
type Span struct{ Lo, Hi uintptr }

// Anywhere is the span of work that may use any memory.
var Anywhere = Span{0, math.MaxUint}

// Meets reports whether two spans have memory in common.
func (s Span) Meets(t Span) bool { return s.Lo < t.Hi && t.Lo < s.Hi }

func meetsAny(s Span, list []Span) bool { return slices.ContainsFunc(list, s.Meets) }

func meetAny(a, b []Span) bool {
	return slices.ContainsFunc(a, func(s Span) bool { return meetsAny(s, b) })
}

// SpanOf returns the smallest span that contains all elements of a view.
func SpanOf(v *device.View) Span {
	if v.Absent() {
		return Span{}
	}
	lo, hi, some := v.Span()
	if !some {
		return Span{}
	}
	size := v.Type.Size()
	start := start(v)
	return Span{start + uintptr((lo-v.Offset)*size), start + uintptr((hi-v.Offset+1)*size)}
}

// start returns the address of a view's first element.
func start(v *device.View) uintptr { return v.Buf.Addr() + uintptr(v.Offset*v.Type.Size()) }

// fills reports whether the elements of a result leave no gap in its span.
func fills(v *device.View) bool {
	s := SpanOf(v)
	return uintptr(v.Size()*v.Type.Size()) == s.Hi-s.Lo
}

func spans(list []device.View) []Span {
	s := make([]Span, len(list))
	for i := range list {
		s[i] = SpanOf(&list[i])
	}
	return s
}

// effects returns the spans that an op reads and writes. Unless the op is a map or a reduction,
// reads also contains the spans that the op writes.
func effects(op device.Op) (reads, writes []Span) {
	switch op := op.(type) {
	case *device.Map:
		return spans(op.Ins), spans(op.Outs)
	case *device.Reduce:
		return spans(op.Ins), []Span{SpanOf(&op.Out)}
	}
	for i := 0; ; i++ {
		o := op.Operand(i)
		if o.View == nil {
			return reads, writes
		}
		s := SpanOf(o.View)
		reads = append(reads, s)
		if o.Written {
			writes = append(writes, s)
		}
	}
}

// SameView reports whether two views have the same elements in the same order.
func SameView(v, w *device.View) bool {
	return v.Type == w.Type && v.Shape == w.Shape && start(v) == start(w) && sameStrides(v, w)
}

// sameStrides compares the strides of dimensions with more than one element.
func sameStrides(v, w *device.View) bool {
	for k := range v.Shape.Rank() {
		if v.Shape.At(k) != 1 && v.Strides.At(k) != w.Strides.At(k) {
			return false
		}
	}
	return true
}

// sameOrder reports whether two views of the same elements have them in the same order.
func sameOrder(v, w *device.View) bool {
	return SameView(v, w) || v.Type == w.Type && start(v) == start(w) && v.Size() == w.Size() &&
		v.Contiguous() && w.Contiguous()
}
