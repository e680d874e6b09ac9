package emu

import "syscall"

// threadID returns the number of the caller's operating system thread, to which a current context
// belongs.
func threadID() uint64 { return uint64(syscall.Gettid()) }
