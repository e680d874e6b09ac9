//go:build !amd64 && !arm64

package callsite

// G identifies the calling goroutine by its number.
func G() uintptr { return uintptr(Goroutine()) }
