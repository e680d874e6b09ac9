//go:build amd64 || arm64

package callsite

// G identifies the calling goroutine by the address of its g, the goroutine's descriptor in Go's
// runtime. Reading the address takes two instructions. After a goroutine ends, a new goroutine may
// get the same address. docs/inside/tracing.md explains the choice of this method.
func G() uintptr
