//go:build amd64 || arm64

package callsite

// G tells goroutines apart: the address of the runtime's g of the calling one, which two
// instructions read. An address may be used again when its goroutine is gone.
// docs/inside/tracing.md says why this and not another way.
func G() uintptr
