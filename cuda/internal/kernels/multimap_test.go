package kernels

import (
	"fmt"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// adamW returns the program of a step of AdamW on the operands p, m, v and g. Its scalars are rate,
// decay·rate, β₁, β₂, ε and the two bias corrections (I. Loshchilov, F. Hutter: Decoupled weight
// decay regularization, 2019).
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

// TestMultiMap runs an optimizer step in place on groups of several sizes, aligned or not. The
// results must have the bits that package expr defines.
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
				if k == 2 && len(p.In) == 4 { // second moments are never negative
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
		list, err := MultiMap(p, o.Addr, blocks, slots, Operand{})
		s := m.run(list, err)
		if len(list) != 1 {
			t.Errorf("%s: %d launches", test.what, len(list))
		}
		if s.Sectors > s.IdealSectors+40 { // the misaligned group may access 40 more sectors
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

// unscale returns the program that multiplies gradients of type typ by scalar 0.
func unscale(t testing.TB, typ dtype.Type) *expr.Program {
	return program(t, []dtype.Type{typ}, []dtype.Type{typ}, expr.X(0).Mul(expr.Param(0, typ.Compute())))
}

// TestMultiMapFound puts an infinity or a NaN at any index, which must set nonFinite to 1. All
// other values must leave it at 0. The program's results must not depend on whether nonFinite is
// present.
func TestMultiMapFound(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.F16, dtype.BF16, dtype.F64} {
		p := unscale(t, typ)
		for _, bad := range []struct {
			group, at int
			v         float64
		}{{-1, 0, 0}, {0, 0, math.Inf(1)}, {1, 8999, math.NaN()}, {1, 77, math.Inf(-1)}, {2, 129, math.NaN()}} {
			m := newMachine(t)
			slots := m.fill(m.tensor(dtype.I64, dense(1), 0), func(int) uint64 { return expr.Encode(typ.Compute(), 0.25) })
			nonFinite := m.fill(m.tensor(dtype.F32, dense(1), 0), func(int) uint64 { return 0 })
			var groups [][]Operand
			var before [][]uint64
			for g, size := range []struct{ n, skip int }{{1, 0}, {9000, 0}, {130, 1}} {
				o := m.random(m.tensor(typ, dense(size.n), size.skip))
				old := m.read(o)
				if g == bad.group {
					o = m.fill(o, func(i int) uint64 {
						if i == bad.at {
							return expr.Encode(typ, bad.v)
						}
						return old[i]
					})
				}
				groups, before = append(groups, []Operand{o}), append(before, m.read(o))
			}
			table, blocks, err := MultiMapTable(p, groups, groups)
			if err != nil {
				t.Fatal(err)
			}
			at := m.fill(m.tensor(dtype.U8, dense(len(table)), 0), func(i int) uint64 { return uint64(table[i]) })
			list, err := MultiMap(p, at.Addr, blocks, slots, nonFinite)
			if m.run(list, err); len(list) != 1 {
				t.Errorf("%d launches", len(list))
			}
			want := uint64(0)
			if bad.group >= 0 {
				want = oneBits
			}
			if got := m.read(nonFinite)[0]; got != want {
				t.Errorf("%v with %v in group %d: found %#x, want %#x", typ, bad.v, bad.group, got, want)
			}
			for g, o := range groups {
				m.compare(fmt.Sprintf("%v, group %d", typ, g), o[0], func(i int) uint64 {
					return p.Eval(nil, []uint64{before[g][i]}, []uint64{expr.Encode(typ.Compute(), 0.25)}, int64(i))[0]
				})
			}
		}
	}
}

func TestMultiMapGolden(t *testing.T) {
	list, err := MultiMap(adamW(t, dtype.F32), 1<<20, 1, fake(dtype.I64, 1), Operand{})
	golden(t, "multimap_adamw", list, err)
	list, err = MultiMap(sgd(t), 1<<20, 1, fake(dtype.I64, 1), Operand{})
	golden(t, "multimap_sgd", list, err)
	list, err = MultiMap(unscale(t, dtype.BF16), 1<<20, 1, fake(dtype.I64, 1), fake(dtype.F32, 1))
	golden(t, "multimap_finite", list, err)
	p := sgd(t)
	f := fake(dtype.F32, 4)
	for _, bad := range []Operand{fake(dtype.F64, 4), fake(dtype.F32, 5), {Addr: 4, Type: dtype.F32, Layout: strided([]int{4}, []int{2})}} {
		if _, _, err := MultiMapTable(p, [][]Operand{{f, f}}, [][]Operand{{f, f, bad}}); err == nil {
			t.Errorf("no error for a group with %v %v", bad.Type, bad.Shape)
		}
	}
}
