//go:build !nogpu && (linux || windows) && (amd64 || arm64)

package cu

import (
	"sync"
	"unsafe"
)

// block holds a call of a C function with up to 16 integer or pointer arguments: the function's
// address, the arguments, the result, and memory to which the function writes. The assembly of
// call_linux_*.s relies on the layout of the first three fields.
//
// Blocks come from a pool, and lie on the heap, which does not move. They cannot lie on the
// caller's stack: the C function may call back into Go, which may move the stack.
type block struct {
	fn uintptr
	a  [16]uintptr
	r1 uintptr

	out   [4]uint64  // results that the C function writes through pointers
	extra [5]uintptr // options for the parameter extra of cuLaunchKernel
	size  uintptr    // size of a kernel's parameters; extra holds the address of this field
}

var blocks = sync.Pool{New: func() any { return new(block) }}

// getBlock returns a block for a call of fn. All fields except fn are undefined.
func getBlock(fn uintptr) *block {
	b := blocks.Get().(*block)
	b.fn = fn
	return b
}

func putBlock(b *block) { blocks.Put(b) }

// outAddr returns the address of out[i], to pass as an argument.
func (b *block) outAddr(i int) uintptr { return uintptr(unsafe.Pointer(&b.out[i])) }

// call calls the C function. A CUresult has 32 bits, and the upper bits of the result register are
// undefined.
func (b *block) call() Result {
	b.invoke()
	return Result(uint32(b.r1))
}

// call0 … call5 call the C function fn with 0 … 5 arguments.
func call0(fn uintptr) Result {
	b := getBlock(fn)
	r := b.call()
	putBlock(b)
	return r
}

func call1(fn, a0 uintptr) Result {
	b := getBlock(fn)
	b.a[0] = a0
	r := b.call()
	putBlock(b)
	return r
}

func call2(fn, a0, a1 uintptr) Result {
	b := getBlock(fn)
	b.a[0], b.a[1] = a0, a1
	r := b.call()
	putBlock(b)
	return r
}

func call3(fn, a0, a1, a2 uintptr) Result {
	b := getBlock(fn)
	b.a[0], b.a[1], b.a[2] = a0, a1, a2
	r := b.call()
	putBlock(b)
	return r
}

func call4(fn, a0, a1, a2, a3 uintptr) Result {
	b := getBlock(fn)
	b.a[0], b.a[1], b.a[2], b.a[3] = a0, a1, a2, a3
	r := b.call()
	putBlock(b)
	return r
}

// get1 calls a C function whose first argument is a pointer to its result. There are up to three
// further arguments. It returns the result that the function wrote.
func get1(fn uintptr, a ...uintptr) (uint64, Result) {
	b := getBlock(fn)
	b.out[0] = 0
	b.a[0] = b.outAddr(0)
	copy(b.a[1:], a)
	r := b.call()
	v := b.out[0]
	putBlock(b)
	return v, r
}

// get2 calls fn(&out0, &out1), and returns out0 and out1.
func get2(fn uintptr) (uint64, uint64, Result) {
	b := getBlock(fn)
	b.out[0], b.out[1] = 0, 0
	b.a[0], b.a[1] = b.outAddr(0), b.outAddr(1)
	r := b.call()
	v0, v1 := b.out[0], b.out[1]
	putBlock(b)
	return v0, v1, r
}
