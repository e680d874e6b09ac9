//go:build !amd64 && !arm64

package profile

import (
	"runtime"

	"github.com/flambeau-go/flambeau/internal/callsite"
)

// goroutine tells goroutines apart, by their numbers.
func goroutine() uintptr { return uintptr(callsite.Goroutine()) }

// returns lists what tells the stack from others: the callers.
func returns(pc *[64]uintptr) int { return runtime.Callers(2, pc[:]) }
