//go:build amd64 || arm64

package profile

// goroutine tells goroutines apart: the address of the runtime's g of the calling one. An address may be used again when its goroutine is
// gone. docs/design.md, section 6, says why this and not another way.
func goroutine() uintptr

// returns lists where the calls on the stack return to, innermost first, as the frame pointers tell that Go's compiler keeps on these machines
// (https://go.dev/s/regabi): a load or two a frame. It never leaves the goroutine's stack, whatever a frame pointer holds.
//
//go:noescape
func returns(pc *[64]uintptr) int
