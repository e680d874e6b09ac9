//go:build !nogpu && (linux || windows) && (amd64 || arm64)

package cu

import (
	"runtime"
	"unsafe"
)

var _ AttributeLauncher = (*driver)(nil)

// laterSymbols holds addresses of functions that a driver may lack. The address of a missing
// function is 0.
type laterSymbols struct {
	launchKernelEx uintptr
}

// laterSymbol is a function with the version of the driver API that introduced it.
type laterSymbol struct {
	symbol
	since Version
}

var laterTable = []laterSymbol{
	{symbol{"cuLaunchKernelEx", "", func(s *symbols) *uintptr { return &s.launchKernelEx }}, launchKernelExSince},
}

const launchKernelExSince Version = 11060

// launchConfig is CUlaunchConfig.
type launchConfig struct {
	grid, block Dim3
	shared      uint32
	stream      uintptr
	attrs       uintptr
	count       uint32
}

// launchAttribute is CUlaunchAttribute. Its value is a union of 64 bytes.
type launchAttribute struct {
	id    uint32
	_     [4]byte
	value [16]uint32
}

// Attributes of a launch: CUlaunchAttributeID in cuda.h.
const (
	launchClusterDimension          = 4
	launchProgrammaticSerialization = 6
	launchPriority                  = 8
)

// launchArgs is memory to which the arguments of one call point. It lies on the heap, because C
// functions need memory that does not move.
type launchArgs struct {
	config launchConfig
	attrs  [3]launchAttribute
	extra  [5]uintptr
	size   uintptr
}

//go:noinline
func newLaunchArgs() *launchArgs { return new(launchArgs) }

func (l *launchArgs) add(id uint32, value ...uint32) {
	a := &l.attrs[l.config.count]
	a.id = id
	copy(a.value[:], value)
	l.config.count++
}

func (d *driver) LaunchKernelEx(k GraphKernel, a LaunchAttributes, s Stream) error {
	const call = "cuLaunchKernelEx"
	if d.fn.launchKernelEx == 0 {
		return &Error{Call: call, Result: ErrNotSupported, Detail: "the driver takes CUDA " + d.version.String() +
			" and has no launches with attributes: they came with CUDA " + launchKernelExSince.String() + ", so update the driver"}
	}
	l := newLaunchArgs()
	l.config = launchConfig{grid: k.Grid, block: k.Block, shared: k.Shared, stream: uintptr(s)}
	if a.Cluster != (Dim3{}) {
		l.add(launchClusterDimension, a.Cluster.X, a.Cluster.Y, a.Cluster.Z)
	}
	if a.Overlap {
		l.add(launchProgrammaticSerialization, 1)
	}
	if a.Priority != 0 {
		l.add(launchPriority, uint32(int32(a.Priority)))
	}
	if l.config.count > 0 {
		l.config.attrs = uintptr(unsafe.Pointer(&l.attrs[0]))
	}
	extra := uintptr(0)
	if len(k.Params) > 0 {
		l.size = uintptr(len(k.Params))
		l.extra = [5]uintptr{launchParamBufferPointer, uintptr(unsafe.Pointer(&k.Params[0])), launchParamBufferSize,
			uintptr(unsafe.Pointer(&l.size)), launchParamEnd}
		extra = uintptr(unsafe.Pointer(&l.extra[0]))
	}
	r := call4(d.fn.launchKernelEx, uintptr(unsafe.Pointer(&l.config)), uintptr(k.Func), 0, extra)
	runtime.KeepAlive(l)
	runtime.KeepAlive(k.Params)
	return failf(r, call, "grid %v, block %v, %d bytes of dynamic shared memory, %d bytes of parameters, %v", k.Grid, k.Block, k.Shared, len(k.Params), a)
}
