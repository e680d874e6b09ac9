package devicetest

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// testMultiMapFinite tests the operand Found of a MultiMap. Found becomes 1 if an element of the
// first input is infinite or NaN. If it was 1 before, it stays 1. The results of the map must be
// the same as without Found.
func testMultiMapFinite(r *rig) {
	p := lower(expr.X(0), dtype.F32, dtype.F32)
	if !r.dev.Supports(&device.MultiMap{Program: p, Params: emptyView(dtype.I64, 0), Found: emptyView(dtype.F32, 1)}) {
		r.Logf("%s does not look for what is not finite: nothing to test", r.dev.Name())
		return
	}
	for _, t := range []dtype.Type{dtype.F32, dtype.F16, dtype.BF16, dtype.F64} {
		c := t.Compute()
		p := expr.MustLower([]*expr.Expr{expr.X(0).Mul(expr.Param(0)).Add(expr.X(1))}, []dtype.Type{t}, []dtype.Type{t, t}, -1)
		value := []uint64{expr.Encode(c, 0.5)}
		params := r.array(dtype.I64, shape.Of(1), contiguous, func(int) uint64 { return value[0] })
		for _, bad := range []struct {
			group, operand, at int
			v, had             float64
		}{{-1, 0, 0, 0, 0}, {0, 0, 4, math.Inf(1), 0}, {1, 0, 69, math.NaN(), 0}, {1, 0, 0, math.Inf(-1), 1}, {1, 1, 3, math.NaN(), 0}, {-1, 0, 0, 0, 1}} {
			found := r.array(dtype.F32, shape.Of(1), contiguous, func(int) uint64 { return expr.Encode(dtype.F32, bad.had) })
			var outs, ins [][]device.View
			var arrays []*array
			var want [][]uint64
			for g, n := range []int{5, 70, 0} {
				var operands []*array
				for k := range 2 {
					operands = append(operands, r.array(t, shape.Of(n), contiguous, func(i int) uint64 {
						if g == bad.group && k == bad.operand && i == bad.at {
							return expr.Encode(t, bad.v)
						}
						return r.tame(t)
					}))
				}
				want = append(want, eval(p, operands, value, n)[0])
				arrays = append(arrays, operands[0])
				outs, ins = append(outs, []device.View{operands[0].v}), append(ins, []device.View{operands[0].v, operands[1].v})
			}
			r.run("multi-map that looks", &device.MultiMap{Program: p, Outs: outs, Ins: ins, Params: params.v, Found: found.v})
			tell := bad.had
			if bad.group >= 0 && bad.operand == 0 {
				tell = 1
			}
			found.equal(fmt.Sprintf("what is found of %v with %v in group %d", t, bad.v, bad.group), []uint64{expr.Encode(dtype.F32, tell)})
			if bad.group < 0 {
				for g, a := range arrays {
					a.equal(fmt.Sprintf("multi-map of %v, group %d", t, g), want[g])
				}
			}
		}
	}
}
