//go:build !nogpu && (amd64 || arm64)

package cu

import (
	"unsafe"

	// purego provides the C runtime that runtime.cgocall needs and usually gets from cgo
	_ "github.com/ebitengine/purego"
)

// cgocall runs a C function on the system stack, and tells the scheduler that this thread is in a
// call. The Go linker allows users of purego to link to it by name (see the comment at
// runtime.cgocall).
//
//go:linkname cgocall runtime.cgocall
//go:noescape
func cgocall(fn uintptr, arg unsafe.Pointer) int32

// callStubAddr holds the address of callStub (call_linux_*.s), a function in C's calling convention
// whose argument is a *block.
var callStubAddr uintptr

// invoke calls the C function b.fn with the arguments b.a and stores the result in b.r1. It takes
// about 40 ns and does not allocate.
func (b *block) invoke() { cgocall(callStubAddr, unsafe.Pointer(b)) }
