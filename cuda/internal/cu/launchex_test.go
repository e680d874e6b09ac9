//go:build !nogpu && linux && (amd64 || arm64)

package cu

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unsafe"
)

// TestLaunchLayouts compares the sizes and offsets of the structs with those that a C compiler
// computes from cuda.h (CUDA 12.9, 64-bit).
func TestLaunchLayouts(t *testing.T) {
	var c launchConfig
	var a launchAttribute
	for _, row := range []struct {
		field    string
		at, want uintptr
	}{
		{"CUlaunchConfig", unsafe.Sizeof(c), 56}, {"gridDimX", unsafe.Offsetof(c.grid), 0}, {"blockDimX", unsafe.Offsetof(c.block), 12},
		{"sharedMemBytes", unsafe.Offsetof(c.shared), 24}, {"hStream", unsafe.Offsetof(c.stream), 32}, {"attrs", unsafe.Offsetof(c.attrs), 40},
		{"numAttrs", unsafe.Offsetof(c.count), 48},
		{"CUlaunchAttribute", unsafe.Sizeof(a), 72}, {"id", unsafe.Offsetof(a.id), 0}, {"value", unsafe.Offsetof(a.value), 8},
	} {
		if row.at != row.want {
			t.Errorf("%s is at %d, want %d", row.field, row.at, row.want)
		}
	}
}

// TestLaunchAttributes launches a kernel with attributes. The configuration, its attributes and the
// parameters must reach C.
func TestLaunchAttributes(t *testing.T) {
	f := newFake(t, 12040)
	d := f.start(t)
	params := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}
	k := GraphKernel{Func: 0x1111, Grid: Dim3{2, 3, 4}, Block: Dim3{5, 6, 7}, Shared: 8, Params: params}
	type attr = struct {
		id    uint32
		value [3]uint32
	}
	for _, c := range []struct {
		a    LaunchAttributes
		want []attr
	}{
		{LaunchAttributes{}, nil},
		{LaunchAttributes{Overlap: true}, []attr{{6, [3]uint32{1}}}},
		{LaunchAttributes{Cluster: Dim3{2, 1, 4}, Overlap: true, Priority: -3}, []attr{{4, [3]uint32{2, 1, 4}}, {6, [3]uint32{1}}, {8, [3]uint32{0xfffffffd}}}},
	} {
		result := Result(0)
		f.override("cuLaunchKernelEx", func(a *[11]uintptr) Result {
			config := (*[14]uint32)(pointer(a[0]))
			want(t, "grid, block and shared memory", [7]uint32(config[:7]), [7]uint32{2, 3, 4, 5, 6, 7, 8})
			want(t, "stream", *(*uintptr)(unsafe.Pointer(&config[8])), 0x9999)
			want(t, "attributes", config[12], uint32(len(c.want)))
			list := *(*uintptr)(unsafe.Pointer(&config[10]))
			want(t, "a list of attributes", list != 0, len(c.want) > 0)
			for i, w := range c.want {
				got := (*[18]uint32)(pointer(list + uintptr(72*i)))
				want(t, "attribute", attr{got[0], [3]uint32(got[2:5])}, w)
			}
			want(t, "function", a[1], 0x1111)
			want(t, "parameters one by one", a[2], 0)
			extra := (*[5]uintptr)(pointer(a[3]))
			size := *(*uintptr)(pointer(extra[3]))
			if got := unsafe.Slice((*byte)(pointer(extra[1])), size); extra[0] != 1 || extra[2] != 2 || extra[4] != 0 || !bytes.Equal(got, params) {
				t.Errorf("parameters %v, want %v", got, params)
			}
			return result
		})
		if err := d.LaunchKernelEx(k, c.a, 0x9999); err != nil {
			t.Error(err)
		}
		result = ErrInvalidClusterSize
		var e *Error
		if err := d.LaunchKernelEx(k, c.a, 0x9999); !errors.Is(err, ErrInvalidClusterSize) || !errors.As(err, &e) || e.Call != "cuLaunchKernelEx" {
			t.Errorf("got %v", err)
		}
	}
}

// TestLaunchAttributesOfOldDriver uses a driver that lacks cuLaunchKernelEx. It must open, and
// launch kernels without attributes. A launch with attributes must return an error that says what
// the driver lacks.
func TestLaunchAttributesOfOldDriver(t *testing.T) {
	f := newFake(t, Minimum)
	delete(f.exports, "cuLaunchKernelEx")
	d := f.start(t)
	f.override("cuLaunchKernel", func(*[11]uintptr) Result { return 0 })
	if err := d.LaunchKernel(1, Dim3{1, 1, 1}, Dim3{1, 1, 1}, 0, 0, nil); err != nil {
		t.Error(err)
	}
	err := d.LaunchKernelEx(GraphKernel{Func: 1, Grid: Dim3{1, 1, 1}, Block: Dim3{1, 1, 1}}, LaunchAttributes{Overlap: true}, 0)
	var e *Error
	if !errors.Is(err, ErrNotSupported) || !errors.As(err, &e) || !strings.Contains(err.Error(), "the driver takes CUDA 11.8") || !strings.Contains(err.Error(), "CUDA 11.6") {
		t.Errorf("got %v", err)
	}
}
