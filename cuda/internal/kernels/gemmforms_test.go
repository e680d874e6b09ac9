package kernels

import (
	"fmt"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// product runs one form on the emulator and holds each result to the float64 sum of the operands
// as they are stored: (k/8+2)·2⁻²³ of the sum of absolute products, and the store's rounding. An
// instruction of the tensor cores adds eight products to a sum, or more, with one truncation.
func (m *machine) product(what string, s tensorSpec, c, x, y Operand) {
	m.t.Helper()
	s.a, s.b = chooseTensorLoad(x, 1, 2), chooseTensorLoad(y, 2, 1)
	form, _ := tensorSpecFor(c, x, y)
	s.typ, s.out, s.to = form.typ, form.out, form.to
	k := x.Shape.At(2)
	list, err := launchMatMul(s, c, x, y, max(k, 1))
	m.run(list, err)
	sum, size, _ := naive(c, m.read(x), m.read(y))
	unit := map[dtype.Type]float64{dtype.F16: 0x1p-11, dtype.BF16: 0x1p-8}[s.typ]
	for i, got := range m.read(c) {
		v := expr.Decode(s.typ, got)
		if math.IsNaN(sum[i]) || math.IsInf(sum[i], 0) {
			if v == sum[i] || math.IsNaN(v) && math.IsNaN(sum[i]) {
				continue
			}
		} else if math.Abs(v-sum[i]) <= unit*math.Abs(sum[i])+(float64(k)/8+2)*0x1p-23*size[i] {
			continue
		}
		m.t.Errorf("%s (%s): element %d is %v, want %v", what, s.name(), i, v, sum[i])
		return
	}
}

// Every form takes whole tiles and a bit, in each order of storage.
func TestTensorForms(t *testing.T) {
	for i, f := range tensorForms {
		for j, orders := range []string{"NN", "NT", "TN", "TT"} {
			if f.bm*f.bn > 1<<13 && (i+j)%2 != 0 {
				continue // half of the orders for each large form
			}
			typ := []dtype.Type{dtype.BF16, dtype.F16}[(i+j)%2]
			t.Run(fmt.Sprint(f, " ", orders), func(t *testing.T) {
				m := newMachine(t)
				rows, columns, k := f.bm+8, f.bn+16, 2*f.bk+24
				if f.bm*f.bn > 1<<13 {
					rows, columns = f.bm, f.bn
				}
				x := m.random(m.tensor(typ, matrixLayout(orders[:1], 1, rows, k), 0))
				y := m.random(m.tensor(typ, matrixLayout(orders[1:], 1, k, columns), 0))
				m.product("form", tensorSpec{form: f}, m.tensor(typ, dense(1, rows, columns), 0), x, y)
			})
		}
	}
}

// Rows of any length, strides, a misaligned start, an empty k and an empty batch: every way in and
// every way out.
func TestTensorEdges(t *testing.T) {
	small := tensorForms[len(tensorForms)-1]
	for _, f := range []tensorForm{{64, 64, 32, 2, 2, 3, 4}, small} {
		for _, d := range [][3]int{{1, 1, 1}, {7, 63, 65}, {65, 7, 127}, {63, 129, 7}, {129, 65, 63}, {16, 40, 0}} {
			for _, orders := range []string{"NN", "TT"} {
				m := newMachine(t)
				x := m.random(m.tensor(dtype.BF16, matrixLayout(orders[:1], 1, d[0], d[2]), 0))
				y := m.random(m.tensor(dtype.BF16, matrixLayout(orders[1:], 1, d[2], d[1]), 0))
				m.product(fmt.Sprint(orders, d), tensorSpec{form: f}, m.tensor(dtype.BF16, dense(1, d[0], d[1]), d[2]%2), x, y)
			}
		}
		// Rows that are padded, so that they begin on 16 bytes, and are not whole copies long.
		padded := func(r, c, ld int) shape.Layout { return strided([]int{2, r, c}, []int{r * ld, ld, 1}) }
		m := newMachine(t)
		x, y := m.random(m.tensor(dtype.F16, padded(20, 43, 48), 0)), m.random(m.tensor(dtype.F16, padded(43, 37, 40), 0))
		m.product("padded", tensorSpec{form: f}, m.tensor(dtype.F16, padded(20, 37, 40), 0), x, y)
	}
	m := newMachine(t)
	if list, err := MatMul(a100, m.tensor(dtype.BF16, dense(0, 3, 4), 0), m.tensor(dtype.BF16, dense(0, 3, 5), 0), m.tensor(dtype.BF16, dense(0, 5, 4), 0)); len(list) != 0 || err != nil {
		t.Errorf("an empty batch: %d launches, %v", len(list), err)
	}
}

// NaN and infinities of an operand reach the rows and columns that they belong to, and no other.
func TestTensorSpecials(t *testing.T) {
	for _, f := range []tensorForm{tensorForms[0], tensorForms[len(tensorForms)-1]} {
		m := newMachine(t)
		d := dense(1, 24, 40)
		plant := func(o Operand, at int, v float64) Operand {
			old := m.read(m.random(o))
			return m.fill(o, func(i int) uint64 {
				if i == at {
					return expr.Encode(o.Type, v)
				}
				return old[i]
			})
		}
		x := plant(m.tensor(dtype.BF16, d, 0), 3*40+39, math.NaN())
		y := plant(m.tensor(dtype.BF16, dense(1, 40, 32), 0), 39*32+5, math.Inf(1))
		m.product("special values", tensorSpec{form: f}, m.tensor(dtype.BF16, dense(1, 24, 32), 0), x, y)
	}
}
