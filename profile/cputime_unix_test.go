//go:build unix

package profile_test

import (
	"syscall"
	"time"
)

// cpuTime returns the CPU time of the process. Other programs affect it less than elapsed time.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
