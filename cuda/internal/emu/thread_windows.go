package emu

import "golang.org/x/sys/windows"

// threadID names the operating system thread of the caller, to which a current context belongs.
func threadID() uint64 { return uint64(windows.GetCurrentThreadId()) }
