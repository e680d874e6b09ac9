package kernels

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
	"github.com/flambeau-go/flambeau/dtype"
)

// TestMatMulSynchronisation removes one barrier, commit or wait at a time from product kernels.
// The emulator must then find a race, or a copy that is not waited for. It must also find an
// error if a wait leaves one more group of copies pending.
func TestMatMulSynchronisation(t *testing.T) {
	kinds := map[ptxvm.FaultKind]bool{ptxvm.SharedRace: true, ptxvm.AsyncCopyNotWaited: true, ptxvm.UninitialisedMemory: true}
	for _, c := range []struct {
		typ  dtype.Type
		d    [3]int // sizes m, n and k
		a, b string
		form func(c, x, y Operand) productForm
	}{
		// one operand is copied through registers
		{dtype.F32, [3]int{36, 132, 40}, "N", "N", tiled(largeTile)},
		{dtype.F32, [3]int{35, 33, 37}, "T", "N", tiled(largeTile)},
		// both operands are copied through registers
		{dtype.F32, [3]int{36, 36, 68}, "N", "T", tiled(smallTile)},
		{dtype.F32, [3]int{35, 33, 67}, "N", "N", tiled(mediumTile)},
		{dtype.F64, [3]int{34, 36, 40}, "N", "N", tiled(doubleTile)},
		{dtype.BF16, [3]int{40, 72, 136}, "N", "N", cored},
		{dtype.BF16, [3]int{33, 41, 136}, "N", "N", cored}, // one operand goes through registers
		{dtype.BF16, [3]int{33, 35, 135}, "N", "T", cored}, // both operands go through registers
		// rows along k that begin at odd elements
		{dtype.BF16, [3]int{63, 40, 135}, "N", "N", cored},
		// rows along m that begin at odd elements
		{dtype.BF16, [3]int{63, 40, 262}, "T", "N", cored},
		// this block has eight warps
		{dtype.BF16, [3]int{128, 256, 136}, "N", "T", func(c, x, y Operand) productForm {
			s, _ := tensorSpecFor(c, x, y)
			s.form = tensorForm{128, 256, 32, 2, 4, 3, 1}
			return s
		}},
		// A block loops over four tiles. It starts to load the next tile before it has finished the
		// current one.
		{dtype.BF16, [3]int{136, 136, 96}, "N", "N", func(c, x, y Operand) productForm {
			s, _ := tensorSpecFor(c, x, y)
			s.form, s.loop = tensorForms[0], true
			return s
		}},
	} {
		m := newMachine(t)
		out := m.tensor(c.typ, dense(1, c.d[0], c.d[1]), 0)
		x, y := m.random(m.tensor(c.typ, matrixLayout(c.a, 1, c.d[0], c.d[2]), 0)), m.random(m.tensor(c.typ, matrixLayout(c.b, 1, c.d[2], c.d[1]), 0))
		list, err := launchParts(c.form(out, x, y), ProductOperands{Out: out, A: x, B: y}, division{chunk: c.d[2], workers: 1}, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		k, lines := list[0].Kernel, strings.Split(list[0].Kernel.PTX, "\n")
		run := func(seed uint64) error {
			mod, err := ptxvm.Parse(strings.Join(lines, "\n"))
			if err != nil {
				t.Fatalf("%s: %v", k.Name, err)
			}
			l := ptxvm.Launch{Entry: mod.Entry(k.Entry), Grid: list[0].Grid, Block: k.Block, Params: list[0].Params, Mem: m.mem, SM: 80, Seed: seed, DynShared: uint32(k.DynShared)}
			_, err = l.Run()
			return err
		}
		if err := run(1); err != nil {
			t.Fatalf("%s: %v", k.Name, err)
		}
		changes := 0
		for i, line := range lines {
			var others []string
			var wait int
			switch s := strings.TrimSpace(line); {
			case strings.HasPrefix(s, "bar.sync"), strings.HasPrefix(s, "cp.async.commit_group"):
				others = []string{""}
			case strings.HasPrefix(s, "cp.async.wait_group"):
				if _, err := fmt.Sscanf(s, "cp.async.wait_group %d;", &wait); err != nil {
					t.Fatalf("%s: %q: %v", k.Name, s, err)
				}
				others = []string{"", fmt.Sprintf("cp.async.wait_group %d;", wait+1)}
			}
			for seed, other := range others {
				lines[i] = other
				var f *ptxvm.Fault
				if err := run(uint64(seed)); !errors.As(err, &f) || !kinds[f.Kind] {
					t.Errorf("%s: line %d, %q in place of %q: %v", k.Name, i+1, other, strings.TrimSpace(line), err)
				}
				lines[i] = line
				changes++
			}
		}
		if changes < 3 {
			t.Errorf("%s: %d changes were tried: the synchronisation was not found", k.Name, changes)
		}
	}
}

func tiled(tile gemmTile) func(c, x, y Operand) productForm {
	return func(c, x, y Operand) productForm {
		return gemmSpec{typ: c.Type, out: c.Type, tile: tile, a: chooseLoad(x, 1, 2), b: chooseLoad(y, 2, 1), vectorOut: vectorizable(c, 2, 1)}
	}
}

func cored(c, x, y Operand) productForm {
	s, _ := tensorSpecFor(c, x, y)
	s.form = tensorForm{64, 64, 32, 2, 2, 3, 4}
	return s
}
