package ptxvm_test

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
)

const double = `.version 7.0
.target sm_80
.address_size 64
.visible .entry double(.param .u64 p)
{
	.reg .b32 %r<3>;
	.reg .b64 %rd<3>;
	ld.param.u64 %rd1, [p];
	mov.u32 %r1, %tid.x;
	mad.wide.u32 %rd2, %r1, 4, %rd1;
	ld.global.u32 %r2, [%rd2];
	add.u32 %r2, %r2, %r2;
	st.global.u32 [%rd2], %r2;
	ret;
}`

// A correct launch returns counters. A wrong launch returns a fault that names kernel, line and
// thread.
func Example() {
	mem := ptxvm.NewMemory(0x10000000, 1<<20)
	addr, err := mem.Alloc(512)
	if err != nil {
		fmt.Println(err)
		return
	}
	mem.MarkAllocated(addr, 4*4, 512, "numbers")
	b, _ := mem.Bytes(addr, 16)
	for i := range 4 {
		binary.LittleEndian.PutUint32(b[4*i:], uint32(i+1))
	}
	mem.MarkInitialised(addr, 16)

	m, err := ptxvm.Parse(double)
	if err != nil {
		fmt.Println(err)
		return
	}
	l := ptxvm.Launch{Entry: m.Entry("double"), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{4, 1, 1},
		Params: binary.LittleEndian.AppendUint64(nil, addr), Mem: mem, SM: 80}
	stats, err := l.Run()
	fmt.Println(binary.LittleEndian.Uint32(b[12:]), stats.GlobalLoads, stats.Sectors, err)

	l.Block[0] = 5
	_, err = l.Run()
	var f *ptxvm.Fault
	fmt.Println(errors.As(err, &f), f.Kind, f.Kernel, f.Line, f.Thread)
	fmt.Println(f.Msg)
	// Output:
	// 8 1 2 <nil>
	// true out-of-bounds access double 11 [4 0 0]
	// 4 bytes at global address 0x10000010: 4 bytes past the end of "numbers" (16 bytes at 0x10000000)
}
