//go:build !nogpu && (amd64 || arm64)

package cu

import (
	"unsafe"

	// brings the C runtime that makes runtime.cgocall legal without cgo
	_ "github.com/ebitengine/purego"
)

// cgocall runs a C function on the system stack and tells the scheduler that this thread is in a
// call. The Go linker lets purego's users reach it by name (the comment at runtime.cgocall).
//
//go:linkname cgocall runtime.cgocall
//go:noescape
func cgocall(fn uintptr, arg unsafe.Pointer) int32

// callStubAddr holds the address of callStub, which takes a *block in C's calling convention
// (call_linux_*.s).
var callStubAddr uintptr

// invoke calls b.fn with b.a and stores its result in b.r1. About 40 ns, no allocation.
func (b *block) invoke() { cgocall(callStubAddr, unsafe.Pointer(b)) }
