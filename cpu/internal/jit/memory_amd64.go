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

// Why returns the reason why loops cannot be compiled here, or nil if they can. Possible reasons
// are: FLAMBEAU_JIT is "off", or the system refuses executable memory. The caller must check that
// the processor has AVX-512 F, BW, DQ and VL, and BMI2.
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

// protect returns executable memory with the given bytes. The memory is never writable and
// executable at the same time.
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

// install copies code to executable memory and returns it as a Code with the given name.
func install(name string, code []byte) (*Code, error) {
	m, err := protect(code)
	if err != nil {
		return nil, err
	}
	c := &Code{name: name, entry: uintptr(unsafe.Pointer(unsafe.SliceData(m))), bytes: m}
	runtime.AddCleanup(c, func(m []byte) { _ = unix.Munmap(m) }, m)
	return c, nil
}
