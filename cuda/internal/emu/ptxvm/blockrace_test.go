package ptxvm

import (
	"strings"
	"testing"
)

// Bodies over %r0 = block, %t = thread, %rd0 = buffer of zeros, %rd1 = its word %t, %rd2 = its word of the block.
var blockCases = []struct {
	name, body string
	race       bool
}{
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
	{"cp.async of another block's result", "add.u32 %r2, %r0, 1;\n st.global.u32 [%rd2], %r2;\n setp.eq.u32 %p1, %r0, 0;\n@%p1 ret;\n cp.async.ca.shared.global [%s], [%rd2+-4], 4; // HERE", true},
}

func TestBlockRaces(t *testing.T) {
	for _, c := range blockCases {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			d := newDevice(t)
			p := d.alloc(256, "buffer")
			d.put(p, make([]byte, 256))
			src := kernel("mov.u32 %r0, %ctaid.x;\n mad.wide.u32 %rd2, %r0, 4, %rd0;\n" + c.body)
			m := mustParse(t, src)
			l := Launch{Entry: m.Entry("buggy"), Grid: [3]uint32{4, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: packParams(p), Mem: d.mem, SM: 90, CheckBlocks: true, Workers: 4}
			_, err := l.Run()
			if !c.race {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			f := wantFault(t, err, src, GlobalRace, 0, "buffer", "nothing orders", "at PTX line")
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
