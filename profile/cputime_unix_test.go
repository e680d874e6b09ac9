//go:build unix

package profile_test

import (
	"syscall"
	"time"
)

// cpuTime is what the process has used of the processors, which a busy machine changes less than
// the clock.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
