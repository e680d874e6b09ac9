//go:build !unix

package profile_test

import (
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// cpuTime returns the elapsed time. Go has no portable way to get the CPU time of the process.
func cpuTime() time.Duration { return device.Now() }
