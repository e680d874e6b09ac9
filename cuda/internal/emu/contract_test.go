package emu

import (
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// TestContract runs one program on the emulated driver and, if there is one, on the machine's own
// driver. Code above package cu may rely on everything that the program checks. No call of the
// program ends a context.
func TestContract(t *testing.T) {
	d, err := New(Config{SM: 80})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("emulated", func(t *testing.T) { contract(t, d) })
	hardware, err := cu.Open()
	if err != nil {
		t.Logf("only the emulated driver was checked: %v", err)
		return
	}
	t.Run("hardware", func(t *testing.T) { contract(t, hardware) })
}

func contract(t *testing.T, api cu.API) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fails := func(what string, err error, results ...cu.Result) {
		t.Helper()
		for _, r := range results {
			if errors.Is(err, r) {
				return
			}
		}
		t.Errorf("%s: got %v, want %v", what, err, results)
	}
	ok(api.Init())
	if v := must(api.DriverVersion())(t); v < cu.Minimum {
		t.Errorf("version %v", v)
	}
	dev := must(api.DeviceGet(0))(t)
	name, memory := must(api.DeviceName(dev))(t), must(api.DeviceTotalMem(dev))(t)
	sm := 10*must(api.DeviceAttribute(dev, cu.AttrComputeCapabilityMajor))(t) + must(api.DeviceAttribute(dev, cu.AttrComputeCapabilityMinor))(t)
	uuid, bus := must(api.DeviceUUID(dev))(t), must(api.DevicePCIBusID(dev))(t)
	t.Logf("%s, sm_%d, %d MiB, %v, %s", name, sm, memory>>20, uuid, bus)
	if sm < 80 || name == "" || uuid == (cu.UUID{}) || strings.Count(bus, ":") != 2 || must(api.DeviceAttribute(dev, cu.AttrWarpSize))(t) != 32 {
		t.Error("the device does not describe itself as expected")
	}
	_, err := api.DeviceGet(4096)
	fails("an ordinal that is not there", err, cu.ErrInvalidDevice)

	ctx := must(api.PrimaryCtxRetain(dev))(t)
	defer func() { ok(api.PrimaryCtxRelease(dev)) }()
	ok(api.CtxSetCurrent(0))
	_, err = api.MemAlloc(256)
	fails("no current context", err, cu.ErrInvalidContext)
	ok(api.CtxSetCurrent(ctx))
	least, greatest, err := api.CtxStreamPriorityRange()
	ok(err)

	// The calls for code: modules, functions and their attributes.
	_, err = api.ModuleLoadData([]byte(strings.Replace(kernels, "mad.lo.u32", "mud.lo.u32", 1)), cu.JITOptions{})
	fails("PTX with an unknown instruction", err, cu.ErrInvalidPTX)
	var e *cu.Error
	if !errors.As(err, &e) || !strings.Contains(e.Log, "line") {
		t.Errorf("the compiler's log is missing: %v", err)
	}
	mod := must(api.ModuleLoadData([]byte(kernels), cu.JITOptions{Verbose: true}))(t)
	_, err = api.ModuleGetFunction(mod, "absent")
	fails("a kernel that is not there", err, cu.ErrNotFound)
	cubin := must(api.LinkPTX("kernels.ptx", []byte(kernels), cu.JITOptions{}))(t)
	linked := must(api.ModuleLoadData(cubin, cu.JITOptions{}))(t)
	fn := must(api.ModuleGetFunction(linked, "affine"))(t)
	narrow := must(api.ModuleGetFunction(mod, "narrow"))(t)
	if n := must(api.FuncAttribute(narrow, cu.FuncMaxThreadsPerBlock))(t); n != 64 {
		t.Errorf("narrow allows %d threads", n)
	}
	if n := must(api.FuncAttribute(must(api.ModuleGetFunction(mod, "race"))(t), cu.FuncSharedBytes))(t); n < 4 {
		t.Errorf("race has %d bytes of shared memory", n)
	}
	ok(api.FuncSetAttribute(narrow, cu.FuncMaxDynamicShared, 64<<10))
	fails("too much shared memory", api.FuncSetAttribute(narrow, cu.FuncMaxDynamicShared, 1<<20), cu.ErrInvalidValue)
	if n := must(api.OccupancyMaxActiveBlocks(fn, 256, 0))(t); n < 1 || n > 8 {
		t.Errorf("%d blocks of 256 threads", n)
	}

	// Allocations of device memory and of page-locked memory.
	const words, size = 1 << 12, 4 << 12
	_, err = api.MemAlloc(0)
	fails("0 bytes", err, cu.ErrInvalidValue)
	_, err = api.MemAlloc(memory + 1<<40)
	fails("more than there is", err, cu.ErrOutOfMemory)
	x, y := must(api.MemAlloc(size))(t), must(api.MemAlloc(size))(t)
	if free, total, err := api.MemGetInfo(); err != nil || free == 0 || free >= total || x%256 != 0 {
		t.Errorf("%d of %d bytes free, %v, address %#x", free, total, err, uint64(x))
	}
	pin := must(api.MemHostAlloc(size, cu.HostPortable|cu.HostDeviceMap))(t)
	host := unsafe.Slice((*uint32)(pin), words)
	mapped := must(api.MemHostGetDevicePointer(pin))(t)

	// Work on two streams, ordered by an event.
	a := must(api.StreamCreate(cu.StreamNonBlocking, greatest))(t)
	b := must(api.StreamCreate(cu.StreamNonBlocking, least))(t)
	start, mid, end := must(api.EventCreate(cu.EventDefault))(t), must(api.EventCreate(cu.EventDisableTiming))(t), must(api.EventCreate(cu.EventBlockingSync))(t)
	_, err = api.EventElapsed(start, end)
	fails("events that were not recorded", err, cu.ErrInvalidHandle)
	launch := func(s cu.Stream, p cu.DevicePtr, n, mul, add uint32) {
		t.Helper()
		params := binary.LittleEndian.AppendUint64(nil, uint64(p))
		for _, v := range []uint32{n, mul, add} {
			params = binary.LittleEndian.AppendUint32(params, v)
		}
		ok(api.LaunchKernel(fn, cu.Dim3{X: (n + 127) / 128, Y: 1, Z: 1}, cu.Dim3{X: 128, Y: 1, Z: 1}, 0, s, params))
	}
	for i := range host {
		host[i] = uint32(i)
	}
	ok(api.EventRecord(start, a))
	ok(api.MemcpyHtoDAsync(x, pin, size, a))
	launch(a, x, words, 3, 1)
	ok(api.EventRecord(mid, a))
	ok(api.StreamWaitEvent(b, mid))
	ok(api.MemcpyDtoDAsync(y, x, size, b))
	launch(b, y, words-1, 2, 5)
	back := make([]uint32, words)
	// a copy to pageable memory is complete when the call returns
	ok(api.MemcpyDtoHAsync(unsafe.Pointer(&back[0]), y, size, b))
	for i, v := range back {
		want := uint32(3*i + 1)
		if i < words-1 {
			want = 2*want + 5
		}
		if v != want {
			t.Fatalf("word %d is %d, want %d", i, v, want)
		}
	}
	ok(api.EventRecord(end, a))
	ok(api.EventSynchronize(end))
	if done, err := api.EventQuery(end); !done || err != nil {
		t.Errorf("a completed event: %v, %v", done, err)
	}
	if d := must(api.EventElapsed(start, end))(t); d <= 0 || d > time.Minute {
		t.Errorf("elapsed %v", d)
	}
	_, err = api.EventElapsed(start, mid)
	fails("an event without timing", err, cu.ErrInvalidHandle)

	// Fills, a download to page-locked memory, and mapped memory.
	ok(api.MemsetD32Async(x, 0x01020304, words, a))
	ok(api.MemsetD16Async(x+4, 0x0506, 1, a))
	ok(api.MemsetD8Async(x+8, 0x07, 1, a))
	ok(api.MemcpyDtoHAsync(pin, x, size, a))
	ok(api.StreamSynchronize(a))
	if host[0] != 0x01020304 || host[1] != 0x01020506 || host[2] != 0x01020307 || host[words-1] != 0x01020304 {
		t.Errorf("fills brought %x", host[:3])
	}
	host[0] = 20
	launch(a, mapped, 1, 2, 2)
	ok(api.CtxSynchronize())
	if host[0] != 42 {
		t.Errorf("a kernel on mapped memory made %d", host[0])
	}
	if done, err := api.StreamQuery(a); !done || err != nil {
		t.Errorf("an empty stream: %v, %v", done, err)
	}

	// A launch that is refused must not end the context.
	one := cu.Dim3{X: 1, Y: 1, Z: 1}
	fails("an empty grid", api.LaunchKernel(narrow, cu.Dim3{X: 0, Y: 1, Z: 1}, one, 0, a, nil), cu.ErrInvalidValue)
	fails("a block of 1025", api.LaunchKernel(narrow, one, cu.Dim3{X: 1025, Y: 1, Z: 1}, 0, a, nil), cu.ErrInvalidValue)
	fails("more threads than .maxntid", api.LaunchKernel(narrow, one, cu.Dim3{X: 128, Y: 1, Z: 1}, 0, a, nil), cu.ErrInvalidValue, cu.ErrLaunchOutOfResources)
	fails("more shared memory than allowed", api.LaunchKernel(narrow, one, one, 65<<10, a, nil), cu.ErrInvalidValue)
	ok(api.LaunchKernel(narrow, one, cu.Dim3{X: 64, Y: 1, Z: 1}, 64<<10, a, nil))
	ok(api.CtxSynchronize())

	for _, err := range []error{api.EventDestroy(start), api.EventDestroy(mid), api.EventDestroy(end), api.StreamDestroy(a), api.StreamDestroy(b),
		api.MemFree(x), api.MemFree(y), api.MemFreeHost(pin), api.ModuleUnload(mod), api.ModuleUnload(linked), api.CtxSetCurrent(0)} {
		ok(err)
	}
}
