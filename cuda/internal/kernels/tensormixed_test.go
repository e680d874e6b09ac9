package kernels

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// roundedTo returns o with its elements rounded to type t, as a product rounds a float32 factor.
func (m *machine) roundedTo(o Operand, t dtype.Type) Operand {
	if o.Type == t {
		return o
	}
	values := m.read(o)
	return m.fill(m.tensor(t, dense(o.Shape.At(0), o.Shape.At(1), o.Shape.At(2)), 0), func(i int) uint64 {
		return expr.Encode(t, expr.Decode(o.Type, values[i]))
	})
}

// TestMixedFactors multiplies a float32 factor and a 16-bit factor. The kernel rounds the float32
// factor when it loads it. The result must have the same bits as if the factor had been rounded
// before. The cases read factors in whole accesses, in pairs and in single elements. They have
// every storage order, rows of several lengths, a batch, and sums of no products.
func TestMixedFactors(t *testing.T) {
	for i, f := range []tensorForm{{64, 64, 32, 2, 2, 3, 4}, tensorForms[len(tensorForms)-1]} {
		for j, d := range [][4]int{{1, 20, 72, 136}, {1, 65, 66, 70}, {2, 7, 63, 65}, {1, 1, 40, 33}, {1, 16, 64, 0}} {
			for e, orders := range []string{"NN", "NT", "TN", "TT"} {
				low := []dtype.Type{dtype.BF16, dtype.F16}[(i+j+e)%2]
				for k, types := range [][2]dtype.Type{{low, dtype.F32}, {dtype.F32, low}} {
					m := newMachine(t)
					a := m.random(m.tensor(types[0], matrixLayout(orders[:1], d[0], d[1], d[3]), 0))
					b := m.random(m.tensor(types[1], matrixLayout(orders[1:], d[0], d[3], d[2]), 0))
					out := []dtype.Type{low, dtype.F32}[(j+k)%2]
					o := ProductOperands{Out: m.tensor(out, dense(d[0], d[1], d[2]), 0), A: a, B: b}
					s, ok := tensorSpecFor(o.Out, a, b)
					if s.form = f; !ok || s.typ != low || s.a.wide == s.b.wide {
						t.Fatalf("%v: %v %v", types, s.typ, ok)
					}
					list, err := launchMatMul(s, o)
					m.run(list, err)
					rounded := o
					rounded.Out, rounded.A, rounded.B = m.tensor(out, dense(d[0], d[1], d[2]), 0), m.roundedTo(a, low), m.roundedTo(b, low)
					s, _ = tensorSpecFor(rounded.Out, rounded.A, rounded.B)
					s.form, s.odd, s.a = f, false, chooseTensorLoad(rounded.A, 1, 2)
					list, err = launchMatMul(s, rounded)
					m.run(list, err)
					m.nearProduct("rounded before", rounded)
					want := m.read(rounded.Out)
					m.compare(fmt.Sprint(f, d, orders, types), o.Out, func(i int) uint64 { return want[i] })
				}
			}
		}
	}
}

// TestMixedPlans plans products of few rows with a float32 weight, some of them with divided sums.
// The planner must have forms for them. A product of a single row must not be planned as a
// reduction.
func TestMixedPlans(t *testing.T) {
	for _, d := range [][3]int{{1, 70, 500}, {16, 64, 3000}, {50, 64, 264}} {
		m := newMachine(t)
		in := func(t dtype.Type, d ...int) Operand { return m.random(m.tensor(t, dense(d...), 0)) }
		o := ProductOperands{Out: m.tensor(dtype.BF16, dense(1, d[0], d[1]), 0), A: in(dtype.BF16, 1, d[0], d[2]), B: in(dtype.F32, 1, d[2], d[1]),
			Bias: in(dtype.F32, d[1]), Counters: m.counters}
		list, err := MatMulSplit(a100, o, m.scratch)
		m.run(list, err)
		if d[2] == 3000 && !strings.Contains(list[0].Kernel.Name, "_parts") {
			t.Errorf("%v: the sum is in one part", d)
		}
		o.B = m.roundedTo(o.B, dtype.BF16)
		m.nearProduct(fmt.Sprint(d), o)
	}
	for _, g := range []*GPU{GPUOf(80, "", 0), GPUOf(89, "", 0), GPUOf(90, "", 0)} {
		for _, d := range [][3]int{{1, 1, 1}, {64, 50257, 768}, {8192, 3072, 768}, {3, 1000, 7}} {
			for _, types := range [][2]dtype.Type{{dtype.BF16, dtype.F32}, {dtype.F32, dtype.F16}} {
				a, b := fake(types[0], 1, d[0], d[2]), fake(types[1], 1, d[2], d[1])
				if p := g.choosePlan(fake(dtype.F32, 1, d[0], d[1]), a, b, true, true); p.form.bm == 0 || p.realignA || p.realignB || !(p.seconds > 0 && p.seconds < 1) {
					t.Errorf("%v %v: %v, %v s", d, types, p.form, p.seconds)
				}
			}
		}
	}
}
