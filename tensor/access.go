package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime/debug"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/internal/pool/hostmem"
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

// readFreely is the number of bytes that a read may allocate without first checking how much memory
// the host has free.
const readFreely = 64 << 20

// readable panics unless the host has memory to read x's elements, which need elementBytes bytes
// each. A view may have so many elements that the system refuses the memory. Go would then end the
// process.
func (x *Tensor) readable(op string, elementBytes int) {
	n := x.Size()
	if !x.layout.Contiguous() {
		// The method bytes first makes a dense copy of x. If x is on the CPU, the copy needs host
		// memory too.
		elementBytes += x.dtype.Size()
	}
	if n <= readFreely/elementBytes {
		return
	}
	host := new(hostmem.Memory)
	free, total := host.Capacity()
	if total == 0 {
		// The system does not report its memory. Assume 64 TiB, so that only sizes that no host
		// has are refused.
		total = 1 << 46
		free = total
	}
	need, fits := uint64(n)*uint64(elementBytes), n <= math.MaxInt/elementBytes
	// freeing memory that pools keep for reuse may be enough
	if fits && need <= total && need > free {
		cpu.EmptyAll()
		debug.FreeOSMemory()
		free, _ = host.Capacity()
	}
	if !fits || need > min(free, total) {
		e := newError(op, device.ErrOutOfMemory, []*Tensor{x}, fmt.Sprintf("%d elements of %v take %d bytes each to be read, and the host has %d MiB: %v", n, x.dtype, elementBytes, free>>20, device.ErrOutOfMemory))
		panic(e.hint("read a part of it (Narrow, Select), or the tensor that it is an expanded view of"))
	}
}

// element returns the bits of the first element in b, whose elements have type t.
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

// Data returns a copy of x's elements in row-major order. T must be the Go type of x's element type
// ([dtype.Of]). Cast x first to read its elements as another type. On a GPU Data waits for the work
// queued so far. If the host has no memory for the copy, Data panics as [Tensor.Bytes] does.
func Data[T dtype.Element](x *Tensor) []T {
	x.use("data")
	if t := dtype.Of[T](); t != x.dtype {
		e := newError("data", ErrType, []*Tensor{x}, "elements are "+x.dtype.String()+", not "+t.String())
		panic(e.hint("use Cast"))
	}
	x.readable("data", x.dtype.Size())
	out := make([]T, x.Size())
	x.read("data", unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(out))), len(out)*x.dtype.Size()))
	return out
}

// Floats returns a copy of x's elements as float64, for every element type. If the host has no
// memory for the copy, Floats panics as [Tensor.Bytes] does.
func (x *Tensor) Floats() []float64 {
	x.use("floats")
	x.readable("floats", x.dtype.Size()+8)
	b := x.bytes("floats")
	n := x.dtype.Size()
	out := make([]float64, x.Size())
	for i := range out {
		out[i] = expr.Decode(x.dtype, element(x.dtype, b[i*n:]))
	}
	return out
}

// Ints returns a copy of x's elements as int, for integers and bools. Use it in Go code that
// needs lengths or indices. Floating point elements are an error, because Ints would have to
// round them. On a 32-bit platform, an element that an int cannot hold is an error too. If the
// host has no memory for the copy, Ints panics as [Tensor.Bytes] does.
func (x *Tensor) Ints() []int {
	x.use("ints")
	if x.dtype.IsFloat() {
		e := newError("ints", ErrType, []*Tensor{x}, "elements are "+x.dtype.String()+", not integers")
		panic(e.hint("Floats returns them; Cast(dtype.I64) before Ints rounds toward zero"))
	}
	x.readable("ints", x.dtype.Size()+8)
	b := x.bytes("ints")
	n := x.dtype.Size()
	unused := 64 - 8*n // number of bits of a uint64 that an element of n bytes leaves free
	out := make([]int, x.Size())
	for i := range out {
		v := int64(element(x.dtype, b[i*n:])<<unused) >> unused // extends the element's sign
		if x.dtype == dtype.U8 {
			v = int64(b[i])
		}
		if out[i] = int(v); int64(out[i]) != v {
			panic(newError("ints", ErrValue, []*Tensor{x}, fmt.Sprintf("element %d is %d, more than an int of this system holds", i, v)))
		}
	}
	return out
}
