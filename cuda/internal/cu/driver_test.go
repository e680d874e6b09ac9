//go:build !nogpu && linux && (amd64 || arm64)

package cu

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
)

// TestLaunchArguments launches a kernel through a fake driver. All eleven arguments must reach C,
// in registers and on the stack, and so must the packed parameters.
func TestLaunchArguments(t *testing.T) {
	f := newFake(t, 12040)
	d := f.start(t)
	params := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}
	result := Result(0)
	f.override("cuLaunchKernel", func(a *[11]uintptr) Result {
		for i, w := range []uintptr{0x1111, 2, 3, 4, 5, 6, 7, 8, 0x9999, 0} {
			want(t, fmt.Sprintf("argument %d", i), a[i], w)
		}
		extra := (*[5]uintptr)(pointer(a[10]))
		want(t, "buffer key", extra[0], 1)
		want(t, "size key", extra[2], 2)
		want(t, "end", extra[4], 0)
		size := *(*uintptr)(pointer(extra[3]))
		got := unsafe.Slice((*byte)(pointer(extra[1])), size)
		if !bytes.Equal(got, params) {
			t.Errorf("parameters %v, want %v", got, params)
		}
		return result
	})
	if err := d.LaunchKernel(0x1111, Dim3{2, 3, 4}, Dim3{5, 6, 7}, 8, 0x9999, params); err != nil {
		t.Fatal(err)
	}
	result = ErrLaunchOutOfResources
	err := d.LaunchKernel(0x1111, Dim3{2, 3, 4}, Dim3{5, 6, 7}, 8, 0x9999, params)
	var e *Error
	if !errors.Is(err, ErrLaunchOutOfResources) || !errors.As(err, &e) || e.Call != "cuLaunchKernel" || !strings.Contains(e.Error(), "block (5, 6, 7)") {
		t.Errorf("got %v", err)
	}
	f.override("cuLaunchKernel", func(a *[11]uintptr) Result { want(t, "extra", a[10], 0); return 0 })
	if err := d.LaunchKernel(1, Dim3{1, 1, 1}, Dim3{1, 1, 1}, 0, 0, nil); err != nil {
		t.Error(err)
	}
}

// libcAbs returns the address of the C function abs, which ignores all arguments except the first.
func libcAbs(t testing.TB) uintptr {
	h, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW)
	if err != nil {
		t.Fatal(err)
	}
	p, err := purego.Dlsym(h, "abs")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestNoAllocations checks that the calls of a training step allocate nothing.
func TestNoAllocations(t *testing.T) {
	abs := libcAbs(t)
	d := &driver{fn: symbols{launchKernel: abs, ctxSetCurrent: abs, eventRecord: abs, streamWaitEvent: abs,
		memcpyHtoDAsync: abs, memcpyDtoHAsync: abs, memcpyDtoDAsync: abs, memsetD32Async: abs, streamQuery: abs}}
	var api API = d
	params := make([]byte, 64)
	host := unsafe.Pointer(&params[0])
	calls := map[string]func() error{
		"CtxSetCurrent":   func() error { return api.CtxSetCurrent(0) },
		"LaunchKernel":    func() error { return api.LaunchKernel(0, Dim3{4096, 1, 1}, Dim3{256, 1, 1}, 1024, 7, params) },
		"EventRecord":     func() error { return api.EventRecord(0, 7) },
		"StreamWaitEvent": func() error { return api.StreamWaitEvent(0, 7) },
		"MemcpyHtoDAsync": func() error { return api.MemcpyHtoDAsync(0, host, 64, 7) },
		"MemcpyDtoDAsync": func() error { return api.MemcpyDtoDAsync(0, 0x10000, 64, 7) },
		"MemsetD32Async":  func() error { return api.MemsetD32Async(0, 0x10000, 64, 7) },
		"StreamQuery":     func() error { _, err := api.StreamQuery(0); return err },
	}
	// Each call is measured separately. Under the race detector, sync.Pool deliberately drops every
	// fourth block. AllocsPerRun rounds this quarter of an allocation down to 0.
	for name, call := range calls {
		if n := testing.AllocsPerRun(1000, func() {
			if err := call(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
	if err := api.LaunchKernel(2, Dim3{1, 1, 1}, Dim3{1, 1, 1}, 0, 0, nil); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("the result of the call was lost: %v", err)
	}
}

func BenchmarkLaunchKernel(b *testing.B) {
	var api API = &driver{fn: symbols{launchKernel: libcAbs(b)}}
	params := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if err := api.LaunchKernel(0, Dim3{4096, 1, 1}, Dim3{256, 1, 1}, 1024, 7, params); err != nil {
			b.Fatal(err)
		}
	}
}

// TestEachCall calls every method once, and checks the C function, its arguments and the results.
func TestEachCall(t *testing.T) {
	f := newFake(t, 12040)
	d := f.start(t)
	type args = *[11]uintptr
	put32 := func(p uintptr, v int32) { *(*int32)(pointer(p)) = v }
	put64 := func(p uintptr, v uint64) { *(*uint64)(pointer(p)) = v }
	expect := f.expects(t, ErrInvalidValue)
	// value returns err. If err is nil and ok is false, it returns an error about a wrong value.
	value := func(what string, err error, ok bool) error {
		if err == nil && !ok {
			t.Errorf("%s: wrong value", what)
		}
		return err
	}
	out32 := func(i int, v int32) func(args) { return func(a args) { put32(a[i], v) } }
	out64 := func(i int, v uint64) func(args) { return func(a args) { put64(a[i], v) } }

	expect("cuInit", []uintptr{0}, nil, d.Init)
	expect("cuDriverGetVersion", nil, out32(0, 12080), func() error { v, err := d.DriverVersion(); return value("version", err, v.String() == "12.8") })
	expect("cuDeviceGetCount", nil, out32(0, 3), func() error { n, err := d.DeviceCount(); return value("count", err, n == 3) })
	expect("cuDeviceGet", []uintptr{skip, 2}, out32(0, 2), func() error { v, err := d.DeviceGet(2); return value("device", err, v == 2) })
	name := func(a args) { copy((*[8]byte)(pointer(a[0]))[:], "H200\x00") }
	expect("cuDeviceGetName", []uintptr{skip, 256, 1}, name, func() error { s, err := d.DeviceName(1); return value("name", err, s == "H200") })
	expect("cuDeviceGetAttribute", []uintptr{skip, 75, 1}, out32(0, 9), func() error {
		v, err := d.DeviceAttribute(1, AttrComputeCapabilityMajor)
		return value("attribute", err, v == 9)
	})
	expect("cuDeviceTotalMem_v2", []uintptr{skip, 1}, out64(0, 1<<40), func() error { v, err := d.DeviceTotalMem(1); return value("memory", err, v == 1<<40) })
	uuid := func(a args) { put64(a[0], 0x0706050403020100); put64(a[0]+8, 0x0f0e0d0c0b0a0908) }
	expect("cuDeviceGetUuid_v2", []uintptr{skip, 1}, uuid, func() error {
		u, err := d.DeviceUUID(1)
		return value("uuid", err, u.String() == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")
	})
	expect("cuDeviceGetPCIBusId", []uintptr{skip, 64, 1}, name, func() error { s, err := d.DevicePCIBusID(1); return value("bus", err, s == "H200") })
	expect("cuDeviceCanAccessPeer", []uintptr{skip, 0, 1}, out32(0, 1), func() error { v, err := d.DeviceCanAccessPeer(0, 1); return value("peer", err, v) })
	expect("cuDevicePrimaryCtxRetain", []uintptr{skip, 1}, out64(0, 77), func() error { c, err := d.PrimaryCtxRetain(1); return value("context", err, c == 77) })
	expect("cuDevicePrimaryCtxRelease_v2", []uintptr{1}, nil, func() error { return d.PrimaryCtxRelease(1) })
	expect("cuDevicePrimaryCtxSetFlags_v2", []uintptr{1, 4}, nil, func() error { return d.PrimaryCtxSetFlags(1, CtxSchedBlockingSync) })
	expect("cuCtxSetCurrent", []uintptr{77}, nil, func() error { return d.CtxSetCurrent(77) })
	expect("cuCtxSynchronize", nil, nil, d.CtxSynchronize)
	expect("cuCtxEnablePeerAccess", []uintptr{77, 0}, nil, func() error { return d.CtxEnablePeerAccess(77) })
	expect("cuCtxDisablePeerAccess", []uintptr{77}, nil, func() error { return d.CtxDisablePeerAccess(77) })
	expect("cuCtxGetStreamPriorityRange", nil, func(a args) { put32(a[0], 0); put32(a[1], -5) }, func() error {
		l, g, err := d.CtxStreamPriorityRange()
		return value("priorities", err, l == 0 && g == -5)
	})
	expect("cuModuleUnload", []uintptr{5}, nil, func() error { return d.ModuleUnload(5) })
	fn := func(a args) { want(t, "kernel", cString(a[2]), "add"); put64(a[0], 6) }
	expect("cuModuleGetFunction", []uintptr{skip, 5}, fn, func() error { v, err := d.ModuleGetFunction(5, "add"); return value("function", err, v == 6) })
	expect("cuFuncGetAttribute", []uintptr{skip, 4, 6}, out32(0, 32), func() error { v, err := d.FuncAttribute(6, FuncNumRegs); return value("regs", err, v == 32) })
	expect("cuFuncSetAttribute", []uintptr{6, 8, 1 << 16}, nil, func() error { return d.FuncSetAttribute(6, FuncMaxDynamicShared, 1<<16) })
	expect("cuOccupancyMaxActiveBlocksPerMultiprocessor", []uintptr{skip, 6, 256, 1024}, out32(0, 8), func() error {
		v, err := d.OccupancyMaxActiveBlocks(6, 256, 1024)
		return value("occupancy", err, v == 8)
	})
	expect("cuMemAlloc_v2", []uintptr{skip, 1 << 33}, out64(0, 0x7f0000000000), func() error { p, err := d.MemAlloc(1 << 33); return value("pointer", err, p == 0x7f0000000000) })
	expect("cuMemFree_v2", []uintptr{0x7f0000000000}, nil, func() error { return d.MemFree(0x7f0000000000) })
	expect("cuMemGetInfo_v2", nil, func(a args) { put64(a[0], 1<<33); put64(a[1], 1<<34) }, func() error {
		free, total, err := d.MemGetInfo()
		return value("info", err, free == 1<<33 && total == 1<<34)
	})
	host := make([]byte, 64)
	hp := unsafe.Pointer(&host[0])
	expect("cuMemHostAlloc", []uintptr{skip, 64, 3}, func(a args) { put64(a[0], uint64(uintptr(hp))) }, func() error {
		p, err := d.MemHostAlloc(64, HostPortable|HostDeviceMap)
		return value("host memory", err, p == hp)
	})
	expect("cuMemFreeHost", []uintptr{uintptr(hp)}, nil, func() error { return d.MemFreeHost(hp) })
	expect("cuMemHostGetDevicePointer_v2", []uintptr{skip, uintptr(hp), 0}, out64(0, 9), func() error { p, err := d.MemHostGetDevicePointer(hp); return value("mapped", err, p == 9) })
	expect("cuMemcpyHtoDAsync_v2", []uintptr{100, uintptr(hp), 64, 3}, nil, func() error { return d.MemcpyHtoDAsync(100, hp, 64, 3) })
	expect("cuMemcpyDtoHAsync_v2", []uintptr{uintptr(hp), 100, 64, 3}, nil, func() error { return d.MemcpyDtoHAsync(hp, 100, 64, 3) })
	expect("cuMemcpyDtoDAsync_v2", []uintptr{100, 200, 64, 3}, nil, func() error { return d.MemcpyDtoDAsync(100, 200, 64, 3) })
	expect("cuMemcpyPeerAsync", []uintptr{100, 77, 200, 78, 64, 3}, nil, func() error { return d.MemcpyPeerAsync(100, 77, 200, 78, 64, 3) })
	expect("cuMemsetD8Async", []uintptr{100, 0xfe, 64, 3}, nil, func() error { return d.MemsetD8Async(100, 0xfe, 64, 3) })
	expect("cuMemsetD16Async", []uintptr{100, 0xfedc, 64, 3}, nil, func() error { return d.MemsetD16Async(100, 0xfedc, 64, 3) })
	expect("cuMemsetD32Async", []uintptr{100, 0xfedcba98, 64, 3}, nil, func() error { return d.MemsetD32Async(100, 0xfedcba98, 64, 3) })
	expect("cuStreamCreateWithPriority", []uintptr{skip, 1, ^uintptr(0) - 4}, out64(0, 3), func() error { s, err := d.StreamCreate(StreamNonBlocking, -5); return value("stream", err, s == 3) })
	expect("cuStreamDestroy_v2", []uintptr{3}, nil, func() error { return d.StreamDestroy(3) })
	expect("cuStreamSynchronize", []uintptr{3}, nil, func() error { return d.StreamSynchronize(3) })
	expect("cuStreamQuery", []uintptr{3}, nil, func() error { ok, err := d.StreamQuery(3); return value("query", err, ok) })
	expect("cuStreamWaitEvent", []uintptr{3, 4, 0}, nil, func() error { return d.StreamWaitEvent(3, 4) })
	expect("cuEventCreate", []uintptr{skip, 3}, out64(0, 4), func() error {
		e, err := d.EventCreate(EventBlockingSync | EventDisableTiming)
		return value("event", err, e == 4)
	})
	expect("cuEventDestroy_v2", []uintptr{4}, nil, func() error { return d.EventDestroy(4) })
	expect("cuEventRecord", []uintptr{4, 3}, nil, func() error { return d.EventRecord(4, 3) })
	expect("cuEventQuery", []uintptr{4}, nil, func() error { ok, err := d.EventQuery(4); return value("query", err, ok) })
	expect("cuEventSynchronize", []uintptr{4}, nil, func() error { return d.EventSynchronize(4) })
	ms := int32(math.Float32bits(1.5))
	expect("cuEventElapsedTime", []uintptr{skip, 4, 5}, out32(0, ms), func() error {
		v, err := d.EventElapsed(4, 5)
		return value("elapsed", err, v == 1500*time.Microsecond)
	})

	f.override("cuStreamQuery", func(args) Result { return ErrNotReady })
	if ok, err := d.StreamQuery(3); ok || err != nil {
		t.Errorf("not ready came back as %v, %v", ok, err)
	}
}

// TestModuleAndLink checks the options and the logs of ModuleLoadData and LinkPTX, and the NUL that
// must end the PTX text. A link must be destroyed even after a failure.
func TestModuleAndLink(t *testing.T) {
	f := newFake(t, 12040)
	d := f.start(t)
	options := func(n, keys, values uintptr) map[uint32]uintptr {
		m := map[uint32]uintptr{}
		for i := range n {
			m[*(*uint32)(pointer(keys + 4*i))] = *(*uintptr)(pointer(values + 8*i))
		}
		return m
	}
	log := func(p uintptr, s string) { copy((*[64]byte)(pointer(p))[:], s+"\x00") }
	result := Result(0)
	f.override("cuModuleLoadDataEx", func(a *[11]uintptr) Result {
		want(t, "image", cString(a[1]), ".version 7.0")
		o := options(a[2], a[3], a[4])
		want(t, "registers", o[jitMaxRegisters], 64)
		want(t, "verbose", o[jitLogVerbose], 1)
		want(t, "line info", o[jitGenerateLineInfo], 1)
		want(t, "log size", o[jitErrorLogSize], jitLogBytes)
		log(o[jitInfoLog], "32 registers")
		if result != 0 {
			log(o[jitErrorLog], "line 3: no such instruction")
		}
		*(*uint64)(pointer(a[0])) = 5
		return result
	})
	var info string
	opts := JITOptions{MaxRegisters: 64, LineInfo: true, Verbose: true, InfoLog: &info}
	if m, err := d.ModuleLoadData([]byte(".version 7.0"), opts); m != 5 || err != nil || info != "32 registers" {
		t.Errorf("module %v, info %q, %v", m, info, err)
	}
	result = ErrInvalidPTX
	_, err := d.ModuleLoadData([]byte(".version 7.0"), opts)
	var e *Error
	if !errors.Is(err, ErrInvalidPTX) || !errors.As(err, &e) || e.Log != "line 3: no such instruction" {
		t.Errorf("got %v", err)
	}
	if _, err := d.ModuleLoadData(nil, JITOptions{}); !errors.Is(err, ErrInvalidImage) {
		t.Errorf("an empty image gave %v", err)
	}

	cubin := []byte("\x7fELFcode")
	result = 0
	f.override("cuLinkCreate_v2", func(a *[11]uintptr) Result { *(*uint64)(pointer(a[3])) = 8; return 0 })
	f.override("cuLinkAddData_v2", func(a *[11]uintptr) Result {
		want(t, "state", a[0], 8)
		want(t, "type", a[1], jitInputPTX)
		want(t, "text", cString(a[2]), ".version 7.0")
		want(t, "size", a[3], uintptr(len(".version 7.0")+1))
		want(t, "name", cString(a[4]), "add.ptx")
		return result
	})
	f.override("cuLinkComplete", func(a *[11]uintptr) Result {
		*(**byte)(pointer(a[1])), *(*uintptr)(pointer(a[2])) = &cubin[0], uintptr(len(cubin))
		return 0
	})
	f.override("cuLinkDestroy", func(a *[11]uintptr) Result { want(t, "state", a[0], 8); return 0 })
	got, err := d.LinkPTX("add.ptx", []byte(".version 7.0"), JITOptions{})
	if err != nil || !bytes.Equal(got, cubin) || &got[0] == &cubin[0] {
		t.Errorf("cubin %q, %v", got, err)
	}
	result = ErrInvalidPTX
	f.calls = nil
	if _, err := d.LinkPTX("add.ptx", []byte(".version 7.0"), JITOptions{}); !errors.Is(err, ErrInvalidPTX) || f.calls[len(f.calls)-1] != "cuLinkDestroy" {
		t.Errorf("got %v after %v", err, f.calls)
	}
	f.override("cuModuleLoadDataEx", func(a *[11]uintptr) Result { want(t, "image", a[1], uintptr(unsafe.Pointer(&cubin[0]))); return 0 })
	if _, err := d.ModuleLoadData(cubin, JITOptions{}); err != nil {
		t.Error(err)
	}
}

// TestCallsFromManyGoroutines makes calls from many goroutines, while stacks move and the garbage
// collector runs. Each call must get its own result.
func TestCallsFromManyGoroutines(t *testing.T) {
	var api API = &driver{fn: symbols{launchKernel: libcAbs(t)}}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 5000 {
				code := Result(1 + (g*5000+i)%1000)
				err := api.LaunchKernel(Function(code), Dim3{1, 1, 1}, Dim3{1, 1, 1}, 0, 0, []byte{1, 2, 3})
				if !errors.Is(err, code) {
					t.Errorf("goroutine %d: got %v, want %d", g, err, code)
					return
				}
				if i%1000 == 0 {
					runtime.GC()
				}
			}
		})
	}
	wg.Wait()
}
