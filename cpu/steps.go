package cpu

import (
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/cpu/internal/jit"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// shortestSteps is the least number of elements that a loop gathers, because a call of it takes as
// long as Go's copy of some dozens.
const shortestSteps = 64

// second and back copy every second word of 32 bits, and words in reverse order, to contiguous
// memory. They are nil if the system refuses executable memory.
var (
	second = sync.OnceValue(func() *jit.Code { return copyLoop(jit.Reads{Second: 1}) })
	back   = sync.OnceValue(func() *jit.Code { return copyLoop(jit.Reads{Back: 1}) })
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

// stepsLoop returns second() or back(), or nil where loops are not in use.
func stepsLoop(which func() *jit.Code) *jit.Code {
	if asm.Active() != "avx512" || !fusing() {
		return nil
	}
	return which()
}

// gatherSteps gathers n words of 32 bits with a loop. It reports false if it has done nothing.
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
