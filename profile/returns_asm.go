//go:build amd64 || arm64

package profile

// returns lists where the calls on the stack return to, innermost first, as the frame pointers tell
// that Go's compiler keeps on these machines (https://go.dev/s/regabi): a load or two a frame. It
// never leaves the goroutine's stack, whatever a frame pointer holds.
//
//go:noescape
func returns(pc *[64]uintptr) int
