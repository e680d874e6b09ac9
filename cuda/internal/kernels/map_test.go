package kernels

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// mapCase runs p on operands with the given layouts, and compares each element with package expr.
// It returns the ideal and the actual number of memory sectors.
func mapCase(t *testing.T, what string, p *expr.Program, outs, ins []shape.Layout, skip int, params []uint64) (ideal, actual int64) {
	t.Helper()
	m := newMachine(t)
	var out, in []Operand
	for k, l := range outs {
		out = append(out, m.tensor(p.Out[k], l, skip))
	}
	var x [][]uint64
	for k, l := range ins {
		in = append(in, m.random(m.tensor(p.In[k], l, skip)))
		x = append(x, m.read(in[k]))
	}
	list, err := Map(p, out, in, params)
	s := m.run(list, err)
	if outs[0].Size() == 0 {
		if len(list) != 0 {
			t.Errorf("%s: %d launches for no elements", what, len(list))
		}
		return
	}
	for k := range out {
		m.compare(fmt.Sprintf("%s, output %d, %s", what, k, list[0].Kernel.Name), out[k], func(i int) uint64 {
			arg := make([]uint64, len(x))
			for j := range x {
				arg[j] = x[j][i]
			}
			return p.Eval(nil, arg, params, int64(i))[k]
		})
	}
	return s.IdealSectors, s.Sectors
}

func program(t testing.TB, out, in []dtype.Type, e ...*expr.Expr) *expr.Program {
	t.Helper()
	p, err := expr.Lower(e, out, in, -1)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func dense(d ...int) shape.Layout { return shape.Dense(shape.Of(d...)) }

func strided(dims, strides []int) shape.Layout {
	return shape.Layout{Shape: shape.Of(dims...), Strides: shape.Of(strides...)}
}

var x0, x1 = expr.X(0), expr.X(1)

// TestMapTypes checks that elements of every type are stored, loaded and converted to every type.
func TestMapTypes(t *testing.T) {
	for _, from := range dtype.Types() {
		for _, to := range dtype.Types() {
			p := program(t, []dtype.Type{to}, []dtype.Type{from}, x0)
			what := fmt.Sprintf("%v to %v", from, to)
			mapCase(t, what, p, []shape.Layout{dense(77)}, []shape.Layout{dense(77)}, 0, nil)
			mapCase(t, what+", misaligned", p, []shape.Layout{dense(9)}, []shape.Layout{dense(9)}, 1, nil)
		}
	}
}

// TestMapPairs runs maps of one operand, in which a thread reads two vectors before it computes
// either of them. The usual grid would need millions of elements for that. Here a few blocks loop
// over thousands of elements. The lengths leave every possible number of vectors and of single
// elements for the end.
func TestMapPairs(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F64, dtype.U8} {
		p := program(t, []dtype.Type{typ}, []dtype.Type{typ}, x0.Mul(x0))
		v := 16 / typ.Size()
		for _, vectors := range []int{0, 1, 255, 256, 257, 511, 512, 513, 767, 768, 1024, 1030, 2049} {
			for _, more := range []int{0, 1, v - 1} {
				for blocks := range uint32(3) {
					m := newMachine(t)
					x, y := m.tensor(typ, dense(vectors*v+more), 0), m.tensor(typ, dense(vectors*v+more), 0)
					list, err := Map(p, []Operand{y}, []Operand{m.random(x)}, nil)
					if len(list) == 1 {
						list[0].Grid[0] = blocks + 1
					}
					m.run(list, err)
					in := m.read(x)
					m.compare(fmt.Sprintf("%v × %d", typ, len(in)), y, func(i int) uint64 { return p.Eval(nil, in[i:i+1], nil, int64(i))[0] })
				}
			}
		}
	}
	for n, want := range map[int]uint32{4 * 256 * 2 * manyBlocks: manyBlocks, 4*256*2*manyBlocks - 4*256*2: 2*manyBlocks - 2} {
		list, err := Map(program(t, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, x0.Mul(x0)), []Operand{fake(dtype.F32, n)}, []Operand{fake(dtype.F32, n)}, nil)
		if err != nil || list[0].Grid[0] != want {
			t.Errorf("%d elements: %v blocks, want %d; %v", n, list[0].Grid, want, err)
		}
	}
}

// TestMapDense runs maps on dense operands of every length. All accesses must use whole sectors.
func TestMapDense(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.F16, dtype.BF16, dtype.F64, dtype.I64, dtype.I8} {
		p := program(t, []dtype.Type{typ}, []dtype.Type{typ, typ}, x0.Mul(x1).Add(x0))
		for _, n := range []int{0, 1, 2, 3, 7, 8, 31, 255, 256, 1023, 1024, 1025, 4099} {
			l := []shape.Layout{dense(n), dense(n)}
			mapCase(t, fmt.Sprintf("%v × %d", typ, n), p, l[:1], l, 0, nil)
		}
		if ideal, actual := mapCase(t, "sectors", p, []shape.Layout{dense(8192)}, []shape.Layout{dense(8192), dense(8192)}, 0, nil); ideal != actual {
			t.Errorf("%v: %d sectors, %d would do", typ, actual, ideal)
		}
	}
}

func TestMapLayouts(t *testing.T) {
	p := program(t, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32, dtype.F32}, x0.Sub(x1.Mul(x0)))
	tests := []struct {
		what      string
		out, a, b shape.Layout
		skip      int
	}{
		{"scalar", dense(), dense(), dense(), 0},
		{"broadcast scalar", dense(100), dense(100), strided([]int{100}, []int{0}), 0},
		{"bias row", dense(5, 64), dense(5, 64), strided([]int{5, 64}, []int{0, 1}), 0},
		{"odd bias row", dense(5, 63), dense(5, 63), strided([]int{5, 63}, []int{0, 1}), 0},
		{"column", dense(64, 12), dense(64, 12), strided([]int{64, 12}, []int{1, 0}), 0},
		{"transposed", dense(17, 33), strided([]int{17, 33}, []int{1, 17}), dense(17, 33), 0},
		{"transposed in whole tiles", dense(64, 96), strided([]int{64, 96}, []int{1, 64}), strided([]int{64, 96}, []int{0, 1}), 0},
		{"transposed batch", dense(3, 40, 2, 20), strided([]int{3, 40, 2, 20}, []int{1600, 1, 800, 40}), strided([]int{3, 40, 2, 20}, []int{1, 3, 0, 240}), 0},
		{"both transposed", dense(20, 70), strided([]int{20, 70}, []int{1, 20}), strided([]int{20, 70}, []int{1, 24}), 1},
		{"transposed output", strided([]int{17, 33}, []int{1, 17}), dense(17, 33), dense(17, 33), 0},
		{"window", strided([]int{6, 8}, []int{16, 1}), strided([]int{6, 8}, []int{12, 1}), dense(6, 8), 0},
		{"misaligned window", strided([]int{6, 8}, []int{16, 1}), strided([]int{6, 8}, []int{12, 1}), dense(6, 8), 1},
		{"step 2", dense(50), strided([]int{50}, []int{2}), strided([]int{50}, []int{3}), 0},
		{"reversed", dense(50), strided([]int{50}, []int{-1}), dense(50), 0},
		{"eight dimensions", dense(2, 3, 2, 3, 2, 3, 2, 3), strided([]int{2, 3, 2, 3, 2, 3, 2, 3}, []int{1, 2, 6, 12, 36, 72, 216, 432}),
			strided([]int{2, 3, 2, 3, 2, 3, 2, 3}, []int{0, 1, 0, 3, 0, 9, 0, 27}), 0},
		{"empty", dense(3, 0), dense(3, 0), dense(3, 0), 0},
	}
	defer func(n int) { narrowLimit = n }(narrowLimit)
	for range 2 {
		for _, test := range tests {
			mapCase(t, test.what, p, []shape.Layout{test.out}, []shape.Layout{test.a, test.b}, test.skip, nil)
		}
		narrowLimit = 0 // in the second iteration, indices have 64 bits
	}
}

// TestMapSideBySide runs maps on operands that alternate in memory, element by element, like real
// and imaginary parts. One access must read or write elements of both operands.
func TestMapSideBySide(t *testing.T) {
	x2, x3 := expr.X(2), expr.X(3)
	for _, typ := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F64, dtype.U8} {
		table := typ.Compute()
		p := program(t, []dtype.Type{typ, typ}, []dtype.Type{typ, typ, table, table}, x0.Mul(x2).Sub(x1.Mul(x3)), x1.Mul(x2).Add(x0.Mul(x3)))
		for _, c := range []struct {
			what string
			// The distance between rows, and the offset of the second operand.
			pitch, second int
			in, skip      int // stride and offset of the inputs
			columns       int
			paired        uint32
		}{
			{"both", 32, 1, 2, 0, 16, 0b101},
			{"with a gap", 48, 1, 2, 0, 16, 0b101},
			{"into halves", 32, 1, 1, 0, 16, 0b1},
			{"misaligned", 32, 1, 2, 1, 16, 0},
			{"odd", 30, 1, 2, 0, 15, 0},
			{"turned about", 32, -1, 2, 2, 16, 0},
			{"apart", 64, 3, 2, 0, 16, 0},
		} {
			const rows = 6
			m := newMachine(t)
			at := func(step, second int) (list []Operand) {
				l := strided([]int{rows, c.columns}, []int{c.pitch, step})
				o := m.tensor(typ, dense(rows*c.pitch+c.skip+8), 0)
				for k := range 2 {
					l.Offset = c.skip + k*second
					list = append(list, Operand{Addr: o.Addr, Type: typ, Layout: l})
				}
				return list
			}
			second := c.second
			if c.in == 1 {
				second = c.columns
			}
			in, out := at(c.in, second), at(2, c.second)
			m.random(in[0])
			m.random(in[1])
			if c.what == "both" {
				out = in // the map works in place
			}
			for range 2 {
				in = append(in, m.random(m.tensor(table, strided([]int{rows, c.columns}, []int{0, 1}), 0)))
			}
			var x [4][]uint64
			for k, o := range in {
				x[k] = m.read(o)
			}
			list, err := Map(p, out, in, nil)
			m.run(list, err)
			for k, o := range out {
				m.compare(fmt.Sprintf("%v, %s, result %d", typ, c.what, k), o, func(i int) uint64 {
					return p.Eval(nil, []uint64{x[0][i], x[1][i], x[2][i], x[3][i]}, nil, int64(i))[k]
				})
			}
			want := ""
			if c.paired != 0 && typ != dtype.F64 { // a pair of F64 values already fills 16 bytes
				want = fmt.Sprintf("_p%x", c.paired)
			}
			if name := list[0].Kernel.Name; want != "" != strings.Contains(name, "_p") || !strings.HasSuffix(name, want) {
				t.Errorf("%v, %s: %s, want %q", typ, c.what, name, want)
			}
		}
	}
}

// TestMapPrograms runs programs with all primitives, several outputs, scalars and the index. The
// results must have the bits that package expr defines.
func TestMapPrograms(t *testing.T) {
	f, d, i, l := dtype.F32, dtype.F64, dtype.I32, dtype.I64
	h := []dtype.Type{dtype.F16}
	c := expr.C
	tests := []struct {
		what    string
		out, in []dtype.Type
		e       []*expr.Expr
		params  []uint64
	}{
		{"float arithmetic", []dtype.Type{f, f}, []dtype.Type{f, f}, []*expr.Expr{
			x0.Div(x1).Add(x0.FMA(x1, x0)).Sub(x0.Neg().Abs().Sqrt()).Max(x1.Min(c(0.5))),
			x0.Floor().Add(x1.Trunc().Mul(c(3))).Add(x0.Mul(c(1.5)).RoundEven())}, nil},
		{"double arithmetic", []dtype.Type{d}, []dtype.Type{d, d}, []*expr.Expr{
			x0.Div(x1).Add(x0.FMA(x1, x0)).Sub(x0.Neg().Abs().Sqrt()).Max(x1.Min(c(0.5))).Add(x0.Floor()).Sub(x1.RoundEven())}, nil},
		{"integers", []dtype.Type{i, dtype.I16, dtype.U8}, []dtype.Type{i, i}, []*expr.Expr{
			x0.Mul(x1).Sub(x0.Neg()).Xor(x1.Abs().Shl(c(2))).Or(x0.Shr(c(1))), x0.Min(x1).Mul(c(30000)), x0.Max(x1).And(x0.Not())}, nil},
		{"long integers", []dtype.Type{l}, []dtype.Type{l, l}, []*expr.Expr{
			x0.Mul(x1).Sub(x0.Neg()).Xor(x1.Abs().Shl(c(40))).Or(x0.Shr(x1.And(c(63))))}, nil},
		{"comparisons", []dtype.Type{dtype.Bool, f}, []dtype.Type{f, f}, []*expr.Expr{
			x0.Lt(x1).Xor(x0.Ne(x1.Floor())).And(x0.Ge(c(-1)).Not()), x0.Gt(x1).Select(x0, x0.Le(x1).Select(x1, c(7)))}, nil},
		{"scalars", []dtype.Type{f}, []dtype.Type{f}, []*expr.Expr{x0.Mul(expr.Param(0)).Add(expr.Param(1, l).Cvt(f))},
			[]uint64{expr.Encode(f, 2.5), expr.Encode(l, -3)}},
		{"index", []dtype.Type{l, f}, []dtype.Type{f}, []*expr.Expr{expr.Index(l).Mul(c(2)), expr.Index(dtype.U32).Cvt(f).Add(x0)}, nil},
		{"fill", []dtype.Type{f}, nil, []*expr.Expr{expr.Param(0, f)}, []uint64{expr.Encode(f, 3.25)}},
		{"half", h, []dtype.Type{dtype.F16, dtype.F16}, []*expr.Expr{x0.Mul(x1).Add(c(0.001))}, nil},
		{"saturation", []dtype.Type{i, l, dtype.U8}, []dtype.Type{f}, []*expr.Expr{
			x0.Mul(c(3e38)).Cvt(i), x0.Mul(c(1e30)).Mul(c(1e30)).Sub(x0.Mul(c(1e30)).Mul(c(1e30))).Cvt(l), x0.Cvt(dtype.U8)}, nil},
	}
	for name := range expr.Funcs() {
		if fn := expr.Funcs()[name]; fn.Arity == 1 {
			tests = append(tests, struct {
				what    string
				out, in []dtype.Type
				e       []*expr.Expr
				params  []uint64
			}{name, []dtype.Type{f}, []dtype.Type{f}, []*expr.Expr{expr.Call(name, x0)}, nil})
		}
	}
	for _, test := range tests {
		p := program(t, test.out, test.in, test.e...)
		ls := func(n int, types []dtype.Type, l shape.Layout) []shape.Layout {
			list := make([]shape.Layout, len(types))
			for k := range list {
				list[k] = l
			}
			return list
		}
		n := 203
		mapCase(t, test.what, p, ls(n, test.out, dense(n)), ls(n, test.in, dense(n)), 0, test.params)
		s := strided([]int{7, 5}, []int{1, 9})
		mapCase(t, test.what+", strided", p, ls(n, test.out, s), ls(n, test.in, s), 0, test.params)
	}
}

func TestMapGolden(t *testing.T) {
	p := program(t, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32, dtype.F32}, x0.Mul(x1).Add(expr.Param(0)))
	list, err := Map(p, []Operand{fake(dtype.F32, 1024)}, []Operand{fake(dtype.F32, 1024), fake(dtype.F32, 1024)}, []uint64{0})
	golden(t, "map_dense", list, err)
	row := Operand{Addr: 1 << 20, Type: dtype.F32, Layout: strided([]int{16, 64}, []int{0, 1})}
	list, err = Map(p, []Operand{fake(dtype.F32, 16, 64)}, []Operand{fake(dtype.F32, 16, 64), row}, []uint64{0})
	golden(t, "map_rows", list, err)
	if ideal, actual := mapCase(t, "transposed", identity(t, dtype.F32), []shape.Layout{dense(64, 96)}, []shape.Layout{strided([]int{64, 96}, []int{1, 64})}, 0, nil); ideal != actual {
		t.Errorf("transposed: %d sectors, %d would do", actual, ideal)
	}
	turned := Operand{Addr: 1 << 20, Type: dtype.F32, Layout: strided([]int{16, 64}, []int{1, 16})}
	list, err = Map(p, []Operand{fake(dtype.F32, 16, 64)}, []Operand{fake(dtype.F32, 16, 64), turned}, []uint64{0})
	golden(t, "map_tile", list, err)
	turned.Strides = shape.Of(2, 100)
	list, err = Map(p, []Operand{fake(dtype.F32, 16, 64)}, []Operand{fake(dtype.F32, 16, 64), turned}, []uint64{0})
	golden(t, "map_strided", list, err)
	half := dtype.BF16
	turn := program(t, []dtype.Type{half, half}, []dtype.Type{half, half, dtype.F32}, x0.Mul(expr.X(2)), x1.Mul(expr.X(2)))
	real := Operand{Addr: 1 << 20, Type: half, Layout: strided([]int{64, 16}, []int{32, 2})}
	imaginary := real
	imaginary.Offset++
	list, err = Map(turn, []Operand{real, imaginary}, []Operand{real, imaginary, {Addr: 1 << 21, Type: dtype.F32, Layout: strided([]int{64, 16}, []int{0, 1})}}, nil)
	golden(t, "map_pairs", list, err)
	cast := program(t, []dtype.Type{dtype.BF16}, []dtype.Type{dtype.F32}, x0)
	list, err = Map(cast, []Operand{fake(dtype.BF16, 1024)}, []Operand{fake(dtype.F32, 1024)}, nil)
	golden(t, "map_cast", list, err)
}

func TestMapErrors(t *testing.T) {
	p := program(t, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, x0.Mul(expr.Param(0)))
	for _, test := range []struct {
		out, in Operand
		params  []uint64
	}{
		{fake(dtype.F32, 3), fake(dtype.F32, 4), []uint64{0}},
		{fake(dtype.F32, 3), fake(dtype.F64, 3), []uint64{0}},
		{fake(dtype.F32, 3), fake(dtype.F32, 3), nil},
	} {
		if _, err := Map(p, []Operand{test.out}, []Operand{test.in}, test.params); err == nil {
			t.Errorf("no error for %v of %v", test.out, test.in)
		}
	}
}

// TestDivisor checks division by multiplication for many divisors. Most dividends are multiples of
// the divisor or numbers next to a multiple.
func TestDivisor(t *testing.T) {
	for _, d := range []int{1, 2, 3, 5, 6, 7, 10, 64, 641, 1000, 65535, 65536, 65537, 1<<30 - 1, 1 << 30, 1<<31 - 1} {
		m, s := divisor(d)
		for _, n := range []int{0, 1, d - 1, d, d + 1, 2*d - 1, 1<<31 - 1, (1<<31 - 1) / d * d, (1<<31-1)/d*d - 1} {
			if n < 0 || n > 1<<31-1 {
				continue
			}
			hi := uint32(uint64(uint32(n)) * uint64(m) >> 32)
			if q := (hi + uint32(n)) >> s; int(q) != n/d {
				t.Errorf("%d / %d = %d, want %d", n, d, q, n/d)
			}
		}
	}
}

// TestMapTurnsWhatFits checks maps with many transposed operands. Each must be transposed in shared
// memory as long as there is room.
func TestMapTurnsWhatFits(t *testing.T) {
	for _, n := range []int{5, 6, 8} {
		e, types, turned := expr.X(0), []dtype.Type{dtype.F64}, []shape.Layout{strided([]int{40, 33}, []int{1, 40})}
		for i := 1; i < n; i++ {
			e = e.Mul(expr.C(0.5)).Add(expr.X(i))
			types, turned = append(types, dtype.F64), append(turned, turned[0])
		}
		p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.F64}, types, -1)
		mapCase(t, fmt.Sprintf("%d transposed operands", n), p, []shape.Layout{dense(40, 33)}, turned, 0, nil)
	}
}
