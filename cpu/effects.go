package cpu

import (
	"slices"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
)

// span is a range of memory.
type span struct{ lo, hi uintptr }

// overlaps reports whether two ranges share memory.
func (s span) overlaps(t span) bool { return s.lo < t.hi && t.lo < s.hi }

func overlapsAny(s span, list []span) bool { return slices.ContainsFunc(list, s.overlaps) }

func anyOverlap(a, b []span) bool {
	return slices.ContainsFunc(a, func(s span) bool { return overlapsAny(s, b) })
}

// spanOf returns the smallest range that holds all elements of a view.
func spanOf(v *device.View) span {
	if v.Absent() {
		return span{}
	}
	lo, hi, some := v.Span()
	if !some {
		return span{}
	}
	size := v.Type.Size()
	start := start(v)
	return span{start + uintptr((lo-v.Offset)*size), start + uintptr((hi-v.Offset+1)*size)}
}

// start returns the address of a view's first element.
func start(v *device.View) uintptr { return uintptr(pointer(v)) }

// fills reports whether the elements of a result leave no gap in its range.
func fills(v *device.View) bool {
	s := spanOf(v)
	return uintptr(v.Size()*v.Type.Size()) == s.hi-s.lo
}

func spans(list []device.View) []span {
	s := make([]span, len(list))
	for i := range list {
		s[i] = spanOf(&list[i])
	}
	return s
}

// effects holds the ranges of memory that an item reads and writes. For an op other than a map or a
// reduction, reads contains the written ranges too, because the op may read them.
type effects struct{ reads, writes []span }

func effectsOf(it *item) (e effects) {
	switch op := it.op.(type) {
	case nil:
		return effects{[]span{bytesSpan(it.src)}, []span{bytesSpan(it.dst)}}
	case *device.Map:
		return effects{spans(op.Ins), spans(op.Outs)}
	case *device.Reduce:
		return effects{spans(op.Ins), []span{spanOf(&op.Out)}}
	}
	for i := 0; ; i++ {
		o := it.op.Operand(i)
		if o.View == nil {
			return e
		}
		s := spanOf(o.View)
		e.reads = append(e.reads, s)
		if o.Written {
			e.writes = append(e.writes, s)
		}
	}
}

func bytesSpan(b []byte) span {
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return span{lo, lo + uintptr(len(b))}
}

// sameView reports whether two views have the same elements in memory, with the same shape and
// order.
func sameView(v, w *device.View) bool {
	return v.Type == w.Type && v.Shape == w.Shape && start(v) == start(w) && sameStrides(v, w)
}

// sameStrides reports whether two views have the same strides. It ignores dimensions of one
// element, whose stride has no effect.
func sameStrides(v, w *device.View) bool {
	for k := range v.Shape.Rank() {
		if v.Shape.At(k) != 1 && v.Strides.At(k) != w.Strides.At(k) {
			return false
		}
	}
	return true
}

// sameOrder reports whether two views have the same elements at the same row-major positions. The
// shapes may differ.
func sameOrder(v, w *device.View) bool {
	return sameView(v, w) || v.Type == w.Type && start(v) == start(w) && v.Size() == w.Size() &&
		v.Contiguous() && w.Contiguous()
}
