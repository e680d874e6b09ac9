package optest

import (
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// init adds the programs of _golden/autograd.py to goldenOps.
func init() {
	rest := func(y *tt) *tt { return y.Narrow(0, 1, y.Dim(0)-1) }
	programs := map[string]func(x, w *tt) *tt{
		"mul_view": func(x, w *tt) *tt {
			y := x.Clone()
			rest(y).MulInPlace(w)
			return y
		},
		"copy_view": func(x, w *tt) *tt {
			y := x.MulScalar(1)
			rest(y).Copy(w)
			return y
		},
		"fill_diagonal": func(x, w *tt) *tt {
			y := x.Clone()
			y.Diagonal(0, 0, 1).Fill(0.5)
			rest(y).AddInPlace(w)
			return y
		},
		"stale_view": func(x, w *tt) *tt {
			y := x.Clone()
			v, t := rest(y), y.T()
			y.MulScalarInPlace(2)
			v.AddInPlace(w)
			t.Slice(0, 0, 1, 1).NegInPlace()
			return t.Clone()
		},
		"expanded_view": func(x, w *tt) *tt {
			y := x.Narrow(0, 0, 1).Clone()
			e := y.Expand(3, x.Dim(1))
			if w.Rank() > 1 {
				w = w.Narrow(0, 0, 1)
			}
			y.AddInPlace(w)
			return e.Clone()
		},
		"constant": func(x, w *tt) *tt {
			y := x.ZerosLike()
			v := rest(y)
			v.Copy(w)
			y.Narrow(0, 0, 1).Copy(x.Narrow(0, 0, 1))
			return y.Clone()
		},
		"nested": func(x, w *tt) *tt {
			y := x.Clone()
			a := rest(y)
			b := a.Slice(1, 0, tensor.End, 2)
			b.NegInPlace()
			a.MulInPlace(w)
			b.Zero()
			b.AddInPlace(rest(x).Slice(1, 0, tensor.End, 2))
			return y
		},
	}
	goldenOps["inplace"] = func(a golden.Args, x []*tt) *tt { return programs[a.Text("program")](x[0], x[1]) }
}
