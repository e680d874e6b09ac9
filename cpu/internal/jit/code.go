package jit

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"unsafe"
)

// Code is a loop in executable memory. The memory is freed when the Code is unreachable.
type Code struct {
	name  string
	entry uintptr
	bytes []byte
	spill int
}

// Spill returns the number of bytes of spill memory that the loop uses.
func (c *Code) Spill() int { return c.spill }

// Bytes returns a copy of the machine code and of the constants after it.
func (c *Code) Bytes() []byte { return append([]byte(nil), c.bytes...) }

// Run computes the given number of rows, each of n elements. The slice reg holds addresses; the
// loop's loads and stores name them by index. The slice strides holds the distances in bytes from
// one row to the next: first of the loads, then of the stores. It may be nil for one row. The
// caller's goroutine cannot be preempted during Run. An access to memory that does not exist is a
// bug, and Run panics with the name of the program.
func (c *Code) Run(reg []unsafe.Pointer, strides []int, n, rows int) {
	defer c.restoreFaults(debug.SetPanicOnFault(true))
	call(c.entry, unsafe.Pointer(unsafe.SliceData(reg)), n, rows, unsafe.Pointer(unsafe.SliceData(strides)))
	runtime.KeepAlive(c)
}

// RunColumns runs a loop that combines columns. It computes the given number of rows, each of n
// results. A result combines depth elements of its column; depth must be at least 1. strides has
// two halves, each with one entry for each load and one for the result. The first half holds
// distances in bytes from one row of results to the next, and the second half from one element of a
// column to the next.
func (c *Code) RunColumns(reg []unsafe.Pointer, strides []int, n, rows, depth int) {
	k := len(strides) / 2
	for _, step := range strides[k:] {
		strides = append(strides, -depth*step)
	}
	c.Run(reg, append(strides, depth), n, rows)
}

// restoreFaults must be deferred. It restores the setting of debug.SetPanicOnFault. After a fault,
// it adds the name of the program to the panic.
func (c *Code) restoreFaults(panics bool) {
	debug.SetPanicOnFault(panics)
	if e := recover(); e != nil {
		if err, ok := e.(runtime.Error); ok {
			panic(fmt.Sprintf("cpu: the machine code of %s: %v", c.name, err))
		}
		panic(e)
	}
}
