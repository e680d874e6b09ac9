//go:build !nogpu

package cu

import "unsafe"

// structBlock holds a call with a struct among its arguments. The assembly of structStub relies on
// its layout.
type structBlock struct {
	fn uintptr
	a  [6]uintptr // arguments other than the struct
	s  [StructBytes]byte
	r1 uintptr
}

// structStubAddr holds the address of structStub (structcall_linux_amd64.s), a function in C's
// calling convention whose argument is a *structBlock.
var structStubAddr uintptr

// CallStruct is [Call] for a function that takes a struct of [StructBytes] bytes by value. The
// argument at is the struct's index among the function's arguments, counted from 0. There are up to
// 6 other arguments. By the System V ABI the struct lies on the stack and occupies no register. So
// it does not change the registers in which the other arguments are passed.
func CallStruct(fn uintptr, at int, s *[StructBytes]byte, others ...uintptr) uint32 {
	b := newStructBlock()
	b.fn, b.s = fn, *s
	copy(b.a[:], others)
	cgocall(structStubAddr, unsafe.Pointer(b))
	return uint32(b.r1)
}

// newStructBlock returns memory on the heap, which does not move while a C function calls back into
// Go.
//
//go:noinline
func newStructBlock() *structBlock { return new(structBlock) }
