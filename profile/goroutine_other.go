//go:build !amd64 && !arm64

package profile

import "github.com/flambeau-go/flambeau/internal/callsite"

// goroutine tells goroutines apart, by their numbers.
func goroutine() uintptr { return uintptr(callsite.Goroutine()) }
