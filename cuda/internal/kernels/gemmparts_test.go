package kernels

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestProductParts computes products with divided sums in every form, with some tiles undivided.
// Each must be one launch without data races between blocks. A second run must give the same bits,
// because the counters are zero again.
func TestProductParts(t *testing.T) {
	tile := func(typ dtype.Type, g gemmTile) func(o ProductOperands) productForm {
		return func(o ProductOperands) productForm {
			return gemmSpec{typ: typ, out: typ, tile: g, a: chooseLoad(o.A, 1, 2), b: chooseLoad(o.B, 2, 1), vectorOut: vectorizable(o.Out, 2, 1), bias: o.Bias.Type}
		}
	}
	core := func(f tensorForm) func(o ProductOperands) productForm {
		return func(o ProductOperands) productForm {
			s, _ := tensorSpecFor(o.Out, o.A, o.B)
			s.form = f
			return s.finishing(o)
		}
	}
	for i, c := range []struct {
		typ  dtype.Type
		d    [4]int // sizes of batch, m, n and k
		as   division
		form func(o ProductOperands) productForm
	}{
		{dtype.F32, [4]int{1, 130, 132, 96}, division{undivided: 3, chunk: 32}, tile(dtype.F32, largeTile)},
		{dtype.F32, [4]int{2, 65, 40, 130}, division{undivided: 0, chunk: 64}, tile(dtype.F32, mediumTile)},
		{dtype.F32, [4]int{1, 33, 64, 200}, division{undivided: 1, chunk: 64}, tile(dtype.F32, smallTile)},
		{dtype.F64, [4]int{1, 40, 66, 70}, division{undivided: 0, chunk: 32}, tile(dtype.F64, doubleTile)},
		{dtype.BF16, [4]int{1, 136, 136, 160}, division{undivided: 2, chunk: 64}, core(tensorForms[0])},
		{dtype.F16, [4]int{2, 70, 64, 200}, division{undivided: 0, chunk: 64}, core(tensorForm{64, 64, 32, 2, 2, 3, 4})},
		{dtype.BF16, [4]int{1, 16, 136, 320}, division{undivided: 0, chunk: 64}, core(tensorForm{16, 64, 64, 1, 4, 4, 4})},
		{dtype.F16, [4]int{1, 40, 129, 190}, division{undivided: 1, chunk: 128}, core(tensorForm{32, 64, 64, 1, 4, 4, 4})},
	} {
		m := newMachine(t)
		m.blocks = true
		batch, rows, columns, k := c.d[0], c.d[1], c.d[2], c.d[3]
		o := ProductOperands{Out: m.tensor(c.typ, dense(batch, rows, columns), 0), A: m.random(m.tensor(c.typ, dense(batch, rows, k), 0)),
			B: m.random(m.tensor(c.typ, dense(batch, k, columns), 0)), Bias: m.random(m.tensor(c.typ, dense(columns), 0)), Counters: m.counters}
		what := fmt.Sprint(c.typ, c.d)
		if c.typ.IsHalf() {
			o.Act, o.Pre = geluOf(c.typ), m.tensor(c.typ, dense(batch, rows, columns), 0)
			if i%2 == 0 {
				o.Sums = m.tensor(dtype.F32, dense(rows), 0)
			}
		}
		var first []uint64
		for range 2 {
			form := c.form(o)
			list, err := splitMatMul(form, o, c.as, m.scratch)
			if tiles := form.tiles(rows, columns); len(list) != 1 || list[0].Grid[0] != uint32(c.as.undivided+(tiles-c.as.undivided)*ceilDiv(k, c.as.chunk)) {
				t.Fatalf("%s: %d launches", what, len(list))
			}
			m.run(list, err)
			bits := m.read(o.Out)
			for e := range first {
				if bits[e] != first[e] {
					t.Fatalf("%s: element %d is %#x at first and then %#x", what, e, first[e], bits[e])
				}
			}
			first = bits
		}
		sums := o
		if o.Act != nil {
			sums.Out = o.Pre
			pre := m.read(o.Pre)
			for e, got := range first {
				if want := o.Act.Eval(nil, pre[e:e+1], nil, 0)[0]; got != want {
					t.Fatalf("%s: element %d is %#x, want %#x", what, e, got, want)
				}
			}
		}
		m.nearProduct(what, sums)
		if o.Sums.Type != dtype.Invalid {
			a, got := m.read(o.A), m.read(o.Sums)
			for r := range rows {
				var sum, size float64
				for _, v := range a[r*k : (r+1)*k] {
					sum += expr.Decode(c.typ, v)
					size += math.Abs(expr.Decode(c.typ, v))
				}
				if v := expr.Decode(dtype.F32, got[r]); math.Abs(v-sum) > (float64(k)/8+2)*0x1p-23*size {
					t.Fatalf("%s: row %d sums up to %v, want %v", what, r, v, sum)
				}
			}
		}
	}
}

// TestProductPartsOfTheLast plans a product whose last tiles are too few to occupy all
// multiprocessors. Only the sums of these tiles must be divided.
func TestProductPartsOfTheLast(t *testing.T) {
	o := ProductOperands{Out: fake(dtype.BF16, 1, 8192, 768), A: fake(dtype.BF16, 1, 8192, 3072), B: fake(dtype.BF16, 1, 3072, 768), Counters: fakeCounters}
	list, err := MatMulSplit(a100, o, fakeScratch)
	if err != nil || len(list) != 1 {
		t.Fatalf("%d launches, %v", len(list), err)
	}
	whole := 64 * 6 / a100.Cores * a100.Cores // number of undivided 128×128 tiles
	if n := int(list[0].Grid[0]); n <= 64*6 || (n-whole)%(64*6-whole) != 0 {
		t.Errorf("%s: %d blocks, of which %d are whole", list[0].Kernel.Name, n, whole)
	}
	o.Counters = nil
	if list, err = MatMulSplit(a100, o, fakeScratch); err != nil || len(list) != 1 || list[0].Grid[0] != 64*6 {
		t.Errorf("without counters: %d launches of %d blocks, %v", len(list), list[0].Grid[0], err)
	}
}

// TestProductPartsOrder runs the blocks of a product on several goroutines. The partial sums must
// be added in order and rounded after each addition, whichever block is the last.
func TestProductPartsOrder(t *testing.T) {
	m := newMachine(t)
	const rows, columns, parts, chunk = 32, 64, 5, 64
	o := ProductOperands{Out: m.tensor(dtype.F32, dense(1, rows, columns), 0), A: m.random(m.tensor(dtype.F32, dense(1, rows, parts*chunk), 0)),
		B: m.random(m.tensor(dtype.F32, dense(1, parts*chunk, columns), 0)), Counters: m.counters}
	form := gemmSpec{typ: dtype.F32, out: dtype.F32, tile: smallTile, a: chooseLoad(o.A, 1, 2), b: chooseLoad(o.B, 2, 1), vectorOut: true}
	want := make([]float32, rows*columns)
	for p := range parts {
		part := o
		part.Out = m.tensor(dtype.F32, dense(1, rows, columns), 0)
		part.A.Shape, part.B.Shape = part.A.Shape.With(2, chunk), part.B.Shape.With(1, chunk)
		part.A.Offset += p * chunk
		part.B.Offset += p * chunk * columns
		m.run(launchMatMul(form, part))
		for i, v := range m.read(part.Out) {
			if x := math.Float32frombits(uint32(v)); p == 0 {
				want[i] = x
			} else {
				want[i] += x
			}
		}
	}
	m.run(splitMatMul(form, o, division{chunk: chunk}, m.scratch))
	m.compare("parts", o.Out, func(i int) uint64 { return uint64(math.Float32bits(want[i])) })
}

// TestProductPartsSynchronisation removes barriers, and weakens or removes the memory ordering of
// the counter. The emulator must find a race between blocks or threads in each case.
func TestProductPartsSynchronisation(t *testing.T) {
	m := newMachine(t)
	o := ProductOperands{Out: m.tensor(dtype.BF16, dense(1, 64, 72), 0), A: m.random(m.tensor(dtype.BF16, dense(1, 64, 128), 0)),
		B: m.random(m.tensor(dtype.BF16, dense(1, 128, 72), 0)), Counters: m.counters}
	list, err := splitMatMul(cored(o.Out, o.A, o.B), o, division{chunk: 64}, m.scratch)
	if err != nil {
		t.Fatal(err)
	}
	k := list[0].Kernel
	run := func(text string) error {
		mod, err := ptxvm.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		words := m.tensor(dtype.I32, dense(CounterWords), 0)
		words.Addr = m.counts
		m.fill(words, func(int) uint64 { return 0 })
		l := ptxvm.Launch{Entry: mod.Entry(k.Entry), Grid: list[0].Grid, Block: k.Block, Params: list[0].Params, Mem: m.mem, SM: 80, DynShared: uint32(k.DynShared), CheckBlocks: true}
		_, err = l.Run()
		return err
	}
	if err := run(k.PTX); err != nil {
		t.Fatal(err)
	}
	at := strings.Index(k.PTX, "// leave the sums")
	sums, rest := k.PTX[:at], k.PTX[at:]
	for _, c := range [][2]string{{"bar.sync 0;", ""}, {"atom.acq_rel.gpu", "atom.acquire.gpu"}, {"atom.acq_rel.gpu", "atom.release.gpu"}, {"atom.acq_rel.gpu", "atom.acq_rel.cta"}, {"atom.acq_rel.gpu", "atom"}} {
		if !strings.Contains(rest, c[0]) {
			t.Fatalf("there is no %s", c[0])
		}
		var f *ptxvm.Fault
		if err := run(sums + strings.Replace(rest, c[0], c[1], 1)); !errors.As(err, &f) || f.Kind != ptxvm.GlobalRace {
			t.Errorf("%q in place of %q: %v", c[1], c[0], err)
		}
	}
}

// TestProductPartsAssemble assembles the kernels that divide sums, with any bias, row or column
// sums, and activation. They must not spill registers.
func TestProductPartsAssemble(t *testing.T) {
	ptxas := tool(t, "ptxas", "FLAMBEAU_PTXAS")
	if ptxas == "" {
		t.Log("ptxas was not found: the forms in parts were NOT assembled; set FLAMBEAU_PTXAS to its path")
		return
	}
	a := assembler{t: t, ptxas: ptxas, dir: t.TempDir()}
	gelu := geluOf(dtype.BF16)
	add := func(f productForm) {
		k, err := f.inParts().kernel(gelu)
		if err != nil {
			t.Fatal(err)
		}
		a.add(k)
	}
	for _, f := range tensorForms {
		loads := loadsOf(f)
		for i, out := range []dtype.Type{dtype.F32, dtype.BF16} {
			s := loads[i%len(loads)]
			s.store, s.bias, s.out = storePieces, dtype.F32, out
			if s.sums = (sumsSpec{rows: out == dtype.F32}); !s.sums.rows {
				s.act, s.pre = gelu.Key(), true
			}
			add(s)
			s.bias, s.sums, s.actSpec, s.share = dtype.Invalid, sumsSpec{}, actSpec{}, true
			add(s)
		}
	}
	for _, g := range []gemmTile{largeTile, mediumTile, smallTile} {
		for _, l := range [][2]tileLoad{{vectorsAlongK, vectorsAlongOuter}, {vectorsAlongK, vectorsAlongK}, {vectorsAlongOuter, vectorsAlongOuter}, {scalarsAlongK, scalarsAlongOuter}} {
			add(gemmSpec{typ: dtype.F32, out: dtype.F32, tile: g, a: l[0], b: l[1], vectorOut: l[0].vectors(), bias: dtype.F32})
		}
	}
	add(gemmSpec{typ: dtype.F64, out: dtype.F64, tile: doubleTile, a: vectorsAlongK, b: vectorsAlongOuter, vectorOut: true})
	a.finish()
}
