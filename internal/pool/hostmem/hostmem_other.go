//go:build !linux && !darwin

package hostmem

// System says where segments come from.
const System = "go"

// mapping is Go memory, alive as long as the Memory holds it.
type mapping struct{ words []uint64 }

func acquire(size uint64) (mapping, uintptr, bool, error) {
	words, addr := goMemory(size)
	return mapping{words}, addr, false, nil
}

func release(mapping) {}

func capacity() (free, total uint64) { return 0, 0 }
