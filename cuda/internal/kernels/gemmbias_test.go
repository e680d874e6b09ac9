package kernels

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// A bias of either type is added before a result is rounded, and float32 sums leave in every way:
// pairs, rows of an odd length, any strides.
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
	// Every second row apart, along k and along m, and a batch.
	for _, orders := range []string{"NN", "TN"} {
		m := newMachine(t)
		x := m.random(m.tensor(dtype.BF16, matrixLayout(orders[:1], 2, 62+len(orders)%2, 62), 0))
		y := m.random(m.tensor(dtype.BF16, dense(2, 62, 24), 0))
		m.product(orders, tensorSpec{form: wide}, m.tensor(dtype.F32, dense(2, 62, 24), 0), x, y, m.random(m.tensor(dtype.BF16, dense(24), 0)))
	}
}

// A sum in parts has its bias once, and its float32 result is not rounded on the way.
func TestMatMulBiasSplit(t *testing.T) {
	for _, types := range [][3]dtype.Type{{dtype.BF16, dtype.BF16, dtype.F32}, {dtype.F32, dtype.BF16, dtype.BF16}, {dtype.F32, dtype.F16, dtype.F16}} {
		m := newMachine(t)
		o := ProductOperands{Out: m.tensor(types[0], dense(1, 24, 35), 0), A: m.random(m.tensor(types[1], dense(1, 24, 3000), 0)),
			B: m.random(m.tensor(types[1], dense(1, 3000, 35), 0)), Bias: m.random(m.tensor(types[2], dense(35), 0))}
		list, err := MatMulSplit(a100, o, m.scratch)
		m.run(list, err)
		if !slices.ContainsFunc(list, func(l Launch) bool { return l.Grid[2] > 1 }) {
			t.Errorf("%v: the sum is in one part of %d", types, len(list))
		}
		m.nearProduct(fmt.Sprint(types), o)
	}
}

// Products of float32 and float64 have their bias in every tile.
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
		list, err := launchMatMul(s, o, 8)
		m.run(list, err)
		m.nearProduct(s.name(), o)
	}
}

// A linear layer and the gradient of its weights are a launch each, but where the sum is in parts.
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

// An activation is in the launch of the product, and gives the bits of its program on what Pre
// gets.
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
				list, err := launchMatMul(s.finishing(o), o, 24)
				m.run(list, err)
				sums := o
				sums.Out = o.Pre
				m.nearProduct(layout, sums)
				pre := m.read(o.Pre)
				for e, got := range m.read(o.Out) {
					if want := o.Act.Eval(nil, pre[e:e+1], nil, 0)[0]; got != want {
						t.Fatalf("%v %s %d: element %d is %#x, want %#x", f, layout, n, e, got, want)
					}
				}
			}
		}
	}
	o := ProductOperands{Out: fake(dtype.BF16, 1, 8192, 3072), A: fake(dtype.BF16, 1, 8192, 768), B: fake(dtype.BF16, 1, 768, 3072), Bias: fake(dtype.F32, 3072),
		Act: geluOf(dtype.BF16), Pre: fake(dtype.BF16, 1, 8192, 3072)}
	if list, err := MatMulSplit(a100, o, fakeScratch); err != nil || len(list) != 1 {
		t.Errorf("%d launches, %v", len(list), err)
	}
}

// Rows of a are summed up beside the product, in whole forms and in parts of k, without a launch of
// its own but for the parts.
func TestTensorRowSums(t *testing.T) {
	for i, f := range []tensorForm{tensorForms[0], {64, 64, 32, 2, 2, 3, 4}, tensorForms[len(tensorForms)-1]} {
		typ := []dtype.Type{dtype.BF16, dtype.F16}[i%2]
		rows, columns, k := f.bm+8, f.bn+8, 200
		m := newMachine(t)
		o := ProductOperands{Out: m.tensor(typ, dense(1, rows, columns), 0), A: m.random(m.tensor(typ, matrixLayout("T", 1, rows, k), 0)),
			B: m.random(m.tensor(typ, dense(1, k, columns), 0)), Sums: m.tensor(dtype.F32, strided([]int{rows}, []int{1 + i%2}), 0)}
		form := func(out Operand) productForm {
			s, _ := tensorSpecFor(out, o.A, o.B)
			s.form = f
			return s.finishing(o)
		}
		for _, chunk := range []int{k, 64} {
			var list []Launch
			var err error
			if chunk < k {
				list, err = splitMatMul(form, o, chunk, m.scratch)
			} else {
				list, err = launchMatMul(form(o.Out), o, chunk)
			}
			m.run(list, err)
			m.nearProduct(fmt.Sprint(f, chunk), o)
			a, got := m.read(o.A), m.read(o.Sums)
			for r := range rows {
				var sum, size float64
				for _, v := range a[r*k : (r+1)*k] {
					sum += expr.Decode(typ, v)
					size += math.Abs(expr.Decode(typ, v))
				}
				if v := expr.Decode(dtype.F32, got[r]); math.Abs(v-sum) > (float64(k)/8+2)*0x1p-23*size {
					t.Fatalf("%v in parts of %d: row %d sums up to %v, want %v", f, chunk, r, v, sum)
				}
			}
		}
	}
	grad := fake(dtype.BF16, 1, 3072, 8192)
	grad.Layout = matrixLayout("T", 1, 3072, 8192)
	o := ProductOperands{Out: fake(dtype.F32, 1, 3072, 768), A: grad, B: fake(dtype.BF16, 1, 8192, 768), Sums: fake(dtype.F32, 3072)}
	list, err := MatMulSplit(a100, o, fakeScratch)
	o.Sums = Operand{}
	without, _ := MatMulSplit(a100, o, fakeScratch)
	if want := len(without) + min(len(without)-1, 1); err != nil || len(list) != want {
		t.Errorf("%d launches, want %d, %v", len(list), want, err)
	}
}

func geluOf(t dtype.Type) *expr.Program {
	return expr.MustLower([]*expr.Expr{expr.Call("gelu", expr.X(0))}, []dtype.Type{t}, []dtype.Type{t}, -1)
}
