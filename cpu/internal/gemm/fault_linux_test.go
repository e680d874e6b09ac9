package gemm

import (
	"math/rand/v2"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"golang.org/x/sys/unix"
)

// beforeFault returns n elements, followed by a page that the process may not access. Reading past
// the end is a fault.
func beforeFault[E any](t *testing.T, n int) []E {
	page := unix.Getpagesize()
	bytes := n * int(unsafe.Sizeof(*new(E)))
	size := ceil(bytes, page) * page
	m, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mprotect(m[size:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return unsafe.Slice((*E)(unsafe.Pointer(&m[size-bytes])), n)
}

// TestStaysInside multiplies operands that are followed by pages without access. There must be no
// fault.
func TestStaysInside(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for _, variant := range asm.Variants() {
		t.Run(variant, func(t *testing.T) {
			defer asm.Use(variant)()
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			for range 60 {
				m, n, k := 1+r.IntN(40), 1+r.IntN(70), 1+r.IntN(90)
				if r.IntN(3) == 0 {
					m, k = 1+r.IntN(12), 200+r.IntN(60)
				}
				a, b, c := beforeFault[float32](t, m*k), beforeFault[float32](t, k*n), beforeFault[float32](t, m*n)
				low, with := beforeFault[uint16](t, m*k), beforeFault[uint16](t, k*n)
				narrow, by, sums := beforeFault[int8](t, m*k), beforeFault[int8](t, k*n), beforeFault[int32](t, m*n)
				for i := range 4 {
					ars, acs, brs, bcs := k, 1, n, 1
					if i%2 == 1 {
						ars, acs = 1, m
					}
					if i/2 == 1 {
						brs, bcs = 1, k
					}
					func() {
						defer func() {
							if e := recover(); e != nil {
								t.Fatalf("m %d, n %d, k %d, A by %d and %d, B by %d and %d: %v", m, n, k, ars, acs, brs, bcs, e)
							}
						}()
						F32(Serial, m, n, k, a, ars, acs, b, brs, bcs, c, n, 1, i == 0)
						for _, withoutTiles = range []bool{true, false} {
							Int8(Serial, m, n, k, narrow, ars, acs, by, brs, bcs, sums, n, 1)
							if HasBF16() {
								BF16(Serial, m, n, k, low, ars, acs, with, brs, bcs, c, n, 1, i == 0)
							}
						}
					}()
				}
			}
		})
	}
}
