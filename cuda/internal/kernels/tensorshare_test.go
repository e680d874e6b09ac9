package kernels

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// sharedProducts lists products whose blocks share the work of adding up partial sums. They have
// odd sizes, a batch, undivided tiles before the divided ones, many parts of k, and each way to
// store.
func sharedProducts(m *machine) []struct {
	o    ProductOperands
	form tensorForm
	d    division
} {
	type product = struct {
		o    ProductOperands
		form tensorForm
		d    division
	}
	of := func(f tensorForm, typ, out dtype.Type, l shape.Layout, k int, d division) product {
		batch, rows, columns := l.Shape.At(0), l.Shape.At(1), l.Shape.At(2)
		return product{ProductOperands{Out: m.tensor(out, l, 0), A: m.random(m.tensor(typ, dense(batch, rows, k), 0)), B: m.random(m.tensor(typ, dense(batch, k, columns), 0)),
			Counters: m.counters, TF32: typ == dtype.F32}, f, d}
	}
	return []product{
		of(tensorForms[0], dtype.BF16, dtype.BF16, dense(1, 136, 136), 200, division{undivided: 2, chunk: 64}),
		of(tensorForm{64, 64, 32, 2, 2, 3, 4}, dtype.F16, dtype.F16, dense(2, 70, 40), 64*17+8, division{chunk: 64}),
		of(tensorForm{64, 64, 32, 2, 2, 3, 4}, dtype.BF16, dtype.F32, dense(1, 33, 129), 300, division{chunk: 64}),
		of(tensorForm{16, 64, 64, 1, 4, 4, 4}, dtype.BF16, dtype.BF16, dense(1, 17, 63), 64*mostParts, division{chunk: 64}),
		of(tensorForm{32, 64, 64, 1, 4, 4, 4}, dtype.BF16, dtype.BF16, matrixLayout("T", 1, 40, 72), 192, division{chunk: 64}),
		of(tensorForm{64, 64, 32, 2, 2, 3, 4}.forType(dtype.F32), dtype.F32, dtype.F32, dense(1, 65, 64), 320, division{chunk: 64}),
	}
}

// shared plans a product whose blocks share the work of adding up partial sums.
func (m *machine) shared(o ProductOperands, f tensorForm, d division) Launch {
	m.t.Helper()
	s, _ := tensorSpecFor(o.Out, o.A, o.B)
	s.form, s.share = f, true
	list, err := splitMatMul(s, o, d, m.scratch)
	if err != nil || len(list) != 1 {
		m.t.Fatalf("%d launches, %v", len(list), err)
	}
	return list[0]
}

// zeros fails the test if a launch has not reset all counters to 0.
func (m *machine) zeros(what string) {
	m.t.Helper()
	words := Operand{Addr: m.counts, Type: dtype.I32, Layout: dense(CounterWords)}
	for i, v := range m.read(words) {
		if v != 0 {
			m.t.Fatalf("%s: counter %d is %#x after the launch", what, i, v)
		}
	}
}

// TestProductShares lets blocks share the work of adding up partial sums. The results must have the
// same bits as if one block adds them all, and there must be no data races. The emulator runs the
// blocks one by one here, so that the last block of a tile does all the work.
func TestProductShares(t *testing.T) {
	m := newMachine(t)
	m.blocks = true
	for _, p := range sharedProducts(m) {
		what := fmt.Sprint(p.form, p.o.Out.Shape, p.o.Out.Type)
		l := m.shared(p.o, p.form, p.d)
		m.run([]Launch{l}, nil)
		m.nearProduct(what, p.o)
		got := m.read(p.o.Out)
		s, _ := tensorSpecFor(p.o.Out, p.o.A, p.o.B)
		s.form = p.form
		m.run(splitMatMul(s, p.o, p.d, m.scratch))
		for i, want := range m.read(p.o.Out) {
			if got[i] != want {
				t.Fatalf("%s: element %d is %#x, and %#x if one block joins", what, i, got[i], want)
			}
		}
	}
}

// TestProductSharesMeet runs blocks at the same time, so that several blocks of a tile share the
// work. The results must have the same bits for any number of helping blocks. Blocks poll for each
// other without a limit, once, or not at all.
func TestProductSharesMeet(t *testing.T) {
	m := newMachine(t)
	for _, p := range sharedProducts(m) {
		what := fmt.Sprint(p.form, p.o.Out.Shape, p.o.Out.Type)
		l := m.shared(p.o, p.form, p.d)
		m.run([]Launch{l}, nil)
		want := m.read(p.o.Out)
		limit := regexp.MustCompile(fmt.Sprintf(`(setp\.ge\.u32 %%p\d+, %%r\d+, )%d;`, mostPolls))
		at := strings.Index(l.Kernel.PTX, "// wait a while")
		if n := len(limit.FindAllString(l.Kernel.PTX[at:], -1)); n != 1 {
			t.Fatalf("%s: the limit is there %d times", what, n)
		}
		for _, polls := range []int{0, 1, 1 << 30} {
			workers := int(l.Grid[0] * l.Grid[1])
			if polls == 0 {
				workers = 4
			}
			mod, err := ptxvm.Parse(l.Kernel.PTX[:at] + limit.ReplaceAllString(l.Kernel.PTX[at:], fmt.Sprintf("${1}%d;", polls)))
			if err != nil {
				t.Fatal(err)
			}
			m.fill(p.o.Out, func(int) uint64 { return 0x7fff })
			run := ptxvm.Launch{Entry: mod.Entry(l.Kernel.Entry), Grid: l.Grid, Block: l.Kernel.Block, Params: l.Params, Mem: m.mem, SM: 80, DynShared: uint32(l.Kernel.DynShared), Workers: workers}
			if _, err := run.Run(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			m.zeros(what)
			for i, got := range m.read(p.o.Out) {
				if got != want[i] {
					t.Fatalf("%s, %d polls: element %d is %#x, want %#x", what, polls, i, got, want[i])
				}
			}
		}
	}
}

// TestChoiceShares checks that the cost model lets blocks share the work of adding up partial sums
// if k is long. A form that was read from a file may make blocks share this work only if the
// results are plain sums, and if all these blocks run at once.
func TestChoiceShares(t *testing.T) {
	o := ProductOperands{Out: fake(dtype.BF16, 1, 64, 64), A: fake(dtype.BF16, 1, 64, 1<<16), B: fake(dtype.BF16, 1, 1<<16, 64), Counters: fakeCounters}
	c := choices(t, a100, o, fakeScratch)[0]
	f := c.Planned()
	if list, err := c.Trial(f, fakeScratch); !f.Share || err != nil || len(list) != 1 || !strings.Contains(list[0].Kernel.Name, "_share") {
		t.Fatalf("%v: %v, %v", f, list, err)
	}
	o.Bias = fake(dtype.BF16, 64)
	if c := choices(t, a100, o, fakeScratch)[0]; c.Takes(f) || c.Planned().Share {
		t.Errorf("with a bias: %v", c.Planned())
	}
	o.Bias = Operand{}
	if small := choices(t, GPUOf(80, "", 8), o, fakeScratch)[0]; small.Takes(f) {
		t.Errorf("8 multiprocessors take %v", f)
	}
}
