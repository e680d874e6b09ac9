package emu

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
)

// TestFaults provokes each kind of fault. It checks the driver's result and the description of the
// fault. The context must stay lost.
func TestFaults(t *testing.T) {
	cases := []struct {
		name   string
		do     func(r *rig) error
		result cu.Result
		kind   ptxvm.FaultKind
	}{
		{"beside the memory", func(r *rig) error {
			x := r.alloc(512)
			r.ok(r.MemsetD32Async(x, 0, 128, 0))
			return r.affine(0, x, 160, 1, 1)
		}, cu.ErrIllegalAddress, ptxvm.OutOfBounds},
		{"freed memory", func(r *rig) error {
			x := r.alloc(512)
			r.ok(r.MemsetD32Async(x, 0, 128, 0))
			r.ok(r.CtxSynchronize())
			r.ok(r.affine(0, x, 128, 1, 1)) // this kernel is pending when its memory is freed
			r.ok(r.MemFree(x))
			return nil
		}, cu.ErrIllegalAddress, ptxvm.OutOfBounds},
		{"null pointer", func(r *rig) error { return r.affine(0, 0, 32, 1, 1) }, cu.ErrIllegalAddress, ptxvm.OutOfBounds},
		{"misaligned", func(r *rig) error {
			x := r.alloc(512)
			r.ok(r.MemsetD32Async(x, 0, 128, 0))
			return r.affine(0, x+2, 32, 1, 1)
		}, cu.ErrMisalignedAddress, ptxvm.Misaligned},
		{"uninitialised", func(r *rig) error { return r.affine(0, r.alloc(512), 32, 1, 1) }, cu.ErrLaunchFailed, ptxvm.UninitialisedMemory},
		{"race", func(r *rig) error { return r.launch("race", 64) }, cu.ErrLaunchFailed, ptxvm.SharedRace},
		{"trap", func(r *rig) error { return r.launch("stop", 32) }, cu.ErrLaunchFailed, ptxvm.Trap},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{})
			s, e := r.stream(), r.event()
			f0 := r.fn("narrow")
			r.ok(c.do(r))
			err := r.CtxSynchronize()
			var f *ptxvm.Fault
			if !errors.Is(err, c.result) || !errors.As(err, &f) || f.Kind != c.kind || f.Kernel == "" || f.Line == 0 {
				t.Fatalf("got %v", err)
			}
			if !c.result.Sticky() {
				t.Errorf("%v is not sticky", c.result)
			}
			// Each later call must return the same error again.
			for name, call := range map[string]func() error{
				"launch": func() error {
					return r.LaunchKernel(f0, cu.Dim3{X: 1, Y: 1, Z: 1}, cu.Dim3{X: 1, Y: 1, Z: 1}, 0, s, nil)
				},
				"synchronize": r.CtxSynchronize,
				"stream":      func() error { return r.StreamSynchronize(s) },
				"query":       func() error { _, err := r.StreamQuery(s); return err },
				"event":       func() error { return r.EventSynchronize(e) },
				"event query": func() error { _, err := r.EventQuery(e); return err },
				"record":      func() error { return r.EventRecord(e, s) },
				"alloc":       func() error { _, err := r.MemAlloc(1); return err },
				"copy":        func() error { var b byte; return r.MemcpyDtoHAsync(unsafe.Pointer(&b), 1, 1, s) },
				"module":      func() error { _, err := r.ModuleGetFunction(r.mod, "affine"); return err },
				"new stream":  func() error { _, err := r.StreamCreate(0, 0); return err },
			} {
				var again *ptxvm.Fault
				if err := call(); !errors.Is(err, c.result) || !errors.As(err, &again) || again != f {
					t.Errorf("%s after the fault: %v", name, err)
				}
			}
			// A context that is released and retained again is still lost. After a reset it works.
			r.ok(r.PrimaryCtxRelease(0))
			if _, err := r.PrimaryCtxRetain(0); !errors.Is(err, c.result) {
				t.Errorf("retained after the fault: %v", err)
			}
			r.ok(r.Reset(0))
			r.ok(r.CtxSetCurrent(must(r.PrimaryCtxRetain(0))(t)))
			r.mod = must(r.ModuleLoadData([]byte(kernels), cu.JITOptions{}))(t)
			x := r.alloc(256)
			r.ok(r.MemsetD32Async(x, 1, 64, 0))
			r.ok(r.affine(0, x, 64, 2, 0))
			if v := r.read(0, x, 64); !all(v, 2) {
				t.Errorf("after the reset: %v", v)
			}
		})
	}
}

// TestResetKeepsTheContext checks that a reset keeps the handle of a retained context. Everything
// in the context must be destroyed.
func TestResetKeepsTheContext(t *testing.T) {
	r := newRig(t, Config{Devices: 2})
	s, x := r.stream(), r.alloc(512)
	r.ok(r.launch("stop", 32))
	if err := r.CtxSynchronize(); !errors.Is(err, cu.ErrLaunchFailed) {
		t.Fatal(err)
	}
	r.ok(r.Reset(0))
	r.ok(r.CtxSynchronize())
	if err := r.StreamSynchronize(s); !errors.Is(err, cu.ErrInvalidHandle) {
		t.Errorf("a stream from before: %v", err)
	}
	if err := r.MemFree(x); !errors.Is(err, cu.ErrInvalidValue) {
		t.Errorf("memory from before: %v", err)
	}
	if free, total, err := r.MemGetInfo(); free != total || err != nil {
		t.Errorf("%d of %d bytes are free, %v", free, total, err)
	}
	if err := r.Reset(2); !errors.Is(err, cu.ErrInvalidDevice) {
		t.Errorf("got %v", err)
	}
}

// TestFaultStaysOnItsDevice checks that a fault on one device does not affect another device, even
// if that device waits for the first one.
func TestFaultStaysOnItsDevice(t *testing.T) {
	r := newRig(t, Config{Devices: 2})
	e := r.event()
	r.ok(r.launch("stop", 32))
	r.ok(r.EventRecord(e, 0))
	r.ok(r.CtxSetCurrent(must(r.PrimaryCtxRetain(1))(t)))
	x := r.alloc(256)
	s := r.stream()
	r.ok(r.StreamWaitEvent(s, e))
	r.ok(r.MemsetD32Async(x, 9, 64, s))
	if v := r.read(s, x, 64); !all(v, 9) {
		t.Errorf("got %v", v)
	}
	r.ok(r.CtxSynchronize())
	r.ok(r.CtxSetCurrent(r.ctx))
	if err := r.CtxSynchronize(); !errors.Is(err, cu.ErrLaunchFailed) {
		t.Errorf("device 0: %v", err)
	}
}

// TestCopiesFault lets copies and fills access memory outside of a pool's blocks, or page-locked
// memory that was freed. Each must end the context.
func TestCopiesFault(t *testing.T) {
	for name, do := range map[string]func(r *rig, x, y cu.DevicePtr, host []uint32) error{
		"upload":   func(r *rig, x, y cu.DevicePtr, host []uint32) error { return r.MemcpyHtoDAsync(x, ptr(host), 128, 0) },
		"download": func(r *rig, x, y cu.DevicePtr, host []uint32) error { return r.MemcpyDtoHAsync(ptr(host), x, 128, 0) },
		"from":     func(r *rig, x, y cu.DevicePtr, host []uint32) error { return r.MemcpyDtoDAsync(y, x, 128, 0) },
		"to":       func(r *rig, x, y cu.DevicePtr, host []uint32) error { return r.MemcpyDtoDAsync(x, y, 128, 0) },
		"fill":     func(r *rig, x, y cu.DevicePtr, host []uint32) error { return r.MemsetD8Async(x, 0, 101, 0) },
		"pinned": func(r *rig, x, y cu.DevicePtr, host []uint32) error {
			if err := r.MemcpyHtoDAsync(y, ptr(host), 64, 0); err != nil {
				return err
			}
			return r.MemFreeHost(ptr(host))
		},
	} {
		r := newRig(t, Config{})
		x, y, host := r.alloc(1024), r.alloc(1024), r.pinned(64)
		r.ok(r.MemsetD8Async(y, 0, 1024, 0))
		r.BlockAllocated(0, x, 100, 512, "weights")
		r.ok(do(r, x, y, host))
		err := r.CtxSynchronize()
		var a *AccessError
		if !errors.Is(err, cu.ErrIllegalAddress) || !errors.As(err, &a) {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		if name != "pinned" && !strings.Contains(a.Error(), `"weights"`) {
			t.Errorf("%s: the error does not name the block: %v", name, a)
		}
	}
}

// TestLaunchIsChecked makes wrong launches. Each call must return an error, and the context must
// stay usable.
func TestLaunchIsChecked(t *testing.T) {
	r := newRig(t, Config{Devices: 2})
	one := cu.Dim3{X: 1, Y: 1, Z: 1}
	d := func(x, y, z uint32) cu.Dim3 { return cu.Dim3{X: x, Y: y, Z: z} }
	for _, c := range []struct {
		kernel      string
		grid, block cu.Dim3
		shared      uint32
		params      int
		words       string
	}{
		{"race", d(0, 1, 1), one, 0, 0, "grid (0, 1, 1)"},
		{"race", d(1, 65536, 1), one, 0, 0, "grid"},
		{"race", d(1, 1, 65536), one, 0, 0, "grid"},
		{"race", d(1<<31, 1, 1), one, 0, 0, "grid"},
		{"race", one, d(1025, 1, 1), 0, 0, "1024 threads"},
		{"race", one, d(32, 33, 1), 0, 0, "1024 threads"},
		{"race", one, d(1, 1, 65), 0, 0, "block (1, 1, 65)"},
		{"race", one, d(0, 1, 1), 0, 0, "block"},
		{"race", one, d(1<<31, 1<<31, 4), 0, 0, "block"},
		{"narrow", one, d(65, 1, 1), 0, 0, "64 threads"},
		{"exact", one, d(64, 1, 1), 0, 0, ".reqntid"},
		// 48 KiB of dynamic shared memory and one static word are too much
		{"race", one, one, 48 << 10, 0, "dynamic shared memory"},
		{"affine", one, one, 0, 16, "16 bytes of parameters, it declares 20"},
		{"affine", one, one, 0, 24, "24 bytes of parameters"},
	} {
		err := r.LaunchKernel(r.fn(c.kernel), c.grid, c.block, c.shared, 0, make([]byte, c.params))
		if !errors.Is(err, cu.ErrInvalidValue) || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), c.kernel) {
			t.Errorf("%s, grid %v, block %v: got %v, want %q", c.kernel, c.grid, c.block, err, c.words)
		}
	}
	f := r.fn("race")
	s := r.stream()
	r.ok(r.CtxSetCurrent(must(r.PrimaryCtxRetain(1))(t)))
	if err := r.LaunchKernel(f, one, one, 0, 0, nil); !errors.Is(err, cu.ErrInvalidHandle) {
		t.Errorf("a kernel of another device: %v", err)
	}
	if err := r.LaunchKernel(f, one, one, 0, s, nil); !errors.Is(err, cu.ErrInvalidHandle) {
		t.Errorf("a stream of another device: %v", err)
	}
	r.ok(r.CtxSetCurrent(0))
	if err := r.LaunchKernel(f, one, one, 0, s, nil); !errors.Is(err, cu.ErrInvalidContext) {
		t.Errorf("no current context: %v", err)
	}
	r.ok(r.CtxSetCurrent(r.ctx))
	r.ok(r.LaunchKernel(r.fn("exact"), one, d(32, 2, 1), 0, s, nil))
	r.ok(r.LaunchKernel(r.fn("narrow"), one, d(64, 1, 1), 0, s, nil))
	r.ok(r.CtxSynchronize())
}
