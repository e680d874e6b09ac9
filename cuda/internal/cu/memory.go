//go:build !nogpu && (linux || windows) && (amd64 || arm64)

package cu

import (
	"runtime"
	"unsafe"
)

func (d *driver) MemAlloc(n uint64) (DevicePtr, error) {
	p, r := get1(d.fn.memAlloc, uintptr(n))
	return DevicePtr(p), failf(r, "cuMemAlloc", "%d bytes", n)
}

func (d *driver) MemFree(p DevicePtr) error {
	return failf(call1(d.fn.memFree, uintptr(p)), "cuMemFree", "%#x", uint64(p))
}

func (d *driver) MemGetInfo() (free, total uint64, err error) {
	f, t, r := get2(d.fn.memGetInfo)
	return f, t, fail(r, "cuMemGetInfo")
}

func (d *driver) MemHostAlloc(n uint64, f HostAllocFlags) (unsafe.Pointer, error) {
	b := getBlock(d.fn.memHostAlloc)
	defer putBlock(b)
	b.out[0] = 0
	b.a[0], b.a[1], b.a[2] = b.outAddr(0), uintptr(n), uintptr(f)
	r := b.call()
	// b.out[0] is read as a pointer. The pointer leads outside of Go's heap, so the garbage
	// collector ignores it.
	return *(*unsafe.Pointer)(unsafe.Pointer(&b.out[0])), failf(r, "cuMemHostAlloc", "%d bytes", n)
}

func (d *driver) MemFreeHost(p unsafe.Pointer) error {
	return failf(call1(d.fn.memFreeHost, uintptr(p)), "cuMemFreeHost", "%p", p)
}

func (d *driver) MemHostGetDevicePointer(p unsafe.Pointer) (DevicePtr, error) {
	v, r := get1(d.fn.memHostGetDevicePointer, uintptr(p), 0)
	return DevicePtr(v), failf(r, "cuMemHostGetDevicePointer", "%p", p)
}

func (d *driver) MemcpyHtoDAsync(dst DevicePtr, src unsafe.Pointer, n uint64, s Stream) error {
	r := call4(d.fn.memcpyHtoDAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
	runtime.KeepAlive(src)
	if r != 0 {
		return failf(r, "cuMemcpyHtoDAsync", "%d bytes to %#x", n, uint64(dst))
	}
	return nil
}

func (d *driver) MemcpyDtoHAsync(dst unsafe.Pointer, src DevicePtr, n uint64, s Stream) error {
	r := call4(d.fn.memcpyDtoHAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
	runtime.KeepAlive(dst)
	if r != 0 {
		return failf(r, "cuMemcpyDtoHAsync", "%d bytes from %#x", n, uint64(src))
	}
	return nil
}

func (d *driver) MemcpyDtoDAsync(dst, src DevicePtr, n uint64, s Stream) error {
	if r := call4(d.fn.memcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(n), uintptr(s)); r != 0 {
		return failf(r, "cuMemcpyDtoDAsync", "%d bytes from %#x to %#x", n, uint64(src), uint64(dst))
	}
	return nil
}

func (d *driver) MemcpyPeerAsync(dst DevicePtr, dstCtx Context, src DevicePtr, srcCtx Context, n uint64, s Stream) error {
	b := getBlock(d.fn.memcpyPeerAsync)
	b.a[0], b.a[1], b.a[2], b.a[3] = uintptr(dst), uintptr(dstCtx), uintptr(src), uintptr(srcCtx)
	b.a[4], b.a[5] = uintptr(n), uintptr(s)
	r := b.call()
	putBlock(b)
	if r != 0 {
		return failf(r, "cuMemcpyPeerAsync", "%d bytes from %#x to %#x", n, uint64(src), uint64(dst))
	}
	return nil
}

func (d *driver) MemsetD8Async(dst DevicePtr, v uint8, n uint64, s Stream) error {
	if r := call4(d.fn.memsetD8Async, uintptr(dst), uintptr(v), uintptr(n), uintptr(s)); r != 0 {
		return failf(r, "cuMemsetD8Async", "%d elements at %#x", n, uint64(dst))
	}
	return nil
}

func (d *driver) MemsetD16Async(dst DevicePtr, v uint16, n uint64, s Stream) error {
	if r := call4(d.fn.memsetD16Async, uintptr(dst), uintptr(v), uintptr(n), uintptr(s)); r != 0 {
		return failf(r, "cuMemsetD16Async", "%d elements at %#x", n, uint64(dst))
	}
	return nil
}

func (d *driver) MemsetD32Async(dst DevicePtr, v uint32, n uint64, s Stream) error {
	if r := call4(d.fn.memsetD32Async, uintptr(dst), uintptr(v), uintptr(n), uintptr(s)); r != 0 {
		return failf(r, "cuMemsetD32Async", "%d elements at %#x", n, uint64(dst))
	}
	return nil
}
