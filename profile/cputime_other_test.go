//go:build !unix

package profile_test

import (
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// cpuTime returns the elapsed time, because the CPU time of the process is difficult to get on this
// system.
func cpuTime() time.Duration { return device.Now() }
