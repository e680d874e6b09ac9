//go:build unix

package main

import (
	"syscall"
	"time"
)

// processTime returns the CPU time of the process so far, on all threads.
func processTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
