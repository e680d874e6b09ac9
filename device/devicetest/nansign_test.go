package devicetest

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestWithSignOfNaNs runs each program twice, changed by withSignOfNaNs for either sign. The two
// results must differ if they depend on the sign of a NaN, and only then.
func TestWithSignOfNaNs(t *testing.T) {
	x, nan := expr.X(0), math.Copysign(math.NaN(), 1)
	zero := x.Sub(x)
	for _, c := range []struct {
		name    string
		e       *expr.Expr
		x       float32
		differs bool
	}{
		{"copysign", expr.Call("copysign", expr.C(1), x), float32(math.NaN()), true},
		{"copysign", expr.Call("copysign", expr.C(1), x), -2, false},
		{"copysign", expr.Call("copysign", expr.C(1), zero.Div(zero)), 3, true},
		{"copysign twice", expr.Call("copysign", expr.C(1), expr.Call("copysign", zero.Div(zero), zero.Div(zero)).Mul(zero)), 3, true},
		{"exp", expr.Call("exp", x), float32(math.NaN()), false},
		{"addition", x.Add(x), float32(math.NaN()), false},
	} {
		p := expr.MustLower([]*expr.Expr{c.e}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
		in := []uint64{uint64(math.Float32bits(c.x))}
		got, want := withSignOfNaNs(p, -nan).Eval(nil, in, nil, 0)[0], withSignOfNaNs(p, nan).Eval(nil, in, nil, 0)[0]
		if same := got == want || isNaN(dtype.F32, got) && isNaN(dtype.F32, want); same == c.differs {
			t.Errorf("%s of %v: %#x and %#x", c.name, c.x, got, want)
		}
	}
}
