package kernels

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestTensorBias adds biases of both types to products on tensor cores. A bias must be added before
// the result is rounded. The test covers every way to store float32 sums: in pairs, in rows of an
// odd length, and with any strides.
func TestTensorBias(t *testing.T) {
	wide := tensorForm{64, 64, 32, 2, 2, 3, 4}
	for i, f := range []tensorForm{wide, tensorForms[0], tensorForms[len(tensorForms)-1]} {
		for j, d := range [][3]int{{1, 1, 1}, {65, 80, 24}, {63, 129, 65}, {127, 7, 0}} {
			if f.bm > 64 && j%2 == 0 {
				continue
			}
			for r, types := range [][2]dtype.Type{{dtype.BF16, dtype.BF16}, {dtype.F32, dtype.BF16}, {dtype.BF16, dtype.F32}, {dtype.F32, dtype.F32}} {
				m := newMachine(t)
				x, y := m.random(m.tensor(dtype.BF16, dense(1, d[0], d[2]), 0)), m.random(m.tensor(dtype.BF16, dense(1, d[2], d[1]), 0))
				layout := []string{"N", "padded", "steps", "T"}[(i+j+r)%4]
				bias := m.random(m.tensor(types[1], strided([]int{d[1]}, []int{1 + r%2}), 0))
				m.product(fmt.Sprint(layout, d), tensorSpec{form: f}, m.tensor(types[0], matrixLayout(layout, 1, d[0], d[1]), r%2), x, y, bias)
			}
		}
	}
	// The rows of x lie along k or along m. They have an odd length, so the kernel handles every
	// second row separately. Each operand is a batch of two matrices.
	for _, c := range []struct {
		orders  string
		rows, k int
	}{{"NN", 62, 31}, {"TN", 33, 62}} {
		m := newMachine(t)
		x := m.random(m.tensor(dtype.BF16, matrixLayout(c.orders[:1], 2, c.rows, c.k), 0))
		y := m.random(m.tensor(dtype.BF16, dense(2, c.k, 24), 0))
		if s, _ := tensorSpecFor(x, x, y); !s.odd {
			t.Fatalf("%s: no odd rows", c.orders)
		}
		m.product(c.orders, tensorSpec{form: wide}, m.tensor(dtype.F32, dense(2, c.rows, 24), 0), x, y, m.random(m.tensor(dtype.BF16, dense(24), 0)))
	}
}

// TestMatMulBiasSplit computes products in which blocks divide the sums. The bias must be added
// once, to the float32 sum before it is rounded.
func TestMatMulBiasSplit(t *testing.T) {
	for _, types := range [][3]dtype.Type{{dtype.BF16, dtype.BF16, dtype.F32}, {dtype.F32, dtype.BF16, dtype.BF16}, {dtype.F32, dtype.F16, dtype.F16}} {
		m := newMachine(t)
		o := ProductOperands{Out: m.tensor(types[0], dense(1, 24, 35), 0), A: m.random(m.tensor(types[1], dense(1, 24, 3000), 0)),
			B: m.random(m.tensor(types[1], dense(1, 3000, 35), 0)), Bias: m.random(m.tensor(types[2], dense(35), 0)), Counters: m.counters}
		list, err := MatMulSplit(a100, o, m.scratch)
		m.run(list, err)
		// a launch before the last one may copy an operand
		if last := list[len(list)-1]; !strings.Contains(last.Kernel.Name, "_parts") {
			t.Errorf("%v: %d launches, the product in one part", types, len(list))
		}
		m.nearProduct(fmt.Sprint(types), o)
	}
}

// TestMatMulBiasFloats adds a bias to float32 and float64 products, with every tile.
func TestMatMulBiasFloats(t *testing.T) {
	for _, c := range []struct {
		typ, bias dtype.Type
		tile      gemmTile
	}{{dtype.F32, dtype.F32, largeTile}, {dtype.F32, dtype.F32, mediumTile}, {dtype.F32, dtype.F32, smallTile}, {dtype.F64, dtype.F64, doubleTile}, {dtype.F64, dtype.F32, doubleTile}} {
		m := newMachine(t)
		rows, columns := c.tile.bm+4, c.tile.bn+4
		o := ProductOperands{Out: m.tensor(c.typ, dense(1, rows, columns), 0), A: m.random(m.tensor(c.typ, dense(1, rows, 8), 0)),
			B: m.random(m.tensor(c.typ, dense(1, 8, columns), 0)), Bias: m.random(m.tensor(c.bias, dense(columns), 0))}
		s := gemmSpec{typ: c.typ, out: c.typ, tile: c.tile, a: chooseLoad(o.A, 1, 2), b: chooseLoad(o.B, 2, 1), vectorOut: true, bias: c.bias}
		list, err := launchMatMul(s, o)
		m.run(list, err)
		m.nearProduct(s.name(), o)
	}
}

// TestMatMulBiasLaunches checks that a product with a bias is one launch. Operands of wrong types
// or shapes must be refused.
func TestMatMulBiasLaunches(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.BF16} {
		for _, out := range []dtype.Type{typ, dtype.F32} {
			o := ProductOperands{Out: fake(out, 1, 8192, 3072), A: fake(typ, 1, 8192, 768), B: fake(typ, 1, 768, 3072), Bias: fake(dtype.F32, 3072)}
			if list, err := MatMulSplit(a100, o, fakeScratch); err != nil || len(list) != 1 {
				t.Errorf("%v to %v: %d launches, %v", typ, out, len(list), err)
			}
		}
	}
	f := func(typ dtype.Type, d ...int) Operand { return fake(typ, d...) }
	for i, o := range []ProductOperands{
		{Out: f(dtype.F32, 1, 2, 3), A: f(dtype.F32, 1, 2, 4), B: f(dtype.F32, 1, 4, 3), Bias: f(dtype.F32, 2)},
		{Out: f(dtype.F32, 1, 2, 3), A: f(dtype.F32, 1, 2, 4), B: f(dtype.F32, 1, 4, 3), Bias: f(dtype.BF16, 3)},
		{Out: f(dtype.I32, 1, 2, 3), A: f(dtype.I32, 1, 2, 4), B: f(dtype.I32, 1, 4, 3), Bias: f(dtype.I32, 3)},
		{Out: f(dtype.F32, 1, 2, 3), A: f(dtype.F64, 1, 2, 4), B: f(dtype.F64, 1, 4, 3)},
	} {
		if _, err := MatMulSplit(a100, o, fakeScratch); err == nil {
			t.Errorf("no error for operands %d", i)
		}
	}
}

// TestTensorSums lets a product kernel also sum the rows of a or the columns of b, in the same
// launch. It covers products in which blocks divide the sums over k, and products in which they do
// not.
func TestTensorSums(t *testing.T) {
	for i, f := range []tensorForm{tensorForms[0], {64, 64, 32, 2, 2, 3, 4}, tensorForms[len(tensorForms)-1]} {
		typ := []dtype.Type{dtype.BF16, dtype.F16}[i%2]
		rows, columns, k := f.bm+8, f.bn+8, 200
		m := newMachine(t)
		o := ProductOperands{Out: m.tensor(typ, dense(1, rows, columns), 0), A: m.random(m.tensor(typ, matrixLayout("T", 1, rows, k), 0)),
			B: m.random(m.tensor(typ, dense(1, k, columns), 0)), Sums: m.tensor(dtype.F32, strided([]int{rows}, []int{1 + i%2}), 0),
			ColumnSums: m.tensor(dtype.F32, strided([]int{columns}, []int{2 - i%2}), 0), Counters: m.counters}
		both := o
		for j, chunk := range []int{k, 64, k, 64} {
			o = both
			if j < 2 {
				o.Sums = Operand{}
			} else {
				o.ColumnSums = Operand{}
			}
			form, _ := tensorSpecFor(o.Out, o.A, o.B)
			form.form = f
			form = form.finishing(o)
			var list []Launch
			var err error
			if chunk < k {
				list, err = splitMatMul(form, o, division{chunk: chunk}, m.scratch)
			} else {
				list, err = launchMatMul(form, o)
			}
			m.run(list, err)
			m.nearProduct(fmt.Sprint(f, chunk), o)
			m.nearSums(fmt.Sprint(f, chunk), o)
		}
	}
	grad := fake(dtype.BF16, 1, 3072, 8192)
	grad.Layout = matrixLayout("T", 1, 3072, 8192)
	o := ProductOperands{Out: fake(dtype.F32, 1, 3072, 768), A: grad, B: fake(dtype.BF16, 1, 8192, 768), Sums: fake(dtype.F32, 3072)}
	turned := ProductOperands{Out: fake(dtype.F32, 1, 768, 3072), A: fake(dtype.BF16, 1, 768, 8192), B: fake(dtype.BF16, 1, 8192, 3072), ColumnSums: fake(dtype.F32, 3072)}
	turned.A.Layout = matrixLayout("T", 1, 768, 8192)
	for _, o := range []ProductOperands{o, turned} {
		o.Counters = fakeCounters
		list, err := MatMulSplit(a100, o, fakeScratch)
		if err != nil || len(list) != 1 || !strings.Contains(list[0].Kernel.Name, "_parts") {
			t.Errorf("%d launches, %v", len(list), err)
		}
	}
}

// TestMatMulSumsFloats checks the sums of rows or of columns in float32 products, with every tile.
// It covers products in which blocks divide the sums over k, and products in which they do not.
func TestMatMulSumsFloats(t *testing.T) {
	for i, tile := range []gemmTile{largeTile, mediumTile, smallTile} {
		for j, kind := range []sumsSpec{{rows: true}, {columns: true}} {
			m := newMachine(t)
			rows, columns, k := tile.bm+5, tile.bn+3, 77
			o := ProductOperands{Out: m.tensor(dtype.F32, dense(1, rows, columns), 0), A: m.random(m.tensor(dtype.F32, matrixLayout([]string{"N", "T"}[j], 1, rows, k), 0)),
				B: m.random(m.tensor(dtype.F32, matrixLayout([]string{"T", "N"}[(i+j)%2], 1, k, columns), 0)), Counters: m.counters}
			if kind.rows {
				o.Sums = m.tensor(dtype.F32, strided([]int{rows}, []int{1 + i%2}), 0)
			} else {
				o.ColumnSums = m.tensor(dtype.F32, strided([]int{columns}, []int{2 - i%2}), 0)
			}
			s := gemmSpec{typ: dtype.F32, out: dtype.F32, tile: tile, a: chooseLoad(o.A, 1, 2), b: chooseLoad(o.B, 2, 1)}.finishing(o)
			list, err := launchMatMul(s, o)
			m.run(list, err)
			m.nearProduct(s.name(), o)
			m.nearSums(s.name(), o)
			list, err = splitMatMul(s, o, division{chunk: 32}, m.scratch)
			m.run(list, err)
			m.nearProduct(s.name()+" in parts", o)
			m.nearSums(s.name()+" in parts", o)
		}
	}
	turned := fake(dtype.F32, 1, 768, 8192)
	turned.Layout = matrixLayout("T", 1, 768, 8192)
	for _, o := range []ProductOperands{
		{Out: fake(dtype.F32, 1, 768, 3072), A: turned, B: fake(dtype.F32, 1, 8192, 3072), ColumnSums: fake(dtype.F32, 3072)},
		{Out: fake(dtype.F32, 1, 64, 64), A: fake(dtype.F32, 1, 64, 8192), B: fake(dtype.F32, 1, 8192, 64), Sums: fake(dtype.F32, 64)},
	} {
		o.Counters = fakeCounters
		if list, err := MatMulSplit(a100, o, fakeScratch); err != nil || len(list) != 1 {
			t.Errorf("%d launches, %v", len(list), err)
		}
	}
}

// nearSums compares o.Sums and o.ColumnSums with float64 sums of the rows of A and of the columns
// of B.
func (m *machine) nearSums(what string, o ProductOperands) {
	m.t.Helper()
	k, n := o.A.Shape.At(2), o.B.Shape.At(2)
	for d, c := range [2]struct{ sums, of Operand }{{o.Sums, o.A}, {o.ColumnSums, o.B}} {
		if c.sums.Type == dtype.Invalid {
			continue
		}
		count := c.sums.Shape.At(0)
		sum, size := make([]float64, count), make([]float64, count)
		for i, v := range m.read(c.of) {
			at := i / k
			if d == 1 {
				at = i % n
			}
			x := expr.Decode(c.of.Type, v)
			sum[at], size[at] = sum[at]+x, size[at]+math.Abs(x)
		}
		for i, got := range m.read(c.sums) {
			if v := expr.Decode(dtype.F32, got); math.Abs(v-sum[i]) > (float64(k)/8+2)*0x1p-23*size[i] {
				m.t.Errorf("%s: of operand %d number %d sums up to %v, want %v", what, d, i, v, sum[i])
				return
			}
		}
	}
}
