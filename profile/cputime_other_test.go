//go:build !unix

package profile_test

import (
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// cpuTime is the clock where what the process has used of the processors is not known as easily.
func cpuTime() time.Duration { return device.Now() }
