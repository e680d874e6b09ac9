//go:build !nogpu && (linux || windows) && (amd64 || arm64)

package cu

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// driver implements API with NVIDIA's driver library.
type driver struct {
	fn      symbols
	library string
	version Version
}

var _ API = (*driver)(nil)
var _ Emulated = (*driver)(nil)

// Emulated reports false.
func (d *driver) Emulated() bool { return false }

// fail returns the *Error of a call, or nil for success.
func fail(r Result, call string) error {
	if r == 0 {
		return nil
	}
	return &Error{Call: call, Result: r}
}

// failf is fail with a detail, which is formatted only if there is an error.
func failf(r Result, call, format string, args ...any) error {
	if r == 0 {
		return nil
	}
	return &Error{Call: call, Result: r, Detail: fmt.Sprintf(format, args...)}
}

// resultOf returns the Result in err, or ErrUnknown if there is none.
func resultOf(err error) Result {
	var r Result
	if errors.As(err, &r) {
		return r
	}
	return ErrUnknown
}

func (d *driver) Init() error { return fail(call1(d.fn.init, 0), "cuInit") }

func (d *driver) DriverVersion() (Version, error) {
	v, r := get1(d.fn.driverGetVersion)
	return Version(int32(v)), fail(r, "cuDriverGetVersion")
}

func (d *driver) DeviceCount() (int, error) {
	n, r := get1(d.fn.deviceGetCount)
	return int(int32(n)), fail(r, "cuDeviceGetCount")
}

func (d *driver) DeviceGet(ordinal int) (Device, error) {
	v, r := get1(d.fn.deviceGet, uintptr(ordinal))
	return Device(int32(v)), failf(r, "cuDeviceGet", "ordinal %d", ordinal)
}

func (d *driver) DeviceName(dev Device) (string, error) {
	buf := heapBytes(256)
	r := call3(d.fn.deviceGetName, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), uintptr(dev))
	runtime.KeepAlive(buf)
	return gostring(buf), failf(r, "cuDeviceGetName", "device %d", dev)
}

func (d *driver) DeviceAttribute(dev Device, a DeviceAttr) (int, error) {
	v, r := get1(d.fn.deviceGetAttribute, uintptr(a), uintptr(dev))
	return int(int32(v)), failf(r, "cuDeviceGetAttribute", "attribute %d of device %d", a, dev)
}

func (d *driver) DeviceTotalMem(dev Device) (uint64, error) {
	n, r := get1(d.fn.deviceTotalMem, uintptr(dev))
	return n, failf(r, "cuDeviceTotalMem", "device %d", dev)
}

func (d *driver) DeviceUUID(dev Device) (UUID, error) {
	b := getBlock(d.fn.deviceGetUUID)
	defer putBlock(b)
	b.a[0], b.a[1] = b.outAddr(0), uintptr(dev)
	r := b.call()
	return *(*UUID)(unsafe.Pointer(&b.out)), failf(r, "cuDeviceGetUuid", "device %d", dev)
}

func (d *driver) DevicePCIBusID(dev Device) (string, error) {
	buf := heapBytes(64)
	r := call3(d.fn.deviceGetPCIBusID, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), uintptr(dev))
	runtime.KeepAlive(buf)
	return gostring(buf), failf(r, "cuDeviceGetPCIBusId", "device %d", dev)
}

func (d *driver) DeviceCanAccessPeer(dev, peer Device) (bool, error) {
	v, r := get1(d.fn.deviceCanAccessPeer, uintptr(dev), uintptr(peer))
	return int32(v) != 0, failf(r, "cuDeviceCanAccessPeer", "devices %d and %d", dev, peer)
}

func (d *driver) PrimaryCtxRetain(dev Device) (Context, error) {
	c, r := get1(d.fn.primaryCtxRetain, uintptr(dev))
	return Context(c), failf(r, "cuDevicePrimaryCtxRetain", "device %d", dev)
}

func (d *driver) PrimaryCtxRelease(dev Device) error {
	return failf(call1(d.fn.primaryCtxRelease, uintptr(dev)), "cuDevicePrimaryCtxRelease", "device %d", dev)
}

func (d *driver) PrimaryCtxSetFlags(dev Device, f CtxFlags) error {
	return failf(call2(d.fn.primaryCtxSetFlags, uintptr(dev), uintptr(f)), "cuDevicePrimaryCtxSetFlags", "device %d, flags %#x", dev, uint32(f))
}

func (d *driver) CtxSetCurrent(c Context) error {
	return fail(call1(d.fn.ctxSetCurrent, uintptr(c)), "cuCtxSetCurrent")
}

func (d *driver) CtxSynchronize() error { return fail(call0(d.fn.ctxSynchronize), "cuCtxSynchronize") }

func (d *driver) CtxEnablePeerAccess(peer Context) error {
	return fail(call2(d.fn.ctxEnablePeerAccess, uintptr(peer), 0), "cuCtxEnablePeerAccess")
}

func (d *driver) CtxStreamPriorityRange() (least, greatest int, err error) {
	l, g, r := get2(d.fn.ctxGetStreamPriorityRange)
	return int(int32(l)), int(int32(g)), fail(r, "cuCtxGetStreamPriorityRange")
}

// heapBytes returns memory on the heap, which does not move, so that C functions may write to it.
// It must not be inlined. Otherwise the compiler could put the slice on the stack, which may move
// between the taking of its address and the call.
//
//go:noinline
func heapBytes(n int) []byte { return make([]byte, n) }

// gostring returns the C string at the start of b.
func gostring(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

var _ Peers = (*driver)(nil)

// peerSymbols are the functions of [Peers]. A driver of version Minimum has all of them.
type peerSymbols struct{ ctxDisablePeerAccess uintptr }

func init() {
	symbolTable = append(symbolTable, symbol{"cuCtxDisablePeerAccess", "", func(s *symbols) *uintptr { return &s.ctxDisablePeerAccess }})
}

func (d *driver) CtxDisablePeerAccess(peer Context) error {
	return fail(call1(d.fn.ctxDisablePeerAccess, uintptr(peer)), "cuCtxDisablePeerAccess")
}
