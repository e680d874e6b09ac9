package emu

import "golang.org/x/sys/windows"

// threadID returns the number of the caller's operating system thread. Each thread has its own
// current context.
func threadID() uint64 { return uint64(windows.GetCurrentThreadId()) }
