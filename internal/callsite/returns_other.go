//go:build !amd64 && !arm64

package callsite

import "runtime"

// Returns stores the program counters of the callers in pc, and returns their number. Different
// stacks have different counters.
func Returns(pc []uintptr) int { return runtime.Callers(2, pc) }
