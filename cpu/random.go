package cpu

import (
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/expr"
)

// randomRun is the largest number of elements whose random words are computed in advance, as
// blocks.
const randomRun = 256

// philox returns the kernel of an OpPhilox of type T. If shared is set, all elements have the same
// seed and offset. Then neighbouring elements use words of the same blocks.
func philox[T uint32 | uint64](d expr.Draw, shared bool) kernel {
	return func(dst, seed, offset, index unsafe.Pointer, n int) {
		out, at := at[T](dst, n), at[int64](index, n)
		if !shared {
			seeds, offsets := unsafe.Slice((*uint64)(seed), n), unsafe.Slice((*uint64)(offset), n)
			for i := range out {
				out[i] = T(d.Value(seeds[i], offsets[i], at[i]))
			}
			return
		}
		for len(out) > 0 { // out and index may share memory
			run, first := neighbours(at), at[0]
			drawRun(d, out[:run], *(*uint64)(seed), *(*uint64)(offset), first)
			out, at = out[run:], at[run:]
		}
	}
}

// neighbours returns how many numbers at the start of x are consecutive: each is one more than the
// number before.
func neighbours(x []int64) int {
	n := 0
	for ; n+4 <= len(x); n += 4 {
		y, first := (*[4]int64)(x[n:]), x[0]+int64(n)
		if (y[0]-first)|(y[1]-first-1)|(y[2]-first-2)|(y[3]-first-3) != 0 {
			break
		}
	}
	for n < len(x) && x[n] == x[0]+int64(n) {
		n++
	}
	return n
}

// randomWords holds memory for a run. It has two words for each element, and two more blocks for
// both ends.
var randomWords = sync.Pool{New: func() any { return new([2*randomRun + 8]uint32) }}

// drawRun fills the slice out with the random numbers of consecutive elements. The first of these
// elements has the given index.
func drawRun[T uint32 | uint64](d expr.Draw, out []T, seed, offset uint64, index int64) {
	if direct, ok := any(out).([]uint32); ok && d == (expr.Draw{}) && index%4 == 0 {
		whole := len(out) &^ 3
		asm.Philox(direct[:whole], seed, offset+uint64(index)/4)
		out, index = out[whole:], index+int64(whole)
	}
	if len(out) == 0 {
		return
	}
	words := randomWords.Get().(*[2*randomRun + 8]uint32)
	defer randomWords.Put(words)
	for len(out) > 0 {
		n := min(len(out), randomRun)
		first, last := d.Word(index)/4, d.Word(index+int64(n-1))/4
		if last < first { // the counter wraps
			n, last = 1, first
		}
		asm.Philox(words[:4*(last-first+1)], seed, offset+first)
		pick(d, out[:n], words[:], index, 4*first)
		out, index = out[n:], index+int64(n)
	}
}

// pick fills the slice out with the random numbers of consecutive elements. The first of these
// elements has the given index. The slice words holds consecutive words, and the parameter first is
// the number of its first word.
func pick[T uint32 | uint64](d expr.Draw, out []T, words []uint32, index int64, first uint64) {
	draw := func(words []uint32) T {
		if unsafe.Sizeof(T(0)) == 8 {
			return T(uint64(words[1])<<32 | uint64(words[0]))
		}
		return T(words[0])
	}
	if d.Clear == 0 {
		words = words[d.Word(index)-first:]
		for i := range out {
			out[i] = draw(words[i<<(d.Shift&1):])
		}
		return
	}
	if index%2 != 0 { // the second number of a pair
		out[0] = draw(words[d.Word(index)-first:])
		out, index = out[1:], index+1
	}
	if len(out) == 0 {
		return
	}
	words = words[d.Word(index)-first:]
	step := 2 << d.Shift
	for i := range len(out) / 2 {
		v := draw(words[i*step:])
		out[2*i], out[2*i+1] = v, v
	}
	if i := len(out) - 1; i%2 == 0 {
		out[i] = draw(words[i/2*step:])
	}
}
