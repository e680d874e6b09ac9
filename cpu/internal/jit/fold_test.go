//go:build linux && amd64 && !noasm

package jit

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// folded combines values with the interpreter, in the order that [Fold] specifies.
func folded(k FoldKind, t dtype.Type, x []uint64, lanes int) uint64 {
	a, b := expr.X(0), expr.X(1)
	e := []*expr.Expr{a.Add(b), a.Mul(b), a.Max(b), a.Min(b)}[k]
	p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{t}, []dtype.Type{t, t}, -1)
	two := func(a, b uint64) uint64 { return p.Eval(nil, []uint64{a, b}, nil, 0)[0] }
	acc := make([]uint64, lanes)
	for i := range acc {
		acc[i] = neutral(k, t)
		if t.Size() == 4 {
			acc[i] &= 0xffffffff
		}
	}
	for i, v := range x {
		acc[i%lanes] = two(acc[i%lanes], v)
	}
	for n := lanes / 2; n > 0; n /= 2 {
		for i := range n {
			acc[i] = two(acc[i], acc[i+n])
		}
	}
	return acc[0]
}

// TestFolds runs loops that combine the values of rows, with and without stores. They must combine
// in the order that [Fold] specifies.
func TestFolds(t *testing.T) {
	if !canRun(t) {
		return
	}
	r := rand.New(rand.NewPCG(7, 8))
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.I32, dtype.U32, dtype.I64, dtype.U64, dtype.Bool} {
		for _, kind := range []FoldKind{Sum, Prod, Max, Min} {
			if typ == dtype.Bool && kind < Max {
				continue
			}
			for _, short := range []bool{false, true} {
				for _, n := range []int{1, 7, 8, 16, 17, 63, 64, 65, 200, 1024} {
					for _, store := range []bool{false, true} {
						testFold(t, r, typ, typ, kind, short, store, n)
						if typ.Size() == 4 || typ == dtype.Bool { // AVX2 has four lanes then
							testFold(t, r, dtype.F64, typ, kind, short, store, n)
						}
					}
				}
			}
		}
	}
}

func testFold(t *testing.T, r *rand.Rand, from, typ dtype.Type, kind FoldKind, short, store bool, n int) {
	const rows = 7
	x := expr.X(0)
	e := x.Cvt(typ).Max(expr.X(1).Cvt(typ))
	if typ == dtype.Bool {
		e = x.Cvt(typ).Xor(expr.X(1).Cvt(typ))
	}
	p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{typ}, []dtype.Type{from, from}, -1)
	q := prepare(t, p, r, rows, n, 2)
	q.loop.Fold = &Fold{Value: p.Outs[0], Kind: kind, Short: short, Reg: q.loop.Arena + 1}
	if !store {
		q.loop.Stores = nil
	}
	q.forEach(func() { testFoldOf(t, q, p, from, typ, kind, short, store, n, rows) })
}

func testFoldOf(t *testing.T, q *program, p *expr.Program, from, typ dtype.Type, kind FoldKind, short, store bool, n, rows int) {
	c, err := Compile(q.loop)
	if err != nil {
		t.Fatal(err)
	}
	wide := max(4, typ.Size())
	to := beforeFault(t, rows*wide)
	size, read := typ.Size(), from.Size()
	arena := make([]byte, 64+c.Spill())
	reg := []unsafe.Pointer{unsafe.Pointer(&q.in[0][guard]), unsafe.Pointer(&q.in[1][guard]), unsafe.Pointer(&q.out[0][guard]), unsafe.Pointer(&arena[0]), unsafe.Pointer(&to[guard])}
	var strides []int
	for range q.loop.Loads {
		strides = append(strides, n*read)
	}
	if store {
		strides = append(strides, n*size)
	}
	strides = append(strides, wide)
	c.Run(reg, strides, n, rows)
	lanes := 64
	if typ.Size() == 8 {
		lanes = 32
	}
	if short {
		lanes = 8
	}
	sum := typ
	if typ == dtype.Bool {
		sum = dtype.U32
	}
	for row := range rows {
		var v []uint64
		for i := range n {
			a, b := get(q.in[0][guard:], from, row*n+i), get(q.in[1][guard:], from, row*n)
			v = append(v, p.Eval(nil, []uint64{a, b}, nil, 0)[0])
			if store {
				if got := get(q.out[0][guard:], typ, row*n+i); got != v[i] && !bothNaN(typ, got, v[i]) {
					t.Fatalf("%v: a store beside a fold is %#x, want %#x", typ, got, v[i])
				}
			}
		}
		got, want := get(to[guard:], sum, row), folded(kind, sum, v, lanes)
		if got != want && !bothNaN(sum, got, want) {
			t.Fatalf("AVX2 %v, fold %d of %v, short %v, store %v, row %d of %d elements: %#x, want %#x", q.loop.AVX2, kind, typ, short, store, row, n, got, want)
		}
	}
}

// TestFoldsWithManyConstants folds values of a program with many constants. The constants stay in
// registers, so few registers are left for the end of a row.
func TestFoldsWithManyConstants(t *testing.T) {
	if !canRun(t) {
		return
	}
	r := rand.New(rand.NewPCG(19, 20))
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.I64, dtype.U64} {
		e := expr.X(0)
		for i := range 30 {
			e = e.Add(expr.C(float64(3 + i))).Mul(expr.C(float64(-2 - i)))
		}
		p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{typ}, []dtype.Type{typ, typ}, -1)
		for _, kind := range []FoldKind{Sum, Prod, Max, Min} {
			q := prepare(t, p, r, 1, 75, 2)
			q.loop.Stores = nil
			q.loop.Fold = &Fold{Value: p.Outs[0], Kind: kind, Reg: q.loop.Arena + 1}
			q.forEach(func() { testFoldOf(t, q, p, typ, typ, kind, false, false, q.n, q.rows) })
		}
	}
}

// TestFoldsOfZerosAndNaN folds rows of zeros of both signs, small numbers and at most one NaN. The
// sign of a zero and the NaN must reach the result.
func TestFoldsOfZerosAndNaN(t *testing.T) {
	if !canRun(t) {
		return
	}
	r := rand.New(rand.NewPCG(21, 22))
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64} {
		p := expr.MustLower([]*expr.Expr{expr.X(0).Neg()}, []dtype.Type{typ}, []dtype.Type{typ, typ}, -1)
		for i := range 200 {
			n := []int{1, 15, 64, 100, 130, 1024}[i%6]
			q := prepare(t, p, r, 7, n, 0)
			for k := range q.rows * n {
				v := []float64{0, math.Copysign(0, -1), 1e-40, -1e-40, -1, 1}[r.IntN(2+i%5)]
				if i%3 == 0 { // a row with one kind of zero at most
					v = []float64{-1, math.Copysign(0, -1)}[r.IntN(2)]
				}
				put(q.in[0][guard:], typ, k, expr.Encode(typ, v))
			}
			for row := range q.rows {
				if row%2 == 0 && i%2 == 0 {
					put(q.in[0][guard:], typ, row*n+r.IntN(n), expr.Encode(typ, math.NaN()))
				}
			}
			q.loop.Stores = nil
			for _, kind := range []FoldKind{Sum, Prod, Max, Min} {
				short := r.IntN(2) == 0
				q.loop.Fold = &Fold{Value: p.Outs[0], Kind: kind, Short: short, Reg: q.loop.Arena + 1}
				q.forEach(func() { testFoldOf(t, q, p, typ, typ, kind, short, false, n, q.rows) })
			}
		}
	}
}
