package ptxvm

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// acceptanceHeader declares everything that the instructions of acceptanceLines use.
const acceptanceHeader = `.version 8.1
.target sm_90
.address_size 64
.entry k(.param .u64 p)
{
	.reg .pred %p<10>; .reg .b16 %h<10>; .reg .b32 %r<10>; .reg .b64 %rd<10>; .reg .f32 %f<10>; .reg .f64 %d<10>;
	.shared .align 16 .b8 sm[64];
`

// registerFor returns the name of the i-th register that fits a type.
func registerFor(t string, i int) string {
	switch t {
	case "pred":
		return fmt.Sprintf("%%p%d", i)
	case "f32":
		return fmt.Sprintf("%%f%d", i)
	case "f64":
		return fmt.Sprintf("%%d%d", i)
	}
	return fmt.Sprintf("%s%d", map[int]string{1: "%h", 2: "%h", 4: "%r", 8: "%rd"}[typeByName[t].Size()], i)
}

// acceptanceLines returns instructions in all combinations of types and modifiers, valid and
// invalid ones.
func acceptanceLines() (lines []string) {
	add := func(f string, a ...any) { lines = append(lines, fmt.Sprintf(f, a...)) }
	types := strings.Fields("b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 bf16 bf16x2 tf32 f32 f64 pred")
	for _, t := range types {
		d, a, b, c := registerFor(t, 0), registerFor(t, 1), registerFor(t, 2), registerFor(t, 3)
		two := func(ops, mods string) {
			for _, op := range strings.Fields(ops) {
				for _, m := range strings.Split(mods, " ") {
					add("%s%s.%s %s, %s, %s;", op, m, t, d, a, b)
				}
			}
		}
		one := func(ops, mods string) {
			for _, op := range strings.Fields(ops) {
				for _, m := range strings.Split(mods, " ") {
					add("%s%s.%s %s, %s;", op, m, t, d, a)
				}
			}
		}
		two("add sub mul div min max", " .rn .ftz .sat .rn.ftz .rn.sat .rn.ftz.sat .rz .rm .rp .lo .hi .approx .approx.ftz .full .full.ftz .NaN .ftz.NaN .relu")
		two("rem and or xor copysign", "")
		one("abs neg", " .ftz")
		one("not cnot brev mov", "")
		one("ex2 lg2 sin cos tanh rcp rsqrt sqrt", " .approx .approx.ftz .rn .rn.ftz")
		add("shl.%s %s, %s, %%r1;", t, d, a)
		add("shr.%s %s, %s, %%r1;", t, d, a)
		for _, op := range strings.Fields("popc clz bfind bfind.shiftamt") {
			add("%s.%s %%r0, %s;", op, t, a)
		}
		for _, op := range strings.Fields("mad.lo mad.hi mad.rn fma.rn fma.rn.ftz fma.rn.sat fma.rn.relu fma.rz fma mad sad fma.rn.ftz.relu") {
			add("%s.%s %s, %s, %s, %s;", op, t, d, a, b, c)
		}
		for _, op := range cmpOps {
			for _, m := range []string{"", ".ftz"} {
				add("setp.%s%s.%s %%p1, %s, %s;", op, m, t, a, b)
				add("set.%s%s.u32.%s %%r1, %s, %s;", op, m, t, a, b)
			}
		}
		add("setp.lt.and.%s %%p1|%%p2, %s, %s, !%%p3;", t, a, b)
		add("setp.eq.xor.%s %%p1, %s, %s, %%p3;", t, a, b)
		add("set.eq.f32.%s %%f1, %s, %s;", t, a, b)
		add("set.eq.s32.%s %%r1, %s, %s;", t, a, b)
		add("selp.%s %s, %s, %s, %%p1;", t, d, a, b)
		add("slct.%s.s32 %s, %s, %s, %%r1;", t, d, a, b)
		add("slct.%s.f32 %s, %s, %s, %%f1;", t, d, a, b)
		add("bfe.%s %s, %s, %%r1, %%r2;", t, d, a)
		add("bfi.%s %s, %s, %s, %%r1, %%r2;", t, d, a, b)
		add("lop3.%s %s, %s, %s, %s, 7;", t, d, a, b, c)
		add("prmt.%s %s, %s, %s, %s;", t, d, a, b, c)
		add("testp.normal.%s %%p1, %s;", t, a)
		for _, sp := range []string{"", ".global", ".shared", ".local", ".const", ".param"} {
			for _, m := range strings.Split(" .ca .cg .cs .cv .lu .nc .wb .wt .L1::no_allocate .nc.L1::no_allocate .volatile .relaxed.gpu .acquire.gpu .release.gpu .weak .relaxed", " ") {
				order, cache := "", m
				if strings.HasPrefix(m, ".vol") || strings.HasPrefix(m, ".rel") || strings.HasPrefix(m, ".acq") || m == ".weak" {
					order, cache = m, ""
				}
				add("ld%s%s%s.%s %s, [%%rd9];", order, sp, cache, t, d)
				add("st%s%s%s.%s [%%rd9], %s;", order, sp, cache, t, d)
			}
			add("ld%s.v2.%s {%s, %s}, [%%rd9];", sp, t, d, a)
			add("st%s.v4.%s [%%rd9], {%s, %s, %s, %s};", sp, t, d, a, b, c)
		}
		for _, sp := range []string{"", ".global", ".shared", ".local"} {
			for _, op := range strings.Fields("add min max inc dec and or xor exch cas") {
				for _, n := range []string{"", ".noftz"} {
					third := ""
					if op == "cas" {
						third = ", " + c
					}
					add("atom%s.%s%s.%s %s, [%%rd9], %s%s;", sp, op, n, t, d, b, third)
					add("red%s.%s%s.%s [%%rd9], %s%s;", sp, op, n, t, b, third)
				}
			}
		}
		add("atom.relaxed.gpu.global.add.%s %s, [%%rd9], %s;", t, d, b)
		add("atom.acq_rel.sys.global.exch.%s %s, [%%rd9], %s;", t, d, b)
		for _, op := range strings.Fields("add min max and or xor") {
			add("redux.sync.%s.%s %s, %s, -1;", op, t, d, a)
		}
		add("shfl.sync.bfly.%s %s|%%p1, %s, 1, 31, -1;", t, d, a)
		add("match.any.sync.%s %%r0, %s, -1;", t, a)
		add("match.all.sync.%s %%r0|%%p1, %s, -1;", t, a)
		add("vote.sync.any.%s %s, %%p1, -1;", t, d)
		add("vote.sync.ballot.%s %s, !%%p1, -1;", t, d)
		add("activemask.%s %s;", t, d)
		for _, from := range types {
			if from == "pred" || t == "pred" {
				continue
			}
			for _, round := range strings.Split(" .rn .rz .rm .rp .rna .rni .rzi .rmi .rpi", " ") {
				for _, m := range strings.Split(" .ftz .sat .ftz.sat .relu", " ") {
					add("cvt%s%s.%s.%s %s, %s;", round, m, t, from, d, registerFor(from, 1))
				}
			}
			add("cvt.rn.%s.%s %s, %s, %s;", t, from, d, registerFor(from, 1), registerFor(from, 2))
		}
	}
	for _, w := range [][2]string{{"u16", "u32"}, {"s16", "s32"}, {"u32", "u64"}, {"s32", "s64"}, {"u64", "u64"}} {
		in, out := w[0], w[1]
		add("mul.wide.%s %s, %s, %s;", in, registerFor(out, 0), registerFor(in, 1), registerFor(in, 2))
		add("mad.wide.%s %s, %s, %s, %s;", in, registerFor(out, 0), registerFor(in, 1), registerFor(in, 2), registerFor(out, 3))
	}
	for l := range strings.Lines(acceptanceOthers) {
		lines = append(lines, strings.TrimSpace(l))
	}
	return lines
}

const acceptanceOthers = `bar.sync 0;
bar.sync 0, 64;
bar.sync %r1;
barrier.sync 0;
barrier.cta.sync 0;
barrier.sync.aligned 0;
bar.cta.sync 0;
bar.arrive 0;
bar.arrive 0, 32;
bar.red.popc.u32 %r1, 0, %p1;
bar.red.and.pred %p1, 0, %p2;
bar.red.or.pred %p1, 0, 64, !%p2;
bar.warp.sync -1;
membar.gl;
membar.cta;
membar.sys;
membar.gpu;
fence.sc.gpu;
fence.acq_rel.cta;
fence.gpu;
fence.proxy.async;
nanosleep.u32 20;
trap;
brkpt;
exit;
ret;
ret.uni;
exit.uni;
pmevent 1;
elect.sync %r1|%p1, -1;
elect.sync _|%p1, -1;
griddepcontrol.wait;
cp.async.ca.shared.global [%r1], [%rd1], 4;
cp.async.cg.shared.global [%r1], [%rd1], 8;
cp.async.cg.shared.global [%r1], [%rd1], 16, %r2;
cp.async.ca.shared::cta.global [%r1], [%rd1], 16, 0;
cp.async.cg.shared.global.L2::128B [%r1], [%rd1], 16;
cp.async.wait_all;
cp.async.wait_group 0;
cp.async.commit_group;
ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];
ldmatrix.sync.aligned.m8n8.x1.shared.b16 %r1, [%r2];
ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r1,%r3}, [%r2];
ldmatrix.sync.aligned.m8n8.x2.b16 {%r1,%r3}, [%rd2];
stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2};
shf.l.wrap.b32 %r0,%r1,%r2,%r3;
shf.r.clamp.b32 %r0,%r1,%r2,%r3;
shf.l.b32 %r0,%r1,%r2,%r3;
prmt.b32.f4e %r0,%r1,%r2,%r3;
dp4a.u32.s32 %r0,%r1,%r2,%r3;
mul24.lo.u32 %r0,%r1,%r2;
mul24.hi.s32 %r0,%r1,%r2;
add.cc.u32 %r0,%r1,%r2;
addc.u32 %r0,%r1,%r2;
addc.cc.s64 %rd0,%rd1,%rd2;
sub.cc.s32 %r0,%r1,%r2;
subc.u32 %r0,%r1,%r2;
mad.lo.cc.u32 %r0,%r1,%r2,%r3;
mad.hi.cc.s64 %rd0,%rd1,%rd2,%rd3;
madc.lo.u32 %r0,%r1,%r2,%r3;
madc.hi.cc.u64 %rd0,%rd1,%rd2,%rd3;
madc.u32 %r0,%r1,%r2,%r3;
madc.lo.u16 %h0,%h1,%h2,%h3;
mad24.hi.sat.s32 %r0,%r1,%r2,%r3;
dp2a.lo.u32.s32 %r0,%r1,%r2,%r3;
dp2a.u32.s32 %r0,%r1,%r2,%r3;
bmsk.clamp.b32 %r0,%r1,%r2;
bmsk.b32 %r0,%r1,%r2;
szext.wrap.s32 %r0,%r1,%r2;
szext.clamp.b32 %r0,%r1,%r2;
fns.b32 %r0,%r1,%r2,%r3;
cvt.pack.sat.u8.s32.b32 %r0,%r1,%r2,%r3;
cvt.pack.sat.u8.s32 %r0,%r1,%r2;
cvt.pack.sat.s16.s32 %r0,%r1,%r2;
cvt.pack.s16.s32 %r0,%r1,%r2;
set.eq.f16.f16 %h0,%h1,%h2;
set.lt.ftz.f16x2.f16x2 %r0,%r1,%r2;
set.geu.u32.f16x2 %r0,%r1,%r2;
set.num.bf16.bf16 %h0,%h1,%h2;
set.eq.bf16x2.bf16x2 %r0,%r1,%r2;
set.eq.f16.bf16 %h0,%h1,%h2;
set.eq.u16.f16 %h0,%h1,%h2;
set.eq.u16.f16x2 %h0,%r1,%r2;
set.eq.u16.f32 %h0,%f1,%f2;
set.lo.f16.f16 %h0,%h1,%h2;
set.eq.and.f16.f16 %h0,%h1,%h2,%p1;
setp.eq.f16x2 %p0|%p1,%r1,%r2;
setp.gtu.and.ftz.f16x2 %p0|%p1,%r1,%r2,!%p3;
setp.eq.f16x2 %p0,%r1,%r2;
setp.ne.bf16x2 %p0|_,%r1,%r2;
add.rz.f64 %d0,%d1,%d2;
mul.rp.f64 %d0,%d1,%d2;
fma.rm.f64 %d0,%d1,%d2,%d3;
fma.f64 %d0,%d1,%d2,%d3;
div.rp.f64 %d0,%d1,%d2;
div.f64 %d0,%d1,%d2;
sqrt.rz.f32 %f0,%f1;
sqrt.rm.ftz.f32 %f0,%f1;
rcp.rp.f32 %f0,%f1;
sqrt.rp.f64 %d0,%d1;
rcp.rz.f64 %d0,%d1;
rcp.rz.ftz.f64 %d0,%d1;
sqrt.approx.f64 %d0,%d1;
rcp.approx.f64 %d0,%d1;
cvta.to.global.u64 %rd1,%rd2;
cvta.shared.u64 %rd1,%rd2;
cvta.to.shared.u64 %rd1,%rd2;
cvta.local.u64 %rd1,%rd2;
cvta.to.const.u64 %rd1,%rd2;
cvta.u64 %rd1,%rd2;
cvta.param.u64 %rd1,%rd2;
isspacep.shared %p1, %rd1;
prefetch.global.L2 [%rd1];
prefetch.L1 [%rd1];
prefetchu.L1 [%rd1];
mov.b32 %r1, {%h1,%h2};
mov.b64 {%r1,%r2}, %rd1;
mov.b64 %rd1, {%h1,%h2,%h3,%h4};
mov.b64 {%r1,_}, %rd1;
mov.b32 {%h1,%h2}, %r1;
mov.u32 {%h1,%h2}, %r1;
mov.b32 %f1, {%h1,%h2};
mov.u64 %rd1, {%r1,%r2};
mov.u64 %rd1, %clock64;
mov.u32 %r1, %clock;
mov.u64 %rd1, %globaltimer;
mov.u32 %r1, %globaltimer_lo;
mov.u32 %r1, %smid;
mov.u32 %r1, %nwarpid;
mov.u64 %rd1, %gridid;
mov.u32 %r1, %lanemask_lt;
mov.b32 %r1, %tid.x;
mov.u16 %h1, %tid.x;
cvt.u64.u32 %rd1, %tid.x;
cvt.u16.u32 %h1, %tid.x;
mov.u32 %r1, %tid.w;
mov.u32 %r1, WARP_SZ;
mov.u32 %r1, %dynamic_smem_size;
mov.u32 %r1, %total_smem_size;
mov.pred %p1, %p2;
mov.pred %p1, 1;
setp.eq.u32 %p1|_, %r1, %r2;
setp.eq.u32 _|%p1, %r1, %r2;
setp.lt.f32 %p1, %f1, 0f00000000;
setp.lt.f32 %p1, %f1, 1.0;
add.f32 %f1, %f2, 1.0;
add.f32 %f1, %f2, 0d3ff0000000000000;
add.f64 %d1, %d2, 0f3f800000;
add.f16 %h1, %h2, 0f3f800000;
and.b32 %r1, %r2, 0f3f800000;
add.u32 %r1, %r2, 0f3f800000;
mov.b16 %h1, 0x3c00;
mov.b16 %h1, -1;
mov.u32 %r1, -1;
mov.u32 %r1, 0xffffffff;
mov.u64 %rd1, sm;
mov.u32 %r1, sm;
mov.u32 %r1, sm+4;
mov.b32 %r1, sm;
mov.b64 %rd1, sm;
add.u32 %r1, %r2, sm;
ld.shared.u32 %r1, [sm+4];
ld.shared.u32 %r1, [%r2+4];
ld.shared.u32 %r1, [%r2-4];
ld.shared.u32 %r1, [%r2+-4];
ld.shared.u32 %r1, [16];
ld.shared.u32 %r1, [sm];
ld.u32 %r1, [sm];
ld.global.u32 %r1, [sm];
ld.global.u32 %r1, [%r2];
ld.global.s8 %rd1, [%rd2];
ld.global.u8 %h1, [%rd2];
ld.global.b8 %r1, [%rd2];
ld.global.f32 %d1, [%rd2];
ld.global.b32 %f1, [%rd2];
ld.global.b32 %rd1, [%rd2];
ld.global.v2.u8 {%h1,%h2}, [%rd2];
ld.global.v2.f32 {%f1,_}, [%rd2];
st.global.u8 [%rd1], %r1;
st.global.u32 [%rd1], 5;
st.global.f32 [%rd1], 0f00000000;
st.global.v2.u32 [%rd1], {%r1, 0};
st.global.u16 [%rd1], %rd2;
ld.param.u64 %rd1, [p];
ld.param.u32 %r1, [p+4];
mov.u64 %rd1, p;
mov.b64 %rd1, p;
selp.u32 %r1, 1, 0, %p1;
selp.u32 %r1, 1, 0, !%p1;
selp.f32 %f1, 0f3f800000, %f2, %p1;
not.pred %p1, %p2;
and.pred %p1, %p2, %p3;
and.pred %p1, %p2, !%p3;
@%p1 bra X;
@!%p1 bra.uni X;
bra X;
bra.uni X;
shfl.sync.up.b32 %r1, %r2, 1, 0, -1;
shfl.sync.idx.b32 %r1|%p1, %r2, %r3, %r4, %r5;
shfl.sync.down.b32 %f1, %f2, 1, 31, -1;
shfl.sync.down.b32 %f1|%p1, %r2, 1, 31, -1;
shfl.sync.idx.b32 _|%p1, %r2, 1, 31, -1;
vote.sync.uni.pred %p1, %p2, -1;
vote.sync.all.pred %p1, 1, -1;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3},{%r1,%r2,%r3,%r4},{%r1,%r2},{%f0,%f1,%f2,%f3};
mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1,%r2},{%r1,%r2,%r3,%r4},{%r1,%r2},{%r1,%r2};
mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,%f3},{%r1,%r2},{%r1},{%f0,%f1,%f2,%f3};
mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%f0,%f1,%f2,%f3},{%r1,%r2},{%r1},{%f0,%f1,%f2,%f3};
mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3},{%r1,%r2},{%r1},{%f0,%f1,%f2,%f3};
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r0,%r1,%r2,%r3},{%r1,%r2,%r3,%r4},{%r1,%r2},{%r0,%r1,%r2,%r3};
mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%r0,%r1,%r2,%r3},{%r1,%r2,%r3,%r4},{%r1,%r2},{%r0,%r1,%r2,%r3};
mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%r0,%r1,%r2,%r3},{%r1,%r2,%r3,%r4},{%r1,%r2},{%r0,%r1,%r2,%r3};
mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%r0,%r1,%r2,%r3},{%r1,%r2},{%r1},{%r0,%r1,%r2,%r3};
mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r0,%r1},{%r1},{%r1},{%r0,%r1};
mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d0,%d1},{%d1},{%d1},{%d0,%d1};
mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%d0,%d1,%d2,%d3},{%d1,%d2},{%d1},{%d0,%d1,%d2,%d3};
mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%d0,%d1,%d2,%d3},{%d1,%d2,%d3,%d4},{%d1,%d2},{%d0,%d1,%d2,%d3};
mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%d0,%d1,%d2,%d3},{%d1,%d2,%d3,%d4,%d5,%d6,%d7,%d8},{%d1,%d2,%d3,%d4},{%d0,%d1,%d2,%d3};
wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, [%rd1], %r8;
wmma.load.b.sync.aligned.col.m8n32k16.shared.bf16 {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, [%rd1];
wmma.load.a.sync.aligned.row.m32n8k16.global.s8 {%r0,%r1,%r2,%r3}, [%rd1], %r8;
wmma.load.c.sync.aligned.row.m16n16k16.f32 {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}, [%rd1];
wmma.load.c.sync.aligned.row.m16n16k16.f16 {%r0,%r1,%r2,%r3}, [%rd1];
wmma.load.a.sync.aligned.row.m16n16k8.tf32 {%r0,%r1,%r2,%r3}, [%rd1];
wmma.load.a.sync.aligned.m16n16k8.row.tf32 {%r0,%r1,%r2,%r3}, [%rd1];
wmma.store.d.sync.aligned.col.m16n16k16.global.s32 [%rd1], {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, %r8;
wmma.store.d.sync.aligned.row.m8n8k4.f64 [%rd1], {%d0,%d1};
wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7},{%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7},{%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7},{%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7};
wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16 {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7},{%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7},{%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7},{%r0,%r1,%r2,%r3};
wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32.satfinite {%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7},{%r0,%r1},{%r0,%r1},{%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7};
mbarrier.init.shared.b64 [%r1], 5;
mbarrier.init.b64 [%rd1], %r2;
mbarrier.inval.shared.b64 [%r1];
mbarrier.arrive.shared.b64 %rd1, [%r1];
mbarrier.arrive.b64 %rd1, [%rd2];
mbarrier.arrive.shared.b64 %rd1, [%r1], 2;
mbarrier.arrive.noComplete.shared.b64 %rd1, [%r1], 2;
mbarrier.arrive.release.cta.shared::cta.b64 _, [%r1];
mbarrier.arrive_drop.shared.b64 %rd1, [%r1];
mbarrier.test_wait.shared.b64 %p1, [%r1], %rd1;
mbarrier.test_wait.parity.shared.b64 %p1, [%r1], %r2;
mbarrier.try_wait.shared.b64 %p1, [%r1], %rd1;
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2, 100;
mbarrier.pending_count.b64 %r1, %rd1;
cp.async.mbarrier.arrive.shared.b64 [%r1];
cp.async.mbarrier.arrive.noinc.b64 [%rd1];
cp.async.cg.shared.global [%r1], [%rd1], 16, %p1;
ld.global.b32 {%r1}, [%rd1];
st.global.b32 [%rd1], {%r1};
createpolicy.fractional.L2::evict_first.b64 %rd1, 1.0;
createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd1, 0.5;
createpolicy.fractional.L2::evict_last.b64 %rd1;
ld.global.L2::cache_hint.b32 %r1, [%rd1], %rd2;
ld.global.L1::evict_last.L2::cache_hint.v4.b32 {%r1,%r2,%r3,%r4}, [%rd1], %rd2;
st.global.L2::cache_hint.b32 [%rd1], %r1, %rd2;
cp.async.cg.shared.global.L2::cache_hint [%r1], [%rd1], 16, %rd2;
cp.async.cg.shared.global.L2::cache_hint [%r1], [%rd1], 16, %r3, %rd2;
discard.global.L2 [%rd1], 128;
applypriority.global.L2::evict_normal [%rd1], 128;
mov.u32 %r1, %cluster_ctaid.x;
mov.u32 %r1, %clusterid.y;
mov.u32 %r1, %nclusterid.z;
mov.u32 %r1, %cluster_nctaid.x;
mov.u32 %r1, %cluster_ctarank;
mov.u32 %r1, %cluster_nctarank;
red.global.add.v2.f32 [%rd1], {%f1,%f2};
red.global.v2.f32.add [%rd1], {%f1,%f2};
atom.global.add.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1], {%f1,%f2,%f3,%f4};
atom.global.v4.f32.add {%f1,%f2,%f3,%f4}, [%rd1], {%f1,%f2,%f3,%f4};
atom.add.f32 %f1, [%rd1+4], 0f3f800000;
atom.global.add.u32 _, [%rd1], 1;
atom.shared.add.u32 %r1, [sm], 1;
atom.shared::cta.add.u32 %r1, [sm], 1;
`

// refusedOnPurpose matches lines that ptxas accepts and Parse deliberately refuses: instructions
// that are not implemented, stores to kernel parameters, and mistakes that ptxas allows. ptxas
// finds some mistakes only in a later phase, which a file with errors never reaches.
var refusedOnPurpose = regexp.MustCompile(`^(st(\.weak)?\.param|setp\.[a-z.]*b?f16x2 %p\d,|fma\.rz\.bf16|rcp\.r[nz]\.ftz\.f64|madc\.lo\.u16|` +
	`fence\.proxy|ldmatrix\.sync\.aligned\.m8n8\.x2\.b16|mov\.u16 %h1, %tid|mov\.u32 %r1, %tid\.w|` +
	`(atom|red)\.global\.(add\.)?v[24]|ld\.global\.u32 %r1, \[(sm|%r2)\]|ld\.global\.f32 %d1)`)

// foundLate matches lines that need a newer target, if ptxas reports this only in a later phase.
var foundLate = regexp.MustCompile(`^(createpolicy|discard|applypriority|mov\.u32 %r1, %n?cluster|.*cache_hint|mma\.sync.*m16.*f64|mbarrier\.try_wait)`)

// TestAcceptance compares Parse with the real assembler on every line. Either both must accept the
// line, or both must refuse it.
func TestAcceptance(t *testing.T) {
	ptxas := assembler(t)
	if ptxas == "" {
		t.Log("ptxas was not found: nothing was compared; set FLAMBEAU_PTXAS to its path")
		return
	}
	lines := acceptanceLines()
	for _, target := range [][2]string{{"8.1", "sm_90"}, {"7.0", "sm_80"}} {
		head := strings.NewReplacer("8.1", target[0], "sm_90", target[1]).Replace(acceptanceHeader)
		refused, out := refusals(t, ptxas, target[1], head+strings.Join(lines, "\n")+"\nX: ret;\n}\n")
		first := strings.Count(head, "\n") + 1
		if len(refused) == 0 || len(refused) >= len(lines) {
			t.Fatalf("ptxas refused %d of %d lines: %.300s", len(refused), len(lines), out)
		}
		var taken []string
		for i, l := range lines {
			_, err := Parse(head + l + "\nX: ret;\n}\n")
			if err == nil {
				taken = append(taken, l)
			}
			why, no := refused[first+i]
			switch {
			case no && err == nil:
				t.Errorf("%v: ptxas refuses %s: %s", target, l, why)
			case !no && err != nil && !refusedOnPurpose.MatchString(l) && (target[0] == "8.1" || !foundLate.MatchString(l)):
				t.Errorf("%v: ptxas takes %s: %v", target, l, err)
			}
		}
		lines = taken // a line that is refused for the newest target is refused for older targets too
	}
}
