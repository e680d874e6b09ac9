package expr_test

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// The derivative of a function is an expression again. Here it needs only the function's result.
func Example() {
	y := expr.X(0).Tanh()
	d := expr.Diff(y, 0)
	_, usesResult := expr.Uses(d)
	p := expr.MustLower([]*expr.Expr{d}, []dtype.Type{dtype.F64}, []dtype.Type{dtype.F64, dtype.F64}, 1)
	at := 0.5
	out := p.Eval(nil, []uint64{math.Float64bits(at), math.Float64bits(math.Tanh(at))}, nil, 0)
	fmt.Printf("%v %.6f\n", usesResult, math.Float64frombits(out[0]))
	// Output: true 0.786448
}

// Functions are formulas of primitives, so that they give the same bits on every device.
func ExampleCall() {
	p := expr.MustLower([]*expr.Expr{expr.Call("exp", expr.X(0))}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
	one := expr.Encode(dtype.F32, 1)
	fmt.Printf("%#x\n", p.Eval(nil, []uint64{one}, nil, 0)[0])
	// Output: 0x402df854
}

// Element i of an op's random numbers depends only on the seed, the offset and i. In float32, four
// elements share a block of Philox. So offset + 1 gives the next four elements.
func ExampleRandomNormal() {
	e := expr.RandomNormal(dtype.F32, expr.Param(0, dtype.I64), expr.Param(1, dtype.I64), expr.Index(dtype.I64))
	p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.F32}, nil, -1)
	at := func(offset uint64, i int64) float64 {
		return expr.Decode(dtype.F32, p.Eval(nil, nil, []uint64{42, offset}, i)[0])
	}
	fmt.Println(at(0, 7) == at(1, 3), at(0, 7) == at(0, 8))
	// Output: true false
}
