//go:build !amd64 && !arm64

package profile

import (
	"bytes"
	"runtime"
	"strconv"
)

// goroutine tells goroutines apart, by the number that heads a stack: "goroutine 18 [running]:".
func goroutine() uintptr {
	var b [64]byte
	f := bytes.Fields(b[:runtime.Stack(b[:], false)])
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.ParseUint(string(f[1]), 10, 64)
	return uintptr(n)
}

// returns lists what tells the stack from others: the callers.
func returns(pc *[64]uintptr) int { return runtime.Callers(2, pc[:]) }
