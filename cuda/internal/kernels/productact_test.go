package kernels

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestTensorAct computes products with activations on tensor cores. A product and its activation
// must be one launch. The results must have the bits of the activation's program applied to Pre.
func TestTensorAct(t *testing.T) {
	for i, f := range []tensorForm{{64, 64, 32, 2, 2, 3, 4}, tensorForms[0], tensorForms[len(tensorForms)-1]} {
		for j, layout := range []string{"N", "T", "padded"} {
			for _, n := range []int{f.bn + 8, f.bn - 7} {
				if f.bm > 64 && (j+n)%2 != 0 {
					continue
				}
				typ := []dtype.Type{dtype.BF16, dtype.F16}[(i+j)%2]
				m, l := newMachine(t), matrixLayout(layout, 1, f.bm+3, n)
				o := ProductOperands{Out: m.tensor(typ, l, 0), A: m.random(m.tensor(typ, dense(1, f.bm+3, 24), 0)), B: m.random(m.tensor(typ, dense(1, 24, n), 0)),
					Bias: m.random(m.tensor(typ, dense(n), 0)), Pre: m.tensor(typ, l, 0), Act: geluOf(typ)}
				s, _ := tensorSpecFor(o.Out, o.A, o.B)
				if s.form = f; !o.activatedInTile() {
					t.Fatal("the activation is not in the tile")
				}
				list, err := launchMatMul(s.finishing(o), o)
				m.run(list, err)
				sums := o
				sums.Out = o.Pre
				m.nearProduct(layout, sums)
				m.activated(fmt.Sprint(f, layout, n), o)
			}
		}
	}
	o := ProductOperands{Out: fake(dtype.BF16, 1, 8192, 3072), A: fake(dtype.BF16, 1, 8192, 768), B: fake(dtype.BF16, 1, 768, 3072), Bias: fake(dtype.F32, 3072),
		Act: geluOf(dtype.BF16), Pre: fake(dtype.BF16, 1, 8192, 3072)}
	if list, err := MatMulSplit(a100, o, fakeScratch); err != nil || len(list) != 1 {
		t.Errorf("%d launches, %v", len(list), err)
	}
}

// TestTensorActWith uses activations with a second operand of any type. Its rows are read in
// accesses of 16 bytes where possible, and otherwise element by element. The cases are whole rows,
// odd rows, transposed rows, rows of operand a that alternately begin at even and odd elements, and
// a batch.
func TestTensorActWith(t *testing.T) {
	small, large := tensorForm{64, 64, 32, 2, 2, 3, 4}, tensorForms[0]
	for i, c := range []struct {
		form      tensorForm
		batch, n  int
		out, with string
		typ       dtype.Type
		orders    string
		pieces    bool
	}{
		{small, 1, 72, "N", "N", dtype.BF16, "NN", true},
		{small, 2, 72, "N", "N", dtype.F32, "NN", true},
		{small, 1, 72, "N", "N", dtype.F64, "NN", true},
		{small, 2, 72, "padded", "N", dtype.BF16, "NN", false},
		{small, 2, 76, "padded", "padded", dtype.BF16, "NN", true},
		{small, 1, 72, "N", "T", dtype.BF16, "NN", false},
		{small, 1, 72, "T", "N", dtype.F16, "NN", false},
		{small, 1, 61, "N", "N", dtype.BF16, "NN", true},
		{small, 1, 61, "N", "padded", dtype.F32, "NN", false},
		{small, 2, 72, "N", "N", dtype.BF16, "Nodd", true},
		{small, 1, 72, "N", "N", dtype.BF16, "TN", true},
		{large, 1, 128, "N", "N", dtype.BF16, "NN", true},
		{large, 1, 104, "N", "T", dtype.F32, "NN", false},
		{tensorForms[1], 1, 264, "N", "N", dtype.BF16, "NN", true},
		{tensorForms[len(tensorForms)-1], 1, 72, "N", "N", dtype.BF16, "NN", true},
	} {
		typ, k := []dtype.Type{dtype.BF16, dtype.F16}[i%2], 24
		m, rows := newMachine(t), c.form.bm+3
		if c.typ == dtype.BF16 {
			typ = dtype.BF16
		}
		if c.orders == "Nodd" { // rows along k alternately begin at even and odd elements
			k, rows = 25, c.form.bm+4
		}
		if c.orders == "TN" { // rows along m alternately begin at even and odd elements
			rows = c.form.bm + 1
		}
		out := m.tensor(typ, matrixLayout(c.out, c.batch, rows, c.n), 0)
		o := ProductOperands{Out: out, A: m.random(m.tensor(typ, matrixLayout(c.orders[:1], c.batch, rows, k), 0)), B: m.random(m.tensor(typ, dense(c.batch, k, c.n), 0)),
			Pre: m.tensor(typ, out.Layout, 0), With: m.random(m.tensor(c.typ, matrixLayout(c.with, c.batch, rows, c.n), 0))}
		o.Pre.Offset = 0
		o.Act = expr.MustLower([]*expr.Expr{expr.X(0).Mul(expr.Call("sigmoid", expr.X(1).Cvt(dtype.F32)))}, []dtype.Type{typ}, []dtype.Type{typ, c.typ}, -1)
		s, _ := tensorSpecFor(o.Out, o.A, o.B)
		if odd := c.orders != "NN"; s.odd != odd {
			t.Fatalf("%d: every second row: %v, want %v", i, s.odd, odd)
		}
		if o.withInPieces(s.store) != c.pieces {
			t.Errorf("%d: in pieces: %v, want %v", i, !c.pieces, c.pieces)
		}
		s.form = c.form
		s = s.finishing(o)
		list, err := launchMatMul(s, o)
		m.run(list, err)
		sums := o
		sums.Out, sums.Act = o.Pre, nil
		m.nearProduct(fmt.Sprint(i), sums)
		m.activated(fmt.Sprint(i, s.name()), o)
	}
	// The activation's gradient must be computed in the product's launch.
	f := func(d ...int) Operand { return fake(dtype.BF16, d...) }
	o := ProductOperands{Out: f(1, 8192, 3072), A: f(1, 8192, 768), B: f(1, 768, 3072), With: f(1, 8192, 3072),
		Act: expr.MustLower([]*expr.Expr{x0.Mul(x1)}, []dtype.Type{dtype.BF16}, []dtype.Type{dtype.BF16, dtype.BF16}, -1)}
	list, err := MatMulSplit(a100, o, fakeScratch)
	if err != nil || len(list) != 1 || !strings.Contains(list[0].Kernel.Name, "_v_") {
		t.Errorf("%d launches, %v: %v", len(list), err, list)
	}
}

// TestMatMulActFloats uses activations in float32 and float64 products with every tile. Some rows
// do not fill whole vectors. The second operand is read in vectors or element by element.
func TestMatMulActFloats(t *testing.T) {
	for i, c := range []struct {
		typ, with  dtype.Type
		tile       gemmTile
		out, other string // layouts of the results and of the second operand
		odd        int    // number of columns in addition to a whole tile
		vector     bool
	}{
		{dtype.F32, dtype.F32, largeTile, "N", "N", 4, true},
		{dtype.F32, dtype.Invalid, largeTile, "N", "", 3, false},
		{dtype.F32, dtype.BF16, mediumTile, "N", "N", 4, true},
		{dtype.F32, dtype.F32, mediumTile, "T", "N", 4, false},
		{dtype.F32, dtype.F64, smallTile, "padded", "N", 4, true},
		{dtype.F32, dtype.F32, smallTile, "N", "T", 4, false},
		{dtype.F32, dtype.F32, smallTile, "N", "N", 5, false},
		{dtype.F64, dtype.F64, doubleTile, "N", "N", 2, true},
		{dtype.F64, dtype.F32, doubleTile, "N", "steps", 2, false},
	} {
		m := newMachine(t)
		batch, rows, columns := 1+i%2, c.tile.bm+4, c.tile.bn+c.odd
		out := m.tensor(c.typ, matrixLayout(c.out, batch, rows, columns), 0)
		o := ProductOperands{Out: out, Pre: m.tensor(c.typ, out.Layout, 0), A: m.random(m.tensor(c.typ, dense(batch, rows, 8), 0)),
			B: m.random(m.tensor(c.typ, dense(batch, 8, columns), 0)), Bias: m.random(m.tensor(c.typ, dense(columns), 0)), Act: geluOf(c.typ)}
		o.Pre.Offset = 0
		if c.with != dtype.Invalid {
			o.With = m.random(m.tensor(c.with, matrixLayout(c.other, batch, rows, columns), 0))
			o.Act = expr.MustLower([]*expr.Expr{x0.Mul(expr.Call("sigmoid", x1.Cvt(c.typ)))}, []dtype.Type{c.typ}, []dtype.Type{c.typ, c.with}, -1)
		}
		s := gemmSpec{typ: c.typ, out: c.typ, tile: c.tile, a: chooseLoad(o.A, 1, 2), b: chooseLoad(o.B, 2, 1), vectorOut: vectorizable(o.Out, 2, 1)}.finishing(o)
		if !o.activatedInTile() || s.vectorOut != c.vector {
			t.Errorf("%d: in the tile: %v, in vectors: %v", i, o.activatedInTile(), s.vectorOut)
		}
		list, err := launchMatMul(s, o)
		m.run(list, err)
		sums := o
		sums.Out, sums.Act = o.Pre, nil
		m.nearProduct(s.name(), sums)
		m.activated(s.name(), o)
	}
}

// TestMatMulActAssemble assembles float32 products with an activation of two operands, or with sums
// of rows or columns. They must not spill registers.
func TestMatMulActAssemble(t *testing.T) {
	ptxas := tool(t, "ptxas", "FLAMBEAU_PTXAS")
	if ptxas == "" {
		t.Log("ptxas was not found: products with activations were NOT assembled; set FLAMBEAU_PTXAS to its path")
		return
	}
	a, back := assembler{t: t, ptxas: ptxas, dir: t.TempDir()}, geluGradient(dtype.F32)
	add := func(s gemmSpec) {
		k, err := s.kernel(back)
		if err != nil {
			t.Fatal(err)
		}
		a.add(k)
	}
	for _, tile := range []gemmTile{largeTile, mediumTile, smallTile} {
		for i, l := range [][2]tileLoad{{vectorsAlongK, vectorsAlongOuter}, {vectorsAlongK, vectorsAlongK}, {vectorsAlongOuter, vectorsAlongOuter},
			{scalarsAlongK, vectorsAlongOuter}, {scalarsAlongOuter, scalarsAlongK}, {scalarsAlongOuter, scalarsAlongOuter}} {
			if tile != largeTile && i%2 == 0 {
				continue
			}
			for _, parts := range []bool{false, true} {
				s := gemmSpec{typ: dtype.F32, out: dtype.F32, tile: tile, a: l[0], b: l[1], vectorOut: l[1].vectors(), parts: parts, actSpec: actSpec{act: back.Key(), with: dtype.F32}}
				add(s)
				s.actSpec, s.sums = actSpec{}, sumsSpec{rows: parts, columns: !parts}
				if s.sumsFit() {
					add(s)
				}
			}
		}
	}
	a.finish()
}

// activated applies the activation's program to the stored values of Pre, and compares the results.
func (m *machine) activated(what string, o ProductOperands) {
	m.t.Helper()
	in := [][]uint64{m.read(o.Pre)}
	if o.With.Type != dtype.Invalid {
		in = append(in, m.read(o.With))
	}
	m.compare(what, o.Out, func(i int) uint64 {
		x := make([]uint64, len(in))
		for k := range in {
			x[k] = in[k][i]
		}
		return o.Act.Eval(nil, x, nil, 0)[0]
	})
}

// geluGradient returns the program for gelu's gradient. Its operands are the gradient of the result
// and the argument of gelu.
func geluGradient(t dtype.Type) *expr.Program {
	x := expr.X(1)
	density := x.Mul(x).Mul(expr.C(-0.5)).Exp().Mul(expr.C(0.3989422804014327))
	share := expr.Call("erf", x.Mul(expr.C(0.7071067811865476))).Add(expr.C(1)).Mul(expr.C(0.5))
	return expr.MustLower([]*expr.Expr{x0.Mul(share.Add(x.Mul(density)))}, []dtype.Type{t}, []dtype.Type{t, t}, -1)
}

func geluOf(t dtype.Type) *expr.Program {
	return expr.MustLower([]*expr.Expr{expr.Call("gelu", expr.X(0))}, []dtype.Type{t}, []dtype.Type{t}, -1)
}
