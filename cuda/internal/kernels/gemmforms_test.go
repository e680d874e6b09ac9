package kernels

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// product computes a product with the kernel s on the emulator, with a bias if there is one. It
// compares each result with a float64 sum. The bound is (k/8+2)·2⁻²³ times the sum of absolute
// products, plus the rounding error of the store. A tensor-core instruction adds eight or more
// products to a sum, with one truncation.
func (m *machine) product(what string, s tensorSpec, c, x, y Operand, bias ...Operand) {
	m.t.Helper()
	s.a, s.b = chooseTensorLoad(x, 1, 2), chooseTensorLoad(y, 2, 1)
	form, _ := tensorSpecFor(c, x, y)
	s.typ, s.out, s.store = form.typ, form.out, form.store
	if s.odd = form.odd && s.form.bm >= 64; s.odd {
		s.a = form.a
	}
	o := ProductOperands{Out: c, A: x, B: y, TF32: x.Type == dtype.F32}
	if len(bias) > 0 {
		o.Bias = bias[0]
		s.bias = o.Bias.Type
	}
	list, err := launchMatMul(s, o)
	m.run(list, err)
	m.nearProduct(fmt.Sprintf("%s (%s)", what, s.name()), o)
}

// nearProduct compares a product of floats with float64 sums. If TF32 is permitted, the factors of
// these sums are first rounded to tf32.
func (m *machine) nearProduct(what string, o ProductOperands) {
	m.t.Helper()
	c, k, n := o.Out, o.A.Shape.At(2), o.Out.Shape.At(2)
	c.Type = o.A.Type
	x, y := m.read(o.A), m.read(o.B)
	if o.TF32 {
		x, y = roundedTF32(x), roundedTF32(y)
	}
	sum, size, _ := naive(c, x, y)
	if t := o.Bias.Type; t != dtype.Invalid {
		added := m.read(o.Bias)
		for i := range sum {
			v := expr.Decode(t, added[i%n])
			sum[i], size[i] = sum[i]+v, size[i]+math.Abs(v)
		}
	}
	unit := map[dtype.Type]float64{dtype.F16: 0x1p-11, dtype.BF16: 0x1p-8, dtype.F32: 0x1p-24, dtype.F64: 0x1p-53}[o.Out.Type]
	sums := 0x1p-23
	if o.A.Type == dtype.F64 {
		sums = 0x1p-52
	}
	for i, got := range m.read(o.Out) {
		v := expr.Decode(o.Out.Type, got)
		if math.IsNaN(sum[i]) || math.IsInf(sum[i], 0) {
			if v == sum[i] || math.IsNaN(v) && math.IsNaN(sum[i]) {
				continue
			}
		} else if math.Abs(v-sum[i]) <= unit*math.Abs(sum[i])+(float64(k)/8+2)*sums*size[i] {
			continue
		}
		m.t.Errorf("%s: element %d is %v, want %v", what, i, v, sum[i])
		return
	}
}

// TestTensorForms computes products with every form, in each storage order. The sizes of the
// matrices are not all multiples of the tile.
func TestTensorForms(t *testing.T) {
	for i, f := range tensorForms {
		for j, orders := range []string{"NN", "NT", "TN", "TT"} {
			if f.bm*f.bn > 1<<13 && (i+j)%2 != 0 {
				continue // large forms are tested with only half of the storage orders
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

// TestTensorEdges covers every way to load operands and to store results: rows of any length,
// strides, a misaligned start, an empty k and an empty batch.
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
		// These rows are padded and begin at multiples of 16 bytes. The last copy of a row has
		// fewer than 16 bytes.
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

// TestTensorSpecials puts NaN and infinities into a row of a, or a column of b. They must affect
// only the results of that row or column.
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

// TestTensorOddRows computes products of rows with an odd length. The kernel copies these rows in
// pairs of elements, and handles every second row separately. The rows lie along k or along m,
// and the sizes are not multiples of the tile. One case has a batch. The test also divides the
// sums, and puts a NaN before a row.
func TestTensorOddRows(t *testing.T) {
	for _, f := range []tensorForm{{64, 64, 32, 2, 2, 3, 4}, {128, 128, 32, 2, 2, 3, 2}} {
		for _, orders := range []string{"NN", "TN"} {
			for _, d := range [][4]int{{1, 33, 8, 1}, {1, 127, 16, 65}, {2, 63, 24, 31}, {1, 129, 66, 97}, {1, 131, 10, 3}, {1, 255, 8, 33}} {
				batch, rows, columns, k := d[0], d[1], d[2], d[3]
				if batch > 1 { // each matrix begins at an even element
					rows, k = 62, 31
					if orders == "TN" {
						rows, k = 33, 62
					}
				}
				m := newMachine(t)
				x := m.random(m.tensor(dtype.BF16, matrixLayout(orders[:1], batch, rows, k), 0))
				y := m.random(m.tensor(dtype.BF16, dense(batch, k, columns), 0))
				if s, _ := tensorSpecFor(x, x, y); !s.odd {
					t.Fatalf("%s %v is %v", orders, d, s.a)
				}
				m.product(fmt.Sprint(orders, d), tensorSpec{form: f}, m.tensor(dtype.BF16, dense(batch, rows, columns), 0), x, y)
			}
		}
	}
	// The element before an odd row is the last element of another row. A NaN there must not affect
	// the odd row.
	m := newMachine(t)
	old := m.read(m.random(m.tensor(dtype.BF16, dense(1, 66, 33), 0)))
	x := m.fill(m.tensor(dtype.BF16, dense(1, 66, 33), 0), func(i int) uint64 {
		if i == 2*33+32 {
			return expr.Encode(dtype.BF16, math.NaN())
		}
		return old[i]
	})
	y := m.random(m.tensor(dtype.BF16, dense(1, 33, 16), 0))
	m.product("no number", tensorSpec{form: tensorForm{64, 64, 32, 2, 2, 3, 4}}, m.tensor(dtype.BF16, dense(1, 66, 16), 0), x, y)
	// Here too the rows have an odd length, and each sum is divided among several blocks.
	for _, orders := range []string{"NN", "TN"} {
		m := newMachine(t)
		c, x := m.tensor(dtype.BF16, dense(1, 67, 24), 0), m.random(m.tensor(dtype.BF16, matrixLayout(orders[:1], 1, 67, 161), 0))
		y := m.random(m.tensor(dtype.BF16, dense(1, 161, 24), 0))
		form, _ := tensorSpecFor(c, x, y)
		form.form = tensorForm{64, 64, 32, 2, 2, 3, 4}
		list, err := splitMatMul(form, ProductOperands{Out: c, A: x, B: y, Counters: m.counters}, division{chunk: 64}, m.scratch)
		m.run(list, err)
		m.nearProduct(orders+" in parts", ProductOperands{Out: c, A: x, B: y})
	}
}

// TestTensorRealigned checks which operands are copied first. An operand that would be loaded
// element by element must be copied to rows aligned to 16 bytes if that takes less time. A matrix
// that the whole batch shares must be copied once.
func TestTensorRealigned(t *testing.T) {
	for _, c := range []struct {
		orders  string
		d       [4]int // sizes of batch, m, n and k
		want    int    // number of launches
		biggest string
	}{
		// Both operands have an odd k.
		{"NT", [4]int{1, 4096, 4096, 1025}, 3, "krkr"},
		// Weights have an odd number of columns.
		{"NN", [4]int{1, 4096, 50257, 768}, 2, "kor"},
		// This product multiplies the gradient of the logits by the weights.
		{"NN", [4]int{1, 8192, 768, 50257}, 1, "k2ro"},
		// this product multiplies the transposed gradient of the logits by the activations
		{"TN", [4]int{1, 50257, 768, 8192}, 1, "o2ro"},
		{"N0", [4]int{8, 1024, 1025, 768}, 2, "kor"}, // the batch shares one matrix b
		// the product is too small to be worth another launch
		{"NN", [4]int{1, 64, 65, 64}, 1, "ko1"},
	} {
		x := fake(dtype.BF16, c.d[0], c.d[1], c.d[3])
		y := fake(dtype.BF16, c.d[0], c.d[3], c.d[2])
		x.Layout, y.Layout = matrixLayout(c.orders[:1], c.d[0], c.d[1], c.d[3]), matrixLayout(c.orders[1:], c.d[0], c.d[3], c.d[2])
		list, err := MatMulSplit(a100, ProductOperands{Out: fake(dtype.BF16, c.d[0], c.d[1], c.d[2]), A: x, B: y, Counters: fakeCounters}, fakeScratch)
		if err != nil || len(list) != c.want {
			t.Errorf("%s %v: %d launches, want %d, %v", c.orders, c.d, len(list), c.want, err)
			continue
		}
		if name := list[len(list)-1].Kernel.Name; !strings.Contains(name, "_"+c.biggest+"_") {
			t.Errorf("%s %v: %s, want %s", c.orders, c.d, name, c.biggest)
		}
	}
	// If launches cost nothing, even small operands are copied. The results must be right.
	for _, orders := range []string{"NT", "NN", "TT", "N0"} {
		m := newMachine(t)
		batch := 1
		if orders == "N0" {
			batch = 2
		}
		x, y := m.random(m.tensor(dtype.F16, matrixLayout(orders[:1], batch, 33, 21), 0)), m.random(m.tensor(dtype.F16, matrixLayout(orders[1:], batch, 21, 35), 0))
		rx, list, err := realigned(x, 1, m.scratch)
		if err != nil {
			t.Fatal(err)
		}
		ry, more, err := realigned(y, 2, m.scratch)
		if err != nil {
			t.Fatal(err)
		}
		m.run(append(list, more...), nil)
		if s, _ := tensorSpecFor(rx, rx, ry); s.a.vector != 8 || s.b.vector != 8 {
			t.Errorf("%s: copies are taken as %v, %v", orders, s.a, s.b)
		}
		m.product(orders, tensorSpec{form: tensorForm{64, 64, 32, 2, 2, 3, 4}}, m.tensor(dtype.F16, dense(batch, 33, 35), 0), rx, ry)
	}
}
