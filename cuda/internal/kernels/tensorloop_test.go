package kernels

import (
	"fmt"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

// TestTensorLoop compares kernels that loop over tiles with kernels that have a block for each
// tile. Both must give the same bits. The cases have one block and several, tiles at edges, and
// every bias, activation and way to store. In a batch a block continues with the tiles of the next
// matrix.
func TestTensorLoop(t *testing.T) {
	for i, c := range []struct {
		typ, out dtype.Type
		d        [4]int // sizes of batch, m, n and k
		orders   string
		form     tensorForm
		workers  int
	}{
		{dtype.BF16, dtype.BF16, [4]int{1, 256, 256, 64}, "NN", tensorForms[0], 1},
		{dtype.BF16, dtype.BF16, [4]int{1, 130, 392, 100}, "NT", tensorForms[0], 3},
		{dtype.F16, dtype.F32, [4]int{1, 260, 134, 40}, "TN", tensorForms[0], 2},
		{dtype.BF16, dtype.BF16, [4]int{1, 140, 520, 72}, "NN", tensorForms[1], 2},
		{dtype.F16, dtype.F16, [4]int{1, 520, 136, 34}, "TN", tensorForm{256, 128, 32, 4, 2, 3, 1}, 1},
		{dtype.F32, dtype.F32, [4]int{1, 130, 260, 36}, "NN", tensorForms[0].forType(dtype.F32), 2},
		{dtype.BF16, dtype.BF16, [4]int{1, 130, 264, 0}, "NN", tensorForms[0], 2},
		{dtype.BF16, dtype.BF16, [4]int{3, 130, 264, 72}, "TN", tensorForms[0], 4},
		{dtype.BF16, dtype.BF16, [4]int{1, 140, 519, 72}, "NT", tensorForms[1], 2},
		{dtype.BF16, dtype.BF16, [4]int{3, 130, 264, 72}, "NN", tensorForms[0], 7},
		{dtype.F16, dtype.F16, [4]int{4, 130, 136, 40}, "NN", tensorForms[0], 3},
		{dtype.BF16, dtype.F32, [4]int{5, 130, 100, 40}, "NT", tensorForms[0], 4},
	} {
		m := newMachine(t)
		m.blocks = true
		batch, rows, columns, k := c.d[0], c.d[1], c.d[2], c.d[3]
		o := ProductOperands{Out: m.tensor(c.out, dense(batch, rows, columns), 0), TF32: c.typ == dtype.F32,
			A: m.random(m.tensor(c.typ, matrixLayout(c.orders[:1], batch, rows, k), 0)), B: m.random(m.tensor(c.typ, matrixLayout(c.orders[1:], batch, k, columns), 0))}
		if i%2 == 1 {
			o.Bias = m.random(m.tensor(c.typ, dense(columns), 0))
		}
		if c.typ == c.out && c.typ.IsHalf() && i%3 == 0 {
			o.Act, o.Pre = geluOf(c.typ), m.tensor(c.typ, dense(batch, rows, columns), 0)
		} else if c.typ == c.out && i == 10 {
			o.Act, o.With = geluGradient(c.typ), m.random(m.tensor(c.typ, dense(batch, rows, columns), 0))
		}
		s, _ := tensorSpecFor(o.Out, o.A, o.B)
		if s.form = c.form; !s.loops() {
			t.Fatalf("%s may not loop", s.name())
		}
		s = s.finishing(o)
		d, tiles := undivided(k), s.tiles(rows, columns)
		if d.workers = c.workers; batch*tiles <= c.workers {
			t.Fatalf("%s: %d tiles are no work for %d", s.name(), batch*tiles, c.workers)
		}
		run := func(s tensorSpec) (bits [][]uint64) {
			list, err := launchParts(s, o, d, 0, 0)
			if err == nil && (s.loop && list[0].Grid != [3]uint32{uint32(c.workers), 1, 1} || !s.loop && list[0].Grid != [3]uint32{uint32(tiles), uint32(batch), 1}) {
				t.Fatalf("%s: %v blocks for %d tiles", s.name(), list[0].Grid, batch*tiles)
			}
			m.run(list, err)
			bits = append(bits, m.read(o.Out))
			if o.Pre.Type != dtype.Invalid {
				bits = append(bits, m.read(o.Pre))
			}
			return bits
		}
		want := run(s)
		for _, w := range []Operand{o.Out, o.Pre} {
			if w.Type != dtype.Invalid {
				m.fill(w, func(int) uint64 { return 0x4bcd })
			}
		}
		s.loop = true
		for j, got := range run(s) {
			if !slices.Equal(got, want[j]) {
				t.Fatalf("%s: other bits than without a loop", s.name())
			}
		}
		if o.Act == nil {
			m.nearProduct(fmt.Sprint(s.name()), o)
		}
	}
}

// TestTensorLoopPlanned plans products of which only one block fits on a multiprocessor. There are
// several tiles for each block. The planner must choose a loop over tiles, with as many blocks as
// fit on the device.
func TestTensorLoopPlanned(t *testing.T) {
	h100 := GPUOf(90, "", 0)
	o := ProductOperands{Out: fake(dtype.BF16, 1, 8192, 3072), A: fake(dtype.BF16, 1, 8192, 768), B: fake(dtype.BF16, 1, 768, 3072), Counters: fakeCounters}
	list, err := MatMulSplit(h100, o, fakeScratch)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d launches, %v", len(list), err)
	}
	if k := list[0].Kernel; list[0].Grid[0] != uint32(h100.Cores) || k.DynShared > h100.Shared {
		t.Errorf("%s: %d blocks with %d bytes of shared memory", k.Name, list[0].Grid[0], k.DynShared)
	}
	for _, small := range []int{64, 128} { // there is at most one tile for each multiprocessor
		o := ProductOperands{Out: fake(dtype.BF16, 1, small, 768), A: fake(dtype.BF16, 1, small, 768), B: fake(dtype.BF16, 1, 768, 768)}
		if p := h100.choosePlan(o.Out, o.A, o.B, false, true); p.loop {
			t.Errorf("%d rows: %v in a loop of %d workers", small, p.form, p.workers)
		}
	}
}

// TestTensorLoopNot checks that blocks loop over tiles even without scratch memory. A kernel that
// also sums rows must have a block for each tile instead.
func TestTensorLoopNot(t *testing.T) {
	h100 := GPUOf(90, "", 0)
	o := ProductOperands{Out: fake(dtype.BF16, 1, 8192, 3072), A: fake(dtype.BF16, 1, 8192, 768), B: fake(dtype.BF16, 1, 768, 3072)}
	sums := o
	sums.Sums = fake(dtype.F32, 8192)
	for name, c := range map[string]struct {
		o       ProductOperands
		scratch Scratch
		loops   bool
	}{"without scratch": {o, nil, true}, "sums": {sums, fakeScratch, false}} {
		list, err := MatMulSplit(h100, c.o, c.scratch)
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %d launches, %v", name, len(list), err)
		}
		if n := int(list[0].Grid[0]); (n == h100.Cores) != c.loops || !c.loops && n%24 != 0 {
			t.Errorf("%s: %s has %d blocks", name, list[0].Kernel.Name, n)
		}
	}
}
