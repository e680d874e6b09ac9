//go:build !linux && !darwin

package emu

// mapUnreserved returns n bytes of Go memory. Bytes that the runtime gets from the system are
// already zero, so it does not clear them. A page of these bytes takes memory only after the first
// write to it.
func mapUnreserved(n uint64) ([]byte, error) { return make([]byte, n), nil }

// unmap does nothing, because the garbage collector frees the memory.
func unmap([]byte) error { return nil }
