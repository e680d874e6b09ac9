//go:build linux && !noasm

package jit

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:noescape
func call(entry uintptr, reg unsafe.Pointer, n, rows int, strides unsafe.Pointer)

// Why returns why loops cannot be compiled here: the variable FLAMBEAU_JIT says off, or the system
// refuses executable memory. It returns nil if they can. What the processor must have, the caller
// checks: AVX-512 F, BW, DQ and VL, and BMI2.
var Why = sync.OnceValue(func() error {
	if os.Getenv("FLAMBEAU_JIT") == "off" {
		return errors.New("FLAMBEAU_JIT=off")
	}
	m, err := protect([]byte{0xc3})
	if err != nil {
		return err
	}
	return unix.Munmap(m)
})

// protect returns executable memory with the given bytes. Memory is never writable and executable
// at once.
func protect(code []byte) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, len(code), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("memory for machine code: %w", err)
	}
	copy(m, code)
	if err := unix.Mprotect(m, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		_ = unix.Munmap(m)
		return nil, fmt.Errorf("memory for machine code cannot be made executable: %w", err)
	}
	return m, nil
}

// install makes code executable.
func install(name string, code []byte) (*Code, error) {
	m, err := protect(code)
	if err != nil {
		return nil, err
	}
	c := &Code{name: name, entry: uintptr(unsafe.Pointer(unsafe.SliceData(m))), bytes: m}
	runtime.AddCleanup(c, func(m []byte) { _ = unix.Munmap(m) }, m)
	return c, nil
}
