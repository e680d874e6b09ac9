package devicetest

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestWithNaNsNegated checks that the changed program differs where a result depends on the sign of
// a NaN, and only there.
func TestWithNaNsNegated(t *testing.T) {
	x := expr.X(0)
	for _, c := range []struct {
		name    string
		e       *expr.Expr
		x       float32
		differs bool
	}{
		{"copysign", expr.Call("copysign", expr.C(1), x), float32(math.NaN()), true},
		{"copysign", expr.Call("copysign", expr.C(1), x), -2, false},
		{"copysign", expr.Call("copysign", expr.C(1), x.Sub(x).Div(x.Sub(x))), 3, true},
		{"exp", expr.Call("exp", x), float32(math.NaN()), false},
		{"addition", x.Add(x), float32(math.NaN()), false},
	} {
		p := expr.MustLower([]*expr.Expr{c.e}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
		in := []uint64{uint64(math.Float32bits(c.x))}
		got, want := withNaNsNegated(p).Eval(nil, in, nil, 0)[0], p.Eval(nil, in, nil, 0)[0]
		if same := got == want || isNaN(dtype.F32, got) && isNaN(dtype.F32, want); same == c.differs {
			t.Errorf("%s of %v: %#x and %#x", c.name, c.x, got, want)
		}
	}
}
