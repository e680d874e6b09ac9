package cpu

import (
	"math"
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/expr"
)

// randomRun is the largest number of elements whose random words are computed together, in whole
// blocks of Philox.
const randomRun = 1 << 10

// philox returns the kernel of an OpPhilox of type T. If shared is true, all elements have the same
// seed and offset. Neighbouring elements then use words of the same block.
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
		for len(out) > 0 { // out and index may be the same memory
			run, first := neighbours(at), at[0]
			drawRun(d, out[:run], *(*uint64)(seed), *(*uint64)(offset), first)
			out, at = out[run:], at[run:]
		}
	}
}

// neighbours returns the length of the longest prefix of x that consists of consecutive integers.
func neighbours(x []int64) int {
	rest, next := x, x[0]
	for ; len(rest) >= 8; rest, next = rest[8:], next+8 {
		y := (*[8]int64)(rest)
		if (y[0]^next)|(y[1]^(next+1))|(y[2]^(next+2))|(y[3]^(next+3))|
			(y[4]^(next+4))|(y[5]^(next+5))|(y[6]^(next+6))|(y[7]^(next+7)) != 0 {
			break
		}
	}
	for ; len(rest) > 0 && rest[0] == next; next++ {
		rest = rest[1:]
	}
	return len(x) - len(rest)
}

// drawnWords holds the words of the blocks that were drawn last. They are kept because a normal
// number is made from two draws that use the same words. There is room for two words for each
// element of a run, and for one more block at each end.
type drawnWords struct {
	seed, counter uint64
	n             int // number of words
	words         [2*randomRun + 8]uint32
}

var randomWords = sync.Pool{New: func() any { return new(drawnWords) }}

// draw returns the words of the given number of blocks, from block number counter on.
func (w *drawnWords) draw(seed, counter uint64, blocks int) []uint32 {
	if w.seed != seed || w.counter != counter || w.n < 4*blocks {
		asm.Philox(w.words[:4*blocks], seed, counter)
		w.seed, w.counter, w.n = seed, counter, 4*blocks
	}
	return w.words[:4*blocks]
}

// drawRun fills numbers with the random numbers of consecutive elements, the first of which has the
// given index.
func drawRun[T uint32 | uint64](d expr.Draw, numbers []T, seed, offset uint64, index int64) {
	if whole := drawBlocks(d, numbers, seed, offset, index); whole > 0 {
		numbers, index = numbers[whole:], index+int64(whole)
	}
	if len(numbers) == 0 {
		return
	}
	w := randomWords.Get().(*drawnWords)
	defer randomWords.Put(w)
	for len(numbers) > 0 {
		n := min(len(numbers), randomRun)
		first, last := d.Word(index)/4, d.Word(index+int64(n-1))/4
		if last < first { // the counter overflows
			n, last = 1, first
		}
		pick(d, numbers[:n], w.draw(seed, offset+first, int(last-first+1)), index, 4*first)
		numbers, index = numbers[n:], index+int64(n)
	}
}

// drawBlocks draws whole blocks directly into numbers, if the numbers are exactly the words of the
// blocks in order. It returns how many numbers it has drawn.
func drawBlocks[T uint32 | uint64](d expr.Draw, numbers []T, seed, offset uint64, index int64) int {
	first := d.Word(index)
	// not whole blocks, or the counter overflows
	if len(numbers) == 0 || first%4 != 0 || d.Word(index+int64(len(numbers)-1)) < first {
		return 0
	}
	switch x := any(numbers).(type) {
	case []uint32:
		if whole := len(x) &^ 3; d == (expr.Draw{}) {
			asm.Philox(x[:whole], seed, offset+first/4)
			return whole
		}
	case []uint64:
		if whole := len(x) &^ 1; d == (expr.Draw{Shift: 1}) {
			asm.Philox(at[uint32](unsafe.Pointer(&x[0]), 2*whole), seed, offset+first/4)
			return whole
		}
	}
	return 0
}

// pick fills numbers with the random numbers of consecutive elements, the first of which has the
// given index. The slice words holds consecutive words of the generator; words[0] has the number
// firstWord.
func pick[T uint32 | uint64](d expr.Draw, numbers []T, words []uint32, index int64, firstWord uint64) {
	draw := func(words []uint32) T {
		if unsafe.Sizeof(T(0)) == 8 {
			return T(uint64(words[1])<<32 | uint64(words[0]))
		}
		return T(words[0])
	}
	if d.Clear == 0 {
		words = words[d.Word(index)-firstWord:]
		for i := range numbers {
			numbers[i] = draw(words[i<<(d.Shift&1):])
		}
		return
	}
	if index%2 != 0 { // this element uses the second number of a pair
		numbers[0] = draw(words[d.Word(index)-firstWord:])
		numbers, index = numbers[1:], index+1
	}
	if len(numbers) == 0 {
		return
	}
	if x, ok := any(numbers).([]uint32); ok && d.Shift == 0 && d.Clear == 1 {
		pickPairs(x, words[uint64(index)-firstWord:], d.Add&1)
		return
	}
	words = words[d.Word(index)-firstWord:]
	step := 2 << d.Shift
	for i := range len(numbers) / 2 {
		v := draw(words[i*step:])
		numbers[2*i], numbers[2*i+1] = v, v
	}
	if i := len(numbers) - 1; i%2 == 0 {
		numbers[i] = draw(words[i/2*step:])
	}
}

// pickPairs fills the slice out with two elements for each pair of words. Both elements are the
// first word of the pair, or the second word if odd is 1. The slice words begins with the words of
// the first pair. pickPairs moves two words at a time.
func pickPairs(out, words []uint32, odd uint8) {
	shift := 32 * odd
	if pairs := len(out) / 2; pairs > 0 { // out has room for a uint64
		to, from := at[uint64](unsafe.Pointer(&out[0]), pairs), at[uint64](unsafe.Pointer(&words[0]), pairs)
		for i, w := range from {
			w = w >> shift & math.MaxUint32
			to[i] = w | w<<32
		}
	}
	if last := len(out) - 1; last%2 == 0 {
		out[last] = words[last+int(odd)]
	}
}
