//go:build amd64 || arm64

package profile

// goroutine tells goroutines apart: the address of the runtime's g of the calling one. An address may be used again when its goroutine is
// gone. docs/design.md, section 6, says why this and not another way.
func goroutine() uintptr
