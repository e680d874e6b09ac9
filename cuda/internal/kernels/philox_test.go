package kernels

import (
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// draws returns a program for each kind of random number.
func draws(t testing.TB) map[string]*expr.Program {
	seed, offset := expr.Param(0, dtype.I64), expr.Param(1, dtype.I64)
	list := map[string]*expr.Program{}
	for _, index := range []dtype.Type{dtype.I64, dtype.U32} {
		i := expr.Index(index)
		add := func(name string, out dtype.Type, e *expr.Expr, in ...dtype.Type) {
			list[fmt.Sprintf("%s, %v", name, index)] = program(t, []dtype.Type{out}, in, e)
		}
		f, d, h := dtype.F32, dtype.F64, dtype.BF16
		add("uniform", f, expr.RandomUniform(f, seed, offset, i))
		add("uniform as bfloat16", h, expr.RandomUniform(f, seed, offset, i))
		add("uniform float64", d, expr.RandomUniform(d, seed, offset, i))
		add("normal", f, expr.RandomNormal(f, seed, offset, i))
		add("normal float64", d, expr.RandomNormal(d, seed, offset, i))
		keep := expr.RandomKeeps(seed, offset, i, expr.Bits(dtype.U32, uint64(expr.DropLimit(0.3)))).Select(x0, expr.C(0))
		for _, typ := range []dtype.Type{f, h, d, dtype.I8} {
			add(fmt.Sprintf("dropout of %v", typ), typ, keep, typ)
		}
		add("of an operand", dtype.I64, expr.RandomBits(x0, x1, x0.Mul(x1)).Cvt(dtype.I64), dtype.I64, dtype.I64)
	}
	return list
}

// TestDraws checks that an element's random numbers depend only on the seed, the offset and the
// element's index. All kernels must draw the numbers that package expr defines: with vectors of 1,
// 2, 4 and 8 elements, for elements that fill no vector, with strides, and for misaligned views.
func TestDraws(t *testing.T) {
	defer func(n int) { narrowLimit = n }(narrowLimit)
	params := []uint64{0x123456789a, 0xfffffffa}
	for name, p := range draws(t) {
		for _, wide := range []bool{false, true} {
			if narrowLimit = 1<<31 - 1; wide {
				narrowLimit = 0
			}
			run := func(what string, skip int, l shape.Layout) {
				layouts := []shape.Layout{l, l, l}
				mapCase(t, fmt.Sprintf("%s, %s, wide %v", name, what, wide), p, layouts[:1], layouts[:len(p.In)], skip, params)
			}
			run("dense", 0, dense(61))
			run("not aligned", 1, dense(21))
			run("rows", 0, strided([]int{3, 16}, []int{24, 1}))
			run("odd rows", 0, strided([]int{5, 7}, []int{9, 1}))
			run("turned", 0, strided([]int{6, 5}, []int{1, 8}))
		}
	}
}
