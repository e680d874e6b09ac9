package kernels

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// decode reads an operand as float64.
func (m *machine) decode(o Operand) []float64 {
	m.t.Helper()
	bits := m.read(o)
	v := make([]float64, len(bits))
	for i, b := range bits {
		v[i] = expr.Decode(o.Type, b)
	}
	return v
}

// checkNear compares the elements of o with float64 references. An element may differ from its
// reference v by tolerance·(1+|v|).
func (m *machine) checkNear(what string, o Operand, want []float64, tolerance float64) {
	m.t.Helper()
	bad := 0
	for i, g := range m.decode(o) {
		w := want[i]
		if g == w || g != g && w != w || math.Abs(g-w) <= tolerance*(1+math.Abs(w)) {
			continue
		}
		if bad++; bad < 4 {
			m.t.Errorf("%s: element %d is %v, want %v", what, i, g, w)
		}
	}
}

var roundings = map[dtype.Type]float64{dtype.F32: 4e-7, dtype.F64: 2e-15, dtype.F16: 1e-3, dtype.BF16: 8e-3}

// slowSoftmax returns three references for rows of n columns: softmax, its logarithm, and the
// logarithm of the sum of exponentials.
func slowSoftmax(x []float64, n int) (y, log, lse []float64) {
	y, log = make([]float64, len(x)), make([]float64, len(x))
	for r := 0; r < len(x); r += n {
		top, sum := math.Inf(-1), 0.0
		for _, v := range x[r : r+n] {
			top = max(top, v)
		}
		for _, v := range x[r : r+n] {
			sum += math.Exp(v - top)
		}
		lse = append(lse, top+math.Log(sum))
		for i, v := range x[r : r+n] {
			y[r+i], log[r+i] = math.Exp(v-top)/sum, v-top-math.Log(sum)
		}
	}
	return y, log, lse
}

func TestSoftmax(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16} {
		for _, d := range [][2]int{{1, 1}, {3, 5}, {9, 33}, {2, 200}, {2, 1025}, {3, 1032}, {0, 4}, {1, 8200}} {
			if typ != dtype.F32 && d[1] > 1000 {
				continue
			}
			layouts := []shape.Layout{dense(d[0], d[1])}
			if d[1] == 200 {
				layouts = append(layouts, strided(d[:], []int{208, 1}), strided(d[:], []int{201, 1}))
			}
			if d[1] == 33 {
				layouts = append(layouts, strided(d[:], []int{40, 1}), strided(d[:], []int{1, 11}))
			}
			for _, l := range layouts {
				for _, log := range []bool{false, true} {
					m := newMachine(t)
					skip := 1 // the rows are misaligned
					if log || d[1] > 8000 {
						skip = 0
					}
					x, y := m.random(m.tensor(typ, l, skip)), m.tensor(typ, dense(d[0], d[1]), 0)
					if d[1] == 5 {
						m.fill(m.oneElement(x, 0), func(int) uint64 { return expr.Encode(typ, math.Inf(-1)) })
						m.fill(m.oneElement(x, 6), func(int) uint64 { return expr.Encode(typ, 30000) })
						m.fill(m.oneElement(x, 12), func(int) uint64 { return expr.Encode(typ, math.NaN()) })
					}
					list, err := Softmax(y, x, log)
					m.run(list, err)
					want, wantLog, _ := slowSoftmax(m.decode(x), d[1])
					if log {
						want = wantLog
					}
					what := fmt.Sprintf("softmax %v %v log %v", typ, d, log)
					m.checkNear(what, y, want, roundings[typ])
					g, dx := m.random(m.tensor(typ, l, 0)), m.tensor(typ, l, 0)
					list, err = SoftmaxGrad(dx, y, g, log)
					m.run(list, err)
					m.checkNear(what+" gradient", dx, slowSoftmaxGrad(m.decode(y), m.decode(g), d[1], log), 4*roundings[typ])
				}
			}
		}
	}
}

// TestSoftmaxKept runs softmax on rows that are cached in shared memory. For each size of the cache
// it uses the shortest and the longest rows, in vectors and element by element. The elements of the
// first row are -∞.
func TestSoftmaxKept(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.F16, dtype.BF16} {
		for _, columns := range []int{8, 255, 256, 257, 264, 1024, 1025, 4096, 4097, 4104, 8191, 8192} {
			for _, log := range []bool{false, true} {
				m := newMachine(t)
				x, y := m.random(m.tensor(typ, dense(2, columns), 0)), m.tensor(typ, dense(2, columns), 0)
				first := x
				first.Shape = shape.Of(1, columns)
				m.fill(first, func(int) uint64 { return expr.Encode(typ, math.Inf(-1)) })
				list, err := Softmax(y, x, log)
				m.run(list, err)
				want, wantLog, _ := slowSoftmax(m.decode(x), columns)
				if log {
					want = wantLog
				}
				for i, g := range m.decode(y) {
					w := want[i] // near 0, neighbouring float16 numbers differ by 2⁻²⁴
					if w != w && g == g || w == w && !(math.Abs(g-w) <= 2*roundings[typ]*math.Abs(w)+0x1p-25) {
						t.Fatalf("%s, %d columns: element %d is %v, want %v", list[0].Kernel.Name, columns, i, g, w)
					}
				}
			}
		}
	}
}

// TestRowsAreReadOnce counts how often each 32-byte sector of the operands is read or written. A
// row that fits into shared memory must be read once. The kernel of the cross-entropy, which only
// adds up exponentials, must read rows of any length once.
func TestRowsAreReadOnce(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.BF16} {
		for _, c := range []struct {
			columns                   int
			softmax, grad, loss, back int
		}{{1024, 2, 3, 1, 2}, {8191, 2, 3, 1, 2}, {8192, 2, 3, 1, 2}, {9216, 2, 3, 1, 2}, {9217, 2, 3, 1, 2}} {
			m := newMachine(t)
			const rows = 2
			moved := func(what string, times int, list []Launch, err error) {
				t.Helper()
				ideal := times * rows * c.columns * typ.Size() / 32
				if got := int(m.run(list, err).Sectors); got < ideal || got > ideal+ideal/50+64*rows {
					t.Errorf("%s of %d, %v: %d sectors move, %d are %d times the elements", what, c.columns, typ, got, ideal, times)
				}
			}
			x, y, g, dx := m.random(m.tensor(typ, dense(rows, c.columns), 0)), m.tensor(typ, dense(rows, c.columns), 0), m.random(m.tensor(typ, dense(rows, c.columns), 0)), m.tensor(typ, dense(rows, c.columns), 0)
			for _, log := range []bool{false, true} {
				list, err := Softmax(y, x, log)
				moved("softmax", c.softmax, list, err)
				list, err = SoftmaxGrad(dx, y, g, log)
				moved("softmax gradient", c.grad, list, err)
			}
			var v [4]Operand
			for i := range v {
				v[i] = m.random(m.tensor(dtype.F32, dense(rows), 0))
			}
			target, fault := m.fill(m.tensor(dtype.I64, dense(rows), 0), func(i int) uint64 { return uint64(i) }), m.fill(m.tensor(dtype.I64, dense(FaultBytes/8), 0), func(int) uint64 { return 0 })
			list, err := CrossEntropy(v[0], v[1], v[2], x, target, -1, fault.Addr, 0)
			moved("cross-entropy", c.loss, list, err)
			list, err = CrossEntropyGrad(dx, x, v[1], v[2], target, v[3], Operand{}, -1)
			moved("cross-entropy gradient", c.back, list, err)
		}
	}
}

// TestOddRows uses rows that begin and end at every offset within a sector, with special values at
// their ends.
func TestOddRows(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
		v := 16 / typ.Size()
		for _, columns := range []int{32*v + 1, 2081, 9*1024 - 1} {
			for skip := range 2 {
				const rows = 17
				m := newMachine(t)
				l := dense(rows, columns)
				if skip == 1 { // the rows are parts of the rows of a wider matrix
					l = strided([]int{rows, columns}, []int{columns + 2, 1})
				}
				x, y, dx := m.tensor(typ, l, skip), m.tensor(typ, l, skip), m.tensor(typ, l, skip)
				values := make([]float64, rows*columns)
				for i := range values {
					values[i] = m.rng.Float64()*8 - 4
				}
				special := []float64{math.Inf(-1), 60, math.Inf(1), math.NaN()}
				for k, s := range special {
					values[k*columns], values[(k+5)*columns-1] = s, s
				}
				m.fill(x, func(i int) uint64 { return expr.Encode(typ, values[i]) })
				list, err := Softmax(y, x, true)
				m.run(list, err)
				if f := rowVectors(y, x); f != (rowForm{v, true}) {
					t.Fatalf("%v, %d columns, %d skipped: read as %v", typ, columns, skip, f)
				}
				_, want, lse := slowSoftmax(m.decode(x), columns)
				what := fmt.Sprintf("%v, %d columns, %d skipped", typ, columns, skip)
				m.checkNear("log softmax, "+what, y, want, 2*roundings[typ])
				g := m.random(m.tensor(typ, l, skip))
				list, err = SoftmaxGrad(dx, y, g, true)
				m.run(list, err)
				m.checkNear("its gradient, "+what, dx, slowSoftmaxGrad(m.decode(y), m.decode(g), columns, true), 40*roundings[typ])
				value := typ.Compute()
				vector := func() Operand { return m.tensor(value, dense(rows), 0) }
				loss, top, rest := vector(), vector(), vector()
				target := m.fill(m.tensor(dtype.I64, dense(rows), 0), func(i int) uint64 { return uint64(i % 2 * (columns - 1)) })
				list, err = CrossEntropy(loss, top, rest, x, target, -100, m.fault().Addr, 0)
				m.run(list, err)
				exact := m.decode(x)
				losses, grads := make([]float64, rows), make([]float64, rows*columns)
				for i := range losses {
					hot := i*columns + i%2*(columns-1)
					losses[i] = lse[i] - exact[hot]
					for j := i * columns; j < (i+1)*columns; j++ {
						grads[j] = math.Exp(exact[j] - lse[i])
					}
					grads[hot]--
				}
				m.checkNear("cross-entropy, "+what, loss, losses, 4*roundings[value])
				one := m.fill(vector(), func(int) uint64 { return expr.Encode(value, 1) })
				list, err = CrossEntropyGrad(dx, x, top, rest, target, one, Operand{}, -100)
				m.run(list, err)
				m.checkNear("its gradient, "+what, dx, grads, 2*roundings[typ])
			}
		}
	}
}

// TestLongSoftmax uses three kinds of long rows: those that fit into registers, those that fit into
// registers and shared memory, and longer ones.
func TestLongSoftmax(t *testing.T) {
	for _, c := range []struct {
		typ     dtype.Type
		columns int
	}{{dtype.F32, 13312}, {dtype.F32, 16388}, {dtype.F32, 26625}, {dtype.F32, 53001}, {dtype.BF16, 12289}, {dtype.F16, 30000}, {dtype.BF16, 76807}} {
		for _, log := range []bool{false, true} {
			m := newMachine(t)
			x, y := m.tensor(c.typ, dense(2, c.columns), 0), m.tensor(c.typ, dense(2, c.columns), 0)
			m.fill(x, func(i int) uint64 {
				if i == 2*c.columns-1 { // the last element of the last row is the greatest
					return expr.Encode(c.typ, 9)
				}
				return expr.Encode(c.typ, float64(i*7919%4096)/512-4)
			})
			list, err := Softmax(y, x, log)
			m.run(list, err)
			want, wantLog, _ := slowSoftmax(m.decode(x), c.columns)
			if log {
				want = wantLog
			}
			for i, got := range m.decode(y) {
				if w := want[i]; !(math.Abs(got-w) <= 2*roundings[c.typ]*math.Abs(w)+0x1p-25) {
					t.Fatalf("%s, %d columns: element %d is %v, want %v", list[0].Kernel.Name, c.columns, i, got, w)
				}
			}
			g := m.fill(m.tensor(c.typ, dense(2, c.columns), 0), func(i int) uint64 { return expr.Encode(c.typ, float64(i*31%17)/16-0.5) })
			list, err = SoftmaxGrad(x, y, g, log)
			m.run(list, err)
			if !strings.Contains(list[0].Kernel.Name, "_h") {
				t.Errorf("%s for %d columns", list[0].Kernel.Name, c.columns)
			}
			slow := slowSoftmaxGrad(m.decode(y), m.decode(g), c.columns, log)
			for i, got := range m.decode(x) {
				if w := slow[i]; !(math.Abs(got-w) <= 4*roundings[c.typ]*(math.Abs(w)+0x1p-10)+0x1p-24) {
					t.Fatalf("%s, %d columns: element %d is %v, want %v", list[0].Kernel.Name, c.columns, i, got, w)
				}
			}
		}
	}
	if l, ok := longSoftmaxFor(softmaxSpec{typ: dtype.F32, form: rowForm{vector: 4}}, 1<<20); ok {
		t.Errorf("rows of which a twentieth is kept: %s", l.name())
	}
}

// TestExponentialsRescaled uses rows with growing elements, and rows with infinities and NaN at any
// index. A greater element must rescale the sum of exponentials.
func TestExponentialsRescaled(t *testing.T) {
	const columns = 8200
	m := newMachine(t)
	x, y := m.tensor(dtype.F32, dense(6, columns), 0), m.tensor(dtype.F32, dense(6, columns), 0)
	inf := math.Inf(1)
	m.fill(x, func(i int) uint64 {
		row, k := i/columns, i%columns
		v := float64(k) / 50 // elements of row 0 grow along the row
		switch {
		case row == 1:
			v = -v
		case row == 2: // all elements except one are -Inf
			v = -inf
			if k == 5000 {
				v = 3
			}
		case row == 3:
			v = -inf
		case row == 4 && k == 7000:
			v = inf
		case row == 5 && k == 1:
			v = math.NaN()
		}
		return expr.Encode(dtype.F32, v)
	})
	for _, log := range []bool{false, true} {
		list, err := Softmax(y, x, log)
		m.run(list, err)
		want, wantLog, _ := slowSoftmax(m.decode(x), columns)
		if log {
			want = wantLog
		}
		for i, g := range m.decode(y) {
			if w := want[i]; g != w && !(math.IsNaN(w) && math.IsNaN(g)) && !(math.Abs(g-w) <= 1e-5*math.Abs(w)+0x1p-140) {
				t.Fatalf("log %v: element %d of row %d is %v, want %v", log, i%columns, i/columns, g, w)
			}
		}
	}
}

func slowSoftmaxGrad(y, g []float64, n int, log bool) []float64 {
	dx := make([]float64, len(y))
	for r := 0; r < len(y); r += n {
		sum := 0.0
		for i := range n {
			if log {
				sum += g[r+i]
			} else {
				sum += g[r+i] * y[r+i]
			}
		}
		for i := range n {
			if log {
				dx[r+i] = g[r+i] - math.Exp(y[r+i])*sum
			} else {
				dx[r+i] = y[r+i] * (g[r+i] - sum)
			}
		}
	}
	return dx
}

// fault allocates a fault record and clears it.
func (m *machine) fault() Operand {
	return m.fill(m.tensor(dtype.U8, dense(FaultBytes), 0), func(int) uint64 { return 0 })
}

func (m *machine) faultBytes(o Operand) []byte {
	p, err := m.mem.Bytes(o.Addr, FaultBytes)
	if err != nil {
		m.t.Fatal(err)
	}
	return p
}

func TestCrossEntropy(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
		for _, l := range []shape.Layout{dense(6, 10), dense(2, 1100), strided([]int{6, 10}, []int{1, 6})} {
			m := newMachine(t)
			n, c := l.Shape.At(0), l.Shape.At(1)
			value := typ.Compute()
			x, dx := m.random(m.tensor(typ, l, 0)), m.tensor(typ, l, 0)
			loss, top, rest := m.tensor(value, dense(n), 0), m.tensor(value, dense(n), 0), m.tensor(value, strided([]int{n}, []int{2}), 0)
			target := m.fill(m.tensor(dtype.I64, dense(n), 0), func(i int) uint64 {
				return [...]uint64{uint64(c - 1), 0, ^uint64(99), 3, 1 << 40, ^uint64(0)}[i]
			})
			g := m.fill(m.tensor(value, strided([]int{n}, []int{0}), 0), func(int) uint64 { return expr.Encode(value, 0.5) })
			fault := m.fault()
			list, err := CrossEntropy(loss, top, rest, x, target, -100, fault.Addr, 77)
			m.run(list, err)
			v := m.decode(x)
			y, log, want := slowSoftmax(v, c)
			greatest := make([]float64, n)
			for i := range n {
				greatest[i] = slices.Max(v[i*c : (i+1)*c])
				want[i] -= greatest[i]
			}
			m.checkNear("top", top, greatest, 0)
			m.checkNear("rest", rest, want, roundings[value])
			losses, grads := make([]float64, n), make([]float64, n*c)
			for i := range n {
				k := int64(m.read(target)[i])
				if k < 0 || k >= int64(c) {
					continue
				}
				losses[i] = -log[i*c+int(k)]
				for j := range c {
					grads[i*c+j] = 0.5 * y[i*c+j]
				}
				grads[i*c+int(k)] -= 0.5
			}
			m.checkNear("loss", loss, losses, 2*roundings[value])
			e := ReadFault(m.faultBytes(fault))
			switch {
			case n == 2 && e != nil:
				t.Errorf("a fault without reason: %v", e)
			case n == 6 && (e == nil || e.Tag != 77 || e.Bound != int64(c) || e.Index != 1<<40 && e.Index != -1 || e.Position != 4 && e.Position != 5):
				t.Errorf("fault record: %+v", e)
			}
			list, err = CrossEntropyGrad(dx, x, top, rest, target, g, Operand{}, -100)
			m.run(list, err)
			m.checkNear("gradient", dx, grads, 2*roundings[typ])
		}
	}
}

func TestRowsGolden(t *testing.T) {
	list, err := Softmax(fake(dtype.F32, 64, 1000), fake(dtype.F32, 64, 1000), false)
	golden(t, "softmax_warp", list, err)
	list, err = Softmax(fake(dtype.BF16, 64, 4000), fake(dtype.BF16, 64, 4000), true)
	golden(t, "logsoftmax_block", list, err)
	list, err = SoftmaxGrad(fake(dtype.F32, 64, 1000), fake(dtype.F32, 64, 1000), fake(dtype.F32, 64, 1000), false)
	golden(t, "softmax_grad", list, err)
	list, err = CrossEntropy(fake(dtype.F32, 64), fake(dtype.F32, 64), fake(dtype.F32, 64), fake(dtype.F32, 64, 1000), fake(dtype.I64, 64), -100, 1<<20, 1)
	golden(t, "crossentropy", list, err)
	list, err = CrossEntropyGrad(fake(dtype.F32, 64, 1000), fake(dtype.F32, 64, 1000), fake(dtype.F32, 64), fake(dtype.F32, 64), fake(dtype.I64, 64), fake(dtype.F32, 64), Operand{}, -100)
	golden(t, "crossentropy_grad", list, err)
	list, err = CrossEntropyGrad(fake(dtype.F32, 64, 1000), fake(dtype.F32, 64, 1000), fake(dtype.F32, 64), fake(dtype.F32, 64), fake(dtype.I64, 64), Operand{}, fake(dtype.I64, 1), -100)
	golden(t, "crossentropy_grad_count", list, err)
	list, err = CrossEntropy(fake(dtype.F32, 64), Operand{}, Operand{}, fake(dtype.F32, 64, 1000), fake(dtype.I64, 64), -100, 1<<20, 1)
	golden(t, "crossentropy_logs", list, err)
	list, err = CrossEntropyGrad(fake(dtype.F32, 64, 1000), Operand{}, Operand{}, Operand{}, fake(dtype.I64, 64), fake(dtype.F32, 64), fake(dtype.I64, 1), -100)
	golden(t, "crossentropy_grad_logs", list, err)
	list, err = MeanOfTargets(fake(dtype.F32, 1), fake(dtype.I64, 1), fake(dtype.F32, 512), fake(dtype.I64, 512), -100, nil)
	golden(t, "crossentropy_mean", list, err)
	for _, bad := range []Operand{fake(dtype.I32, 2, 3), fake(dtype.F32, 6), fake(dtype.F32, 3, 2)} {
		if _, err := Softmax(fake(dtype.F32, 2, 3), bad, false); err == nil {
			t.Errorf("no error for softmax of %v %v", bad.Type, bad.Shape)
		}
		if _, err := CrossEntropy(fake(dtype.F32, 2), fake(dtype.F32, 2), fake(dtype.F32, 2), bad, fake(dtype.I64, 2), 0, 0, 0); err == nil {
			t.Errorf("no error for cross-entropy of %v %v", bad.Type, bad.Shape)
		}
	}
}
