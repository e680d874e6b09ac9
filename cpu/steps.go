package cpu

import (
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/cpu/internal/jit"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// shortestSteps is the least number of elements for which a compiled loop is used. A call of the
// loop takes as long as Go's copy of some dozens of elements.
const shortestSteps = 64

// longestPlain is the largest number of words in a row that a compiled loop copies. For longer
// rows, Go's copy is as fast.
const longestPlain = 512

// These loops copy 32-bit words to rows. The loop plainRows reads successive words of the operand,
// and onceRows reads one word for each row. The loop secondRows reads every second word, and
// backRows reads words in reverse order. A loop is nil if the system refuses executable memory.
var (
	plainRows  = sync.OnceValue(func() *jit.Code { return copyLoop(jit.Reads{}) })
	onceRows   = sync.OnceValue(func() *jit.Code { return copyLoop(jit.Reads{Once: 1}) })
	secondRows = sync.OnceValue(func() *jit.Code { return copyLoop(jit.Reads{Second: 1}) })
	backRows   = sync.OnceValue(func() *jit.Code { return copyLoop(jit.Reads{Back: 1}) })
)

func copyLoop(r jit.Reads) *jit.Code {
	l := &jit.Loop{Name: "a copy of steps", Code: []expr.Instr{{Op: expr.OpX, Type: dtype.U32}},
		Loads: []jit.Load{{Type: dtype.U32}}, Stores: []jit.Store{{Type: dtype.U32, Reg: 1}}, Arena: 1}
	c, err := jit.Compile(l.With(r))
	if err != nil {
		return nil
	}
	return c
}

// rowsLoop returns a compiled loop that copies rows of n elements, and the number of 32-bit words
// in a row. The elements have the given size and are step bytes apart in the operand. It returns
// nil if there is no such loop, or if the rows are copied faster without it.
func rowsLoop(n, size, step int) (*jit.Code, int) {
	switch words := n * size / 4; {
	case step == size && n*size%4 == 0 && words >= shortestRow && words <= longestPlain:
		return stepsLoop(plainRows), words
	case size != 4 || n < shortestRow:
	case step == 0:
		return stepsLoop(onceRows), n
	case step == 8:
		return stepsLoop(secondRows), n
	case step == -4:
		return stepsLoop(backRows), n
	}
	return nil, 0
}

// stepsLoop returns the result of loop, or nil if compiled loops are not in use.
func stepsLoop(loop func() *jit.Code) *jit.Code {
	if asm.Active() != "avx512" || !fusing() {
		return nil
	}
	return loop()
}

// gatherSteps copies n words of 32 bits from src with a compiled loop. It returns false if there is
// no loop.
func gatherSteps(which func() *jit.Code, dst, src unsafe.Pointer, n int) bool {
	if n < shortestSteps {
		return false
	}
	c := stepsLoop(which)
	if c == nil {
		return false
	}
	reg := [2]unsafe.Pointer{src, dst}
	c.Run(reg[:], nil, n, 1)
	return true
}
