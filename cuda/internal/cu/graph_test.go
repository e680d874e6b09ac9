//go:build !nogpu && linux && (amd64 || arm64)

package cu

import (
	"bytes"
	"errors"
	"testing"
	"unsafe"
)

// TestGraphLayouts compares the sizes and offsets of the structs with those of cuda.h, as a C
// compiler computes them (CUDA 12.9, 64-bit).
func TestGraphLayouts(t *testing.T) {
	var k kernelNodeParams
	var c memcpy3D
	var m memsetNodeParams
	for _, row := range []struct {
		field string
		at    uintptr
		want  uintptr
	}{
		{"CUDA_KERNEL_NODE_PARAMS_v1", unsafe.Sizeof(k), 56}, {"func", unsafe.Offsetof(k.fn), 0}, {"gridDimX", unsafe.Offsetof(k.grid), 8},
		{"blockDimX", unsafe.Offsetof(k.block), 20}, {"sharedMemBytes", unsafe.Offsetof(k.shared), 32},
		{"kernelParams", unsafe.Offsetof(k.params), 40}, {"extra", unsafe.Offsetof(k.extra), 48},
		{"CUDA_MEMCPY3D", unsafe.Sizeof(c), 200}, {"srcXInBytes", unsafe.Offsetof(c.srcX), 0}, {"srcLOD", unsafe.Offsetof(c.srcLOD), 24},
		{"srcMemoryType", unsafe.Offsetof(c.srcType), 32}, {"srcHost", unsafe.Offsetof(c.srcHost), 40}, {"srcDevice", unsafe.Offsetof(c.srcDevice), 48},
		{"srcArray", unsafe.Offsetof(c.srcArray), 56}, {"reserved0", unsafe.Offsetof(c.reserved0), 64}, {"srcPitch", unsafe.Offsetof(c.srcPitch), 72},
		{"dstXInBytes", unsafe.Offsetof(c.dstX), 88}, {"dstMemoryType", unsafe.Offsetof(c.dstType), 120}, {"dstHost", unsafe.Offsetof(c.dstHost), 128},
		{"dstDevice", unsafe.Offsetof(c.dstDevice), 136}, {"reserved1", unsafe.Offsetof(c.reserved1), 152}, {"dstPitch", unsafe.Offsetof(c.dstPitch), 160},
		{"dstHeight", unsafe.Offsetof(c.dstHeight), 168}, {"WidthInBytes", unsafe.Offsetof(c.widthBytes), 176}, {"Height", unsafe.Offsetof(c.height), 184},
		{"Depth", unsafe.Offsetof(c.depth), 192},
		{"CUDA_MEMSET_NODE_PARAMS", unsafe.Sizeof(m), 40}, {"dst", unsafe.Offsetof(m.dst), 0}, {"pitch", unsafe.Offsetof(m.pitch), 8},
		{"value", unsafe.Offsetof(m.value), 16}, {"elementSize", unsafe.Offsetof(m.elementSize), 20}, {"width", unsafe.Offsetof(m.width), 24},
		{"height", unsafe.Offsetof(m.height), 32},
	} {
		if row.at != row.want {
			t.Errorf("%s is at %d, want %d", row.field, row.at, row.want)
		}
	}
}

// nodesBefore are the dependencies of a node. They are global because their address is passed to C,
// and a stack may move.
var nodesBefore = []GraphNode{0x71, 0x72}

// TestEachGraphCall calls every method once. It checks the C function, its arguments, the memory to
// which they point, and the results.
func TestEachGraphCall(t *testing.T) {
	f := newFake(t, 12040)
	d := f.start(t)
	type args = *[11]uintptr
	expect := f.expects(t, ErrInvalidValue)
	value := func(what string, err error, ok bool) error {
		if err == nil && !ok {
			t.Errorf("%s: wrong value", what)
		}
		return err
	}
	out := func(i int, v uint64) func(args) { return func(a args) { *(*uint64)(pointer(a[i])) = v } }
	after := nodesBefore
	ahead := uintptr(unsafe.Pointer(&after[0]))
	l := GraphKernel{Func: 6, Grid: Dim3{2, 3, 4}, Block: Dim3{32, 1, 1}, Shared: 64, Params: []byte{1, 2, 3, 4, 5}}
	kernel := func(p uintptr) {
		k := (*kernelNodeParams)(pointer(p))
		want(t, "function", k.fn, 6)
		want(t, "grid", k.grid, l.Grid)
		want(t, "block", k.block, l.Block)
		want(t, "shared", k.shared, 64)
		want(t, "kernelParams", k.params, 0)
		e := (*[5]uintptr)(pointer(k.extra))
		want(t, "keys", [3]uintptr{e[0], e[2], e[4]}, [3]uintptr{1, 2, 0})
		if got := unsafe.Slice((*byte)(pointer(e[1])), *(*uintptr)(pointer(e[3]))); !bytes.Equal(got, l.Params) {
			t.Errorf("parameters %v, want %v", got, l.Params)
		}
	}
	host := make([]byte, 16)
	up := GraphCopy{SrcHost: unsafe.Pointer(&host[0]), Dst: 100, N: 16}
	upward := func(p uintptr) {
		c := (*memcpy3D)(pointer(p))
		want(t, "copy", *c, memcpy3D{srcType: 1, srcHost: uintptr(unsafe.Pointer(&host[0])), dstType: 2, dstDevice: 100, widthBytes: 16, height: 1, depth: 1})
	}

	expect("cuGraphCreate", []uintptr{skip, 0}, out(0, 9), func() error { g, err := d.GraphCreate(); return value("graph", err, g == 9) })
	expect("cuGraphDestroy", []uintptr{9}, nil, func() error { return d.GraphDestroy(9) })
	expect("cuGraphAddKernelNode", []uintptr{skip, 9, ahead, 2}, func(a args) { out(0, 0x73)(a); kernel(a[4]) }, func() error {
		n, err := d.GraphAddKernelNode(9, after, l)
		return value("node", err, n == 0x73)
	})
	expect("cuGraphAddMemcpyNode", []uintptr{skip, 9, 0, 0, skip, 77}, func(a args) { out(0, 0x74)(a); upward(a[4]) }, func() error {
		n, err := d.GraphAddCopyNode(9, nil, up, 77)
		return value("node", err, n == 0x74)
	})
	across := func(a args) {
		out(0, 0x74)(a)
		want(t, "copy", *(*memcpy3D)(pointer(a[4])),
			memcpy3D{srcType: 4, srcDevice: 300, dstType: 4, dstDevice: 100, widthBytes: 16, height: 1, depth: 1})
	}
	expect("cuGraphAddMemcpyNode", []uintptr{skip, 9, 0, 0, skip, 77}, across, func() error {
		n, err := d.GraphAddCopyNode(9, nil, GraphCopy{Src: 300, Dst: 100, N: 16, Peer: true}, 77)
		return value("node", err, n == 0x74)
	})
	fill := func(a args) {
		out(0, 0x75)(a)
		want(t, "fill", *(*memsetNodeParams)(pointer(a[4])), memsetNodeParams{dst: 100, value: 7, elementSize: 4, width: 5, height: 1})
	}
	expect("cuGraphAddMemsetNode", []uintptr{skip, 9, ahead, 2, skip, 77}, fill, func() error {
		n, err := d.GraphAddFillNode(9, after, 100, 7, 4, 5, 77)
		return value("node", err, n == 0x75)
	})
	expect("cuGraphAddEmptyNode", []uintptr{skip, 9, ahead, 2}, out(0, 0x76), func() error { n, err := d.GraphAddEmptyNode(9, after); return value("node", err, n == 0x76) })
	expect("cuGraphAddChildGraphNode", []uintptr{skip, 9, ahead, 2, 10}, out(0, 0x77), func() error {
		n, err := d.GraphAddChildGraphNode(9, after, 10)
		return value("node", err, n == 0x77)
	})
	expect("cuGraphAddDependencies", []uintptr{9, ahead, ahead, 2}, nil, func() error { return d.GraphAddDependencies(9, after, after) })
	expect("cuGraphInstantiateWithFlags", []uintptr{skip, 9, 0}, out(0, 11), func() error { e, err := d.GraphInstantiate(9); return value("exec", err, e == 11) })
	expect("cuGraphExecKernelNodeSetParams", []uintptr{11, 0x73}, func(a args) { kernel(a[2]) }, func() error { return d.GraphExecKernelNodeSetParams(11, 0x73, l) })
	expect("cuGraphExecMemcpyNodeSetParams", []uintptr{11, 0x74, skip, 77}, func(a args) { upward(a[2]) }, func() error { return d.GraphExecCopyNodeSetParams(11, 0x74, up, 77) })
	expect("cuGraphExecDestroy", []uintptr{11}, nil, func() error { return d.GraphExecDestroy(11) })
	expect("cuGraphLaunch", []uintptr{11, 3}, nil, func() error { return d.GraphLaunch(11, 3) })
	expect("cuStreamBeginCapture_v2", []uintptr{3, 1}, nil, func() error { return d.StreamBeginCapture(3) })
	expect("cuStreamEndCapture", []uintptr{3}, out(1, 12), func() error { g, err := d.StreamEndCapture(3); return value("graph", err, g == 12) })

	if err := d.GraphAddDependencies(9, after, nil); !errors.Is(err, ErrInvalidValue) {
		t.Errorf("lists of different lengths: %v", err)
	}
}
