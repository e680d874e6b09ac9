//go:build amd64 || arm64

package callsite

// G identifies the calling goroutine by the address of its g in Go's runtime, which takes two
// instructions to read. After a goroutine ends, a new one may have the same address.
// docs/inside/tracing.md explains the choice of this method.
func G() uintptr
