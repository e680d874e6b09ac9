package jit

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"unsafe"
)

// Code is a loop in executable memory. Its memory is freed when nothing refers to it any more.
type Code struct {
	name  string
	entry uintptr
	bytes []byte
	spill int
}

// Spill returns the bytes of spill memory that the loop uses.
func (c *Code) Spill() int { return c.spill }

// Bytes returns a copy of the machine code and of the constants behind it.
func (c *Code) Bytes() []byte { return append([]byte(nil), c.bytes...) }

// Run computes rows times n elements. reg has the addresses that the loop asks for by their
// number. After each row, the addresses of loads and stores grow by strides, in the order in which
// the loop lists them; strides may be nil for one row. The caller's goroutine cannot be preempted
// meanwhile. An access to memory that does not exist is a bug. It panics with a text that names the
// program.
func (c *Code) Run(reg []unsafe.Pointer, strides []int, n, rows int) {
	defer c.named(debug.SetPanicOnFault(true))
	call(c.entry, unsafe.Pointer(unsafe.SliceData(reg)), n, rows, unsafe.Pointer(unsafe.SliceData(strides)))
	runtime.KeepAlive(c)
}

// named restores how faults are handled, and gives a fault the name of the program.
func (c *Code) named(panics bool) {
	debug.SetPanicOnFault(panics)
	if e := recover(); e != nil {
		if err, ok := e.(runtime.Error); ok {
			panic(fmt.Sprintf("cpu: the machine code of %s: %v", c.name, err))
		}
		panic(e)
	}
}
