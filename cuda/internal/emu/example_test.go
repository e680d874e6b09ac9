package emu_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"runtime"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
)

// double is a kernel without a bounds check.
const double = `
.version 7.0
.target sm_80
.address_size 64
.visible .entry double(.param .u64 x)
{
	.reg .b32 %r<3>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [x];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd2, %r1, 4;
	add.u64 %rd3, %rd1, %rd2;
	ld.global.u32 %r2, [%rd3];
	shl.b32 %r2, %r2, 1;
	st.global.u32 [%rd3], %r2;
	ret;
}
`

// This runs a kernel on an emulated device. The driver finds the thread whose access is out of
// bounds, and names the line of PTX.
func Example() {
	cfg, err := emu.Parse("emulate:1,mem=64MiB,sm=80")
	if err != nil {
		log.Fatal(err)
	}
	driver, err := emu.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	var api cu.API = driver
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, err := api.PrimaryCtxRetain(0)
	check(err)
	check(api.CtxSetCurrent(ctx))
	mod, err := api.ModuleLoadData([]byte(double), cu.JITOptions{})
	check(err)
	kernel, err := api.ModuleGetFunction(mod, "double")
	check(err)

	host := make([]uint32, 128)
	for i := range host {
		host[i] = uint32(i)
	}
	x, err := api.MemAlloc(512)
	check(err)
	check(api.MemcpyHtoDAsync(x, unsafe.Pointer(&host[0]), 512, 0))
	params := binary.LittleEndian.AppendUint64(nil, uint64(x))
	one := cu.Dim3{X: 1, Y: 1, Z: 1}
	check(api.LaunchKernel(kernel, one, cu.Dim3{X: 128, Y: 1, Z: 1}, 0, 0, params))
	check(api.MemcpyDtoHAsync(unsafe.Pointer(&host[0]), x, 512, 0))
	fmt.Println(host[:5])

	check(api.LaunchKernel(kernel, one, cu.Dim3{X: 129, Y: 1, Z: 1}, 0, 0, params))
	err = api.CtxSynchronize()
	var fault *ptxvm.Fault
	fmt.Println(errors.Is(err, cu.ErrIllegalAddress), errors.As(err, &fault))
	fmt.Println(fault.Kind, "at line", fault.Line, "by thread", fault.Thread[0])
	// Output:
	// [0 2 4 6 8]
	// true true
	// out-of-bounds access at line 13 by thread 128
}
