//go:build !linux && !darwin

package emu

// mapUnreserved returns n bytes of Go memory. The runtime does not touch them if it gets them from
// the system.
func mapUnreserved(n uint64) ([]byte, error) { return make([]byte, n), nil }

// unmap does nothing, because the garbage collector frees what mapUnreserved made.
func unmap([]byte) error { return nil }
