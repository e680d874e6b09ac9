package ptxvm

import (
	"fmt"
	"strings"
	"testing"
)

// Beginnings of kernels. Register %t is the thread's index, %rd0 is the address of a buffer of 64
// words, and %rd1 is the address of word %t of the buffer. The constants whose names begin with
// "word" set %rd2 to the address of another word.
const (
	wordOtherLane = "xor.b32 %r1, %t, 1;\n mad.wide.u32 %rd2, %r1, 4, %rd0;\n "
	wordOtherWarp = "xor.b32 %r1, %t, 32;\n mad.wide.u32 %rd2, %r1, 4, %rd0;\n "
	firstWarpTo   = "setp.lt.u32 %p1, %t, 32;\n@%p1 bra "
)

// longLoop reads the thread's own word so often that the list of recorded accesses becomes full.
var longLoop = fmt.Sprintf("mov.u32 %%r4, 0;\nLOOP: ld.global.u32 %%r5, [%%rd1];\n add.u32 %%r4, %%r4, 1;\n setp.lt.u32 %%p2, %%r4, %d;\n@%%p2 bra LOOP;\n ", maxTouches)

var globalRaces = []struct {
	name, body string
	block      uint32
	words      []string // words in the message; nil if there is no race
}{
	{"read before barrier", wordOtherWarp + "st.global.u32 [%rd1], %t;\n setp.ge.u32 %p1, %t, 32;\n@%p1 ld.global.u32 %r3, [%rd2]; // HERE", 64, []string{"no barrier", "wrote", "reads"}},
	{"barrier", wordOtherWarp + "st.global.u32 [%rd1], %t;\n bar.sync 0;\n ld.global.u32 %r3, [%rd2];\n bar.sync 0;\n st.global.u32 [%rd1], %r3;", 64, nil},
	{"reduction of a barrier", wordOtherWarp + "st.global.u32 [%rd1], %t;\n setp.eq.u32 %p1, %t, 3;\n bar.red.or.pred %p2, 0, %p1;\n ld.global.u32 %r3, [%rd2];", 64, nil},
	{"fence alone", wordOtherWarp + "st.global.u32 [%rd1], %t;\n membar.gl;\n setp.ge.u32 %p1, %t, 32;\n@%p1 ld.global.u32 %r3, [%rd2]; // HERE", 64, []string{"no barrier"}},
	{"lanes of a warp", wordOtherLane + "st.global.u32 [%rd1], %t;\n ld.global.u32 %r3, [%rd2]; // HERE", 32, []string{"no bar.warp.sync", "thread (1,0,0)"}},
	{"shuffle between", wordOtherLane + "st.global.u32 [%rd1], %t;\n shfl.sync.idx.b32 %r5, %t, 0, 31, -1;\n ld.global.u32 %r3, [%rd2]; // HERE", 32, []string{"no bar.warp.sync"}},
	{"bar.warp.sync between", wordOtherLane + "st.global.u32 [%rd1], %t;\n bar.warp.sync -1;\n ld.global.u32 %r3, [%rd2];", 64, nil},
	{"bar.warp.sync does not order warps", wordOtherWarp + "st.global.u32 [%rd1], %t;\n bar.warp.sync -1;\n setp.ge.u32 %p1, %t, 32;\n@%p1 ld.global.u32 %r3, [%rd2]; // HERE", 64, []string{"no barrier"}},
	{"half warps", wordOtherLane + "st.global.u32 [%rd1], %t;\n setp.lt.u32 %p1, %t, 16;\n@!%p1 bra B;\n bar.warp.sync 0xffff;\n ld.global.u32 %r3, [%rd2];\n bra C;\nB: bar.warp.sync 0xffff0000;\n ld.global.u32 %r3, [%rd2];\nC:", 32, nil},
	{"the other half warp", "xor.b32 %r1, %t, 16;\n mad.wide.u32 %rd2, %r1, 4, %rd0;\n st.global.u32 [%rd1], %t;\n setp.lt.u32 %p1, %t, 16;\n@!%p1 bra B;\n bar.warp.sync 0xffff;\n bra C;\nB: bar.warp.sync 0xffff0000;\n ld.global.u32 %r3, [%rd2]; // HERE\nC:", 32, []string{"no bar.warp.sync"}},
	{"two values to one word", "st.global.u32 [%rd0], %t; // HERE", 32, []string{"writes", "wrote"}},
	{"one value to one word", "st.global.u32 [%rd0], 7;", 64, nil},
	{"two warps to one word", "and.b32 %r1, %t, 31;\n mad.wide.u32 %rd2, %r1, 4, %rd0;\n st.global.u32 [%rd2], %t; // HERE", 64, []string{"writes", "wrote"}},
	{"in place", "ld.global.u32 %r1, [%rd1];\n add.u32 %r1, %r1, 1;\n st.global.u32 [%rd1], %r1;", 64, nil},
	{"write after read", "ld.global.u32 %r3, [%rd0+16];\n st.global.u32 [%rd1], %t; // HERE", 32, []string{"writes", "read"}},
	{"write of the next word", "setp.eq.u32 %p1, %t, 63;\n@%p1 ret;\n ld.global.u32 %r3, [%rd1+4];\n st.global.u32 [%rd1], %r3; // HERE", 64, []string{"read"}},
	{"bytes of one word", "cvt.u16.u32 %h1, %t;\n cvt.u64.u32 %rd2, %t;\n add.u64 %rd2, %rd2, %rd0;\n st.global.u8 [%rd2], %h1;\n ld.global.u8 %h2, [%rd2];", 64, nil},
	{"a byte of another's word", "cvt.u16.u32 %h1, %t;\n st.global.u32 [%rd1], 9;\n setp.eq.u32 %p1, %t, 5;\n@%p1 st.global.u8 [%rd0+2], %h1; // HERE", 32, []string{"wrote"}},
	{"halves of a vector", "setp.ge.u32 %p1, %t, 32;\n@%p1 ret;\n mad.wide.u32 %rd2, %t, 8, %rd0;\n st.global.v2.u32 [%rd2], {%t, %t};\n ld.global.u32 %r1, [%rd2+4];", 64, nil},
	{"strides that interleave", "shl.b32 %r1, %t, 1;\n and.b32 %r1, %r1, 63;\n shr.u32 %r2, %t, 5;\n add.u32 %r1, %r1, %r2;\n mad.wide.u32 %rd2, %r1, 4, %rd0;\n st.global.u32 [%rd2], %t;", 64, nil},
	{"atomics", "red.global.add.u32 [%rd0], 1;\n atom.global.max.u32 %r1, [%rd0+4], %t;", 64, nil},
	{"atomic against plain read", "red.global.add.u32 [%rd0], 1;\n ld.global.u32 %r1, [%rd0]; // HERE", 32, []string{"reads"}},
	{"volatile accesses", "st.volatile.global.u32 [%rd0], %t;\n ld.volatile.global.u32 %r1, [%rd0];", 64, nil},
	{"source of cp.async", "setp.ge.u32 %p1, %t, 32;\n@%p1 bra W;\n cp.async.ca.shared.global [%s], [%rd1+128], 4;\n cp.async.wait_all;\n bra END;\nW: st.global.u32 [%rd1], %t; // HERE\nEND: bar.sync 0;", 64, []string{"read"}},
	{"beyond a short source of cp.async", "setp.ge.u32 %p1, %t, 32;\n@%p1 bra W;\n cp.async.ca.shared.global [%s], [%rd1+128], 4, 0;\n cp.async.wait_all;\n bra END;\nW: st.global.u32 [%rd1], %t;\nEND: bar.sync 0;", 64, nil},
	{"generic addresses", "cvta.global.u64 %rd2, %rd0;\n st.u32 [%rd2], %t; // HERE", 32, []string{"wrote"}},
	{"named barriers", firstWarpTo + "PROD;\n bar.sync 1, 64;\n ld.global.u32 %r1, [%rd0];\n bra END;\nPROD: st.global.u32 [%rd1], %t;\n bar.arrive 1, 64;\nEND:", 64, nil},
	{"write behind an arrival", firstWarpTo + "PROD;\n bar.sync 1, 64;\n ld.global.u32 %r1, [%rd0];\n bra END;\nPROD: bar.arrive 1, 64;\n st.global.u32 [%rd1], %t;\nEND:", 64, []string{"no barrier"}},
	{"a warp that has left", firstWarpTo + "PROD;\n bar.sync 0;\n bar.sync 0;\n ld.global.u32 %r1, [%rd0]; // HERE\n ret;\nPROD: st.global.u32 [%rd1], %t;\n ret;", 64, []string{"no barrier"}},
	{"long list", longLoop + wordOtherWarp + "bar.sync 0;\n st.global.u32 [%rd1], %t;\n bar.sync 0;\n ld.global.u32 %r3, [%rd2];", 64, nil},
	{"race across a long list", "st.global.u32 [%rd1], %t;\n" + longLoop + wordOtherWarp + "ld.global.u32 %r3, [%rd2];", 64, []string{"no barrier"}},
	{"named barrier within a long list", firstWarpTo + "PROD;\n bar.sync 1, 64;\n" + longLoop + "ld.global.u32 %r1, [%rd0];\n bra END;\nPROD: st.global.u32 [%rd1], %t;\n bar.arrive 1, 64;\nEND:", 64, nil},
}

func TestGlobalRaces(t *testing.T) {
	for _, c := range globalRaces {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			for seed := range uint64(3) {
				d := newDevice(t)
				p := d.alloc(256, "buffer")
				d.put(p, make([]byte, 256))
				src := kernel(c.body)
				m := mustParse(t, src)
				l := Launch{Entry: m.Entry("buggy"), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{c.block, 1, 1}, Params: packParams(p), Mem: d.mem, SM: 90, Seed: seed}
				_, err := l.Run()
				if c.words == nil {
					if err != nil {
						t.Fatal(err)
					}
					continue
				}
				f, ok := err.(*Fault)
				if !ok || f.Kind != GlobalRace || f.Other == nil {
					t.Fatalf("found %v, want a race on global memory", err)
				}
				if before, _, ok := strings.Cut(src, "// HERE"); ok {
					if here := 1 + strings.Count(before, "\n"); f.Line != here && f.Other.Line != here {
						t.Errorf("reported at lines %d and %d, not %d", f.Line, f.Other.Line, here)
					}
				}
				if seed > 0 {
					continue // in another order of the warps, the fault may be at the other access
				}
				for _, word := range append(c.words, "buggy", "\"buffer\"") {
					if !strings.Contains(f.Error(), word) {
						t.Errorf("%q is not in: %v", word, f)
					}
				}
			}
		})
	}
}
