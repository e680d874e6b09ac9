package emu

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

func TestDevices(t *testing.T) {
	r := newRig(t, Config{Devices: 2, SM: 86, Memory: 64 << 20})
	names := map[string]bool{}
	for i := range must(r.DeviceCount())(t) {
		dev := must(r.DeviceGet(i))(t)
		if n := must(r.DeviceName(dev))(t); n != "Emulated GPU (sm_86)" {
			t.Errorf("name %q", n)
		}
		names[must(r.DeviceUUID(dev))(t).String()] = true
		names[must(r.DevicePCIBusID(dev))(t)] = true
		if n := must(r.DeviceTotalMem(dev))(t); n != 64<<20 {
			t.Errorf("%d bytes", n)
		}
		for a, want := range map[cu.DeviceAttr]int{cu.AttrComputeCapabilityMajor: 8, cu.AttrComputeCapabilityMinor: 6, cu.AttrWarpSize: 32,
			cu.AttrMaxSharedPerBlockOptin: 99 << 10, cu.AttrMaxThreadsPerSM: 1536, cu.AttrMultiprocessorCount: multiprocessors} {
			if got := must(r.DeviceAttribute(dev, a))(t); got != want {
				t.Errorf("attribute %d is %d, want %d", a, got, want)
			}
		}
	}
	if len(names) != 4 {
		t.Errorf("identifiers are not distinct: %v", names)
	}
	if !r.Emulated() || must(r.DriverVersion())(t).String() != "12.4" {
		t.Error("the driver does not say what it is")
	}
	if _, err := r.DeviceGet(2); !errors.Is(err, cu.ErrInvalidDevice) {
		t.Errorf("got %v", err)
	}
	if _, err := r.DeviceName(-1); !errors.Is(err, cu.ErrInvalidDevice) {
		t.Errorf("got %v", err)
	}
	if _, err := r.DeviceAttribute(0, 9999); !errors.Is(err, cu.ErrInvalidValue) {
		t.Errorf("got %v", err)
	}
	if l, g, err := r.CtxStreamPriorityRange(); l != 0 || g != -5 || err != nil {
		t.Errorf("priorities %d to %d, %v", l, g, err)
	}
	r.ok(r.PrimaryCtxSetFlags(0, cu.CtxSchedBlockingSync))
	if err := r.PrimaryCtxSetFlags(0, 99); !errors.Is(err, cu.ErrInvalidValue) {
		t.Errorf("got %v", err)
	}
}

// TestCurrentContext checks the current context. The context must belong to the thread, and must
// end with the last release. Calls must fail without a current context.
func TestCurrentContext(t *testing.T) {
	r := newRig(t, Config{})
	other := make(chan error)
	go func() {
		// the goroutine ends without unlocking its thread, which ends the thread too
		runtime.LockOSThread()
		_, err := r.MemAlloc(1)
		other <- err
	}()
	if err := <-other; !errors.Is(err, cu.ErrInvalidContext) {
		t.Errorf("another thread: %v", err)
	}
	again := must(r.PrimaryCtxRetain(0))(t)
	if again != r.ctx {
		t.Errorf("the primary context is %v and %v", r.ctx, again)
	}
	x := r.alloc(256)
	r.ok(r.PrimaryCtxRelease(0))
	r.ok(r.MemsetD8Async(x, 0, 256, 0))
	r.ok(r.PrimaryCtxRelease(0))
	if err := r.CtxSynchronize(); !errors.Is(err, cu.ErrContextIsDestroyed) {
		t.Errorf("a released context: %v", err)
	}
	if err := r.CtxSetCurrent(r.ctx); !errors.Is(err, cu.ErrInvalidContext) {
		t.Errorf("a released context: %v", err)
	}
	if err := r.PrimaryCtxRelease(0); !errors.Is(err, cu.ErrInvalidContext) {
		t.Errorf("one release too many: %v", err)
	}
	r.ok(r.CtxSetCurrent(must(r.PrimaryCtxRetain(0))(t)))
	if free, total, err := r.MemGetInfo(); free != total || err != nil {
		t.Errorf("memory survived its context: %d of %d, %v", free, total, err)
	}
}

// TestConcurrent runs four goroutines on two devices at once, each with its own stream. Their
// results must be right.
func TestConcurrent(t *testing.T) {
	r := newRig(t, Config{Devices: 2, Seed: 9})
	contexts := []cu.Context{r.ctx, must(r.PrimaryCtxRetain(1))(t)}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			w := &rig{TB: t, Driver: r.Driver, ctx: contexts[g%2]}
			if err := w.CtxSetCurrent(w.ctx); err != nil {
				t.Error(err)
				return
			}
			var err error
			if w.mod, err = w.ModuleLoadData([]byte(kernels), cu.JITOptions{}); err != nil {
				t.Error(err)
				return
			}
			s, _ := w.StreamCreate(cu.StreamNonBlocking, 0)
			e, _ := w.EventCreate(cu.EventBlockingSync)
			x, _ := w.MemAlloc(4 * 64)
			p, _ := w.MemHostAlloc(4*64, 0)
			host := (*[64]uint32)(p)[:]
			for round := range uint32(10) {
				fill(host, round)
				if w.MemcpyHtoDAsync(x, p, 256, s) != nil || w.affine(s, x, 64, 2, uint32(g)) != nil ||
					w.MemcpyDtoHAsync(p, x, 256, s) != nil || w.EventRecord(e, s) != nil || w.EventSynchronize(e) != nil {
					t.Error("a call failed")
					return
				}
				if !all(host, 2*round+uint32(g)) {
					t.Errorf("goroutine %d, round %d: %v", g, round, host[0])
				}
			}
			if err := w.MemFree(x); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestVirtualTime measures work by events. The times must be those of the cost model plus added
// latencies. Copies and kernels must overlap, but kernels must not overlap with each other. The
// host's speed must have no effect.
func TestVirtualTime(t *testing.T) {
	us := time.Microsecond
	cost := Cost{Launch: 2 * us, WarpInstructions: 1e9, MemoryBytes: 1e18, Copy: us, CopyBytes: 25e9}
	r := newRig(t, Config{Cost: cost, Latency: func(op Op) time.Duration {
		if op.Kind == KindKernel && op.Name == "narrow" {
			return 100 * us
		}
		return 0
	}})
	a, b := r.stream(), r.stream()
	span := func(work func(start, end cu.Event)) time.Duration {
		t.Helper()
		start, end := r.event(), r.event()
		work(start, end)
		r.ok(r.CtxSynchronize())
		return must(r.EventElapsed(start, end))(t)
	}
	x, host := r.alloc(1<<20), r.pinned(1<<18)
	one := cu.Dim3{X: 1, Y: 1, Z: 1}
	// each launch takes 2 µs, the time of 1 instruction, and 100 µs of added latency
	slow := func(s cu.Stream) { r.ok(r.LaunchKernel(r.fn("narrow"), one, one, 0, s, nil)) }
	up := func(s cu.Stream, n uint64) { r.ok(r.MemcpyHtoDAsync(x, ptr(host), n, s)) }
	const slowTime = 102*1000 + 1

	if d := span(func(start, end cu.Event) { r.ok(r.EventRecord(start, a)); r.ok(r.EventRecord(end, a)) }); d != 0 {
		t.Errorf("nothing took %v", d)
	}
	if d := span(func(start, end cu.Event) { r.ok(r.EventRecord(start, a)); up(a, 250_000); r.ok(r.EventRecord(end, a)) }); d != 11*us {
		t.Errorf("a copy of 250 kB at 25 GB/s took %v, want 11µs", d)
	}
	if d := span(func(start, end cu.Event) { r.ok(r.EventRecord(start, a)); slow(a); r.ok(r.EventRecord(end, a)) }); d != slowTime {
		t.Errorf("the planted kernel took %v", d)
	}
	both := func(first, second func(s cu.Stream)) time.Duration {
		return span(func(start, end cu.Event) {
			e := r.event()
			r.ok(r.EventRecord(start, a))
			first(a)
			second(b)
			r.ok(r.EventRecord(e, b))
			r.ok(r.StreamWaitEvent(a, e))
			r.ok(r.EventRecord(end, a))
		})
	}
	if d := both(slow, func(s cu.Stream) { up(s, 250_000) }); d != slowTime {
		t.Errorf("a copy beside a kernel: %v, want the kernel alone", d)
	}
	if d := both(slow, slow); d != 2*slowTime {
		t.Errorf("two kernels: %v, want one after the other", d)
	}
	if d := both(slow, func(s cu.Stream) {}); d != slowTime {
		t.Errorf("a kernel and nothing: %v", d)
	}
	before := r.Now()
	slow(a)
	if r.Now() != before {
		t.Error("a launch alone moved the host's clock")
	}
	r.ok(r.StreamSynchronize(a))
	if d := r.Now() - before; d != slowTime {
		t.Errorf("waiting took the host %v", d)
	}

	start, end, fresh := r.event(), r.event(), r.event()
	untimed := must(r.EventCreate(cu.EventDisableTiming))(t)
	r.ok(r.EventRecord(start, a))
	r.ok(r.EventRecord(untimed, a))
	slow(a)
	r.ok(r.EventRecord(end, a))
	for _, c := range []struct {
		end    cu.Event
		result cu.Result
	}{{end, cu.ErrNotReady}, {fresh, cu.ErrInvalidHandle}, {untimed, cu.ErrInvalidHandle}, {12345, cu.ErrInvalidHandle}} {
		if _, err := r.EventElapsed(start, c.end); !errors.Is(err, c.result) {
			t.Errorf("event %v: got %v, want %v", c.end, err, c.result)
		}
	}
}

// TestMeta checks addresses, limits and counts of a device in meta mode, whose memory has no
// contents.
func TestMeta(t *testing.T) {
	r := newRig(t, Config{Meta: true, Memory: 1 << 40})
	if n := must(r.DeviceName(0))(t); n != "Emulated GPU (sm_90, meta)" {
		t.Errorf("name %q", n)
	}
	x := r.alloc(1 << 39)
	host := r.pinned(64)
	r.BlockAllocated(0, x, 100, 512, "weights")
	r.ok(r.MemsetD8Async(x, 0, 1<<39, 0))
	r.ok(r.MemcpyHtoDAsync(x, ptr(host), 256, 0))
	for range 5 {
		r.ok(r.affine(0, x, 1<<30, 1, 1))
	}
	r.ok(r.CtxSynchronize())
	pageable, before := make([]uint32, 64), r.event()
	r.ok(r.EventRecord(before, 0))
	if err := r.MemcpyDtoHAsync(ptr(pageable), x, 4, 0); !errors.Is(err, ErrMeta) || !errors.Is(err, cu.ErrNotSupported) {
		t.Errorf("reading gave %v", err)
	}
	// In meta mode a stream may wait for a copy to page-locked memory, but the host may not.
	behind, large := r.event(), must(r.MemHostAlloc(1<<36, 0))(t)
	r.ok(r.MemcpyDtoHAsync(large, x, 1<<36, 0))
	r.ok(r.EventRecord(behind, 0))
	other := r.stream()
	r.ok(r.StreamWaitEvent(other, behind))
	now := r.Now()
	r.ok(r.StreamSynchronize(other))
	if took := r.Now() - now; took < time.Second {
		t.Errorf("64 GiB to the host took %v", took)
	}
	r.ok(r.EventSynchronize(before))
	if err := r.EventSynchronize(behind); !errors.Is(err, ErrMeta) {
		t.Errorf("waiting for a copy to pinned memory: %v", err)
	}
	r.ok(r.MemFreeHost(large))
	if err := r.MemsetD8Async(x, 0, 1<<39+1, 0); !errors.Is(err, cu.ErrInvalidValue) {
		t.Errorf("beside the memory: %v", err)
	}
	if err := r.affine(0, x, 0, 1, 1); !errors.Is(err, cu.ErrInvalidValue) {
		t.Errorf("an empty grid: %v", err)
	}
	must(r.MemHostGetDevicePointer(ptr(host)))(t)
	r.ok(r.MemFreeHost(ptr(host)))
	c, ok := Stats(r.Driver)
	k := c.Kernels["affine"]
	if !ok || c.Launches != 5 || k.Launches != 5 || k.Threads != 5<<30 || k.Instructions != 0 || c.Memsets.Bytes != 1<<39 || c.DtoH != (Traffic{1, 1 << 36}) || c.Synchronisations != 4 {
		t.Errorf("counted %+v, %+v", c, k)
	}
	r.ok(r.CtxSynchronize())
}

func TestStats(t *testing.T) {
	r := newRig(t, Config{})
	x := r.alloc(256)
	r.ok(r.MemsetD32Async(x, 1, 64, 0))
	r.ok(r.affine(0, x, 64, 1, 1))
	r.ok(r.affine(0, x, 64, 1, 1))
	if k := r.Stats().Kernels["affine"]; k.Launches != 2 || k.Instructions != 0 {
		t.Errorf("before they run: %+v", k)
	}
	r.ok(r.CtxSynchronize())
	c := r.Stats()
	k := c.Kernels["affine"]
	if k.Launches != 2 || k.Blocks != 4 || k.Threads != 128 || k.Instructions < 4*16 || k.GlobalLoads != 4 || k.GlobalStores != 4 || k.Time < 4*time.Microsecond {
		t.Errorf("got %+v", k)
	}
	if c.Allocs != 1 || c.Modules != 1 || c.Synchronisations != 1 {
		t.Errorf("got %+v", c)
	}
	r.ResetStats()
	if c := r.Stats(); c.Launches != 0 || len(c.Kernels) != 0 || k.Launches != 2 {
		t.Errorf("after the reset: %+v, and the copy %+v", c, k)
	}
	if _, ok := Stats(nil); ok {
		t.Error("no driver has statistics")
	}
}
