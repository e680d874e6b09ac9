package optest

import (
	"maps"

	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

func interpolation(a golden.Args) tensor.Interpolation {
	return map[string]tensor.Interpolation{"linear": tensor.Linear, "lower": tensor.Lower, "higher": tensor.Higher, "midpoint": tensor.Midpoint, "nearest": tensor.Nearest}[a.Text("how")]
}

func uniqueParts(f func(x *tt, o tensor.UniqueOptions, dim ...int) (values, inverse, counts *tt)) goldenOp {
	return func(a golden.Args, x []*tt) *tt {
		values, inverse, counts := f(x[0], tensor.UniqueOptions{Inverse: true, Counts: true}, dims(a)...)
		return []*tt{values, inverse, counts}[a.Int("part")]
	}
}

// init adds the ops of _golden/order.py to goldenOps.
func init() {
	type args = golden.Args
	along := func(f func(x *tt, dim int) *tt) goldenOp {
		return func(a args, x []*tt) *tt { return f(x[0], a.Int("dim")) }
	}
	two := func(f func(a args, x *tt) (*tt, *tt)) goldenOp {
		return func(a args, x []*tt) *tt {
			values, indices := f(a, x[0])
			if a.Has("part") && a.Int("part") == 1 {
				return indices
			}
			return values
		}
	}
	maps.Copy(goldenOps, map[string]goldenOp{
		"cumsum": along((*tt).CumSum), "cumprod": along((*tt).CumProd), "logcumsumexp": along((*tt).LogCumSumExp),
		"cummax": two(func(a args, x *tt) (*tt, *tt) { return x.CumMax(a.Int("dim")) }),
		"cummin": two(func(a args, x *tt) (*tt, *tt) { return x.CumMin(a.Int("dim")) }),

		"sort":         two(func(a args, x *tt) (*tt, *tt) { return x.Sort(a.Int("dim"), a.Bool("descending")) }),
		"argsort":      func(a args, x []*tt) *tt { return x[0].Argsort(a.Int("dim"), a.Bool("descending")) },
		"topk":         two(func(a args, x *tt) (*tt, *tt) { return x.TopK(a.Int("k"), a.Int("dim"), a.Bool("largest"), true) }),
		"kthvalue":     two(func(a args, x *tt) (*tt, *tt) { return x.Kthvalue(a.Int("k"), dims(a)...) }),
		"median":       two(func(a args, x *tt) (*tt, *tt) { return x.Median(dims(a)...) }),
		"nanmedian":    two(func(a args, x *tt) (*tt, *tt) { return x.NanMedian(dims(a)...) }),
		"mode":         two(func(a args, x *tt) (*tt, *tt) { return x.Mode(dims(a)...) }),
		"quantile":     func(a args, x []*tt) *tt { return x[0].Quantile(a.Floats("q")[0], interpolation(a), dims(a)...) },
		"nanquantile":  func(a args, x []*tt) *tt { return x[0].NanQuantile(a.Floats("q")[0], interpolation(a), dims(a)...) },
		"nanquantiles": func(a args, x []*tt) *tt { return x[0].NanQuantiles(a.Floats("q"), interpolation(a), dims(a)...) },
		"quantiles":    func(a args, x []*tt) *tt { return x[0].Quantiles(a.Floats("q"), interpolation(a), dims(a)...) },

		"unique": uniqueParts((*tt).Unique), "unique_consecutive": uniqueParts((*tt).UniqueConsecutive),
		"searchsorted":         func(a args, x []*tt) *tt { return x[0].Searchsorted(x[1], a.Bool("right")) },
		"searchsorted_sorter":  func(a args, x []*tt) *tt { return x[0].Searchsorted(x[1], a.Bool("right"), x[2]) },
		"bucketize":            func(a args, x []*tt) *tt { return x[0].Bucketize(x[1], a.Bool("right")) },
		"isin":                 func(a args, x []*tt) *tt { return x[0].IsIn(x[1], a.Bool("invert")) },
		"diff":                 func(a args, x []*tt) *tt { return x[0].Diff(a.Int("n"), a.Int("dim")) },
		"histc":                func(a args, x []*tt) *tt { return x[0].Histc(a.Int("bins"), a.Float("min"), a.Float("max")) },
		"repeat_interleave_by": func(a args, x []*tt) *tt { return x[0].RepeatInterleaveBy(x[1].Long(), a.Int("dim")) },
	})
	// The terms are sums of products of absolute values, which do not cancel.
	for _, op := range []string{"cumsum", "cumprod", "repeat_interleave_by"} {
		goldenTerms[op] = absoluteRun
	}
}
