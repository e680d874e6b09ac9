//go:build !amd64 && !arm64

package callsite

// G tells goroutines apart, by their numbers.
func G() uintptr { return uintptr(Goroutine()) }
