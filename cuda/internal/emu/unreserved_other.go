//go:build !linux && !darwin

package emu

// mapUnreserved returns n bytes of Go memory. If the runtime gets these bytes from the system, it
// does not clear them. A page then takes memory only after the first write to it.
func mapUnreserved(n uint64) ([]byte, error) { return make([]byte, n), nil }

// unmap does nothing, because the garbage collector frees the memory.
func unmap([]byte) error { return nil }
