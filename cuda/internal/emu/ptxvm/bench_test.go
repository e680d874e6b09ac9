package ptxvm

import (
	"fmt"
	"strings"
	"testing"
)

// elementwiseSrc is a typical kernel with about 20 instructions for each element: address
// arithmetic, two loads, arithmetic and a store.
const elementwiseSrc = `.version 7.0
.target sm_80
.address_size 64
.visible .entry ew(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
{
	.reg .pred %p<2>;
	.reg .b32 %r<8>;
	.reg .f32 %f<10>;
	.reg .b64 %rd<8>;
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %ntid.x;
	mov.u32 %r3, %tid.x;
	mad.lo.u32 %r4, %r1, %r2, %r3;
	ld.param.u32 %r5, [pn];
	setp.ge.u32 %p1, %r4, %r5;
	@%p1 bra DONE;
	ld.param.u64 %rd1, [pa];
	ld.param.u64 %rd2, [pb];
	ld.param.u64 %rd3, [pc];
	mad.wide.u32 %rd4, %r4, 4, %rd1;
	mad.wide.u32 %rd5, %r4, 4, %rd2;
	mad.wide.u32 %rd6, %r4, 4, %rd3;
	ld.global.f32 %f1, [%rd4];
	ld.global.f32 %f2, [%rd5];
	add.rn.f32 %f3, %f1, %f2;
	mul.rn.f32 %f4, %f3, %f1;
	fma.rn.f32 %f5, %f4, %f2, %f3;
	max.f32 %f6, %f5, %f1;
	st.global.f32 [%rd6], %f6;
DONE:
	ret;
}
`

func BenchmarkElementwise1M(b *testing.B) {
	const n = 1 << 20
	d := newDevice(b)
	pa, pb, pc := d.floats(randoms(n, 1), "a"), d.floats(randoms(n, 2), "b"), d.alloc(4*n, "c")
	m := mustParse(b, elementwiseSrc)
	l := Launch{Entry: m.Entry("ew"), Grid: [3]uint32{n / 256, 1, 1}, Block: [3]uint32{256, 1, 1}, Params: packParams(pa, pb, pc, n), Mem: d.mem, SM: 80, Workers: 1}
	var instr int64
	for b.Loop() {
		st, err := l.Run()
		if err != nil {
			b.Fatal(err)
		}
		instr += st.Instructions
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(instr), "ns/warp-instr")
}

// BenchmarkInstruction measures one instruction, executed by all lanes 64 times in a loop.
func BenchmarkInstruction(b *testing.B) {
	for _, c := range []string{
		"add.u32 %r1, %r2, %r3;", "mad.lo.u32 %r1, %r2, %r3, %r4;", "mad.wide.u32 %rd1, %r2, %r3, %rd2;", "shl.b32 %r1, %r2, 3;",
		"add.rn.f32 %f1, %f2, %f3;", "mul.rn.f32 %f1, %f2, %f3;", "fma.rn.f32 %f1, %f2, %f3, %f4;", "max.f32 %f1, %f2, %f3;", "div.rn.f32 %f1, %f2, %f3;", "ex2.approx.f32 %f1, %f2;",
		"setp.lt.u32 %p1, %r2, %r3;", "setp.lt.f32 %p1, %f2, %f3;", "selp.b32 %r1, %r2, %r3, %p2;", "mov.b32 %r1, %r2;", "cvt.rn.f32.s32 %f1, %r2;", "cvt.rzi.s32.f32 %r1, %f2;", "cvt.rn.bf16.f32 %h1, %f2;",
		"ld.global.f32 %f1, [%rd3];", "st.global.f32 [%rd3], %f2;", "ld.global.v4.f32 {%f1,%f5,%f6,%f7}, [%rd4];", "ld.shared.f32 %f1, [%r5];", "st.shared.f32 [%r5], %f2;",
		"shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;", "@%p2 add.u32 %r1, %r2, %r3;", "red.global.add.u32 [%rd3], %r2;",
	} {
		b.Run(strings.ReplaceAll(c[:len(c)-1], " ", "_"), func(b *testing.B) {
			src := header + `.visible .entry k(.param .u64 p, .param .u32 n)
{
	.reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<10>; .reg .f32 %f<10>; .reg .b64 %rd<8>;
	.shared .align 16 .b8 sm[512];
	ld.param.u64 %rd0, [p]; ld.param.u32 %r0, [n];
	mov.u32 %r2, %tid.x; mov.u32 %r3, 77; mov.u32 %r4, 5; mov.u64 %rd2, 8;
	cvt.rn.f32.u32 %f2, %r2; mov.f32 %f3, 0f3F8CCCCD; mov.f32 %f4, 0f3DCCCCCD;
	mad.wide.u32 %rd3, %r2, 4, %rd0; mad.wide.u32 %rd4, %r2, 16, %rd0;
	mov.u32 %r5, sm; mad.lo.u32 %r5, %r2, 4, %r5; st.shared.f32 [%r5], %f2; mov.u32 %r6, 0;
	setp.lt.u32 %p2, %r2, 20;
L:
` + strings.Repeat("	"+c+"\n", 64) + fmt.Sprintf("\tadd.u32 %%r6, %%r6, 1;\n\tsetp.lt.u32 %%p3, %%r6, %%r0;\n\t@%%p3 bra L;\n\tret;\n}\n")
			d := newDevice(b)
			p := d.floats(make([]float32, 128), "buffer")
			m := mustParse(b, src)
			const loops = 1000
			l := Launch{Entry: m.Entry("k"), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, Params: packParams(p, loops), Mem: d.mem, SM: 90, Workers: 1}
			var n int64
			for b.Loop() {
				st, err := l.Run()
				if err != nil {
					b.Fatal(err)
				}
				n += st.Instructions
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/warp-instr")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkSmallLaunch measures a launch of one block, which is mostly set-up.
func BenchmarkSmallLaunch(b *testing.B) {
	d := newDevice(b)
	m := mustParse(b, vaddSrc)
	pa, pb, pc := d.floats(make([]float32, 64), "a"), d.floats(make([]float32, 64), "b"), d.alloc(256, "c")
	l := Launch{Entry: m.Entry("vadd"), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{256, 1, 1}, Params: packParams(pa, pb, pc, 64), Mem: d.mem, SM: 80}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Run(); err != nil {
			b.Fatal(err)
		}
	}
}
