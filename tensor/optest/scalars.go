package optest

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func init() {
	rowTables = append(rowTables, scalarRows)
	functions = append(functions, "WhereScalar", "RWhereScalar", "WhereScalars")
}

// scalarRows returns the rows of the functions that take a number in place of an operand.
func scalarRows() []row {
	each := func(f func(v float64) float64) func(x []array) array {
		return func(x []array) array { return x[0].apply(f) }
	}
	positive := func(x []array) array { return x[0].apply(func(v float64) float64 { return 4 * (1 + math.Abs(v)) }) }
	// away returns numbers of at least 1.5, for divisors and for operands of logarithms. 1 modulo
	// such a number has no jump nearby.
	away := func(x *tt) *tt { return x.Square().AddScalar(1.5) }
	steps := func(v float64) float64 { return v*v + 1.5 }
	pick := func(x []array, a, b func(v float64) float64) array {
		return x[0].apply(func(v float64) float64 {
			if v > 0.3 {
				return a(v)
			}
			return b(v)
		})
	}
	same := func(v float64) float64 { return v }
	two := func(float64) float64 { return 2 }
	rows := []row{
		{op: "rfloor_divide_scalar", methods: []string{"RFloorDivideScalar"}, in: [][]int{{3, 4}}, call: func(x []*tt) *tt { return away(x[0]).RFloorDivideScalar(40) },
			ref: each(func(v float64) float64 { return math.Floor(40 / steps(v)) }), terms: positive, noGrad: true, rounds: true},
		{op: "rremainder_scalar", methods: []string{"RRemainderScalar"}, in: [][]int{{3, 4}}, call: func(x []*tt) *tt { return away(x[0]).RRemainderScalar(1) },
			ref: each(func(float64) float64 { return 1 }), terms: positive},
		{op: "xlogy_scalar", methods: []string{"XLogYScalar"}, in: [][]int{{3, 4}}, call: func(x []*tt) *tt { return x[0].XLogYScalar(3) },
			ref: each(func(v float64) float64 { return v * math.Log(3) }), terms: positive, rounds: true},
		{op: "rxlogy_scalar", methods: []string{"RXLogYScalar"}, in: [][]int{{3, 4}}, call: func(x []*tt) *tt { return away(x[0]).RXLogYScalar(3) },
			ref: each(func(v float64) float64 { return 3 * math.Log(steps(v)) }), terms: positive, rounds: true},
		{op: "where_scalar", methods: []string{"WhereScalar"}, in: [][]int{{3, 4}}, ints: true, call: func(x []*tt) *tt { return tensor.WhereScalar(x[0].GtScalar(0.3), x[0], 2).Cast(x[0].Type()) },
			ref: func(x []array) array { return pick(x, same, two) }},
		{op: "rwhere_scalar", methods: []string{"RWhereScalar"}, in: [][]int{{3, 4}}, ints: true, call: func(x []*tt) *tt { return tensor.RWhereScalar(x[0].GtScalar(0.3), 2, x[0]).Cast(x[0].Type()) },
			ref: func(x []array) array { return pick(x, two, same) }},
		{op: "where_scalars", methods: []string{"WhereScalars"}, in: [][]int{{3, 4}}, noGrad: true, result: dtype.F32, call: func(x []*tt) *tt { return tensor.WhereScalars(x[0].GtScalar(0.3), 2, -1.5) },
			ref: func(x []array) array { return pick(x, two, func(float64) float64 { return -1.5 }) }},
	}
	for _, c := range []struct {
		name, op string
		call     func(x *tt) *tt
		ref      func(v float64) float64
	}{{"RBitwiseLeftShiftScalar", "rbitwise_left_shift_scalar", func(x *tt) *tt { return x.RBitwiseLeftShiftScalar(3) }, func(v float64) float64 { return 3 * math.Exp2(v) }},
		{"RBitwiseRightShiftScalar", "rbitwise_right_shift_scalar", func(x *tt) *tt { return x.RBitwiseRightShiftScalar(100) }, func(v float64) float64 { return math.Floor(100 / math.Exp2(v)) }}} {
		rows = append(rows, row{op: c.op, methods: []string{c.name}, in: [][]int{{3, 4}}, index: map[int]int{0: 5}, noGrad: true, result: dtype.I64,
			call: func(x []*tt) *tt { return c.call(x[0]) }, ref: each(c.ref)})
	}
	return rows
}
