package ptxvm

import (
	"errors"
	"strings"
	"testing"
)

// kernel wraps a body that may use the buffer at %rd0 (parameter p) and the thread index %t.
func kernel(body string) string { return header + entry("buggy", body) }

func entry(name, body string) string {
	return `.visible .entry ` + name + `(.param .u64 p)
{
	.reg .pred %p<4>;
	.reg .b16 %h<4>;
	.reg .b32 %r<10>;
	.reg .f32 %f<10>;
	.reg .b64 %rd<10>;
	.reg .b32 %t;
	.shared .align 16 .b8 sm[1024];
	.reg .b32 %s;
	ld.param.u64 %rd0, [p];
	mov.u32 %t, %tid.x;
	mov.u32 %s, sm;
	mad.lo.u32 %s, %t, 4, %s;
	mad.wide.u32 %rd1, %t, 4, %rd0;
` + body + "\n\tret;\n}\n"
}

// planted lists kernels with a bug. Each bug must be found at the line marked HERE, in the given
// thread, with a message that contains the given words.
var planted = []struct {
	name   string
	body   string
	block  uint32
	kind   FaultKind
	thread uint32
	words  []string
}{
	{"load past the end", "ld.global.f32 %f1, [%rd1]; // HERE", 65, OutOfBounds, 64, []string{"buggy", "PTX line", "thread (64,0,0)", "4 bytes past the end of \"buffer\" (256 bytes"}},
	{"store past the end", "st.global.u32 [%rd1+4], %t; // HERE", 64, OutOfBounds, 63, []string{"4 bytes past the end of \"buffer\""}},
	{"load before the start", "ld.global.u8 %h1, [%rd1+-4]; // HERE", 64, OutOfBounds, 0, []string{"4 bytes before"}},
	{"null pointer", "mov.u64 %rd2, 0; ld.global.u32 %r1, [%rd2+16]; // HERE", 1, OutOfBounds, 0, []string{"null pointer"}},
	{"vector straddles the end", "mad.wide.u32 %rd2, %t, 16, %rd0;\n ld.global.v4.f32 {%f0,%f1,%f2,%f3}, [%rd2+16]; // HERE", 16, OutOfBounds, 15, []string{"16 bytes past the end"}},
	{"misaligned scalar", "ld.global.u32 %r1, [%rd0+2]; // HERE", 1, Misaligned, 0, []string{"multiple of the access size 4"}},
	{"misaligned vector", "ld.global.v4.f32 {%f0,%f1,%f2,%f3}, [%rd1]; // HERE", 32, Misaligned, 1, []string{"multiple of the access size 16"}},
	{"misaligned shared vector", "st.shared.v2.u32 [%s], {%t, %t}; // HERE", 32, Misaligned, 1, nil},
	{"shared out of bounds", "mad.lo.u32 %r1, %t, 32, %s;\n st.shared.u32 [%r1], %t; // HERE", 64, OutOfBounds, 29, []string{"sm+1044", "1024 static"}},
	{"parameter out of bounds", "ld.param.u32 %r1, [p+8]; // HERE", 1, OutOfBounds, 0, []string{"8 bytes of parameters"}},
	{"local out of bounds", ".local .b32 buf[2];\n st.local.u32 [buf+8], %t; // HERE", 1, OutOfBounds, 0, []string{"local offset 8 of 8"}},
	{"uninitialised register", "add.u32 %r1, %r2, 1; // HERE", 1, UninitialisedRegister, 0, []string{"%r2"}},
	{"register written by some lanes", "setp.lt.u32 %p1, %t, 5;\n@%p1 mov.u32 %r2, 0;\n st.global.u32 [%rd1], %r2; // HERE", 32, UninitialisedRegister, 5, []string{"%r2", "27 lanes"}},
	{"uninitialised predicate", "@%p2 mov.u32 %r1, 0; // HERE", 1, UninitialisedRegister, 0, []string{"%p2"}},
	{"uninitialised global memory", "ld.global.u32 %r1, [%rd1+128]; // HERE", 32, UninitialisedMemory, 0, []string{"never been written"}},
	{"uninitialised shared memory", "ld.shared.u32 %r1, [%s]; // HERE", 32, UninitialisedMemory, 0, []string{"sm+0"}},
	{"uninitialised local memory", ".local .b32 buf[2];\n ld.local.u32 %r1, [buf]; // HERE", 1, UninitialisedMemory, 0, nil},
	{"read before barrier", "xor.b32 %r1, %t, 32;\n mov.u32 %r2, sm;\n mad.lo.u32 %r1, %r1, 4, %r2;\n st.shared.u32 [%s], %t;\n setp.ge.u32 %p1, %t, 32;\n@%p1 ld.shared.u32 %r3, [%r1]; // HERE\n", 64, SharedRace, 32, []string{"no barrier", "st.shared.u32 [%s], %t;"}},
	{"lanes of a warp are unordered", "xor.b32 %r1, %t, 1;\n mov.u32 %r2, sm;\n mad.lo.u32 %r1, %r1, 4, %r2;\n st.shared.u32 [%s], %t;\n ld.shared.u32 %r3, [%r1]; // HERE", 32, SharedRace, 0, []string{"bar.warp.sync", "thread (1,0,0)"}},
	{"shuffle orders no memory", "xor.b32 %r1, %t, 1;\n mov.u32 %r2, sm;\n mad.lo.u32 %r1, %r1, 4, %r2;\n st.shared.u32 [%s], %t;\n shfl.sync.idx.b32 %r5, %t, 0, 31, -1;\n ld.shared.u32 %r3, [%r1]; // HERE", 32, SharedRace, 0, []string{"bar.warp.sync"}},
	{"vote orders no memory", "xor.b32 %r1, %t, 1;\n mov.u32 %r2, sm;\n mad.lo.u32 %r1, %r1, 4, %r2;\n st.shared.u32 [%s], %t;\n setp.eq.u32 %p1, %t, 0;\n vote.sync.any.pred %p2, %p1, -1;\n ld.shared.u32 %r3, [%r1]; // HERE", 32, SharedRace, 0, []string{"bar.warp.sync"}},
	{"match orders no memory", "xor.b32 %r1, %t, 1;\n mov.u32 %r2, sm;\n mad.lo.u32 %r1, %r1, 4, %r2;\n st.shared.u32 [%s], %t;\n match.any.sync.b32 %r5, %t, -1;\n ld.shared.u32 %r3, [%r1]; // HERE", 32, SharedRace, 0, []string{"bar.warp.sync"}},
	{"redux orders no memory", "xor.b32 %r1, %t, 1;\n mov.u32 %r2, sm;\n mad.lo.u32 %r1, %r1, 4, %r2;\n st.shared.u32 [%s], %t;\n redux.sync.add.u32 %r5, %t, -1;\n ld.shared.u32 %r3, [%r1]; // HERE", 32, SharedRace, 0, []string{"bar.warp.sync"}},
	{"mma orders no memory", "xor.b32 %r1, %t, 1;\n mov.u32 %r2, sm;\n mad.lo.u32 %r1, %r1, 4, %r2;\n st.shared.u32 [%s], %t;\n mov.b32 %r6, 0;\n mov.f32 %f0, 0f00000000;\n mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0,%f1,%f2,%f3}, {%r6,%r6,%r6,%r6}, {%r6,%r6}, {%f0,%f0,%f0,%f0};\n ld.shared.u32 %r3, [%r1]; // HERE", 32, SharedRace, 0, []string{"bar.warp.sync"}},
	{"two values to one word", "st.shared.u32 [sm], %t; // HERE", 32, SharedRace, 1, []string{"wrote"}},
	{"two halves of one word by bytes", "mov.b16 %h1, 1; cvt.u16.u32 %h2, %t; mov.u32 %r1, sm; add.u32 %r1, %r1, %t;\n st.shared.u8 [%r1], %h1;\n st.shared.u8 [sm+3], %h2; // HERE", 32, SharedRace, 0, []string{"thread (3,0,0)"}},
	{"read of what another warp writes later", "xor.b32 %r1, %t, 32;\n mov.u32 %r2, sm;\n mad.lo.u32 %r1, %r1, 4, %r2;\n ld.shared.u32 %r3, [%r1]; // HERE\n st.shared.u32 [%s], %t;", 64, UninitialisedMemory, 0, []string{"missing barrier"}},
	{"write after read without barrier", "st.shared.u32 [%s], %t;\n bar.sync 0;\n ld.shared.u32 %r1, [sm];\n st.shared.u32 [%s], %t; // HERE", 64, SharedRace, 0, []string{"read"}},
	{"atomic against plain read", "st.shared.u32 [%s], %t;\n bar.sync 0;\n setp.eq.u32 %p1, %t, 40;\n@%p1 red.shared.add.u32 [sm], 1;\n setp.eq.u32 %p1, %t, 0;\n@%p1 ld.shared.u32 %r1, [sm]; // HERE", 64, SharedRace, 0, nil},
	{"shuffle under divergence", "setp.lt.u32 %p1, %t, 7;\n@%p1 bra SKIP;\n shfl.sync.bfly.b32 %r1, %t, 1, 31, 0xffffffff; // HERE\nSKIP: mov.u32 %r2, 1;", 32, ShuffleDivergence, 0, []string{"member mask"}},
	{"shuffle from lanes that leave", "setp.lt.u32 %p1, %t, 7;\n@%p1 bra SKIP;\n shfl.sync.bfly.b32 %r1, %t, 1, 31, 0xffffffff; // HERE\nSKIP:", 32, ShuffleDivergence, 7, []string{"lane 6, which does not take part"}},
	{"shuffle in a partial warp", "shfl.sync.bfly.b32 %r1, %t, 16, 31, 0xffff; // HERE", 16, ShuffleDivergence, 0, []string{"reads from lane 16"}},
	{"vote outside its mask", "setp.lt.u32 %p1, %t, 3;\n vote.sync.any.pred %p1, %p1, 0xff; // HERE", 32, ShuffleDivergence, 8, []string{"not in its member mask"}},
	{"barrier under divergence", "setp.lt.u32 %p1, %t, 7;\n@%p1 bra SKIP;\n bar.sync 0; // HERE\nSKIP:", 32, BarrierDivergence, 0, []string{"25 of the warp's 32"}},
	{"guarded barrier", "setp.lt.u32 %p1, %t, 40;\n@%p1 bar.sync 0; // HERE", 64, BarrierDivergence, 40, nil},
	{"missing wait", "cp.async.ca.shared.global [%s], [%rd1], 4;\n cp.async.commit_group;\n ld.shared.u32 %r1, [%s]; // HERE", 32, AsyncCopyNotWaited, 0, []string{"in flight"}},
	{"wait for the wrong group", "cp.async.ca.shared.global [%s], [%rd1], 4;\n cp.async.commit_group;\n cp.async.wait_group 1;\n ld.shared.u32 %r1, [%s]; // HERE", 32, AsyncCopyNotWaited, 0, nil},
	{"wait without barrier", "cp.async.ca.shared.global [%s], [%rd1], 4;\n cp.async.wait_all;\n xor.b32 %r1, %s, 4;\n ld.shared.u32 %r1, [%r1]; // HERE", 32, AsyncCopyNotWaited, 0, []string{"no barrier lies between"}},
	{"runaway loop", "L:\n bra L; // HERE", 1, Runaway, 0, nil},
	{"deadlock", "setp.lt.u32 %p1, %t, 32;\n@%p1 bra A;\n bar.sync 1, 64;\n bra B;\nA: bar.sync 2, 64; // HERE\nB:", 64, Deadlock, 0, []string{"barrier 2", "64 threads"}},
	{"trap", "trap; // HERE", 1, Trap, 0, nil},
	{"divergent bra.uni", "setp.lt.u32 %p1, %t, 3;\n@%p1 bra.uni X; // HERE\nX:", 32, UniformBranchDivergence, 3, nil},
	{"write to parameters", "mov.u64 %rd2, p;\n cvta.param.u64 %rd2, %rd2;\n st.u32 [%rd2], %t; // HERE", 1, ReadOnly, 0, nil},
	{"mma under divergence", "setp.lt.u32 %p1, %t, 7;\n mov.b32 %r1, 0;\n mov.f32 %f0, 0f00000000;\n@%p1 mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f0,%f0,%f0,%f0}, {%r1,%r1,%r1,%r1}, {%r1,%r1}, {%f0,%f0,%f0,%f0}; // HERE", 32, ShuffleDivergence, 7, nil},
}

func TestPlantedBugs(t *testing.T) {
	for _, b := range planted {
		t.Run(strings.ReplaceAll(b.name, " ", "-"), func(t *testing.T) {
			d := newDevice(t)
			p := d.alloc(256, "buffer")
			if b.kind == UninitialisedMemory {
				d.put(p, make([]byte, 64))
			} else {
				d.put(p, make([]byte, 256))
			}
			src := kernel(b.body)
			_, err := d.launch(src, 1, b.block, 0, p)
			wantFault(t, err, src, b.kind, b.thread, append(b.words, "buggy")...)
		})
	}
}

// innocent lists bodies of kernels without a bug, for which no fault may be reported.
var innocent = []struct {
	name, body string
	block      uint32
}{
	{"same value from all lanes", "st.shared.u32 [sm], 7;", 64},
	{"barrier orders warps", "xor.b32 %r1, %t, 32;\n mov.u32 %r2, sm;\n mad.lo.u32 %r1, %r1, 4, %r2;\n st.shared.u32 [%s], %t;\n bar.sync 0;\n ld.shared.u32 %r3, [%r1];\n bar.sync 0;\n st.shared.u32 [%s], %r3;", 64},
	{"bar.warp.sync orders lanes", "xor.b32 %r1, %t, 1;\n mov.u32 %r2, sm;\n mad.lo.u32 %r1, %r1, 4, %r2;\n st.shared.u32 [%s], %t;\n bar.warp.sync 0xffffffff;\n ld.shared.u32 %r3, [%r1];", 32},
	{"half warps synchronise apart", "setp.lt.u32 %p1, %t, 16;\n xor.b32 %r1, %t, 1;\n mov.u32 %r2, sm;\n mad.lo.u32 %r1, %r1, 4, %r2;\n st.shared.u32 [%s], %t;\n@!%p1 bra B;\n bar.warp.sync 0xffff;\n ld.shared.u32 %r3, [%r1];\n bra C;\nB: bar.warp.sync 0xffff0000;\n ld.shared.u32 %r3, [%r1];\nC:", 32},
	{"atomics do not race", "setp.ne.u32 %p1, %t, 0;\n@!%p1 st.shared.u32 [sm], 0;\n bar.sync 0;\n atom.shared.add.u32 %r1, [sm], 1;\n bar.sync 0;\n ld.shared.u32 %r2, [sm];\n setp.ne.u32 %p2, %r2, 64;\n@%p2 trap;", 64},
	{"volatile accesses do not race", "st.volatile.shared.u32 [sm], %t;\n ld.volatile.shared.u32 %r1, [sm];", 64},
	{"bytes of one word", "cvt.u16.u32 %h1, %t;\n mov.u32 %r1, sm;\n add.u32 %r1, %r1, %t;\n st.shared.u8 [%r1], %h1;\n ld.shared.u8 %h2, [%r1];", 64},
	{"early exit of lanes", "setp.gt.u32 %p1, %t, 20;\n@%p1 ret;\n shfl.sync.idx.b32 %r1, %t, 3, 31, 0xffffffff;\n setp.ne.u32 %p2, %r1, 3;\n@%p2 trap;\n bar.sync 0;", 32},
	{"early exit inside a branch", "setp.gt.u32 %p1, %t, 20;\n@%p1 bra IN;\n bra OUT;\nIN: setp.gt.u32 %p2, %t, 25;\n@!%p2 bra OUT;\n ret;\nOUT: bar.sync 0;\n shfl.sync.idx.b32 %r1, %t, 3, 31, 0xffffffff;", 32},
	{"exited warps count as arrived", "setp.gt.u32 %p1, %t, 31;\n@%p1 ret;\n bar.sync 0;\n bar.sync 0;", 96},
	{"named barriers between warps", "setp.gt.u32 %p1, %t, 31;\n@%p1 bra CONS;\n st.shared.u32 [%s], %t;\n bar.arrive 1, 64;\n bra END;\nCONS: bar.sync 1, 64;\n ld.shared.u32 %r1, [sm];\nEND:", 64},
	{"cp.async done right", "cp.async.ca.shared.global [%s], [%rd1], 4;\n cp.async.commit_group;\n cp.async.ca.shared.global [%s+256], [%rd1], 4, 0;\n cp.async.commit_group;\n cp.async.wait_group 1;\n bar.sync 0;\n ld.shared.u32 %r1, [sm];\n cp.async.wait_group 0;\n ld.shared.u32 %r2, [%s+256];\n setp.ne.u32 %p1, %r2, 0;\n@%p1 trap;", 32},
	{"barrier reductions", "setp.lt.u32 %p1, %t, 40;\n bar.red.popc.u32 %r1, 0, %p1;\n setp.ne.u32 %p2, %r1, 40;\n@%p2 trap;\n bar.red.or.pred %p2, 0, %p1;\n@!%p2 trap;\n bar.red.and.pred %p2, 0, %p1;\n@%p2 trap;\n bar.red.and.pred %p2, 0, !%p2;\n@!%p2 trap;", 64},
	{"nested divergence and loops", "mov.u32 %r1, 0;\n mov.u32 %r2, 0;\nOUTER:\n setp.ge.u32 %p1, %r1, %t;\n@%p1 bra DONE;\n and.b32 %r3, %r1, 1;\n setp.eq.u32 %p2, %r3, 0;\n@%p2 bra EVEN;\n add.u32 %r2, %r2, 1;\n bra NEXT;\nEVEN: add.u32 %r2, %r2, 2;\nNEXT: add.u32 %r1, %r1, 1;\n bra OUTER;\nDONE:\n shfl.sync.idx.b32 %r5, %r2, 5, 31, -1;\n setp.ne.u32 %p3, %r5, 8;\n@%p3 trap;", 32},
	{"break out of nested loops", "mov.u32 %r1, 0;\nO: mov.u32 %r2, 0;\nI: add.u32 %r2, %r2, 1;\n add.u32 %r4, %r1, %r2;\n setp.gt.u32 %p1, %r4, %t;\n@%p1 bra END;\n setp.lt.u32 %p2, %r2, 5;\n@%p2 bra I;\n add.u32 %r1, %r1, 3;\n bra O;\nEND: bar.sync 0;", 64},
	{"warp operations", `setp.eq.u32 %p3, 0, 0; vote.sync.ballot.b32 %r1, %p3, -1; setp.ne.b32 %p1, %r1, -1; @%p1 trap;
	setp.lt.u32 %p2, %t, 3; vote.sync.all.pred %p1, %p2, -1; @%p1 trap; vote.sync.any.pred %p1, %p2, -1; @!%p1 trap; vote.sync.uni.pred %p1, %p2, -1; @%p1 trap;
	redux.sync.add.u32 %r1, %t, -1; setp.ne.u32 %p1, %r1, 496; @%p1 trap;
	redux.sync.max.s32 %r1, %t, -1; setp.ne.u32 %p1, %r1, 31; @%p1 trap;
	redux.sync.or.b32 %r1, %t, -1; setp.ne.u32 %p1, %r1, 31; @%p1 trap;
	and.b32 %r2, %t, 3; match.any.sync.b32 %r1, %r2, -1; popc.b32 %r1, %r1; setp.ne.u32 %p1, %r1, 8; @%p1 trap;
	match.all.sync.b32 %r1|%p1, %r2, -1; @%p1 trap;
	elect.sync %r1|%p1, -1; setp.ne.u32 %p2, %t, 0; @!%p1 bra NO; @%p2 trap; NO:
	shfl.sync.up.b32 %r1|%p1, %t, 1, 0, -1; setp.eq.u32 %p2, %t, 0; selp.b32 %r2, 0, 1, %p2; selp.b32 %r3, 1, 0, %p1; setp.ne.u32 %p3, %r2, %r3; @%p3 trap;
	sub.u32 %r4, %t, %r2; setp.ne.u32 %p3, %r1, %r4; @%p3 trap;
	shfl.sync.down.b32 %r1|%p1, %t, 4, 0x181f, -1; and.b32 %r2, %t, 7; setp.lt.u32 %p2, %r2, 4; selp.b32 %r2, 4, 0, %p2; add.u32 %r2, %r2, %t; setp.ne.u32 %p3, %r1, %r2; @%p3 trap;`, 32},
	{"clock and timers", "mov.u64 %rd2, %clock64;\n mov.u32 %r1, %clock;\n mov.u64 %rd3, %globaltimer;\n nanosleep.u32 20;\n membar.gl;\n fence.acq_rel.gpu;", 32},
}

func TestInnocentKernels(t *testing.T) {
	for _, b := range innocent {
		t.Run(strings.ReplaceAll(b.name, " ", "-"), func(t *testing.T) {
			d := newDevice(t)
			p := d.alloc(256, "buffer")
			d.put(p, make([]byte, 256))
			if _, err := d.launch(kernel(b.body), 2, b.block, 0, p); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestBadLaunches(t *testing.T) {
	d := newDevice(t)
	m := mustParse(t, vaddSrc)
	good := Launch{Entry: m.Entry("vadd"), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, Params: make([]byte, 28), Mem: d.mem, SM: 80}
	for name, change := range map[string]func(*Launch){
		"differs":          func(l *Launch) { l.Params = l.Params[:8] },
		"more than .maxnt": func(l *Launch) { l.Block[0] = 512 },
		"more than 1024":   func(l *Launch) { l.Block = [3]uint32{64, 64, 1} },
		"dimension 1":      func(l *Launch) { l.Block[1] = 0 },
		"grid":             func(l *Launch) { l.Grid[2] = 0 },
		"shared memory":    func(l *Launch) { l.DynShared = 200 << 10 },
		"compute":          func(l *Launch) { l.SM = 75 },
	} {
		l := good
		change(&l)
		_, err := l.Run()
		var f *Fault
		if !errors.As(err, &f) || f.Kind != BadLaunch {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestFaultIsDeterministic runs a kernel in which several blocks fault, with different numbers of
// workers. The fault of the lowest block must be reported.
func TestFaultIsDeterministic(t *testing.T) {
	src := kernel("mov.u32 %r1, %ctaid.x;\n setp.lt.u32 %p1, %r1, 13;\n@%p1 ret;\n trap; // HERE")
	for range 20 {
		d := newDevice(t)
		p := d.alloc(256, "buffer")
		_, err := d.launch(src, 64, 32, 0, p)
		if f := wantFault(t, err, src, Trap, 0); f.CTA != [3]uint32{13, 0, 0} {
			t.Fatalf("block %v", f.CTA)
		}
	}
}

func TestFreedMemory(t *testing.T) {
	d := newDevice(t)
	p := d.alloc(256, "activations")
	d.put(p, make([]byte, 256))
	d.mem.MarkFreed(p, 512)
	src := kernel("ld.global.u32 %r1, [%rd0]; // HERE")
	_, err := d.launch(src, 1, 1, 0, p)
	wantFault(t, err, src, OutOfBounds, 0, "activations", "freed")
	if err := d.mem.Free(p); err != nil {
		t.Fatal(err)
	}
	_, err = d.launch(src, 1, 1, 0, p)
	wantFault(t, err, src, OutOfBounds, 0)
}
