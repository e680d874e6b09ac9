//go:build !nogpu && (amd64 || arm64)

package cu

import "syscall"

// invoke calls b.fn with b.a and stores its result in b.r1. Both of Windows' 64-bit conventions let
// a caller pass more arguments than the callee reads.
func (b *block) invoke() { b.r1, _, _ = syscall.SyscallN(b.fn, b.a[:]...) }
