//go:build linux && amd64 && !noasm

package jit

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestColumns runs loops that reduce each column to one result. They must combine the elements of a
// column from the first row to the last.
func TestColumns(t *testing.T) {
	if !canRun(t) {
		return
	}
	r := rand.New(rand.NewPCG(9, 10))
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.I32, dtype.U32, dtype.I64, dtype.U64, dtype.Bool} {
		for _, kind := range []FoldKind{Sum, Prod, Max, Min} {
			for _, n := range []int{1, 7, 8, 16, 17, 40} {
				for _, depth := range []int{1, 2, 17} {
					if typ != dtype.Bool || kind >= Max {
						testColumns(t, r, typ, kind, n, depth)
					}
				}
			}
		}
	}
}

// testColumns combines columns of x - y and of x xor y. The operand y has one element for each row.
func testColumns(t *testing.T, r *rand.Rand, typ dtype.Type, kind FoldKind, n, depth int) {
	const rows = 3
	x, y := expr.X(0), expr.X(1)
	e := x.Sub(y)
	if typ == dtype.Bool {
		e = x.Xor(y)
	}
	ct := typ.Compute()
	p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{ct}, []dtype.Type{typ, typ}, -1)
	q := prepare(t, p, r, rows*depth, n, 2)
	q.loop.Fold = &Fold{Value: p.Outs[0], Kind: kind, Columns: true, Reg: q.loop.Arena + 1}
	q.loop.Stores = nil
	q.forEach(func() {
		c, err := Compile(q.loop)
		if err != nil {
			t.Fatal(err)
		}
		sum := ct
		if typ == dtype.Bool {
			sum = dtype.U32
		}
		to := beforeFault(t, rows*n*sum.Size())
		arena := make([]byte, 64+c.Spill())
		reg := []unsafe.Pointer{unsafe.Pointer(&q.in[0][guard]), unsafe.Pointer(&q.in[1][guard]), nil, unsafe.Pointer(&arena[0]), unsafe.Pointer(&to[guard])}
		size := typ.Size()
		// a column's elements are in neighbouring rows of x; y has one element for each row of x
		strides := []int{depth * n * size, depth * size, n * sum.Size(), n * size, size, 0}
		c.RunColumns(reg, strides, n, rows, depth)
		for i := range rows * n {
			row, col := i/n, i%n
			var v []uint64
			for k := range depth {
				at := row*depth + k
				a, b := get(q.in[0][guard:], typ, at*n+col), get(q.in[1][guard:], typ, at)
				v = append(v, p.Eval(nil, []uint64{a, b}, nil, 0)[0])
			}
			got, want := get(to[guard:], sum, i), folded(kind, sum, v, 1)
			if got != want && !bothNaN(sum, got, want) {
				t.Fatalf("AVX2 %v, fold %d of %v, %d columns, depth %d: result %d is %#x, want %#x", q.loop.AVX2, kind, typ, n, depth, i, got, want)
			}
		}
	})
}
