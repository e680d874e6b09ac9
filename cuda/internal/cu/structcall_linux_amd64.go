//go:build !nogpu

package cu

import "unsafe"

// structBlock is a call with a struct among its arguments. It is laid out for structStub.
type structBlock struct {
	fn uintptr
	a  [6]uintptr // the other arguments
	s  [StructBytes]byte
	r1 uintptr
}

// structStubAddr holds the address of structStub, which takes a *structBlock in C's calling
// convention (structcall_linux_amd64.s).
var structStubAddr uintptr

// CallStruct is [Call] of a function that takes a struct of [StructBytes] bytes by value as its
// argument number at, counted from 0, and up to 6 others. The struct lies on the stack, as the
// System V ABI has it, and takes no register: the others are where they were without it.
func CallStruct(fn uintptr, at int, s *[StructBytes]byte, others ...uintptr) uint32 {
	b := newStructBlock()
	b.fn, b.s = fn, *s
	copy(b.a[:], others)
	cgocall(structStubAddr, unsafe.Pointer(b))
	return uint32(b.r1)
}

// newStructBlock returns memory on the heap, which does not move while a callee calls back into Go.
//
//go:noinline
func newStructBlock() *structBlock { return new(structBlock) }
