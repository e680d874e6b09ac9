package cpu

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
)

// headroomBytes is the size of headroom. With 16 MiB, a loop of additions of 64K elements ran as
// fast as with 32 MiB. Its time was 0.9 of the time without headroom.
const headroomBytes = 16 << 20

// headroom is memory of Go's heap that nobody reads or writes. So it takes address space, but no
// pages of the system.
//
// Go's collector runs when the heap has doubled, but at least each 4 MiB. The elements of tensors
// are outside of the heap, which therefore seems to be small. Without headroom, the handles of a
// few thousand results started a collection. The headroom counts as live, so the collector waits
// until there are at least headroomBytes of garbage.
var headroom []byte

// reserveHeadroom allocates the headroom unless a setting of the collector forbids it.
func reserveHeadroom() {
	if allowsHeadroom(os.Getenv, debug.SetMemoryLimit(-1)) {
		headroom = make([]byte, headroomBytes)
	}
}

// allowsHeadroom reports whether the collector has its default settings, and whether the system
// gives memory only for pages that are used. Someone who sets GOGC or a memory limit decides how
// much garbage there may be.
func allowsHeadroom(env func(string) string, limit int64) bool {
	return strconv.IntSize == 64 && runtime.GOARCH != "wasm" && limit == math.MaxInt64 && env("GOGC") == ""
}
