package asm

import (
	"fmt"

	"github.com/flambeau-go/flambeau/expr"
)

// Philox sets dst to the words of the Philox blocks counter, counter+1, and so on. The key of the
// generator is seed, as in [expr.Philox]. Counters wrap. The length of dst must be a multiple of 4.
func Philox(dst []uint32, seed, counter uint64) {
	if len(dst)%4 != 0 {
		panic(fmt.Sprintf("asm: Philox: %d words are no whole blocks", len(dst)))
	}
	current.philox(dst, seed, counter)
}

// wholeRounds returns a function that does the same as philox, for any number of whole blocks. The
// kernel can only fill a multiple of words elements. It fills as many as possible, and plain Go
// fills the rest.
func wholeRounds(words int, kernel func(dst []uint32, seed, counter uint64)) func(dst []uint32, seed, counter uint64) {
	return func(dst []uint32, seed, counter uint64) {
		n := len(dst) - len(dst)%words
		kernel(dst[:n], seed, counter)
		philox(dst[n:], seed, counter+uint64(n/4))
	}
}

func philox(dst []uint32, seed, counter uint64) {
	key := [2]uint32{uint32(seed), uint32(seed >> 32)}
	for ; len(dst) > 0; dst = dst[4:] {
		*(*[4]uint32)(dst) = expr.Philox([4]uint32{uint32(counter), uint32(counter >> 32)}, key)
		counter++
	}
}
