package ptxvm

import (
	"strings"
	"testing"
)

type blockCase struct {
	name, body string
	race       bool
}

// blockCases lists bodies of kernels. Register %r0 is the block's index, %t is the thread's index,
// and %rd0 is the address of a buffer of zeros. %rd1 is the address of word %t of the buffer, and
// %rd2 is the address of word %r0.
var blockCases = []blockCase{
	{"each block its own word", "st.global.u32 [%rd2], %r0;\n ld.global.u32 %r1, [%rd2];", false},
	{"all blocks read", "ld.global.u32 %r1, [%rd0+128];\n st.global.u32 [%rd2], %r1;", false},
	{"one flag, one value", "st.global.u32 [%rd0+128], 7;", false},
	{"one word, several values", "st.global.u32 [%rd0+128], %r0; // HERE", true},
	{"neighbouring bytes", "cvt.u16.u32 %h1, %r0;\n cvt.u64.u32 %rd3, %r0;\n add.u64 %rd3, %rd3, %rd0;\n st.global.u8 [%rd3], %h1;", false},
	{"read of another block's result", "add.u32 %r2, %r0, 1;\n st.global.u32 [%rd2], %r2;\n setp.eq.u32 %p1, %r0, 0;\n@%p1 ret;\n ld.global.u32 %r1, [%rd2+-4]; // HERE", true},
	{"write of what others read", "ld.global.u32 %r1, [%rd0+128];\n setp.ne.u32 %p1, %r0, 3;\n@%p1 ret;\n st.global.u32 [%rd0+128], 9; // HERE", true},
	{"atomics", "red.global.add.u32 [%rd0+128], 1;", false},
	{"atomic against plain read", "red.global.add.u32 [%rd0+128], 1; // HERE\n ld.global.u32 %r1, [%rd0+128];", true},
	{"ticket with fences", "st.global.u32 [%rd2], %r0;\n membar.gl;\n atom.global.inc.u32 %r1, [%rd0+128], 3;\n setp.ne.u32 %p1, %r1, 3;\n@%p1 ret;\n membar.gl;\n ld.global.u32 %r2, [%rd0];\n ld.global.u32 %r3, [%rd0+4];", false},
	{"ticket by acq_rel", "st.global.u32 [%rd2], %r0;\n atom.acq_rel.gpu.global.inc.u32 %r1, [%rd0+128], 3;\n setp.ne.u32 %p1, %r1, 3;\n@%p1 ret;\n ld.global.u32 %r2, [%rd0];", false},
	{"ticket without a fence", "add.u32 %r2, %r0, 1;\n st.global.u32 [%rd2], %r2;\n atom.global.inc.u32 %r1, [%rd0+128], 3;\n setp.ne.u32 %p1, %r1, 3;\n@%p1 ret;\n ld.global.u32 %r2, [%rd0]; // HERE", true},
	{"ticket by acquire and release", "st.global.u32 [%rd2], %r0;\n atom.release.gpu.global.inc.u32 %r1, [%rd0+128], 3;\n setp.ne.u32 %p1, %r1, 3;\n@%p1 ret;\n ld.acquire.gpu.global.u32 %r1, [%rd0+128];\n ld.global.u32 %r2, [%rd0];", false},
	{"a chain of two words", "add.u32 %r2, %r0, 1;\n st.global.u32 [%rd2], %r2;\n mad.wide.u32 %rd3, %r0, 4, %rd0;\n atom.acq_rel.gpu.global.add.u32 %r1, [%rd3+128], 1;\n atom.acq_rel.gpu.global.add.u32 %r1, [%rd3+132], 1;\n setp.ne.u32 %p1, %r0, 3;\n@%p1 ret;\n ld.global.u32 %r2, [%rd0];", false},
	{"ticket without a fence behind it", "add.u32 %r2, %r0, 1;\n st.global.u32 [%rd2], %r2;\n membar.gl;\n atom.global.inc.u32 %r1, [%rd0+128], 3;\n setp.ne.u32 %p1, %r1, 3;\n@%p1 ret;\n ld.global.u32 %r2, [%rd0]; // HERE", true},
	{"ticket with fences of the block", "add.u32 %r2, %r0, 1;\n st.global.u32 [%rd2], %r2;\n membar.cta;\n atom.global.inc.u32 %r1, [%rd0+128], 3;\n setp.ne.u32 %p1, %r1, 3;\n@%p1 ret;\n membar.cta;\n ld.global.u32 %r2, [%rd0]; // HERE", true},
	{"ticket of the block", "add.u32 %r2, %r0, 1;\n st.global.u32 [%rd2], %r2;\n atom.acq_rel.cta.global.inc.u32 %r1, [%rd0+128], 3;\n setp.ne.u32 %p1, %r1, 3;\n@%p1 ret;\n ld.global.u32 %r2, [%rd0]; // HERE", true},
	{"tickets of two words", "add.u32 %r2, %r0, 1;\n st.global.u32 [%rd2], %r2;\n mad.wide.u32 %rd3, %r0, 4, %rd0;\n atom.acq_rel.gpu.global.add.u32 %r1, [%rd3+128], 1;\n setp.ne.u32 %p1, %r0, 3;\n@%p1 ret;\n ld.global.u32 %r2, [%rd0]; // HERE", true},
	{"written behind the release", "add.u32 %r2, %r0, 1;\n atom.acq_rel.gpu.global.inc.u32 %r1, [%rd0+128], 3;\n st.global.u32 [%rd2], %r2;\n setp.ne.u32 %p1, %r1, 3;\n@%p1 ret;\n ld.global.u32 %r2, [%rd0]; // HERE", true},
	{"cp.async of another block's result", "add.u32 %r2, %r0, 1;\n st.global.u32 [%rd2], %r2;\n setp.eq.u32 %p1, %r0, 0;\n@%p1 ret;\n cp.async.ca.shared.global [%s], [%rd2+-4], 4; // HERE", true},
}

// blockWarpCases lists bodies for blocks of two warps. Thread 32 of each block stores the block's
// word, and thread 32 of block 3 then reads the word of block 0. Thread 0 increments the counter
// that orders the blocks.
var blockWarpCases = []blockCase{
	{"one counts for all", lead + "bar.sync 0;\n" + count + "bar.sync 0;\n" + follow, false},
	{"by a reduction at the barrier", lead + "bar.sync 0;\n" + count + "bar.red.or.pred %p1, 0, %p2;\n" + follow, false},
	{"fences of the one that counts", lead + "bar.sync 0;\n membar.gl;\n" + strings.Replace(count, ".acq_rel.gpu", "", 1) + "membar.gl;\n bar.sync 0;\n" + follow, false},
	{"no barrier before the count", lead + count + "bar.sync 0;\n" + follow + " // HERE", true},
	{"no barrier behind the count", lead + "bar.sync 0;\n" + count + follow + " // HERE", true},
	{"the writer's fence alone", lead + "membar.gl;\n bar.sync 0;\n" + strings.Replace(count, ".acq_rel.gpu", "", 1) + "@%p1 membar.gl;\n bar.sync 0;\n" + follow + " // HERE", true},
}

const (
	lead   = "add.u32 %r2, %r0, 1;\n setp.eq.u32 %p1, %t, 32;\n setp.eq.u32 %p2, %t, 0;\n@%p1 st.global.u32 [%rd2], %r2;\n"
	count  = "@%p2 atom.acq_rel.gpu.global.add.u32 %r1, [%rd0+128], 1;\n"
	follow = "setp.eq.u32 %p1, %t, 32;\n setp.eq.and.u32 %p1, %r0, 3, %p1;\n@%p1 ld.global.u32 %r3, [%rd0];"
)

func TestBlockRaces(t *testing.T) {
	checkBlocks(t, blockCases, 1, 0)
	checkBlocks(t, blockWarpCases, 64, 32)
}

func checkBlocks(t *testing.T, cases []blockCase, threads uint32, guilty uint32) {
	for _, c := range cases {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			d := newDevice(t)
			p := d.alloc(256, "buffer")
			d.put(p, make([]byte, 256))
			src := kernel("mov.u32 %r0, %ctaid.x;\n mad.wide.u32 %rd2, %r0, 4, %rd0;\n" + c.body)
			m := mustParse(t, src)
			l := Launch{Entry: m.Entry("buggy"), Grid: [3]uint32{4, 1, 1}, Block: [3]uint32{threads, 1, 1}, Params: packParams(p), Mem: d.mem, SM: 90, CheckBlocks: true, Workers: 4}
			_, err := l.Run()
			if !c.race {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			f := wantFault(t, err, src, GlobalRace, guilty, "buffer", "nothing orders", "at PTX line")
			if f.CTA == [3]uint32{} {
				t.Errorf("reported in the first block: %v", f)
			}
			l.CheckBlocks = false
			if _, err := l.Run(); err != nil {
				t.Errorf("reported without being asked: %v", err)
			}
		})
	}
}
