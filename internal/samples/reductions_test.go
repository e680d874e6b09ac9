package samples

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// reduce adapts a reduction whose dimensions are optional.
func reduce(f func(x T, dims ...int) T) call {
	return func(a *args) any {
		y := f(a.cast(-1, a.x()), a.dims(1)...)
		return y.Cast(a.dtype(-1, "dtype", y.Type()))
	}
}

// pair adapts a reduction that returns values and indices.
func pair(f func(x T, dims ...int) (values, indices T)) call {
	return func(a *args) any {
		v, i := f(a.x(), a.dims(1)...)
		return []T{v, i}
	}
}

// orWhole adapts a reduction that returns values and indices. If the dimension argument is absent,
// the call returns only the values.
func orWhole(f func(x T, dims ...int) (values, indices T)) call {
	return func(a *args) any {
		v, i := f(a.x(), a.dims(1)...)
		if !a.has(1, "dim") {
			return v
		}
		return []T{v, i}
	}
}

// moments returns the dimensions and the correction of Var and Std. torch's older argument unbiased
// stands for the correction: True for 1, False for 0. A call may pass unbiased as the first
// argument, as the second argument, or by name.
func moments(a *args) (correction int, dims []int) {
	correction = 1
	unbiased := a.arg(-1, "unbiased")
	if u, ok := a.arg(1, "dim").(bool); ok {
		unbiased = u
	} else {
		dims = a.ints(1, "dim")
		if u, ok := a.arg(2, "unbiased").(bool); ok {
			unbiased = u
		}
	}
	if u, ok := unbiased.(bool); ok && !u {
		correction = 0
	}
	c := a.float(-1, "correction", float64(correction))
	if c != float64(int(c)) {
		lacks("a correction of %v", c)
	}
	at := -1
	if len(a.pos) > 3 {
		at = 3
	}
	return int(c), a.addKeepDim(at, dims)
}

func spread(f func(x T, correction int, dims ...int) T) call {
	return func(a *args) any {
		c, d := moments(a)
		return f(a.x(), c, d...)
	}
}

func withMean(f func(x T, correction int, dims ...int) T) call {
	return func(a *args) any {
		c, d := moments(a)
		return []T{f(a.x(), c, d...), a.x().Mean(d...)}
	}
}

var reductions = map[string]call{
	"sum": reduce(T.Sum), "mean": reduce(T.Mean), "amax": reduce(T.Amax), "amin": reduce(T.Amin),
	"prod": reduce(T.Prod), "any": reduce(T.Any), "all": reduce(T.All),
	"count_nonzero": reduce(T.CountNonzero), "argmax": reduce(T.Argmax),
	"argmin": reduce(T.Argmin), "logsumexp": reduce(T.LogSumExp),
	"nansum": reduce(func(x T, dims ...int) T {
		return x.MaskedFill(x.IsNaN(),
			0).Sum(dims...)
	}),
	"max.reduction_with_dim": pair(T.Max), "min.reduction_with_dim": pair(T.Min),
	"max.reduction_no_dim": reduce(T.Amax), "min.reduction_no_dim": reduce(T.Amin),
	"median": orWhole(T.Median), "nanmedian": orWhole(T.NanMedian),
	"mode": func(a *args) any {
		v, i := a.x().Mode(a.addKeepDim(2, []int{a.int(1, "dim", -1)})...)
		return []T{v, i}
	},
	"kthvalue": func(a *args) any {
		v, i := a.x().Kthvalue(a.int(1, "k", 0), a.addKeepDim(3, []int{a.int(2, "dim", -1)})...)
		return []T{v, i}
	},
	"aminmax": func(a *args) any {
		d := a.dims(-1)
		return []T{a.x().Amin(d...), a.x().Amax(d...)}
	},
	"var": spread(T.Var), "std": spread(T.Std),
	"var.unbiased": spread(T.Var), "std.unbiased": spread(T.Std),
	"var_mean": withMean(T.Var), "std_mean": withMean(T.Std),
	"var_mean.unbiased": withMean(T.Var), "std_mean.unbiased": withMean(T.Std),
	"quantile":    func(a *args) any { return quantile(a, T.Quantile, T.Quantiles) },
	"nanquantile": func(a *args) any { return quantile(a, T.NanQuantile, T.NanQuantiles) },
	"norm":        oldNorm, "norm.fro": oldNorm, "norm.inf": oldNorm, "norm.nuc": oldNorm,
	"linalg.vector_norm": func(a *args) any {
		x, p := a.cast(-1, a.x()), a.float(1, "ord", 2)
		d := a.ints(2, "dim")
		return x.Norm(p, a.addKeepDim(3, d)...)
	},
	"nanmean": func(a *args) any {
		x := a.cast(-1, a.x())
		d := a.dims(1)
		there := x.IsNaN().LogicalNot().Cast(x.Type())
		return x.MaskedFill(x.IsNaN(), 0).Sum(d...).Div(there.Sum(d...))
	},
	"sum_to_size": func(a *args) any {
		x, size := a.x(), a.intArgs(1, "size")
		var over []int
		lead := x.Rank() - len(size)
		if lead < 0 {
			panic(wrong("more dimensions than the tensor"))
		}
		for i := range x.Rank() {
			if i < lead || size[i-lead] == 1 && x.Dim(i) != 1 {
				over = append(over, i)
			}
		}
		if len(over) > 0 {
			x = x.Sum(over...)
		}
		return x.Reshape(size...)
	},
	"trace":  un(T.Trace),
	"renorm": renorm,
}

func quantile(a *args, one func(x T, q float64, how tensor.Interpolation, dims ...int) T,
	many func(x T, q []float64, how tensor.Interpolation, dims ...int) T) any {
	how := map[string]tensor.Interpolation{
		"linear": tensor.Linear, "lower": tensor.Lower, "higher": tensor.Higher,
		"midpoint": tensor.Midpoint, "nearest": tensor.Nearest,
	}[a.text(-1, "interpolation", "linear")]
	d := a.dims(2)
	if q, ok := a.arg(1, "q").(T); ok && q.Rank() > 0 {
		return many(a.x(), q.Floats(), how, d...)
	}
	return one(a.x(), a.float(1, "q", 0), how, d...)
}

// oldNorm is torch.norm, whose argument p may be a number, None or a string such as "nuc".
var oldNorm call = func(a *args) any {
	x, d := a.cast(4, a.x()), a.ints(2, "dim")
	keep := a.addKeepDim(3, nil)
	switch p := a.arg(1, "p").(type) {
	case string:
		switch {
		case p == "nuc" && len(d) == 0 && x.Rank() == 2:
			return nuclear(x, []int{0, 1}, len(keep) > 0)
		case p == "nuc" && len(d) == 2:
			for i := range d {
				d[i] = (d[i] + x.Rank()) % x.Rank()
			}
			return nuclear(x, d, len(keep) > 0)
		}
		return x.Norm(2, append(d, keep...)...)
	case nil:
		return x.Norm(2, append(d, keep...)...)
	default:
		return x.Norm(number64(p), append(d, keep...)...)
	}
}

var renorm call = func(a *args) any {
	x, p, dim, most := a.x(), a.float(1, "p", 2), a.int(2, "dim", 0), a.float(3, "maxnorm", 0)
	if x.Rank() < 2 {
		panic(wrong("fewer than two dimensions"))
	}
	var over []int
	for i := range x.Rank() {
		if i != (dim+x.Rank())%x.Rank() {
			over = append(over, i)
		}
	}
	n := x.Norm(p, append(over, tensor.KeepDim)...)
	f := tensor.WhereScalar(n.GtScalar(most), n.AddScalar(1e-7).RDivScalar(most), 1)
	return x.Mul(f.Cast(x.Type()))
}

// scan applies f to x, after a conversion to the type in the sample's argument dtype.
func scan(a *args, f func(x T, dim int) T) any {
	y := f(a.cast(2, a.x()), a.int(1, "dim", 0))
	return y.Cast(a.dtype(2, "dtype", y.Type()))
}

var scans = map[string]call{
	"cumsum":       func(a *args) any { return scan(a, T.CumSum) },
	"cumprod":      func(a *args) any { return scan(a, T.CumProd) },
	"logcumsumexp": func(a *args) any { return a.x().LogCumSumExp(a.int(1, "dim", 0)) },
	"cummax": func(a *args) any {
		v, i := a.x().CumMax(a.int(1, "dim", 0))
		return []T{v, i}
	},
	"cummin": func(a *args) any {
		v, i := a.x().CumMin(a.int(1, "dim", 0))
		return []T{v, i}
	},
	"diff": func(a *args) any {
		dim, x := a.int(2, "dim", -1), a.x()
		list := []T{x}
		if p := a.opt(3, "prepend"); p != nil {
			list = []T{p, x}
		}
		if p := a.opt(4, "append"); p != nil {
			list = append(list, p)
		}
		if len(list) > 1 {
			x = tensor.Cat(dim, list...)
		}
		if a.int(1, "n", 1) == 0 {
			return a.x()
		}
		return x.Diff(a.int(1, "n", 1), dim)
	},
	"sort": func(a *args) any {
		a.ignored("stable")
		if s, ok := a.arg(1, "dim").(bool); ok && s {
			panic(wrong("a dimension that is a truth value"))
		}
		v, i := a.x().Sort(a.int(1, "dim", -1), a.bool(2, "descending", false))
		return []T{v, i}
	},
	"argsort": func(a *args) any {
		a.ignored("stable")
		return a.x().Argsort(a.int(1, "dim", -1), a.bool(2, "descending", false))
	},
	"msort": un(func(x T) T {
		v, _ := x.Sort(0, false)
		return v
	}),
	"topk": func(a *args) any {
		v, i := a.x().TopK(a.int(1, "k", 0), a.int(2, "dim", -1), a.bool(3, "largest", true),
			a.bool(4, "sorted", true))
		return []T{v, i}
	},
	"unique": func(a *args) any {
		o := tensor.UniqueOptions{
			Inverse: a.bool(2, "return_inverse", false), Counts: a.bool(3, "return_counts", false),
		}
		a.arg(1, "sorted")
		v, i, n := a.x().Unique(o, a.ints(4, "dim")...)
		return present(v, i, n)
	},
	"unique_consecutive": func(a *args) any {
		o := tensor.UniqueOptions{
			Inverse: a.bool(1, "return_inverse", false), Counts: a.bool(2, "return_counts", false),
		}
		v, i, n := a.x().UniqueConsecutive(o, a.ints(3, "dim")...)
		return present(v, i, n)
	},
	"searchsorted": func(a *args) any {
		var sorter []T
		if i := a.opt(-1, "sorter"); i != nil {
			sorter = append(sorter, i)
		}
		x, right := a.x(), a.bool(-1, "right", false)
		if side := a.text(-1, "side", ""); side != "" {
			right = side == "right"
		}
		y, isTensor := a.arg(1, "values").(T)
		if !isTensor { // the sample searches for one number in a vector
			y = a.scalar(a.arg(1, "values"))
			t := dtype.Promote(x.Type(), y.Type())
			if x.Type().IsFloat() || !y.Type().IsFloat() {
				t = x.Type()
			}
			x, y = x.Cast(t), y.Cast(t)
		}
		return index32(x.Searchsorted(y, right, sorter...), a.bool(-1, "out_int32", false))
	},
	"bucketize": func(a *args) any {
		right, narrow := a.bool(-1, "right", false), a.bool(-1, "out_int32", false)
		x, ok := a.arg(0, "input").(T)
		if !ok {
			lacks("a number instead of a tensor")
		}
		return index32(x.Bucketize(a.T(1, "boundaries"), right), narrow)
	},
	"isin": func(a *args) any {
		a.ignored("assume_unique")
		x, ok := a.arg(0, "elements").(T)
		y, also := a.arg(1, "test_elements").(T)
		if !ok || !also {
			lacks("a number instead of a tensor")
		}
		return x.IsIn(y, a.bool(-1, "invert", false))
	},
	"histc": func(a *args) any {
		return a.x().Histc(a.int(1, "bins", 100), a.float(2, "min", 0), a.float(3, "max", 0))
	},
	"bincount": func(a *args) any {
		return a.x().Bincount(a.opt(1, "weights"), a.int(2, "minlength", 0))
	},
	"trapezoid": trapezoid, "trapz": trapezoid,
}

// index32 converts indices to int32 if narrow, the argument out_int32, is set.
func index32(i T, narrow bool) T {
	if narrow {
		return i.Cast(dtype.I32)
	}
	return i
}

func present(list ...T) any {
	var out []T
	for _, t := range list {
		if t != nil {
			out = append(out, t)
		}
	}
	return out
}

// trapezoid integrates with the trapezoidal rule and steps of dx.
var trapezoid call = func(a *args) any {
	y, dim := a.x(), a.int(-1, "dim", -1)
	n := y.Dim((dim + y.Rank()) % y.Rank())
	mid := y.Narrow(dim, 1, max(n-1, 0)).Add(y.Narrow(dim, 0, max(n-1, 0)))
	if x := a.opt(1, "x"); x != nil {
		d := x.Diff(1, -1)
		if x.Rank() == y.Rank() {
			d = x.Diff(1, dim)
		} else if dim != -1 && dim != y.Rank()-1 {
			lacks("points of another rank")
		}
		return mid.Mul(d).Sum(dim).DivScalar(2)
	}
	if _, ok := a.arg(-1, "dx").(float64); ok {
		mid = floating(mid)
	}
	return mid.Sum(dim).MulScalar(a.float(-1, "dx", 1) / 2)
}
