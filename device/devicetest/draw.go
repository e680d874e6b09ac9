package devicetest

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// testDraws draws random numbers of every kind into every layout. A number must depend only on the
// element's index, not on the layout.
func testDraws(r *rig) {
	index := expr.Index(dtype.I64)
	x, y := expr.X(0), expr.X(1)
	// The seed and the offset differ from element to element, and the indexes of the drawn numbers
	// have gaps.
	bits := lower(expr.RandomBits(x, y, x.Mul(y)).Cvt(dtype.I64), dtype.I64, dtype.I64, dtype.I64)
	sparse := lower(expr.RandomUniform(dtype.F64, expr.Param(0, dtype.I64), expr.Param(1, dtype.I64), x), dtype.F64, dtype.I64)
	for _, s := range r.shapes() {
		for i, f := range outForms {
			// With offsets near 2³², the lower half of the generator's counter overflows within a
			// few blocks.
			params := []uint64{r.rnd.Uint64(), 1<<32 - 3 + uint64(i), uint64(expr.DropLimit(0.4))}
			for _, c := range []struct {
				name string
				t    dtype.Type
				draw func(t dtype.Type, seed, offset, index *expr.Expr) *expr.Expr
			}{{"uniform", dtype.F32, expr.RandomUniform}, {"uniform", dtype.F64, expr.RandomUniform},
				{"normal", dtype.F32, expr.RandomNormal}, {"normal", dtype.F64, expr.RandomNormal}} {
				p := lower(c.draw(c.t, expr.Param(0, dtype.I64), expr.Param(1, dtype.I64), index), c.t)
				r.checkMap(fmt.Sprintf("%s %v of %v", c.name, c.t, s), p, []*array{r.empty(c.t, s, f)}, nil, params)
			}
			keeps := expr.RandomKeeps(expr.Param(0, dtype.I64), expr.Param(1, dtype.I64), index, expr.Param(2, dtype.U32))
			for _, t := range []dtype.Type{dtype.BF16, dtype.F64} {
				p := lower(keeps.Select(x, expr.C(0)), t, t)
				r.checkMap(fmt.Sprintf("dropout of %v", s), p, []*array{r.empty(t, s, f)}, []*array{r.random(t, s, transposed)}, params)
			}
			a, b := r.random(dtype.I64, s, contiguous), r.random(dtype.I64, s, strided)
			r.checkMap(fmt.Sprintf("bits of %v", s), bits, []*array{r.empty(dtype.I64, s, f)}, []*array{a, b}, nil)
			r.checkMap(fmt.Sprintf("uniform of operands %v", s), sparse, []*array{r.empty(dtype.F64, s, f)}, []*array{a}, params)
			r.end()
		}
	}
}
