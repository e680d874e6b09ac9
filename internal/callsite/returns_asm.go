//go:build amd64 || arm64

package callsite

// Returns stores the return addresses on the stack in pc, innermost first, and returns their
// number. It follows the frame pointers that Go's compiler keeps on these machines
// (https://go.dev/s/regabi). This takes one or two loads for each frame. Even if a frame pointer is
// invalid, Returns reads only the goroutine's stack.
//
//go:noescape
func Returns(pc []uintptr) int
