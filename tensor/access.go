package tensor

import (
	"encoding/binary"
	"unsafe"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// Item returns the only element of x. On a GPU it waits for the work queued so far.
func (x *Tensor) Item() float64 {
	x.use("item")
	if x.Size() != 1 {
		e := newError("item", ErrShape, []*Tensor{x}, "the tensor has "+itoa(x.Size())+" elements, not 1")
		panic(e.hint("Floats and Data return them all; Sum and Mean make one of them"))
	}
	return expr.Decode(x.dtype, element(x.dtype, x.bytes("item")))
}

// element returns the bits of the first element of b.
func element(t dtype.Type, b []byte) uint64 {
	switch t.Size() {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

// Data returns a copy of x's elements in row-major order. T must be the Go type of x's element type ([dtype.Of]); cast first
// to read another. On a GPU it waits for the work queued so far.
func Data[T dtype.Element](x *Tensor) []T {
	x.use("data")
	if t := dtype.Of[T](); t != x.dtype {
		e := newError("data", ErrType, []*Tensor{x}, "elements are "+x.dtype.String()+", not "+t.String())
		panic(e.hint("use Cast"))
	}
	b := x.bytes("data")
	if len(b) == 0 {
		return []T{}
	}
	out := make([]T, x.Size())
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), len(b)), b)
	return out
}

// Floats returns a copy of x's elements as float64, whatever their type.
func (x *Tensor) Floats() []float64 {
	b := x.bytes("floats")
	n := x.dtype.Size()
	out := make([]float64, x.Size())
	for i := range out {
		out[i] = expr.Decode(x.dtype, element(x.dtype, b[i*n:]))
	}
	return out
}
