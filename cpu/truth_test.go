package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestTruthValues runs programs of truth values on various numbers of elements, also in place. The
// results must be equal to those of [expr.Program.Eval].
func TestTruthValues(t *testing.T) {
	d := newDevice(1)
	defer d.workers.dismiss()
	rnd := rand.New(rand.NewPCG(7, 8))
	x, y, zero := expr.X(0), expr.X(1), expr.C(0)
	inWordsSeen := 0
	for name, e := range map[string]*expr.Expr{
		"and": x.Ne(zero).And(y.Ne(zero)), "or": x.Or(y), "xor": x.Xor(y), "not": x.Eq(zero).Or(y), "equal": x.Eq(y),
		"one": x.And(y).Eq(expr.C(1)), "less": x.Lt(y), "two": x.Ne(expr.C(2)).And(y), "select": x.Select(y, zero),
	} {
		p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.Bool}, []dtype.Type{dtype.Bool, dtype.Bool}, -1)
		if inWords(p) != nil {
			inWordsSeen++
		}
		for n := 60; n < 200; n += 7 {
			in := []device.View{newView(t, d, dtype.Bool, n), newView(t, d, dtype.Bool, n)}
			a, b := in[0].Buf.Host(), in[1].Buf.Host()
			want := make([]byte, n)
			for i := range n {
				a[i], b[i] = byte(rnd.IntN(2)), byte(rnd.IntN(2))
				want[i] = byte(p.Eval(nil, []uint64{uint64(a[i]), uint64(b[i])}, nil, int64(i))[0])
			}
			out := newView(t, d, dtype.Bool, n)
			if n%2 == 0 {
				out = in[1]
			}
			if do(t, d, mapOf(p, out, in...)); string(out.Buf.Host()) != string(want) {
				t.Fatalf("%s of %d elements", name, n)
			}
		}
	}
	if inWordsSeen != 6 {
		t.Errorf("%d programs run in words, want 6", inWordsSeen)
	}
}
