package cpu

import (
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/jit"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// shortestSteps is the least number of elements for which a compiled loop is used. A call of the
// loop takes as long as Go takes to copy some dozens of elements.
const shortestSteps = 64

// plainRow reports whether a compiled loop copies rows of this number of words faster than Go does.
// AVX2 has no masks, so its loop copies the words after the last whole vector one by one.
func plainRow(words int) bool {
	if avx2Only() {
		return words <= 64 && words%8 == 0
	}
	return words <= 512
}

// stepLoop holds two versions of a loop that copies 32-bit words to rows: for AVX-512 and for AVX2.
// Each function compiles its version at the first call. It returns nil if the system refuses
// executable memory.
type stepLoop [2]func() *jit.Code

// stepArena is the temporary memory of a stepLoop.
type stepArena [2 * 64]byte

// The loop plainRows reads successive words of the operand, and onceRows reads one word for each
// row. The loop secondRows reads every second word, and backRows reads words in reverse order.
var (
	plainRows  = copyLoop(jit.Reads{})
	onceRows   = copyLoop(jit.Reads{Once: 1})
	secondRows = copyLoop(jit.Reads{Second: 1})
	backRows   = copyLoop(jit.Reads{Back: 1})
)

func copyLoop(r jit.Reads) (s stepLoop) {
	for i := range s {
		s[i] = sync.OnceValue(func() *jit.Code {
			l := &jit.Loop{Name: "a copy of steps", AVX2: i == 1, Code: []expr.Instr{{Op: expr.OpX, Type: dtype.U32}},
				Loads: []jit.Load{{Type: dtype.U32}}, Stores: []jit.Store{{Type: dtype.U32, Reg: 1}}, Arena: 2}
			c, err := jit.Compile(l.With(r))
			if err != nil || c.Spill() > len(stepArena{}) {
				return nil
			}
			return c
		})
	}
	return s
}

// rowsLoop returns a compiled loop that copies rows of n elements, and the number of 32-bit words
// in a row. The elements have the given size and are step bytes apart in the operand. It returns
// nil if there is no such loop, or if the rows are copied faster without it.
func rowsLoop(n, size, step int) (*jit.Code, int) {
	switch words := n * size / 4; {
	case step == size && n*size%4 == 0 && words >= shortestRow && plainRow(words):
		return plainRows.code(), words
	case size != 4 || n < shortestRow:
	case step == 0:
		return onceRows.code(), n
	case step == 8:
		return secondRows.code(), n
	case step == -4:
		return backRows.code(), n
	}
	return nil, 0
}

// code returns the loop for the processor, or nil if compiled loops are not in use.
func (s *stepLoop) code() *jit.Code {
	switch {
	case !fusing():
		return nil
	case avx2Only():
		return s[1]()
	}
	return s[0]()
}

// gatherSteps copies n words of 32 bits from src with a compiled loop. It returns false if there is
// no loop.
func gatherSteps(which *stepLoop, dst, src unsafe.Pointer, n int) bool {
	if n < shortestSteps {
		return false
	}
	c := which.code()
	if c == nil {
		return false
	}
	var arena stepArena
	reg := [3]unsafe.Pointer{src, dst, unsafe.Pointer(&arena)}
	c.Run(reg[:], nil, n, 1)
	return true
}

// copyRuns copies rows of the given number of words with a loop of [rowsLoop]. The arguments to
// and from are the distances in bytes between rows of dst and between rows of src.
func copyRuns(loop *jit.Code, dst, src unsafe.Pointer, words, to, from, rows int) {
	var arena stepArena
	reg, strides := [3]unsafe.Pointer{src, dst, unsafe.Pointer(&arena)}, [2]int{from, to}
	loop.Run(reg[:], strides[:], words, rows)
}
