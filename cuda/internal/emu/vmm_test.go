package emu

import (
	"errors"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// TestVirtualMemory maps and unmaps pages. Kernels and copies must be able to access several pages.
// Accesses to memory that is not mapped, or not accessible, must fault or return an error.
func TestVirtualMemory(t *testing.T) {
	const page = 64 << 10
	for _, meta := range []bool{false, true} {
		r := newRig(t, Config{Memory: 1 << 20, Granularity: page, Meta: meta})
		if n, err := r.MemGranularity(0); n != page || err != nil {
			t.Fatalf("pages of %d, %v", n, err)
		}
		// the reserved range may be larger than the device's memory
		p, err := r.MemAddressReserve(64 * page)
		r.ok(err)
		mapAt := func(i int) {
			t.Helper()
			h, err := r.MemCreate(page, 0)
			r.ok(err)
			r.ok(r.MemMap(p+cu.DevicePtr(i*page), page, h))
			r.ok(r.MemRelease(h))
		}
		free := func() uint64 {
			n, _, err := r.MemGetInfo()
			r.ok(err)
			return n
		}
		for _, i := range []int{2, 0, 1} {
			mapAt(i)
		}
		r.ok(r.MemSetAccess(p, 3*page, 0))
		if n := free(); n != 1<<20-3*page {
			t.Errorf("meta=%v: %d bytes are free", meta, n)
		}
		s := r.stream()
		if !meta {
			data := make([]uint32, 3*page/4)
			for i := range data {
				data[i] = uint32(i)
			}
			r.ok(r.MemcpyHtoDAsync(p, ptr(data), 3*page, s))
			if got := r.read(s, p, len(data)); got[page/4-1] != page/4-1 || got[page/4] != page/4 || got[len(data)-1] != uint32(len(data)-1) {
				t.Error("data across pages is not whole")
			}
		}
		r.ok(r.MemsetD8Async(p+page-100, 7, 200, s))
		r.ok(r.StreamSynchronize(s))
		r.ok(r.MemUnmap(p+page, page))
		if n := free(); n != 1<<20-2*page {
			t.Errorf("meta=%v: %d bytes are free after an unmap", meta, n)
		}
		if !meta {
			if got := r.read(s, p+2*page, 4); got[3] != 2*page/4+3 {
				t.Error("unmapping a page changed the next")
			}
		}
		bad := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, cu.ErrInvalidValue) {
				t.Errorf("meta=%v: %s gave %v", meta, what, err)
			}
		}
		h, err := r.MemCreate(page, 0)
		r.ok(err)
		bad("a map over a page", r.MemMap(p, page, h))
		bad("a map outside of the range", r.MemMap(p+64*page, page, h))
		bad("a map of half a memory", r.MemMap(p+page, page/2, h))
		bad("an unmap of what is not mapped", r.MemUnmap(p+page, page))
		bad("an unmap of half a page", r.MemUnmap(p, page/2))
		bad("access to what is not mapped", r.MemSetAccess(p, 3*page, 0))
		bad("the end of a range with pages", r.MemAddressFree(p, 64*page))
		bad("an unknown memory", r.MemRelease(99))
		bad("a free of mapped memory", r.MemFree(p))
		_, err = r.MemCreate(page+1, 0)
		bad("an odd size", err)
		if _, err := r.MemCreate(14*page, 0); !errors.Is(err, cu.ErrOutOfMemory) {
			t.Errorf("meta=%v: got %v", meta, err)
		}
		r.ok(r.MemMap(p+page, page, h))
		bad("a memory at a second place", r.MemMap(p+5*page, page, h))
		r.ok(r.MemRelease(h))
		bad("a second release", r.MemRelease(h))
		r.ok(r.MemSetAccess(p+page, page, 0))
		r.ok(r.MemUnmap(p, 3*page)) // unmaps several mappings at once
		if n := free(); n != 1<<20 {
			t.Errorf("meta=%v: %d bytes are free at the end", meta, n)
		}
		for _, n := range []uint64{1 << 44, 1<<64 - page} {
			if _, err := r.MemAddressReserve(n); !errors.Is(err, cu.ErrOutOfMemory) {
				t.Errorf("meta=%v: %d bytes of addresses: %v", meta, n, err)
			}
		}
		r.ok(r.MemAddressFree(p, 64*page))
		bad("a second end of a range", r.MemAddressFree(p, 64*page))
		if meta {
			continue
		}
		// A write to a page that is mapped but not accessible ends the context.
		p, err = r.MemAddressReserve(page)
		r.ok(err)
		mapAt(0)
		err = r.MemsetD8Async(p, 1, 16, s)
		if err == nil {
			err = r.StreamSynchronize(s)
		}
		if err == nil {
			t.Error("memory could be written without access")
		}
	}
}
