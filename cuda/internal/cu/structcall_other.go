//go:build nogpu || !linux || !amd64

package cu

import (
	"runtime"
	"slices"
	"unsafe"
)

// CallStruct is [Call] for a function that takes a struct of [StructBytes] bytes by value. The
// argument at is the struct's index among the function's arguments, counted from 0. There are up to
// 6 other arguments. In the calling conventions of ARM64 (AAPCS64) and Windows, the caller passes
// the address of a copy of the struct.
func CallStruct(fn uintptr, at int, s *[StructBytes]byte, others ...uintptr) uint32 {
	c := copyOf(s)
	r := Call(fn, slices.Insert(slices.Clone(others), at, uintptr(unsafe.Pointer(c)))...)
	runtime.KeepAlive(c)
	return r
}

// copyOf returns a copy on the heap, which does not move.
//
//go:noinline
func copyOf(s *[StructBytes]byte) *[StructBytes]byte {
	c := *s
	return &c
}
