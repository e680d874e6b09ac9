//go:build !nogpu && (linux || windows) && (amd64 || arm64)

package cu

import (
	"runtime"
	"unsafe"
)

// symbols holds the addresses of the driver's functions. After a successful bind, none of them is
// zero.
type symbols struct {
	graphSymbols
	peerSymbols

	init, driverGetVersion                                                             uintptr
	deviceGetCount, deviceGet, deviceGetName, deviceGetAttribute, deviceTotalMem       uintptr
	deviceGetUUID, deviceGetPCIBusID, deviceCanAccessPeer                              uintptr
	primaryCtxRetain, primaryCtxRelease, primaryCtxSetFlags                            uintptr
	ctxSetCurrent, ctxSynchronize, ctxEnablePeerAccess, ctxGetStreamPriorityRange      uintptr
	moduleLoadDataEx, moduleUnload, moduleGetFunction                                  uintptr
	linkCreate, linkAddData, linkComplete, linkDestroy                                 uintptr
	funcGetAttribute, funcSetAttribute, occupancyMaxActiveBlocks, launchKernel         uintptr
	memAlloc, memFree, memGetInfo, memHostAlloc, memFreeHost, memHostGetDevicePointer  uintptr
	memcpyHtoDAsync, memcpyDtoHAsync, memcpyDtoDAsync, memcpyPeerAsync                 uintptr
	memsetD8Async, memsetD16Async, memsetD32Async                                      uintptr
	streamCreateWithPriority, streamDestroy, streamSynchronize, streamQuery            uintptr
	streamWaitEvent                                                                    uintptr
	eventCreate, eventDestroy, eventRecord, eventQuery, eventSynchronize, eventElapsed uintptr

	vmmSymbols
	laterSymbols
}

// symbol describes a function of the driver. The field base is the name for cuGetProcAddress. The
// field exported is the name under which the library exports the same function, or "" if it is the
// same as base. The names differ if the library exports an older function under the name base. For
// example, the exported cuMemAlloc is the 32-bit function of CUDA 3.1.
type symbol struct {
	base, exported string
	at             func(*symbols) *uintptr
}

var symbolTable = []symbol{
	{"cuInit", "", func(s *symbols) *uintptr { return &s.init }},
	{"cuDriverGetVersion", "", func(s *symbols) *uintptr { return &s.driverGetVersion }},
	{"cuDeviceGetCount", "", func(s *symbols) *uintptr { return &s.deviceGetCount }},
	{"cuDeviceGet", "", func(s *symbols) *uintptr { return &s.deviceGet }},
	{"cuDeviceGetName", "", func(s *symbols) *uintptr { return &s.deviceGetName }},
	{"cuDeviceGetAttribute", "", func(s *symbols) *uintptr { return &s.deviceGetAttribute }},
	{"cuDeviceTotalMem", "cuDeviceTotalMem_v2", func(s *symbols) *uintptr { return &s.deviceTotalMem }},
	{"cuDeviceGetUuid", "cuDeviceGetUuid_v2", func(s *symbols) *uintptr { return &s.deviceGetUUID }},
	{"cuDeviceGetPCIBusId", "", func(s *symbols) *uintptr { return &s.deviceGetPCIBusID }},
	{"cuDeviceCanAccessPeer", "", func(s *symbols) *uintptr { return &s.deviceCanAccessPeer }},
	{"cuDevicePrimaryCtxRetain", "", func(s *symbols) *uintptr { return &s.primaryCtxRetain }},
	{"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", func(s *symbols) *uintptr { return &s.primaryCtxRelease }},
	{"cuDevicePrimaryCtxSetFlags", "cuDevicePrimaryCtxSetFlags_v2", func(s *symbols) *uintptr { return &s.primaryCtxSetFlags }},
	{"cuCtxSetCurrent", "", func(s *symbols) *uintptr { return &s.ctxSetCurrent }},
	{"cuCtxSynchronize", "", func(s *symbols) *uintptr { return &s.ctxSynchronize }},
	{"cuCtxEnablePeerAccess", "", func(s *symbols) *uintptr { return &s.ctxEnablePeerAccess }},
	{"cuCtxGetStreamPriorityRange", "", func(s *symbols) *uintptr { return &s.ctxGetStreamPriorityRange }},
	{"cuModuleLoadDataEx", "", func(s *symbols) *uintptr { return &s.moduleLoadDataEx }},
	{"cuModuleUnload", "", func(s *symbols) *uintptr { return &s.moduleUnload }},
	{"cuModuleGetFunction", "", func(s *symbols) *uintptr { return &s.moduleGetFunction }},
	{"cuLinkCreate", "cuLinkCreate_v2", func(s *symbols) *uintptr { return &s.linkCreate }},
	{"cuLinkAddData", "cuLinkAddData_v2", func(s *symbols) *uintptr { return &s.linkAddData }},
	{"cuLinkComplete", "", func(s *symbols) *uintptr { return &s.linkComplete }},
	{"cuLinkDestroy", "", func(s *symbols) *uintptr { return &s.linkDestroy }},
	{"cuFuncGetAttribute", "", func(s *symbols) *uintptr { return &s.funcGetAttribute }},
	{"cuFuncSetAttribute", "", func(s *symbols) *uintptr { return &s.funcSetAttribute }},
	{"cuOccupancyMaxActiveBlocksPerMultiprocessor", "", func(s *symbols) *uintptr { return &s.occupancyMaxActiveBlocks }},
	{"cuLaunchKernel", "", func(s *symbols) *uintptr { return &s.launchKernel }},
	{"cuMemAlloc", "cuMemAlloc_v2", func(s *symbols) *uintptr { return &s.memAlloc }},
	{"cuMemFree", "cuMemFree_v2", func(s *symbols) *uintptr { return &s.memFree }},
	{"cuMemGetInfo", "cuMemGetInfo_v2", func(s *symbols) *uintptr { return &s.memGetInfo }},
	{"cuMemHostAlloc", "", func(s *symbols) *uintptr { return &s.memHostAlloc }},
	{"cuMemFreeHost", "", func(s *symbols) *uintptr { return &s.memFreeHost }},
	{"cuMemHostGetDevicePointer", "cuMemHostGetDevicePointer_v2", func(s *symbols) *uintptr { return &s.memHostGetDevicePointer }},
	{"cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", func(s *symbols) *uintptr { return &s.memcpyHtoDAsync }},
	{"cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", func(s *symbols) *uintptr { return &s.memcpyDtoHAsync }},
	{"cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2", func(s *symbols) *uintptr { return &s.memcpyDtoDAsync }},
	{"cuMemcpyPeerAsync", "", func(s *symbols) *uintptr { return &s.memcpyPeerAsync }},
	{"cuMemsetD8Async", "", func(s *symbols) *uintptr { return &s.memsetD8Async }},
	{"cuMemsetD16Async", "", func(s *symbols) *uintptr { return &s.memsetD16Async }},
	{"cuMemsetD32Async", "", func(s *symbols) *uintptr { return &s.memsetD32Async }},
	{"cuStreamCreateWithPriority", "", func(s *symbols) *uintptr { return &s.streamCreateWithPriority }},
	{"cuStreamDestroy", "cuStreamDestroy_v2", func(s *symbols) *uintptr { return &s.streamDestroy }},
	{"cuStreamSynchronize", "", func(s *symbols) *uintptr { return &s.streamSynchronize }},
	{"cuStreamQuery", "", func(s *symbols) *uintptr { return &s.streamQuery }},
	{"cuStreamWaitEvent", "", func(s *symbols) *uintptr { return &s.streamWaitEvent }},
	{"cuEventCreate", "", func(s *symbols) *uintptr { return &s.eventCreate }},
	{"cuEventDestroy", "cuEventDestroy_v2", func(s *symbols) *uintptr { return &s.eventDestroy }},
	{"cuEventRecord", "", func(s *symbols) *uintptr { return &s.eventRecord }},
	{"cuEventQuery", "", func(s *symbols) *uintptr { return &s.eventQuery }},
	{"cuEventSynchronize", "", func(s *symbols) *uintptr { return &s.eventSynchronize }},
	{"cuEventElapsedTime", "", func(s *symbols) *uintptr { return &s.eventElapsed }},
}

// name returns the name under which the library exports the function.
func (s symbol) name() string {
	if s.exported != "" {
		return s.exported
	}
	return s.base
}

// library is an opened shared library: its path, and a lookup that returns 0 for a symbol that the
// library does not export.
type library struct {
	path   string
	lookup func(name string) uintptr
}

// bind resolves all functions and returns the exported names of those that are missing.
//
// It uses cuGetProcAddress_v2, which drivers have from API 12.0 on, to find the functions of
// version Minimum. They have that version's signatures, even in newer drivers. If this fails, bind
// looks up the exported names.
func (s *symbols) bind(lib *library) (missing []string) {
	getProc := lib.lookup("cuGetProcAddress_v2")
	for _, row := range symbolTable {
		var p uintptr
		if getProc != 0 {
			p = procAddress(getProc, row.base, Minimum)
		}
		if p == 0 {
			p = lib.lookup(row.name())
		}
		if p == 0 {
			missing = append(missing, row.name())
		}
		*row.at(s) = p
	}
	for _, row := range laterTable {
		p := uintptr(0)
		if getProc != 0 {
			p = procAddress(getProc, row.base, max(row.since, Minimum))
		}
		if p == 0 {
			p = lib.lookup(row.name())
		}
		*row.at(s) = p
	}
	return missing
}

// procAddress returns the address that cuGetProcAddress_v2 finds for a name and a version, or 0.
func procAddress(fn uintptr, name string, version Version) uintptr {
	n := cstring(name)
	b := getBlock(fn)
	defer putBlock(b)
	b.out[0], b.out[1] = 0, 0
	b.a[0] = uintptr(unsafe.Pointer(&n[0]))
	b.a[1] = b.outAddr(0)
	b.a[2] = uintptr(version)
	b.a[3] = 0
	b.a[4] = b.outAddr(1)
	r := b.call()
	runtime.KeepAlive(n)
	// Status 1 means that there is no such symbol. Status 2 means that this version lacks it.
	if r != 0 || uint32(b.out[1]) != 0 {
		return 0
	}
	return uintptr(b.out[0])
}

// cstring returns s with a final NUL. The result lies on the heap, where it does not move. If this
// function were inlined, a short string would lie on the goroutine's stack.
//
//go:noinline
func cstring(s string) []byte { return append([]byte(s), 0) }
