//go:build !nogpu && (amd64 || arm64)

package cu

import "syscall"

// invoke calls the C function b.fn with the arguments b.a and stores the result in b.r1. In the
// 64-bit calling conventions of Windows, a caller may pass more arguments than the function reads.
func (b *block) invoke() { b.r1, _, _ = syscall.SyscallN(b.fn, b.a[:]...) }
