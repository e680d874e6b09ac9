//go:build !nogpu && linux && (amd64 || arm64)

package cu

import (
	"testing"
	"unsafe"
)

// TestMemoryLayouts compares the sizes and offsets of the structs with those of cuda.h, as a C
// compiler computes them (CUDA 12.9 and 13.2, 64-bit).
func TestMemoryLayouts(t *testing.T) {
	var p memAllocationProp
	var a memAccessDesc
	for _, row := range []struct {
		field    string
		at, want uintptr
	}{
		{"CUmemAllocationProp", unsafe.Sizeof(p), 32}, {"type", unsafe.Offsetof(p.kind), 0}, {"requestedHandleTypes", unsafe.Offsetof(p.handleTypes), 4},
		{"location", unsafe.Offsetof(p.location), 8}, {"location.id", unsafe.Offsetof(p.location) + unsafe.Offsetof(p.location.id), 12},
		{"win32HandleMetaData", unsafe.Offsetof(p.win32), 16}, {"allocFlags.compressionType", unsafe.Offsetof(p.compression), 24},
		{"allocFlags.gpuDirectRDMACapable", unsafe.Offsetof(p.rdma), 25}, {"allocFlags.usage", unsafe.Offsetof(p.usage), 26},
		{"CUmemAccessDesc", unsafe.Sizeof(a), 12}, {"access location", unsafe.Offsetof(a.location), 0}, {"flags", unsafe.Offsetof(a.flags), 8},
	} {
		if row.at != row.want {
			t.Errorf("%s is at %d, want %d", row.field, row.at, row.want)
		}
	}
}

// TestEachMemoryCall calls every method once. It checks the C function, its arguments, the memory
// to which they point, and the results.
func TestEachMemoryCall(t *testing.T) {
	f := newFake(t, 12040)
	d := f.start(t)
	type args = *[11]uintptr
	expect := f.expects(t, ErrOutOfMemory)
	value := func(err error, ok bool) error {
		if err == nil && !ok {
			t.Error("wrong value")
		}
		return err
	}
	prop := func(i int) func(args) {
		return func(a args) {
			got := (*[32]byte)(pointer(a[i]))
			// the request must be for page-locked memory on device 3
			if want := [32]byte{0: 1, 8: 1, 12: 3}; *got != want {
				t.Errorf("the description of memory is %v", *got)
			}
			*(*uint64)(pointer(a[0])) = 0x200000
		}
	}
	const p, n, h = 0x7f0000200000, 4 << 20, 0x1122334455
	expect("cuMemGetAllocationGranularity", []uintptr{skip, skip, 0}, prop(1), func() error { g, err := d.MemGranularity(3); return value(err, g == 2<<20) })
	expect("cuMemAddressReserve", []uintptr{skip, n, 0, 0, 0}, func(a args) { *(*uint64)(pointer(a[0])) = p }, func() error {
		v, err := d.MemAddressReserve(n)
		return value(err, v == p)
	})
	expect("cuMemAddressFree", []uintptr{p, n}, nil, func() error { return d.MemAddressFree(p, n) })
	expect("cuMemCreate", []uintptr{skip, n, skip, 0}, prop(2), func() error { v, err := d.MemCreate(n, 3); return value(err, v == 0x200000) })
	expect("cuMemRelease", []uintptr{h}, nil, func() error { return d.MemRelease(h) })
	expect("cuMemMap", []uintptr{p, n, 0, h, 0}, nil, func() error { return d.MemMap(p, n, h) })
	access := func(a args) {
		if got := *(*[3]int32)(pointer(a[2])); got != [3]int32{1, 3, 3} {
			t.Errorf("the description of access is %v", got)
		}
	}
	expect("cuMemSetAccess", []uintptr{p, n, skip, 1}, access, func() error { return d.MemSetAccess(p, n, 3) })
	expect("cuMemUnmap", []uintptr{p, n}, nil, func() error { return d.MemUnmap(p, n) })
}
