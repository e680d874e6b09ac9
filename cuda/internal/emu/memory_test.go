package emu

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

func TestOutOfMemory(t *testing.T) {
	for _, meta := range []bool{false, true} {
		r := newRig(t, Config{Memory: 1 << 20, Meta: meta})
		a := r.alloc(700 << 10)
		_, err := r.MemAlloc(400 << 10)
		if !errors.Is(err, cu.ErrOutOfMemory) || !strings.Contains(err.Error(), "409600 bytes") {
			t.Errorf("meta=%v: got %v", meta, err)
		}
		if _, err := r.MemAlloc(1 << 62); !errors.Is(err, cu.ErrOutOfMemory) {
			t.Errorf("meta=%v: got %v", meta, err)
		}
		if _, err := r.MemAlloc(0); !errors.Is(err, cu.ErrInvalidValue) {
			t.Errorf("meta=%v: got %v", meta, err)
		}
		if free, total, err := r.MemGetInfo(); err != nil || total != 1<<20 || free != total-700<<10 {
			t.Errorf("meta=%v: %d of %d bytes are free, %v", meta, free, total, err)
		}
		r.ok(r.MemFree(a))
		if err := r.MemFree(a); !errors.Is(err, cu.ErrInvalidValue) {
			t.Errorf("meta=%v: a second free: %v", meta, err)
		}
		if err := r.MemFree(a + 8); !errors.Is(err, cu.ErrInvalidValue) {
			t.Errorf("meta=%v: an inner address: %v", meta, err)
		}
		if err := r.MemFree(12345); !errors.Is(err, cu.ErrInvalidValue) {
			t.Errorf("meta=%v: a foreign address: %v", meta, err)
		}
		b := r.alloc(1 << 20)
		if b == a || b%512 != 0 {
			t.Errorf("meta=%v: address %#x after %#x", meta, b, a)
		}
		r.ok(r.CtxSynchronize()) // none of the errors above may end the context
	}
}

// TestPinnedAndPageable checks when copies access host memory: page-locked memory when the stream
// reaches the copy, and pageable memory within the call.
func TestPinnedAndPageable(t *testing.T) {
	r := newRig(t, Config{Pageable: PageableNow})
	x, s := r.alloc(256), r.stream()
	upload := func(host []uint32) uint32 {
		fill(host, 1)
		r.ok(r.MemcpyHtoDAsync(x, ptr(host), 256, s))
		fill(host, 2)
		return r.read(s, x, 64)[0]
	}
	if v := upload(make([]uint32, 64)); v != 1 {
		t.Errorf("pageable upload sent %d, want what it was at the call", v)
	}
	if v := upload(r.pinned(64)); v != 2 {
		t.Errorf("pinned upload sent %d, want what it was when the copy ran", v)
	}
	if v := upload(r.pinned(128)[32:96]); v != 2 {
		t.Errorf("upload from inside of a pinned block sent %d", v)
	}
	r.ok(r.MemsetD32Async(x, 7, 64, s))
	host := r.pinned(64)
	r.ok(r.MemcpyDtoHAsync(ptr(host), x, 256, s))
	if host[0] != 0 {
		t.Error("pinned download completed within the call")
	}
	r.ok(r.StreamSynchronize(s))
	if !all(host, 7) {
		t.Errorf("pinned download brought %v", host)
	}
	if c := r.Stats(); c.Pageable != 4 || c.HtoD != (Traffic{3, 768}) || c.DtoH != (Traffic{4, 1024}) || c.HostAllocs != 3 {
		t.Errorf("counted %+v", c)
	}
	r.ok(r.MemFreeHost(ptr(host)))
	if err := r.MemFreeHost(ptr(host)); !errors.Is(err, cu.ErrInvalidValue) {
		t.Errorf("a second free: %v", err)
	}
}

// TestMappedHostMemory lets a kernel access host memory through its device address.
func TestMappedHostMemory(t *testing.T) {
	r := newRig(t, Config{})
	host := r.pinned(64)
	fill(host, 20)
	p := must(r.MemHostGetDevicePointer(unsafe.Pointer(&host[16])))(t)
	again := must(r.MemHostGetDevicePointer(ptr(host)))(t)
	if p != again+64 {
		t.Errorf("addresses %#x and %#x, want 64 apart", p, again)
	}
	r.ok(r.affine(0, p, 32, 2, 2))
	r.ok(r.CtxSynchronize())
	if !all(host[:16], 20) || !all(host[16:48], 42) || !all(host[48:], 20) {
		t.Errorf("got %v", host)
	}
	r.ok(r.MemFreeHost(ptr(host)))
	r.ok(r.affine(0, p, 32, 2, 2))
	if err := r.CtxSynchronize(); !errors.Is(err, cu.ErrIllegalAddress) {
		t.Errorf("a kernel on freed host memory: %v", err)
	}
	r = newRig(t, Config{})
	plain := must(r.MemHostAlloc(64, 0))(t)
	if _, err := r.MemHostGetDevicePointer(plain); !errors.Is(err, cu.ErrInvalidValue) {
		t.Errorf("memory without HostDeviceMap: %v", err)
	}
	var v uint32
	if _, err := r.MemHostGetDevicePointer(unsafe.Pointer(&v)); !errors.Is(err, cu.ErrInvalidValue) {
		t.Errorf("pageable memory: %v", err)
	}
}

func TestMemsetAndCopy(t *testing.T) {
	r := newRig(t, Config{Devices: 2})
	x, y := r.alloc(256), r.alloc(256)
	r.ok(r.MemsetD8Async(x, 0x11, 256, 0))
	r.ok(r.MemsetD16Async(x+2, 0x2233, 3, 0))
	r.ok(r.MemsetD32Async(x+8, 0x44556677, 1, 0))
	r.ok(r.MemcpyDtoDAsync(y, x, 128, 0))
	if v := r.read(0, y, 4); fmt.Sprintf("%x", v) != "[22331111 22332233 44556677 11111111]" {
		t.Errorf("got %x", v)
	}
	// Words that were not copied must still be uninitialised, and the copied words must be
	// initialised.
	r.ok(r.affine(0, y, 32, 1, 0))
	r.ok(r.CtxSynchronize())

	other := must(r.PrimaryCtxRetain(1))(t)
	r.ok(r.CtxSetCurrent(other))
	z := r.alloc(256)
	r.ok(r.MemcpyPeerAsync(z, other, x, r.ctx, 16, 0))
	if v := r.read(0, z, 4); v[2] != 0x44556677 {
		t.Errorf("peer copy brought %x", v)
	}
	if c := r.Stats(); c.Peer != (Traffic{1, 16}) || c.DtoD != (Traffic{1, 128}) || c.Memsets != (Traffic{3, 266}) {
		t.Errorf("counted %+v", c)
	}
	mod := must(r.ModuleLoadData([]byte(kernels), cu.JITOptions{}))(t)
	first := r.mod
	r.mod = mod
	r.ok(r.affine(0, z, 4, 1, 0)) // reads the 4 words that were copied
	r.ok(r.CtxSynchronize())
	r.ok(r.affine(0, z, 5, 1, 0))
	if err := r.CtxSynchronize(); !errors.Is(err, cu.ErrLaunchFailed) {
		t.Errorf("reading past what the peer copy brought: %v", err)
	}
	r.ok(r.CtxSetCurrent(r.ctx))
	r.mod = first

	for name, err := range map[string]error{
		"overlap":          r.MemcpyDtoDAsync(x, x+16, 32, 0),
		"other device":     r.MemcpyDtoDAsync(x, z, 16, 0),
		"past the end":     r.MemcpyDtoDAsync(x, y, 1<<20, 0),
		"odd address":      r.MemsetD16Async(x+1, 0, 1, 0),
		"address not by 4": r.MemsetD32Async(x+2, 0, 1, 0),
		"endless":          r.MemsetD32Async(x, 0, 1<<63, 0),
		"nil source":       r.MemcpyHtoDAsync(x, nil, 4, 0),
		"nil destination":  r.MemcpyDtoHAsync(nil, x, 4, 0),
		"host address":     r.MemsetD8Async(cu.DevicePtr(4096), 0, 1, 0),
	} {
		if !errors.Is(err, cu.ErrInvalidValue) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	r.ok(r.MemcpyHtoDAsync(0, nil, 0, 0)) // a copy of no bytes does nothing
	r.ok(r.CtxSynchronize())
}

// TestBlocks checks the blocks that a pool makes in one allocation. Work may access a block only
// within its bounds, and only before it is freed in stream order. A new block is uninitialised.
func TestBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		do     func(r *rig, s cu.Stream, seg cu.DevicePtr)
		result cu.Result
		words  string
	}{
		"inside": {func(r *rig, s cu.Stream, seg cu.DevicePtr) { r.ok(r.affine(s, seg, 32, 1, 1)) }, 0, ""},
		"past the request": {func(r *rig, s cu.Stream, seg cu.DevicePtr) { r.ok(r.affine(s, seg, 33, 1, 1)) },
			cu.ErrIllegalAddress, `"activation"`},
		"the neighbour": {func(r *rig, s cu.Stream, seg cu.DevicePtr) { r.ok(r.affine(s, seg+1024, 1, 1, 1)) }, cu.ErrIllegalAddress, ""},
		"used before freed": {func(r *rig, s cu.Stream, seg cu.DevicePtr) {
			r.ok(r.affine(s, seg, 32, 1, 1)) // still pending when BlockFreed is called
			r.BlockFreed(s, seg, 512)
		}, 0, ""},
		"used after freed": {func(r *rig, s cu.Stream, seg cu.DevicePtr) {
			r.BlockFreed(s, seg, 512)
			r.ok(r.affine(s, seg, 32, 1, 1))
		}, cu.ErrIllegalAddress, "freed"},
		"handed out again": {func(r *rig, s cu.Stream, seg cu.DevicePtr) {
			r.BlockFreed(s, seg, 512)
			r.BlockAllocated(s, seg, 128, 512, "gradient")
			r.ok(r.affine(s, seg, 32, 1, 1))
		}, cu.ErrLaunchFailed, "never been written"},
		"segment returned": {func(r *rig, s cu.Stream, seg cu.DevicePtr) {
			r.ok(r.StreamSynchronize(s))
			r.BlockFreed(s, seg, 512)
			r.ok(r.MemFree(seg)) // the mark that BlockFreed has queued has not run yet
		}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{})
			s, seg := r.stream(), r.alloc(2048)
			r.BlockFreed(s, seg, 2048) // marks the whole allocation as free first, like a new pool
			r.BlockAllocated(s, seg, 128, 512, "activation")
			r.ok(r.MemsetD32Async(seg, 1, 32, s))
			c.do(r, s, seg)
			err := r.CtxSynchronize()
			if c.result == 0 {
				r.ok(err)
			} else if !errors.Is(err, c.result) || !strings.Contains(err.Error(), c.words) {
				t.Errorf("got %v", err)
			}
		})
	}
	defer func() {
		if e := recover(); e == nil {
			t.Error("a block outside of memory did not panic")
		}
	}()
	r := newRig(t, Config{})
	r.BlockAllocated(0, r.alloc(512), 100, 4096, "too large")
}
