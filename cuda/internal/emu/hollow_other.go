//go:build !linux && !darwin

package emu

// hollow returns n bytes of Go memory. The runtime does not touch them if it gets them from the
// system.
func hollow(n uint64) ([]byte, error) { return make([]byte, n), nil }

// unmap does nothing, because the garbage collector frees what hollow made.
func unmap([]byte) error { return nil }
