//go:build !linux || !amd64 || noasm

package jit

import (
	"errors"
	"unsafe"
)

func call(uintptr, unsafe.Pointer, int, int, unsafe.Pointer) {}

// Why returns the reason why loops cannot be compiled here.
func Why() error { return errors.New("loops are compiled on linux/amd64 only") }

func install(string, []byte) (*Code, error) { return nil, Why() }
