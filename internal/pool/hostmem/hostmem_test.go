package hostmem

import (
	"errors"
	"runtime"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/internal/pool"
)

// segmentBytes returns a segment as a slice. The conversion from an address is valid: the memory
// lies outside of Go's heap, or the Memory keeps it alive.
func segmentBytes(addr uintptr, size uint64) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), size)
}

func TestSegments(t *testing.T) {
	var m Memory
	sizes := []uint64{1, 4096, 100_000, HugePage, 20 << 20, 6*HugePage + 4096}
	var addrs []uintptr
	var sum uint64
	for round := range 3 {
		addrs = addrs[:0]
		for _, n := range sizes {
			a, err := m.Alloc(n)
			if err != nil {
				t.Fatal(err)
			}
			if align := uintptr(4096); a%align != 0 {
				t.Errorf("%d bytes at %#x", n, a)
			}
			if System == "mmap" && n >= HugePage && a%HugePage != 0 {
				t.Errorf("%d bytes at %#x: not on a huge page", n, a)
			}
			b := segmentBytes(a, n)
			for i := 0; i < len(b); i += 509 {
				if b[i] != 0 {
					t.Fatalf("round %d: fresh segment of %d holds %d at %d", round, n, b[i], i)
				}
			}
			for i := range b {
				b[i] = 0xa5
			}
			addrs = append(addrs, a)
			sum += n
		}
		if got, huge := m.Used(); got != sum || huge > got {
			t.Fatalf("used %d (huge %d), handed out %d", got, huge, sum)
		}
		for i, a := range addrs {
			for j, b := range segmentBytes(a, sizes[i]) {
				if b != 0xa5 {
					t.Fatalf("segment %d holds %#x at %d: another overlaps it", i, b, j)
				}
			}
		}
		for i, a := range addrs {
			m.Free(a, sizes[i])
			sum -= sizes[i]
		}
	}
	if got, huge := m.Used(); got != 0 || huge != 0 {
		t.Errorf("%d bytes (huge %d) are still held", got, huge)
	}
}

func TestErrors(t *testing.T) {
	var m Memory
	for _, n := range []uint64{0, 1<<47 + 1, 1 << 63} {
		if _, err := m.Alloc(n); !errors.Is(err, pool.ErrNoMemory) {
			t.Errorf("Alloc(%d): %v", n, err)
		}
	}
	if System == "mmap" || runtime.GOARCH == "wasm" {
		// 1<<47 bytes exceed any address space
		if _, err := m.Alloc(1 << 47); !errors.Is(err, pool.ErrNoMemory) {
			t.Errorf("Alloc(1<<47): %v", err)
		}
	}
	a, err := m.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []func(){func() { m.Free(a, 8192) }, func() { m.Free(a+4096, 4096) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a wrong Free passed")
				}
			}()
			f()
		}()
	}
	m.Free(a, 4096)
}

func TestGoMemory(t *testing.T) {
	for _, n := range []uint64{1, 512, 8192, 100_000, HugePage, 20<<20 + 512} {
		words, addr := goMemory(n)
		if uint64(len(words))*8 < n || addr%4096 != 0 || addr != uintptr(unsafe.Pointer(&words[0])) {
			t.Errorf("%d bytes: %d words at %#x", n, len(words), addr)
		}
		words[len(words)-1] = 1
	}
}
