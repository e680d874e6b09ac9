package ptxvm

import (
	"errors"
	"strings"
	"testing"
)

// TestMissingSynchronisationIsFound removes each synchronising instruction of a correct kernel in
// turn. The emulator must report a fault, in any order of warps.
func TestMissingSynchronisationIsFound(t *testing.T) {
	const n = 64
	d := newDevice(t)
	a, b, c := d.floats(randoms(n*n, 1), "a"), d.floats(randoms(n*n, 2), "b"), d.alloc(4*n*n, "c")
	ha, hb, hc := d.halves(randoms(16*48, 3), toBF16), d.halves(randoms(8*48, 4), toBF16), d.alloc(512, "hc")
	for _, k := range []struct {
		name, src, remove string
		block             uint32
		grid              [3]uint32
		params            []byte
		kinds             []FaultKind
	}{
		{"gemm barriers", gemmSrc(), "bar.sync 0;", 128, [3]uint32{2, 2, 1}, packParams(a, b, c, n), []FaultKind{SharedRace, UninitialisedMemory}},
		{"mma wait", strings.ReplaceAll(mmaSrc, "TYPE", "bf16"), "cp.async.wait_group 0;", 32, [3]uint32{1, 1, 1}, packParams(ha, hb, hc, 48), []FaultKind{AsyncCopyNotWaited}},
		{"mma commit", strings.ReplaceAll(mmaSrc, "TYPE", "bf16"), "cp.async.commit_group;", 32, [3]uint32{1, 1, 1}, packParams(ha, hb, hc, 48), []FaultKind{AsyncCopyNotWaited}},
	} {
		parts := strings.Split(k.src, k.remove)
		for without := -1; without < len(parts)-1; without++ {
			var src strings.Builder
			for i, p := range parts {
				src.WriteString(p)
				if i < len(parts)-1 && i != without {
					src.WriteString(k.remove)
				}
			}
			m := mustParse(t, src.String())
			for seed := range uint64(3) {
				l := Launch{Entry: m.entries[0], Grid: k.grid, Block: [3]uint32{k.block, 1, 1}, Params: k.params, Mem: d.mem, SM: 80, Seed: seed * 1001}
				_, err := l.Run()
				var f *Fault
				switch found := errors.As(err, &f); {
				case without < 0 && err != nil:
					t.Fatalf("%s complete: %v", k.name, err)
				case without >= 0 && !found:
					t.Errorf("%s: the loss of number %d is not found (seed %d)", k.name, without, seed)
				case without >= 0:
					ok := false
					for _, want := range k.kinds {
						ok = ok || f.Kind == want
					}
					if !ok {
						t.Errorf("%s: without number %d (seed %d): %v", k.name, without, seed, f)
					}
				}
			}
		}
	}
}

// TestSlipsAreFound changes one instruction of a correct kernel: an index is one too large, a guard
// is missing, or a stride or pointer is wrong. The emulator must report a fault.
func TestSlipsAreFound(t *testing.T) {
	const n = 100 // not a multiple of the block size
	for _, c := range []struct {
		from, to string
		kind     FaultKind
	}{
		{"setp.ge.u32 %p2, %r11, %r1;", "setp.gt.u32 %p2, %r11, %r1;", OutOfBounds},
		{"setp.ge.u32 %p1, %r9, %r8;", "setp.gt.u32 %p1, %r9, %r8;", OutOfBounds},
		{"mul.wide.u32 %rd4, %r9, 16;", "mul.wide.u32 %rd4, %r9, 8;", Misaligned},
		{"add.u32 %r9, %r9, %r7;", "add.u32 %r9, %r9, 0;", Runaway},
		{"add.rn.f32 %f9, %f1, %f5;", "add.rn.f32 %f10, %f1, %f5;", UninitialisedRegister},
		{"ld.param.u64 %rd3, [pc];", "ld.param.u64 %rd3, [pn];", OutOfBounds},
	} {
		if !strings.Contains(vaddSrc, c.from) {
			t.Fatalf("the kernel has no %s", c.from)
		}
		d := newDevice(t)
		pa, pb, pc := d.floats(randoms(n, 1), "a"), d.floats(randoms(n, 2), "b"), d.alloc(4*n, "c")
		_, err := d.launch(strings.Replace(vaddSrc, c.from, c.to, 1), 1, 32, 0, pa, pb, pc, n)
		var f *Fault
		if !errors.As(err, &f) || f.Kind != c.kind {
			t.Errorf("%s: got %v, want %v", c.to, err, c.kind)
		}
	}
}
