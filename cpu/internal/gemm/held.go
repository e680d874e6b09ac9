package gemm

import (
	"runtime"
	"unsafe"

	"github.com/flambeau-go/flambeau/internal/pool/hostmem"
)

// held is memory outside of Go's heap for packed panels. It consists of huge pages, because a core
// caches the addresses of few pages. With huge pages, products of size 1024 took 0.96 to 0.99 of
// the time.
type held struct {
	memory hostmem.Memory
	addr   uintptr
	size   uint64
}

// free returns the memory to the system. It does nothing if there is none.
func (h *held) free() {
	if h.size > 0 {
		h.memory.Free(h.addr, h.size)
		h.size = 0
	}
}

// grow replaces the memory by at least n bytes. It reports whether the system had them.
func (h *held) grow(n int) bool {
	h.free()
	size := uint64(ceil(n, hostmem.HugePage)) * hostmem.HugePage
	addr, err := h.memory.Alloc(size)
	if err != nil {
		return false
	}
	h.addr, h.size = addr, size
	return true
}

// large returns n elements, as the function aligned does. If they have at least the size of a huge
// page, their memory belongs to h, and the system gets it back when the job is garbage.
func (j *job[E, T]) large(h **held, buf []E, n int) []E {
	size := int(unsafe.Sizeof(*new(E)))
	if cap(buf) >= n || n*size < hostmem.HugePage {
		return aligned(buf, n)
	}
	if *h == nil {
		*h = new(held)
		runtime.AddCleanup(j, (*held).free, *h)
	}
	if !(*h).grow(n * size) {
		return aligned[E](nil, n)
	}
	return unsafe.Slice(*(**E)(unsafe.Pointer(&(*h).addr)), (*h).size/uint64(size))[:n]
}
