package ptxvm

import (
	"fmt"
	"strings"
)

// FaultKind classifies the mistakes of a kernel.
type FaultKind uint8

// The kinds of fault.
const (
	// the address is outside of every allocation, block, array or parameter
	OutOfBounds FaultKind = iota + 1
	// the address is not a multiple of the access size
	Misaligned
	// two accesses to one byte of shared memory are unordered, and one is a write
	SharedRace
	UninitialisedRegister // a register is read before its lane has written it
	UninitialisedMemory   // a byte is read before it was written
	BarrierDivergence     // only a part of a warp reaches a barrier of the block
	// a warp-level instruction is executed without all of its member lanes
	ShuffleDivergence
	UniformBranchDivergence // the lanes of a bra.uni disagree
	// the destination of a cp.async is used before the wait, or by another thread before a barrier
	AsyncCopyNotWaited
	Trap // the kernel executes trap or brkpt
	// warps wait at barriers that no running warp can complete
	Deadlock
	Runaway // a warp executes more than Launch.MaxSteps instructions
	// the launch itself is invalid (sizes, parameters, target)
	BadLaunch
	ReadOnly // a store to constant or parameter memory
	// a call of an address without a function, or a call that exceeds the largest stack
	BadCall
	GlobalRace // two accesses to one byte of global memory are unordered, and one is a write
)

var faultNames = [...]string{
	OutOfBounds: "out-of-bounds access", Misaligned: "misaligned access", SharedRace: "shared-memory race",
	UninitialisedRegister: "uninitialised register", UninitialisedMemory: "uninitialised memory",
	BarrierDivergence: "barrier under divergence", ShuffleDivergence: "warp instruction under divergence",
	UniformBranchDivergence: "divergent bra.uni",
	AsyncCopyNotWaited:      "cp.async data used before its wait", Trap: "trap", Deadlock: "deadlock", Runaway: "runaway kernel",
	BadLaunch: "bad launch", ReadOnly: "write to read-only memory", BadCall: "bad call", GlobalRace: "race on global memory",
}

func (k FaultKind) String() string {
	if int(k) < len(faultNames) && faultNames[k] != "" {
		return faultNames[k]
	}
	return fmt.Sprintf("FaultKind(%d)", uint8(k))
}

// Site is a line of a kernel's PTX text with the thread that executed it.
type Site struct {
	Line   int    // line of the PTX text, from 1
	Source string // text of the PTX line, trimmed
	// Thread is %tid, the index of the thread in its block.
	Thread [3]uint32
}

// Fault is a mistake of a kernel, with its line and thread. It is the error of Launch.Run.
type Fault struct {
	Kind   FaultKind
	Kernel string
	Line   int    // line of the PTX text, counted from 1; 0 for BadLaunch
	Source string // text of the PTX line, trimmed
	// CTA is %ctaid, the index of the block.
	CTA [3]uint32
	// Thread is %tid of the first lane with this fault.
	Thread [3]uint32
	Addr   uint64 // address of the access; 0 if there is none
	Msg    string
	Other  *Site // the earlier access of a race, or the cp.async; otherwise nil
}

// Error describes the fault in one sentence.
func (f *Fault) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s in kernel %s", f.Kind, f.Kernel)
	if f.Line > 0 {
		fmt.Fprintf(&b, " at PTX line %d (%s), block (%d,%d,%d), thread (%d,%d,%d)", f.Line, f.Source,
			f.CTA[0], f.CTA[1], f.CTA[2], f.Thread[0], f.Thread[1], f.Thread[2])
	}
	if f.Msg != "" {
		b.WriteString(": ")
		b.WriteString(f.Msg)
	}
	if o := f.Other; o != nil {
		fmt.Fprintf(&b, "; the other access is PTX line %d (%s) by thread (%d,%d,%d)", o.Line, o.Source, o.Thread[0], o.Thread[1], o.Thread[2])
	}
	return b.String()
}

// ParseError reports PTX text that Parse cannot accept.
type ParseError struct {
	Line int // line of the text, from 1
	Msg  string
}

func (e *ParseError) Error() string { return fmt.Sprintf("ptx line %d: %s", e.Line, e.Msg) }
