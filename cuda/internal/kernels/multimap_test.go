package kernels

import (
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// adamW is a step of AdamW over (p, m, v, g) with scalars rate, decay·rate, β₁, β₂, ε and the two bias corrections
// (I. Loshchilov, F. Hutter: Decoupled weight decay regularization, 2019).
func adamW(t testing.TB, param dtype.Type) *expr.Program {
	p, m, v, g := expr.X(0), expr.X(1), expr.X(2), expr.X(3)
	s := func(i int) *expr.Expr { return expr.Param(i, dtype.F32) }
	one := expr.C(1)
	m1 := m.Mul(s(2)).Add(g.Mul(one.Sub(s(2))))
	v1 := v.Mul(s(3)).Add(g.Mul(g).Mul(one.Sub(s(3))))
	p1 := p.Sub(p.Mul(s(1))).Sub(s(0).Mul(m1.Mul(s(5))).Div(v1.Mul(s(6)).Sqrt().Add(s(4))))
	f := dtype.F32
	return program(t, []dtype.Type{param, f, f}, []dtype.Type{param, f, f, param}, p1, m1, v1)
}

func sgd(t testing.TB) *expr.Program {
	f := dtype.F32
	return program(t, []dtype.Type{f, f}, []dtype.Type{f, f, f}, expr.X(0).Sub(expr.Param(0, f).Mul(expr.X(1).Mul(expr.Param(1, f)).Add(expr.X(2)))),
		expr.X(1).Mul(expr.Param(1, f)).Add(expr.X(2)))
}

// A step over groups of several sizes, in place, aligned and not, has expr's bits.
func TestMultiMap(t *testing.T) {
	scalars := []float64{1e-2, 1e-4, 0.9, 0.999, 1e-8, 10, 1000}
	for _, test := range []struct {
		what string
		p    *expr.Program
	}{{"adamw", adamW(t, dtype.F32)}, {"adamw bf16", adamW(t, dtype.BF16)}, {"sgd", sgd(t)}} {
		p := test.p
		m := newMachine(t)
		var params []uint64
		for i := range p.Params {
			params = append(params, expr.Encode(dtype.F32, scalars[i]))
		}
		slots := m.fill(m.tensor(dtype.I64, dense(len(params)), 0), func(i int) uint64 { return params[i] })
		var outs, ins [][]Operand
		var before [][][]uint64
		for _, g := range []struct{ n, skip int }{{1, 0}, {0, 0}, {1000, 0}, {9000, 0}, {130, 1}, {8192, 0}} {
			var in []Operand
			var bits [][]uint64
			for k, typ := range p.In {
				o := m.random(m.tensor(typ, dense(g.n), g.skip))
				if k == 2 && len(p.In) == 4 { // second moments are not negative
					old := m.read(o)
					o = m.fill(o, func(i int) uint64 { return old[i] &^ (1 << 31) })
				}
				in = append(in, o)
				bits = append(bits, m.read(o))
			}
			ins, outs, before = append(ins, in), append(outs, in[:len(p.Out)]), append(before, bits)
		}
		table, blocks, err := MultiMapTable(p, outs, ins)
		if err != nil {
			t.Fatal(err)
		}
		o := m.fill(m.tensor(dtype.U8, dense(len(table)), 0), func(i int) uint64 { return uint64(table[i]) })
		list, err := MultiMap(p, o.Addr, blocks, slots.Addr)
		s := m.run(list, err)
		if len(list) != 1 {
			t.Errorf("%s: %d launches", test.what, len(list))
		}
		if s.Sectors > s.IdealSectors+40 { // the misaligned group
			t.Errorf("%s: %d sectors, %d would do", test.what, s.Sectors, s.IdealSectors)
		}
		for g := range outs {
			for k, out := range outs[g] {
				m.compare(fmt.Sprintf("%s, group %d, output %d", test.what, g, k), out, func(i int) uint64 {
					x := make([]uint64, len(p.In))
					for j := range x {
						x[j] = before[g][j][i]
					}
					return p.Eval(nil, x, params, int64(i))[k]
				})
			}
		}
	}
}

func TestMultiMapGolden(t *testing.T) {
	list, err := MultiMap(adamW(t, dtype.F32), 1<<20, 1, 1<<21)
	golden(t, "multimap_adamw", list, err)
	list, err = MultiMap(sgd(t), 1<<20, 1, 1<<21)
	golden(t, "multimap_sgd", list, err)
	p := sgd(t)
	f := fake(dtype.F32, 4)
	for _, bad := range []Operand{fake(dtype.F64, 4), fake(dtype.F32, 5), {Addr: 4, Type: dtype.F32, Layout: strided([]int{4}, []int{2})}} {
		if _, _, err := MultiMapTable(p, [][]Operand{{f, f}}, [][]Operand{{f, f, bad}}); err == nil {
			t.Errorf("no error for a group with %v %v", bad.Type, bad.Shape)
		}
	}
}
