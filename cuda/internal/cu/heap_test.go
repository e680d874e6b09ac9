//go:build !nogpu && linux && (amd64 || arm64)

package cu

import (
	"testing"
	"unsafe"
)

// TestArgumentsLieOnTheHeap checks that memory whose address is passed to C is not on the
// goroutine's stack. A stack moves when it grows, which may happen after the address was taken and
// before the call. The compiler would put a value on the stack if its address were only converted
// to a number.
func TestArgumentsLieOnTheHeap(t *testing.T) {
	f := newFake(t, 12040)
	d := f.start(t)
	params := make([]byte, 16)
	ptx := []byte(".version 7.0")
	host := make([]byte, 64)
	nodes := make([]GraphNode, 2)
	launch := GraphKernel{Func: 1, Grid: Dim3{1, 1, 1}, Block: Dim3{1, 1, 1}, Params: params}
	copyOf := GraphCopy{SrcHost: unsafe.Pointer(&host[0]), Dst: 4096, N: 64}

	// pointers lists, for each function, the indices of the arguments that point to Go memory.
	pointers := map[string][]int{
		"cuGetProcAddress_v2": {0, 1, 4}, "cuModuleGetFunction": {0, 2}, "cuModuleLoadDataEx": {0, 1, 3, 4},
		"cuLinkCreate_v2": {1, 2, 3}, "cuLinkAddData_v2": {2, 4}, "cuLinkDestroy": nil, "cuLinkComplete": {1, 2},
		"cuGraphAddKernelNode": {0, 2, 4}, "cuGraphAddMemcpyNode": {0, 2, 4}, "cuGraphAddMemsetNode": {0, 2, 4},
		"cuGraphExecKernelNodeSetParams": {2}, "cuGraphExecMemcpyNodeSetParams": {2}, "cuStreamEndCapture": {1},
		"cuMemGetAllocationGranularity": {0, 1}, "cuMemCreate": {0, 2}, "cuMemSetAccess": {2}, "cuMemAlloc_v2": {0},
		"cuDeviceGetName": {0}, "cuMemHostAlloc": {0}, "cuLaunchKernel": {10}, "cuLaunchKernelEx": {0, 3},
	}
	image := []byte("\x7fELF")
	seen := map[string]bool{}
	f.handle = func(name string, a *[11]uintptr) Result {
		list, known := pointers[name]
		if !known {
			t.Errorf("unexpected call of %s", name)
		}
		seen[name] = true
		for _, i := range list {
			if onStack(a[i]) {
				t.Errorf("%s: argument %d points into the goroutine's stack", name, i)
			}
		}
		if at := map[string]int{"cuModuleLoadDataEx": 4, "cuLinkCreate_v2": 2}[name]; at > 0 {
			// option values 0 and 2 are the addresses of logs, and values 1 and 3 the sizes of the
			// logs
			for i, value := range unsafe.Slice((*uintptr)(pointer(a[at])), 4) {
				if i%2 == 0 && onStack(value) {
					t.Errorf("%s: value %d of the options points into the goroutine's stack", name, i)
				}
			}
		}
		if name == "cuLinkComplete" {
			*(**byte)(pointer(a[1])), *(*uintptr)(pointer(a[2])) = &image[0], uintptr(len(image))
		}
		return 0
	}
	deep(64, func() {
		_ = procAddress(callback("cuGetProcAddress_v2"), "cuInit", Minimum)
		d.ModuleGetFunction(1, "k")
		d.ModuleLoadData(ptx, JITOptions{})
		d.LinkPTX("k", ptx, JITOptions{})
		d.GraphAddKernelNode(1, nodes, launch)
		d.GraphAddCopyNode(1, nodes, copyOf, 1)
		d.GraphAddFillNode(1, nodes, 4096, 0, 4, 1, 1)
		d.GraphExecKernelNodeSetParams(1, 1, launch)
		d.GraphExecCopyNodeSetParams(1, 1, copyOf, 1)
		d.StreamEndCapture(1)
		d.MemGranularity(0)
		d.MemCreate(1<<21, 0)
		d.MemSetAccess(1<<21, 1<<21, 0)
		d.MemAlloc(1)
		d.DeviceName(0)
		d.MemHostAlloc(1, 0)
		d.LaunchKernel(1, Dim3{1, 1, 1}, Dim3{1, 1, 1}, 0, 0, params)
		d.LaunchKernelEx(launch, LaunchAttributes{Overlap: true}, 0)
	})
	if local := [1]byte{1}; !onStackOf(&local) {
		t.Error("a local variable was not seen to be on the stack: this test finds nothing")
	}
	for name := range pointers {
		if !seen[name] {
			t.Errorf("%s was not called", name)
		}
	}
}

// deep calls f at a depth of some KiB in the stack. Addresses that are not on the stack are then
// far from the frames of f.
//
//go:noinline
func deep(kib int, f func()) {
	var pad [1024]byte
	if kib > 0 {
		deep(kib-1, f)
	} else {
		f()
	}
	sink = pad[kib%1024]
}

var sink byte

// onStack reports whether an address lies within 56 KiB above the caller's frame. If the
// caller runs within deep, this range contains all frames between deep and onStack.
//
//go:noinline
func onStack(p uintptr) bool {
	var here byte
	at := uintptr(unsafe.Pointer(&here))
	return p > at && p < at+56<<10
}

//go:noinline
func onStackOf(p *[1]byte) bool { return onStack(uintptr(unsafe.Pointer(p))) }
