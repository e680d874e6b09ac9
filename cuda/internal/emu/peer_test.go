package emu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
)

// newPair returns a rig with at least two devices. The context of the second one is not current.
func newPair(t *testing.T, cfg Config) (r *rig, other cu.Context) {
	cfg.Devices = max(cfg.Devices, 2)
	r = newRig(t, cfg)
	return r, must(r.PrimaryCtxRetain(1))(t)
}

// withContext makes a context current during f.
func (r *rig) withContext(c cu.Context, f func()) {
	r.Helper()
	r.ok(r.CtxSetCurrent(c))
	f()
	r.ok(r.CtxSetCurrent(r.ctx))
}

// TestPeerAccessCalls checks the results of the calls for peer access against the driver's
// documentation.
func TestPeerAccessCalls(t *testing.T) {
	r, other := newPair(t, Config{Devices: 3, Memory: 4 << 20})
	for _, c := range []struct {
		a, b cu.Device
		want bool
	}{{0, 1, true}, {1, 0, true}, {2, 1, true}, {1, 1, false}} {
		if ok := must(r.DeviceCanAccessPeer(c.a, c.b))(t); ok != c.want {
			t.Errorf("devices %d and %d: %v", c.a, c.b, ok)
		}
	}
	expect := func(what string, err error, want cu.Result) {
		t.Helper()
		if want == 0 && err != nil || want != 0 && !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	_, err := r.DeviceCanAccessPeer(0, 3)
	expect("no device", err, cu.ErrInvalidDevice)
	expect("no context", r.CtxEnablePeerAccess(12345), cu.ErrInvalidContext)
	expect("itself", r.CtxEnablePeerAccess(r.ctx), cu.ErrInvalidContext)
	expect("not enabled", r.CtxDisablePeerAccess(other), cu.ErrPeerAccessNotEnabled)
	expect("enable", r.CtxEnablePeerAccess(other), 0)
	expect("again", r.CtxEnablePeerAccess(other), cu.ErrPeerAccessAlreadyEnabled)
	r.withContext(other, func() { expect("the other direction", r.CtxDisablePeerAccess(r.ctx), cu.ErrPeerAccessNotEnabled) })
	expect("disable", r.CtxDisablePeerAccess(other), 0)
	expect("disabled", r.CtxDisablePeerAccess(other), cu.ErrPeerAccessNotEnabled)
	expect("enable", r.CtxEnablePeerAccess(other), 0)
	r.ok(r.PrimaryCtxRelease(1)) // peer access must end with the context
	expect("a context that is gone", r.CtxDisablePeerAccess(other), cu.ErrInvalidContext)
	other = must(r.PrimaryCtxRetain(1))(t)
	expect("a new context", r.CtxEnablePeerAccess(other), 0)
	r.ok(r.Reset(0))
	expect("after Reset", r.CtxEnablePeerAccess(other), 0)
	r.ok(r.CtxSetCurrent(0))
	expect("nothing current", r.CtxEnablePeerAccess(other), cu.ErrInvalidContext)
	expect("nothing current", r.CtxDisablePeerAccess(other), cu.ErrInvalidContext)

	r, other = newPair(t, Config{Memory: 4 << 20, NoPeer: true})
	if must(r.DeviceCanAccessPeer(0, 1))(t) {
		t.Error("peer=off can access")
	}
	expect("peer=off", r.CtxEnablePeerAccess(other), cu.ErrPeerAccessUnsupported)
	expect("peer=off", r.CtxDisablePeerAccess(other), cu.ErrPeerAccessNotEnabled)
}

// TestPeerLoads lets kernels access a peer's memory. An access must succeed if peer access is
// enabled in its direction. Otherwise the fault must say what is missing.
func TestPeerLoads(t *testing.T) {
	fault := func(r *rig, err error, words ...string) {
		t.Helper()
		var f *ptxvm.Fault
		if err == nil {
			err = r.CtxSynchronize()
		}
		if !errors.Is(err, cu.ErrIllegalAddress) || !errors.As(err, &f) || f.Kind != ptxvm.OutOfBounds {
			t.Fatalf("got %v", err)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v: no %q in it", err, w)
			}
		}
	}
	put := func(r *rig, other cu.Context, words int) (there cu.DevicePtr) {
		r.withContext(other, func() {
			there = r.alloc(uint64(4 * words))
			r.ok(r.MemsetD32Async(there, 5, uint64(words), 0))
			r.ok(r.CtxSynchronize())
		})
		return there
	}
	r, other := newPair(t, Config{Memory: 4 << 20})
	there := put(r, other, 64)
	r.ok(r.CtxEnablePeerAccess(other))
	r.ok(r.affine(0, there, 64, 3, 1))
	r.ok(r.CtxSynchronize())
	r.withContext(other, func() {
		if v := r.read(0, there, 64); !all(v, 16) {
			t.Errorf("the kernel of the other device left %v", v)
		}
	})
	r.ok(r.affine(0, there, 64, 1, 0)) // still pending when peer access ends
	r.ok(r.CtxDisablePeerAccess(other))
	fault(r, r.CtxSynchronize(), "memory of device 1, to which device 0 has no peer access")

	r, other = newPair(t, Config{Memory: 4 << 20})
	there = put(r, other, 64)
	r.withContext(other, func() { r.ok(r.CtxEnablePeerAccess(r.ctx)) }) // enables the wrong direction
	fault(r, r.affine(0, there, 64, 3, 1), "memory of device 1, to which device 0 has no peer access")
	r.ok(r.CtxSetCurrent(other)) // the second device must not be affected
	if v := r.read(0, there, 64); !all(v, 5) {
		t.Errorf("the refused kernel left %v", v)
	}

	r, other = newPair(t, Config{Memory: 4 << 20})
	there = put(r, other, 128)
	r.ok(r.CtxEnablePeerAccess(other))
	fault(r, r.affine(0, there, 160, 3, 1), "memory of device 1", "past the end")

	r, other = newPair(t, Config{Memory: 4 << 20})
	r.ok(r.CtxEnablePeerAccess(other))
	page := must(r.MemGranularity(1))(t)
	var mapped cu.DevicePtr
	r.withContext(other, func() {
		mapped = must(r.MemAddressReserve(page))(t)
		h := must(r.MemCreate(page, 1))(t)
		r.ok(r.MemMap(mapped, page, h))
		r.ok(r.MemSetAccess(mapped, page, 1))
		r.ok(r.MemsetD32Async(mapped, 5, 64, 0))
		r.ok(r.CtxSynchronize())
	})
	here := r.alloc(256)
	// a copy can read peer memory that a kernel cannot access
	r.ok(r.MemcpyPeerAsync(here, r.ctx, mapped, other, 256, 0))
	if v := r.read(0, here, 64); !all(v, 5) {
		t.Errorf("the copy brought %v", v)
	}
	fault(r, r.affine(0, mapped, 64, 3, 1), "mapped for that device alone")
}

// TestPeerCopyPaths checks the time of copies with and without peer access. The record of
// initialised bytes must be copied too.
func TestPeerCopyPaths(t *testing.T) {
	cost := Cost{Copy: time.Microsecond, CopyBytes: 1e9, PeerBytes: 10e9}
	for _, c := range []struct {
		enable string
		want   time.Duration
		direct uint64
	}{{"", 2 * 5096 * time.Nanosecond, 0}, {"here", 1410 * time.Nanosecond, 1}, {"there", 2 * 5096 * time.Nanosecond, 0}} {
		r, other := newPair(t, Config{Memory: 4 << 20, Cost: cost})
		switch c.enable {
		case "here":
			r.ok(r.CtxEnablePeerAccess(other))
		case "there":
			r.withContext(other, func() { r.ok(r.CtxEnablePeerAccess(r.ctx)) })
		}
		var there cu.DevicePtr
		r.withContext(other, func() {
			there = r.alloc(4096)
			r.ok(r.MemsetD8Async(there, 7, 2048, 0))
			r.ok(r.CtxSynchronize())
		})
		here, s, a, b := r.alloc(4096), r.stream(), r.event(), r.event()
		// The fill initialises all bytes. The copy makes half of them uninitialised again.
		r.ok(r.MemsetD8Async(here, 1, 4096, s))
		r.ok(r.EventRecord(a, s))
		r.ok(r.MemcpyPeerAsync(here, r.ctx, there, other, 4096, s))
		r.ok(r.EventRecord(b, s))
		r.ok(r.EventSynchronize(b))
		if d := must(r.EventElapsed(a, b))(t); d != c.want {
			t.Errorf("enabled %q: %v, want %v", c.enable, d, c.want)
		}
		if n := r.Stats(); n.Peer != (Traffic{1, 4096}) || n.PeerDirect != (Traffic{c.direct, 4096 * c.direct}) {
			t.Errorf("enabled %q: %+v", c.enable, n)
		}
		mem := r.devices[0].mem
		if err := errors.Join(mem.CheckInitialised(uint64(here), 2048), mem.CheckAddressable(uint64(here), 4096)); err != nil {
			t.Error(err)
		}
		if mem.CheckInitialised(uint64(here)+2048, 1) == nil {
			t.Error("the copy of uninitialised bytes counts as initialised")
		}
	}
}

// TestPeerCopyIsNotOneMoment changes the source of a copy. Without an event, an adversarial
// schedule must change it before, in the middle of, or after the copy. With an event the source
// must never change during the copy. If the source is freed before the copy has run, the context
// must end.
func TestPeerCopyIsNotOneMoment(t *testing.T) {
	run := func(seed uint64, wait bool) (v []uint32, err error) {
		r, other := newPair(t, Config{Memory: 4 << 20, Seed: seed})
		r.ok(r.CtxEnablePeerAccess(other))
		here, s := r.alloc(256), r.stream()
		r.withContext(other, func() {
			theirs := r.stream()
			there := r.alloc(256)
			r.ok(r.MemsetD32Async(there, 1, 64, theirs))
			r.ok(r.StreamSynchronize(theirs))
			r.ok(r.CtxSetCurrent(r.ctx))
			done := r.event()
			r.ok(r.MemcpyPeerAsync(here, r.ctx, there, other, 256, s))
			r.ok(r.EventRecord(done, s))
			r.ok(r.CtxSetCurrent(other))
			if wait {
				r.ok(r.StreamWaitEvent(theirs, done))
			}
			for range 8 {
				r.ok(r.affine1(theirs, there))
			}
			r.ok(r.StreamSynchronize(theirs))
		})
		return r.read(s, here, 64), nil
	}
	kinds := map[string]bool{}
	for seed := range uint64(40) {
		v, err := run(seed, false)
		if err != nil {
			t.Fatal(err)
		}
		first, last := v[0], v[63]
		kinds[fmt.Sprint(first == 1, last == 1, first == last)] = true
		if v, err := run(seed, true); err != nil || !all(v, 1) {
			t.Errorf("seed %d, with an event: %v, %v", seed, v, err)
		}
	}
	// The copy reads the source in two parts. The source changes after both, between them, or
	// before both.
	for _, k := range []string{"true true true", "true false false", "false false true"} {
		if !kinds[k] {
			t.Errorf("40 schedules never gave %q, only %v", k, kinds)
		}
	}

	r, other := newPair(t, Config{Memory: 4 << 20})
	var there cu.DevicePtr
	r.withContext(other, func() {
		there = r.alloc(256)
		r.ok(r.MemsetD32Async(there, 1, 64, 0))
		r.ok(r.CtxSynchronize())
	})
	r.ok(r.MemcpyPeerAsync(r.alloc(256), r.ctx, there, other, 256, 0))
	r.withContext(other, func() { r.ok(r.MemFree(there)) })
	var e *AccessError
	if err := r.CtxSynchronize(); !errors.As(err, &e) || e.Kind != KindCopyPeer || e.Addr != uint64(there) {
		t.Errorf("the source was freed under the copy: %v", err)
	}
}

// affine1 adds 1 to 64 integers at x. It uses the module of x's device, which must be current.
func (r *rig) affine1(s cu.Stream, x cu.DevicePtr) error {
	dev := int(uint64(x)/addressBase(0)) - 1
	if r.mods == nil {
		r.mods = map[int]cu.Module{0: r.mod}
	}
	if _, ok := r.mods[dev]; !ok {
		r.mods[dev] = must(r.ModuleLoadData([]byte(kernels), cu.JITOptions{}))(r)
	}
	f := must(r.ModuleGetFunction(r.mods[dev], "affine"))(r)
	p := binary.LittleEndian.AppendUint64(nil, uint64(x))
	for _, v := range []uint32{64, 1, 1} {
		p = binary.LittleEndian.AppendUint32(p, v)
	}
	return r.LaunchKernel(f, cu.Dim3{X: 2, Y: 1, Z: 1}, cu.Dim3{X: 32, Y: 1, Z: 1}, 0, s, p)
}

// TestPeersInMetaMode enables peer access in meta mode, and then copies between peers. The copies
// must be counted, and no memory may be accessed.
func TestPeersInMetaMode(t *testing.T) {
	r, other := newPair(t, Config{Memory: 4 << 20, Meta: true})
	r.ok(r.CtxEnablePeerAccess(other))
	var there cu.DevicePtr
	r.withContext(other, func() { there = r.alloc(256) })
	r.ok(r.MemcpyPeerAsync(r.alloc(256), r.ctx, there, other, 256, 0))
	r.ok(r.CtxSynchronize())
	if c := r.Stats(); c.PeerDirect != (Traffic{1, 256}) {
		t.Errorf("%+v", c)
	}
}
