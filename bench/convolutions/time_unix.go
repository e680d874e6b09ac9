//go:build unix

package main

import (
	"log"

	"golang.org/x/sys/unix"
)

// processorTime returns the CPU time of the process in seconds.
func processorTime() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		log.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
