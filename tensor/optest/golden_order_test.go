package optest

import "github.com/flambeau-go/flambeau/internal/golden"

// The ops of _golden/order.py.
func init() {
	type args = golden.Args
	along := func(f func(x *tt, dim int) *tt) goldenOp {
		return func(a args, x []*tt) *tt { return f(x[0], a.Int("dim")) }
	}
	two := func(f func(a args, x *tt) (*tt, *tt)) goldenOp {
		return func(a args, x []*tt) *tt {
			values, indices := f(a, x[0])
			if a.Int("part") == 1 {
				return indices
			}
			return values
		}
	}
	for name, op := range map[string]goldenOp{
		"cumsum": along((*tt).CumSum), "cumprod": along((*tt).CumProd), "logcumsumexp": along((*tt).LogCumSumExp),
		"cummax": two(func(a args, x *tt) (*tt, *tt) { return x.CumMax(a.Int("dim")) }),
		"cummin": two(func(a args, x *tt) (*tt, *tt) { return x.CumMin(a.Int("dim")) }),
	} {
		goldenOps[name] = op
	}
	for _, op := range []string{"cumsum", "cumprod"} { // sums of products of absolute values, which do not cancel
		goldenTerms[op] = absoluteRun
	}
}
