package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// Pad is the common part of the padding layers. Its field Pads has two sizes for each dimension:
// the numbers of elements added before and after the input. The sizes for the last dimension come
// first. A layer that pads with zeros or a constant also accepts negative sizes, which remove
// elements.
type Pad struct {
	Base
	Pads  []int
	Value float64 // value of the padding, if kind is padConstant
	kind  padKind
}

type padKind uint8

const (
	padConstant padKind = iota
	padReflect
	padReplicate
	padCircular
)

// padding returns a Pad for the given number of dimensions. The slice pads has one size for all
// sides, or a size for each side.
func padding(kind padKind, rank int, v float64, pads []int) Pad {
	all := pads
	switch len(pads) {
	case 1:
		all = make([]int, 2*rank)
		for i := range all {
			all[i] = pads[0]
		}
	case 2 * rank:
	default:
		panic(wrong("", fmt.Sprintf("%d sizes of padding for %d dimensions: give one, or %d, before and behind, of the last dimension first", len(pads), rank, 2*rank)))
	}
	return Pad{Pads: append([]int(nil), all...), Value: v, kind: kind}
}

// Forward pads the last dimensions of x, [n, channels, …] or [channels, …].
func (l *Pad) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	if l.kind != padConstant {
		rank := len(l.Pads) / 2
		checkRank("pad", x, rank+1, rank+2)
	}
	switch l.kind {
	case padReflect:
		return x.PadReflect(l.Pads...)
	case padReplicate:
		return x.PadReplicate(l.Pads...)
	case padCircular:
		return x.PadCircular(l.Pads...)
	}
	return x.Pad(l.Value, l.Pads...)
}

// ZeroPad1d surrounds an input [n, channels, length] or [channels, length] with zeros.
type ZeroPad1d struct{ Pad }

// NewZeroPad1d returns a layer with one size for all sides, or the sizes left and right.
func NewZeroPad1d(pads ...int) *ZeroPad1d {
	return &ZeroPad1d{padding(padConstant, 1, 0, pads)}
}

// ZeroPad2d surrounds an input [n, channels, height, width] or [channels, height, width] with
// zeros.
type ZeroPad2d struct{ Pad }

// NewZeroPad2d returns a layer with one size for all sides, or the sizes left, right, top and
// bottom.
func NewZeroPad2d(pads ...int) *ZeroPad2d {
	return &ZeroPad2d{padding(padConstant, 2, 0, pads)}
}

// ZeroPad3d surrounds an input [n, channels, depth, height, width] or [channels, depth, height,
// width] with zeros.
type ZeroPad3d struct{ Pad }

// NewZeroPad3d returns a layer with one size for all sides, or the sizes left, right, top, bottom,
// front and back.
func NewZeroPad3d(pads ...int) *ZeroPad3d {
	return &ZeroPad3d{padding(padConstant, 3, 0, pads)}
}

// ConstantPad1d surrounds an input [n, channels, length] or [channels, length] with a constant.
type ConstantPad1d struct{ Pad }

// NewConstantPad1d returns a layer with one size for all sides, or the sizes left and right.
func NewConstantPad1d(v float64, pads ...int) *ConstantPad1d {
	return &ConstantPad1d{padding(padConstant, 1, v, pads)}
}

// ConstantPad2d surrounds an input [n, channels, height, width] or [channels, height, width] with a
// constant.
type ConstantPad2d struct{ Pad }

// NewConstantPad2d returns a layer with one size for all sides, or the sizes left, right, top and
// bottom.
func NewConstantPad2d(v float64, pads ...int) *ConstantPad2d {
	return &ConstantPad2d{padding(padConstant, 2, v, pads)}
}

// ConstantPad3d surrounds an input [n, channels, depth, height, width] or [channels, depth, height,
// width] with a constant.
type ConstantPad3d struct{ Pad }

// NewConstantPad3d returns a layer with one size for all sides, or the sizes left, right, top,
// bottom, front and back.
func NewConstantPad3d(v float64, pads ...int) *ConstantPad3d {
	return &ConstantPad3d{padding(padConstant, 3, v, pads)}
}

// ReflectionPad1d surrounds an input [n, channels, length] or [channels, length] with its
// reflection. The elements at the edge are not repeated.
type ReflectionPad1d struct{ Pad }

// NewReflectionPad1d returns a layer with one size for all sides, or the sizes left and right.
func NewReflectionPad1d(pads ...int) *ReflectionPad1d {
	return &ReflectionPad1d{padding(padReflect, 1, 0, pads)}
}

// ReflectionPad2d surrounds an input [n, channels, height, width] or [channels, height, width] with
// its reflection. The elements at the edge are not repeated.
type ReflectionPad2d struct{ Pad }

// NewReflectionPad2d returns a layer with one size for all sides, or the sizes left, right, top and
// bottom.
func NewReflectionPad2d(pads ...int) *ReflectionPad2d {
	return &ReflectionPad2d{padding(padReflect, 2, 0, pads)}
}

// ReflectionPad3d surrounds an input [n, channels, depth, height, width] or [channels, depth,
// height, width] with its reflection. The elements at the edge are not repeated.
type ReflectionPad3d struct{ Pad }

// NewReflectionPad3d returns a layer with one size for all sides, or the sizes left, right, top,
// bottom, front and back.
func NewReflectionPad3d(pads ...int) *ReflectionPad3d {
	return &ReflectionPad3d{padding(padReflect, 3, 0, pads)}
}

// ReplicationPad1d surrounds an input [n, channels, length] or [channels, length] with copies of
// its edge.
type ReplicationPad1d struct{ Pad }

// NewReplicationPad1d returns a layer with one size for all sides, or the sizes left and right.
func NewReplicationPad1d(pads ...int) *ReplicationPad1d {
	return &ReplicationPad1d{padding(padReplicate, 1, 0, pads)}
}

// ReplicationPad2d surrounds an input [n, channels, height, width] or [channels, height, width]
// with copies of its edge.
type ReplicationPad2d struct{ Pad }

// NewReplicationPad2d returns a layer with one size for all sides, or the sizes left, right, top
// and bottom.
func NewReplicationPad2d(pads ...int) *ReplicationPad2d {
	return &ReplicationPad2d{padding(padReplicate, 2, 0, pads)}
}

// ReplicationPad3d surrounds an input [n, channels, depth, height, width] or [channels, depth,
// height, width] with copies of its edge.
type ReplicationPad3d struct{ Pad }

// NewReplicationPad3d returns a layer with one size for all sides, or the sizes left, right, top,
// bottom, front and back.
func NewReplicationPad3d(pads ...int) *ReplicationPad3d {
	return &ReplicationPad3d{padding(padReplicate, 3, 0, pads)}
}

// CircularPad1d pads an input [n, channels, length] or [channels, length] as if it repeated
// periodically.
type CircularPad1d struct{ Pad }

// NewCircularPad1d returns a layer with one size for all sides, or the sizes left and right.
func NewCircularPad1d(pads ...int) *CircularPad1d {
	return &CircularPad1d{padding(padCircular, 1, 0, pads)}
}

// CircularPad2d pads an input [n, channels, height, width] or [channels, height, width] as if it
// repeated periodically.
type CircularPad2d struct{ Pad }

// NewCircularPad2d returns a layer with one size for all sides, or the sizes left, right, top and
// bottom.
func NewCircularPad2d(pads ...int) *CircularPad2d {
	return &CircularPad2d{padding(padCircular, 2, 0, pads)}
}

// CircularPad3d pads an input [n, channels, depth, height, width] or [channels, depth, height,
// width] as if it repeated periodically.
type CircularPad3d struct{ Pad }

// NewCircularPad3d returns a layer with one size for all sides, or the sizes left, right, top,
// bottom, front and back.
func NewCircularPad3d(pads ...int) *CircularPad3d {
	return &CircularPad3d{padding(padCircular, 3, 0, pads)}
}
