//go:build !linux && !windows

package emu

import (
	"bytes"
	"runtime"
	"strconv"
)

// threadID names the calling goroutine, the number in the first line of its stack trace ("goroutine
// 7 [running]:"). There is no portable way to the thread. For a caller that locks its goroutine to
// a thread around each use of the current context, as package cu demands, the two are the same. A
// caller that forgets to lock is not found out here.
func threadID() uint64 {
	var buf [64]byte
	fields := bytes.Fields(buf[:runtime.Stack(buf[:], false)])
	id, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		panic("emu: unexpected form of a stack trace: " + string(buf[:]))
	}
	return id
}
