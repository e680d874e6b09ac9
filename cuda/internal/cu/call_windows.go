//go:build !nogpu && (amd64 || arm64)

package cu

import "syscall"

// invoke calls b.fn with b.a and stores the result in b.r1. In both 64-bit calling conventions of
// Windows, a caller may pass more arguments than the callee reads.
func (b *block) invoke() { b.r1, _, _ = syscall.SyscallN(b.fn, b.a[:]...) }
