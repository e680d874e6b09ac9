package kernels

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestVariants compares the results of each variant with those of the planner's choice. If both
// divide the sums equally, all bits must be equal.
func TestVariants(t *testing.T) {
	for _, c := range []struct {
		name string
		typ  dtype.Type
		out  []int
		ins  [][]int
		of   func(m *machine, out Operand, ins []Operand) ([]Variant, error)
		most float64 // largest allowed difference from the planner's results
		many int     // least number of variants
	}{
		{"product float32", dtype.F32, []int{1, 132, 140}, [][]int{{1, 132, 40}, {1, 40, 140}}, productVariants, 1e-3, 20},
		{"product float32, k divided", dtype.F32, []int{1, 12, 20}, [][]int{{1, 12, 160}, {1, 160, 20}}, productVariants, 1e-2, 30},
		{"product bfloat16", dtype.BF16, []int{1, 34, 72}, [][]int{{1, 34, 136}, {1, 136, 72}}, productVariants, 1, 30},
		{"elementwise", dtype.F32, []int{40000}, [][]int{{40000}, {40000}}, func(_ *machine, out Operand, ins []Operand) ([]Variant, error) {
			return MapVariants(program(t, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32, dtype.F32}, x0.Add(x1)), []Operand{out}, ins, nil)
		}, 0, 8},
		{"sums of rows", dtype.F32, []int{3, 1}, [][]int{{3, 2100}}, func(m *machine, out Operand, ins []Operand) ([]Variant, error) {
			return ReduceVariants(&device.Reduction{Kind: device.Sum, Map: identity(t, dtype.F32)}, out, ins, nil, m.scratch)
		}, 1e-3, 6},
		{"softmax", dtype.F32, []int{9, 200}, [][]int{{9, 200}}, func(_ *machine, out Operand, ins []Operand) ([]Variant, error) {
			return SoftmaxVariants(out, ins[0], false)
		}, 1e-6, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			m.conflicts = true
			out := m.tensor(c.typ, dense(c.out...), 0)
			var ins []Operand
			for _, d := range c.ins {
				ins = append(ins, m.random(m.tensor(c.typ, dense(d...), 0)))
			}
			list, err := c.of(m, out, ins)
			if err != nil || len(list) < c.many || list[0].Name != "chosen" {
				t.Fatalf("%d variants, %v", len(list), err)
			}
			var want []uint64
			for _, v := range list {
				m.fill(out, func(int) uint64 { return expr.Encode(c.typ, math.NaN()) })
				m.run(v.Launches, nil)
				got := m.read(out)
				if want == nil {
					want = got
				}
				for i := range got {
					if d := math.Abs(expr.Decode(c.typ, got[i]) - expr.Decode(c.typ, want[i])); !(d <= c.most) {
						t.Errorf("%s: element %d is %v, the planner's kernel gives %v", v.Name, i, expr.Decode(c.typ, got[i]), expr.Decode(c.typ, want[i]))
						break
					}
				}
			}
		})
	}
}

func productVariants(m *machine, out Operand, ins []Operand) ([]Variant, error) {
	return MatMulVariants(a100, ProductOperands{Out: out, A: ins[0], B: ins[1], Counters: m.counters}, m.scratch)
}
