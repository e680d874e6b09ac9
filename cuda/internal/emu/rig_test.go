package emu

import (
	"encoding/binary"
	"runtime"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// kernels is a module. Its kernel affine computes x[i] = a·x[i] + b for i < n. Each of the other
// kernels makes one mistake, or needs one property of its launch.
const kernels = `
.version 7.0
.target sm_80
.address_size 64

.visible .entry affine(.param .u64 x, .param .u32 n, .param .u32 a, .param .u32 b)
{
	.reg .pred %p<2>;
	.reg .b32 %r<10>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [x];
	ld.param.u32 %r1, [n];
	ld.param.u32 %r2, [a];
	ld.param.u32 %r3, [b];
	mov.u32 %r4, %ctaid.x;
	mov.u32 %r5, %ntid.x;
	mov.u32 %r6, %tid.x;
	mad.lo.u32 %r7, %r4, %r5, %r6;
	setp.ge.u32 %p1, %r7, %r1;
	@%p1 bra DONE;
	cvta.to.global.u64 %rd2, %rd1;
	mul.wide.u32 %rd3, %r7, 4;
	add.u64 %rd4, %rd2, %rd3;
	ld.global.u32 %r8, [%rd4];
	mad.lo.u32 %r9, %r8, %r2, %r3;
	st.global.u32 [%rd4], %r9;
DONE:
	ret;
}

.visible .entry race()
{
	.reg .b32 %r<2>;
	.shared .align 4 .b32 word;
	mov.u32 %r1, %tid.x;
	st.shared.u32 [word], %r1;
	ret;
}

.visible .entry stop()
{
	trap;
}

.visible .entry narrow()
.maxntid 64, 1, 1
{
	ret;
}

.visible .entry exact()
.reqntid 32, 2, 1
{
	ret;
}
`

// rig is a driver whose context is current on the test's thread.
type rig struct {
	testing.TB
	*Driver
	ctx  cu.Context
	mod  cu.Module
	mods map[int]cu.Module // for each device, the module that affine1 uses
}

func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	r := &rig{TB: t, Driver: d}
	r.ctx = must(d.PrimaryCtxRetain(0))(t)
	r.ok(d.CtxSetCurrent(r.ctx))
	r.mod = must(d.ModuleLoadData([]byte(kernels), cu.JITOptions{}))(t)
	return r
}

// must returns a function that fails the test if err is not nil, and otherwise returns v.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) stream() cu.Stream {
	r.Helper()
	return must(r.StreamCreate(cu.StreamNonBlocking, 0))(r)
}

func (r *rig) event() cu.Event { r.Helper(); return must(r.EventCreate(cu.EventDefault))(r) }

func (r *rig) alloc(n uint64) cu.DevicePtr { r.Helper(); return must(r.MemAlloc(n))(r) }

func (r *rig) fn(name string) cu.Function {
	r.Helper()
	return must(r.ModuleGetFunction(r.mod, name))(r)
}

// pinned returns n words of page-locked memory.
func (r *rig) pinned(n int) []uint32 {
	r.Helper()
	p := must(r.MemHostAlloc(uint64(4*n), cu.HostPortable|cu.HostDeviceMap))(r)
	return unsafe.Slice((*uint32)(p), n)
}

// affine launches x = a·x + b for n 32-bit integers, in blocks of 32.
func (r *rig) affine(s cu.Stream, x cu.DevicePtr, n, a, b uint32) error {
	p := binary.LittleEndian.AppendUint64(nil, uint64(x))
	for _, v := range []uint32{n, a, b} {
		p = binary.LittleEndian.AppendUint32(p, v)
	}
	return r.LaunchKernel(r.fn("affine"), cu.Dim3{X: (n + 31) / 32, Y: 1, Z: 1}, cu.Dim3{X: 32, Y: 1, Z: 1}, 0, s, p)
}

func (r *rig) launch(name string, block uint32) error {
	return r.LaunchKernel(r.fn(name), cu.Dim3{X: 1, Y: 1, Z: 1}, cu.Dim3{X: block, Y: 1, Z: 1}, 0, 0, nil)
}

// read downloads n 32-bit integers into ordinary Go memory.
func (r *rig) read(s cu.Stream, p cu.DevicePtr, n int) []uint32 {
	r.Helper()
	out := make([]uint32, n)
	r.ok(r.MemcpyDtoHAsync(unsafe.Pointer(&out[0]), p, uint64(4*n), s))
	return out
}

func all(v []uint32, want uint32) bool {
	for _, x := range v {
		if x != want {
			return false
		}
	}
	return true
}

func ptr(v []uint32) unsafe.Pointer { return unsafe.Pointer(&v[0]) }

func fill(v []uint32, x uint32) {
	for i := range v {
		v[i] = x
	}
}
