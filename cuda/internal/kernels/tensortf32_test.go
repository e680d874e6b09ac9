package kernels

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// roundedTF32 rounds float32 bits to ten bits of mantissa, ties away from zero, as cvt.rna.tf32.f32
// of the PTX ISA does. Infinities and NaNs stay as they are.
func roundedTF32(list []uint64) []uint64 {
	rounded := make([]uint64, len(list))
	for i, v := range list {
		if rounded[i] = v; v&0x7f800000 != 0x7f800000 {
			rounded[i] = (v + 0x1000) &^ 0x1fff
		}
	}
	return rounded
}

// TestTF32Forms computes products with every form, in each storage order. The matrices are slightly
// larger than whole tiles.
func TestTF32Forms(t *testing.T) {
	for i, f := range tensorForms {
		f = f.forType(dtype.F32)
		for j, orders := range []string{"NN", "NT", "TN", "TT"} {
			if f.bm*f.bn > 1<<13 && (i+j)%2 != 0 {
				continue // large forms are tested with only half of the storage orders
			}
			t.Run(fmt.Sprint(f, " ", orders), func(t *testing.T) {
				m := newMachine(t)
				rows, columns, k := f.bm+8, f.bn+16, 2*f.bk+12
				if f.bm*f.bn > 1<<13 {
					rows, columns = f.bm, f.bn
				}
				x := m.random(m.tensor(dtype.F32, matrixLayout(orders[:1], 1, rows, k), 0))
				y := m.random(m.tensor(dtype.F32, matrixLayout(orders[1:], 1, k, columns), 0))
				m.product("form", tensorSpec{form: f}, m.tensor(dtype.F32, dense(1, rows, columns), 0), x, y)
			})
		}
	}
}

// TestTF32Edges covers every way to load operands and to store results: rows of any length,
// strides, misaligned starts, biases, an empty k, and batches.
func TestTF32Edges(t *testing.T) {
	for i, f := range []tensorForm{{64, 64, 32, 2, 2, 3, 4}, tensorForms[len(tensorForms)-1], tensorForms[0]} {
		f = f.forType(dtype.F32)
		for j, d := range [][3]int{{1, 1, 1}, {7, 63, 65}, {65, 7, 34}, {63, 130, 7}, {129, 65, 62}, {16, 40, 0}} {
			for e, orders := range []string{"NN", "TT", "N steps", "T0"} {
				if f.bm > 64 && (i+j+e)%4 != 0 {
					continue
				}
				batch, second := 1+j%2, orders[1:]
				if strings.Contains(second, "steps") {
					second = "steps"
				}
				m := newMachine(t)
				x := m.random(m.tensor(dtype.F32, matrixLayout(orders[:1], batch, d[0], d[2]), (e+1)%3))
				y := m.random(m.tensor(dtype.F32, matrixLayout(second, batch, d[2], d[1]), e%2))
				layout := []string{"N", "padded", "steps", "T"}[(i+j+e)%4]
				out := m.tensor(dtype.F32, matrixLayout(layout, batch, d[0], d[1]), d[2]%2)
				bias := m.random(m.tensor([]dtype.Type{dtype.F32, dtype.F32}[e%2], strided([]int{d[1]}, []int{1 + e%2}), 0))
				m.product(fmt.Sprint(orders, d), tensorSpec{form: f}, out, x, y, bias)
			}
		}
	}
}

// TestTF32Rounds checks the rounding of both factors, in both storage orders. The product of a
// factor and 1 must have the bits of the factor rounded to nearest, ties away from zero. NaN and
// infinities must affect only their own rows.
func TestTF32Rounds(t *testing.T) {
	values := []uint32{0x3f800fff, 0x3f801000, 0x3f801001, 0xbf801000, 0x3f803000, 0x3f7ff000, 0x00001000, 0x00000fff, 0x80000001, 0x00801000,
		0x7f7fefff, 0x7f7ff000, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7fffffff, 0x80000000}
	n := len(values)
	for _, order := range []string{"N", "T"} {
		for _, second := range []bool{false, true} {
			m := newMachine(t)
			x := m.fill(m.tensor(dtype.F32, matrixLayout(order, 1, n, 1), 0), func(i int) uint64 { return uint64(values[i]) })
			one := m.fill(m.tensor(dtype.F32, dense(1, 1, 1), 0), func(int) uint64 { return 0x3f800000 })
			a, b, out := x, one, dense(1, n, 1)
			if second {
				x.Shape, x.Strides = shape.Of(1, 1, n), shape.Of(0, 1, 1)
				a, b, out = one, x, dense(1, 1, n)
			}
			c := m.tensor(dtype.F32, out, 0)
			list, err := MatMulSplit(a100, ProductOperands{Out: c, A: a, B: b, TF32: true}, nil)
			m.run(list, err)
			if !strings.HasPrefix(list[0].Kernel.Name, "gemm_tensor_tf32_") {
				t.Fatal(list[0].Kernel.Name)
			}
			want := roundedTF32(m.read(x))
			m.compare(fmt.Sprint(order, second), c, func(i int) uint64 {
				if want[i]<<1&0xffffffff == 0 { // the sum starts with +0, so -0 becomes +0
					return 0
				}
				return want[i]
			})
		}
	}
	// If TF32 is not permitted, nothing may be rounded.
	m := newMachine(t)
	in := func(d ...int) Operand { return m.random(m.tensor(dtype.F32, dense(d...), 0)) }
	o := ProductOperands{Out: m.tensor(dtype.F32, dense(1, 40, 36), 0), A: in(1, 40, 20), B: in(1, 20, 36)}
	list, err := MatMulSplit(a100, o, m.scratch)
	m.run(list, err)
	m.nearProduct("float32", o)
	if strings.Contains(list[0].Kernel.Name, "tf32") {
		t.Error(list[0].Kernel.Name)
	}
}

// TestTF32Plans plans products with divided sums, with operands that are copied first, and with a
// bias and an activation.
func TestTF32Plans(t *testing.T) {
	for _, d := range [][3]int{{24, 35, 3000}, {40, 68, 1024}, {70, 66, 129}} {
		m := newMachine(t)
		in := func(d ...int) Operand { return m.random(m.tensor(dtype.F32, dense(d...), 1)) }
		o := ProductOperands{Out: m.tensor(dtype.F32, dense(1, d[0], d[1]), 0), A: in(1, d[0], d[2]), B: in(1, d[2], d[1]), Bias: in(d[1]), TF32: true, Counters: m.counters}
		list, err := MatMulSplit(a100, o, m.scratch)
		m.run(list, err)
		m.nearProduct(fmt.Sprint(d), o)
		if d[2] > 1000 && !strings.Contains(list[0].Kernel.Name, "_parts") {
			t.Errorf("%v: the sum is in one part", d)
		}
		o.Act, o.Pre, o.Sums = geluOf(dtype.F32), m.tensor(dtype.F32, dense(1, d[0], d[1]), 0), m.tensor(dtype.F32, dense(d[0]), 0)
		list, err = MatMulSplit(a100, o, m.scratch)
		m.run(list, err)
		pre := m.read(o.Pre)
		m.compare("activated", o.Out, func(i int) uint64 { return o.Act.Eval(nil, pre[i:i+1], nil, 0)[0] })
		// Sums of rows must be computed in float32.
		a := m.read(o.A)
		for r, got := range m.read(o.Sums) {
			sum, size := 0.0, 0.0
			for _, v := range a[r*d[2] : (r+1)*d[2]] {
				f := float64(math.Float32frombits(uint32(v)))
				sum, size = sum+f, size+math.Abs(f)
			}
			if v := float64(math.Float32frombits(uint32(got))); math.Abs(v-sum) > float64(d[2])*0x1p-24*size {
				t.Fatalf("%v: row %d sums up to %v, want %v", d, r, v, sum)
			}
		}
	}
	// The planner must have a form for every storage order on every device, as for 16-bit factors.
	for _, g := range []*GPU{GPUOf(80, "", 0), GPUOf(89, "", 16), GPUOf(90, "", 0), GPUOf(120, "", 0)} {
		for _, d := range [][3]int{{1, 1, 1}, {8192, 3072, 768}, {31, 1000, 5001}, {64, 50257, 768}, {16, 16, 0}, {3, 300, 7}} {
			for _, orders := range []string{"NN", "NT", "TN", "TT"} {
				o := func(order byte, rows, columns int) Operand {
					x := fake(dtype.F32, 1, rows, columns)
					x.Layout = matrixLayout(string(order), 1, rows, columns)
					return x
				}
				p := g.choosePlan(o('N', d[0], d[1]), o(orders[0], d[0], d[2]), o(orders[1], d[2], d[1]), true, true)
				if p.form.bm == 0 || !(p.seconds > 0 && p.seconds < 1) {
					t.Errorf("%s %v: %v, %v s", orders, d, p.form, p.seconds)
				}
			}
		}
	}
}

// TestTF32Banks reads fragments in either storage order, and copies in every width. There must be
// no bank conflicts.
func TestTF32Banks(t *testing.T) {
	for _, f := range tensorForms {
		f = f.forType(dtype.F32)
		for _, orders := range []string{"NN", "TT"} {
			for _, skip := range []int{0, 1, 2} {
				if f.bm*f.bn > 1<<13 && skip > 0 {
					continue
				}
				m := newMachine(t)
				m.lines = map[*Kernel]map[int]*ptxvm.LineStats{}
				x := m.random(m.tensor(dtype.F32, matrixLayout(orders[:1], 1, f.bm, f.bk), skip))
				y := m.random(m.tensor(dtype.F32, matrixLayout(orders[1:], 1, f.bk, f.bn), skip))
				s, _ := tensorSpecFor(x, x, y)
				if s.form = f; !s.fits() {
					continue
				}
				m.product("banks", s, m.tensor(dtype.F32, dense(1, f.bm, f.bn), 0), x, y)
				for k, lines := range m.lines {
					for line, n := range lines {
						if n.BankConflicts > 0 {
							t.Errorf("%s: %d bank conflicts: %s", k.Name, n.BankConflicts, strings.Split(k.PTX, "\n")[line-1])
						}
					}
				}
			}
		}
	}
}
