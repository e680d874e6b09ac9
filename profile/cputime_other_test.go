//go:build !unix

package profile_test

import (
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// cpuTime returns the clock, because the CPU time of the process is harder to get here.
func cpuTime() time.Duration { return device.Now() }
