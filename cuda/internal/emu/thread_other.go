//go:build !linux && !windows

package emu

import (
	"bytes"
	"runtime"
	"strconv"
)

// threadID returns the number of the calling goroutine, from the first line of its stack trace
// ("goroutine 7 [running]:"). There is no portable way to get the number of the thread. The
// goroutine's number can replace it, because package cu requires callers to lock the goroutine to
// its thread. The emulator does not detect a caller that fails to lock it.
func threadID() uint64 {
	var buf [64]byte
	fields := bytes.Fields(buf[:runtime.Stack(buf[:], false)])
	id, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		panic("emu: unexpected form of a stack trace: " + string(buf[:]))
	}
	return id
}
