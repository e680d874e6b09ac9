package samples

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

var indexing = map[string]call{
	"gather": func(a *args) any {
		a.ignored("sparse_grad")
		return a.x().Gather(a.int(1, "dim", 0), a.T(2, "index"))
	},
	"index_select": func(a *args) any {
		return a.x().IndexSelect(a.int(1, "dim", 0), a.T(2,
			"index"))
	},
	"take": func(a *args) any { return a.x().Take(a.T(1, "index")) },
	"take_along_dim": func(a *args) any {
		if !a.has(2, "dim") {
			x, i := a.x(), a.T(1, "indices")
			return x.Flatten(0, -1).TakeAlong(i.Flatten(0, -1), 0)
		}
		return a.x().TakeAlong(a.T(1, "indices"), a.int(2, "dim", 0))
	},
	"put": func(a *args) any {
		x := a.x()
		y := x.Flatten(0, -1).IndexPut(a.T(2, "source").Flatten(0, -1), a.bool(3, "accumulate",
			false),
			a.T(1, "index").Flatten(0, -1))
		return y.Reshape(x.Shape().Slice()...)
	},
	"scatter": func(a *args) any {
		dim, i := a.int(1, "dim", 0), a.T(2, "index")
		src := a.arg(3, "src")
		if src == nil {
			src = a.arg(3, "value")
		}
		if how := a.text(-1, "reduce", ""); how != "" {
			y, ok := src.(T)
			if !ok {
				t := a.scope.Typed(a.x().Type())
				y = t.Full(number64(src), i.Shape().Slice()...)
			}
			how = map[string]string{"add": "sum", "multiply": "prod"}[how]
			return a.x().ScatterReduce(dim, i, y, how, true)
		}
		if y, ok := src.(T); ok {
			return a.x().Scatter(dim, i, y)
		}
		return a.x().ScatterScalar(dim, i, number64(src))
	},
	"scatter_add": func(a *args) any {
		return a.x().ScatterAdd(a.int(1, "dim", 0), a.T(2, "index"), a.T(3, "src"))
	},
	"scatter_reduce.sum": scatters, "scatter_reduce.prod": scatters,
	"scatter_reduce.mean": scatters,
	"scatter_reduce.amin": scatters, "scatter_reduce.amax": scatters,
	"index_add": func(a *args) any {
		return a.x().IndexAdd(a.int(1, "dim", 0), a.T(2, "index"), a.T(3, "source"),
			a.float(-1, "alpha", 1))
	},
	"index_copy": func(a *args) any {
		return a.x().IndexCopy(a.int(1, "dim", 0), a.T(2, "index"), a.T(3, "source"))
	},
	"index_fill": func(a *args) any {
		if v, ok := a.arg(3, "value").(T); ok {
			return a.x().IndexFillBy(a.int(1, "dim", 0), a.T(2, "index"), v)
		}
		return a.x().IndexFill(a.int(1, "dim", 0), a.T(2, "index"), a.float(3, "value", 0))
	},
	"index_reduce.mean": indexReduces, "index_reduce.prod": indexReduces,
	"index_reduce.amin": indexReduces, "index_reduce.amax": indexReduces,
	"index_put": func(a *args) any {
		var ix []any
		for _, i := range items(a.arg(1, "indices")) {
			ix = append(ix, place(i))
		}
		return a.x().IndexPut(a.T(2, "values"), a.bool(3, "accumulate", false), ix...)
	},
	"__getitem__": func(a *args) any {
		switch v := a.arg(1, "index").(type) {
		case tuple:
			var ix []any
			for _, i := range v {
				ix = append(ix, place(i))
			}
			return a.x().Index(ix...)
		default:
			return a.x().Index(place(v))
		}
	},
	"masked_fill": func(a *args) any {
		if v, ok := a.arg(2, "value").(T); ok {
			return a.x().MaskedFillBy(a.T(1, "mask"), v)
		}
		return a.x().MaskedFill(a.T(1, "mask"), a.float(2, "value", 0))
	},
	"masked_scatter": func(a *args) any {
		return a.x().MaskedScatter(a.T(1, "mask"), a.T(2,
			"source"))
	},
	"masked_select": func(a *args) any { return a.x().MaskedSelect(a.T(1, "mask")) },
	"nonzero": func(a *args) any {
		if a.bool(-1, "as_tuple", false) {
			return a.x().NonzeroTuple()
		}
		return a.x().Nonzero()
	},
	"argwhere":              un(T.Nonzero),
	"nn.functional.one_hot": func(a *args) any { return a.x().OneHot(a.int(1, "num_classes", -1)) },
	"nn.functional.embedding": func(a *args) any {
		a.ignored("sparse")
		w, i := a.x(), a.T(1, "indices") // the sample has the table first, then the indices
		l := &nn.Embedding{Table: a.table(w, 2)}
		return l.Forward(i)
	},
}

// place converts one index of PyTorch's x[…] to the form that this library takes.
func place(v any) any {
	switch v := v.(type) {
	case nil:
		return tensor.NewAxis
	case ellipsis:
		return tensor.Ellipsis
	case span:
		from, to, step := 0, tensor.End, 1
		if v[0] != nil {
			from = whole(v[0])
		}
		if v[1] != nil {
			to = whole(v[1])
		}
		if v[2] != nil {
			step = whole(v[2])
		}
		return tensor.Range(from, to, step)
	case []any, tuple:
		return toInts(v)
	}
	return v
}

var (
	scatters call = func(a *args) any {
		return a.x().ScatterReduce(a.int(1, "dim", 0), a.T(2, "index"), a.T(3, "src"),
			a.text(4, "reduce", ""), a.bool(5, "include_self", true))
	}
	indexReduces call = func(a *args) any {
		return a.x().IndexReduce(a.int(1, "dim", 0), a.T(2, "index"), a.T(3, "source"),
			a.text(4, "reduce", ""), a.bool(-1, "include_self", true))
	}
)

// makers holds operators that create a tensor of a given shape and type.
var makers = map[string]call{
	"zeros": made(tensor.Maker.Zeros), "ones": made(tensor.Maker.Ones),
	"empty": made(tensor.Maker.Empty),
	"randn": made(tensor.Maker.Randn),
	"full": func(a *args) any {
		v := a.arg(1, "fill_value")
		t := dtype.F32
		switch v.(type) {
		case bool:
			t = dtype.Bool
		case int:
			t = dtype.I64
		}
		return a.maker(t).Full(number64(v), a.ints(0, "size")...)
	},
	"scalar_tensor": func(a *args) any { return a.maker(dtype.F32).Full(a.float(0, "s", 0)) },
	"zeros_like":    like(T.ZerosLike), "ones_like": like(T.OnesLike),
	"empty_like": like(T.EmptyLike),
	"rand_like":  like(T.RandLike), "randn_like": like(T.RandnLike),
	"full_like": func(a *args) any {
		a.ignored("memory_format", "layout", "device")
		return a.cast(-1, a.x()).FullLike(a.float(1, "fill_value", 0))
	},
	"randint_like": func(a *args) any {
		a.ignored("memory_format", "layout", "device")
		lo, hi := 0, a.int(1, "high", 0)
		if a.has(2, "high") {
			lo, hi = hi, a.int(2, "high", 0)
		}
		return a.cast(-1, a.x()).RandIntLike(lo, hi)
	},
	"randint": func(a *args) any {
		lo, hi, at := 0, a.int(0, "high", 0), 1
		if _, ok := a.arg(1, "size").(int); ok {
			lo, hi, at = hi, a.int(1, "high", 0), 2
		}
		if v := a.arg(-1, "low"); v != nil {
			lo = whole(v)
		}
		return a.maker(dtype.I64).RandInt(lo, hi, a.ints(at, "size")...)
	},
	"new_zeros": func(a *args) any { return a.like().Zeros(a.ints(1, "size")...) },
	"new_ones":  func(a *args) any { return a.like().Ones(a.ints(1, "size")...) },
	"new_empty": func(a *args) any { return a.like().Empty(a.ints(1, "size")...) },
	"new_full": func(a *args) any {
		return a.like().Full(a.float(2, "fill_value", 0), a.ints(1, "size")...)
	},
	"eye": func(a *args) any {
		n := a.int(0, "n", 0)
		return a.maker(dtype.F32).Eye(n, a.int(1, "m", n))
	},
	"arange": func(a *args) any {
		v := []float64{}
		t := dtype.I64
		for i, name := range []string{"start", "end", "step"} {
			x := a.arg(i, name)
			if x == nil {
				continue
			}
			if _, ok := x.(float64); ok {
				t = dtype.F32
			}
			v = append(v, number64(x))
		}
		from, to, step := 0.0, 0.0, 1.0
		switch len(v) {
		case 1:
			to = v[0]
		case 2:
			from, to = v[0], v[1]
		case 3:
			from, to, step = v[0], v[1], v[2]
		}
		return a.maker(t).ArangeStep(from, to, step)
	},
	"linspace": func(a *args) any {
		return a.maker(dtype.F32).Linspace(a.float(0, "start", 0), a.float(1, "end", 0), a.int(2,
			"steps", 0))
	},
	"linspace.tensor_overload": func(a *args) any {
		return a.maker(dtype.F32).Linspace(a.float(0, "start", 0), a.float(1, "end", 0), a.int(2,
			"steps", 0))
	},
	"logspace": logspaces, "logspace.tensor_overload": logspaces,
	"bernoulli": func(a *args) any {
		if a.has(1, "p") {
			return a.x().Clone().BernoulliInPlace(a.float(1, "p", 0))
		}
		return a.x().Bernoulli()
	},
	"multinomial": func(a *args) any {
		return a.x().Multinomial(a.int(1, "num_samples", 1), a.bool(2, "replacement", false))
	},
	"normal.in_place": func(a *args) any {
		return a.x().NormalInPlace(a.float(1, "mean", 0), a.float(2, "std", 1))
	},
	"uniform": func(a *args) any {
		return a.x().UniformInPlace(a.float(1, "from", 0), a.float(2, "to", 1))
	},
	"triu_indices": func(a *args) any { return triangle(a, T.Triu) },
	"tril_indices": func(a *args) any { return triangle(a, T.Tril) },
	"broadcast_shapes": func(a *args) any {
		var list []T
		for i := range a.pos {
			list = append(list, a.scope.Zeros(a.ints(i, "shape")...))
		}
		return broadcastShape(list)
	},
	"normal": func(a *args) any {
		mean, std := a.T(0, "mean"), a.arg(1, "std")
		a.ignored("device")
		if v, ok := std.(T); ok {
			z := mean.Add(v)
			return z.RandnLike().Mul(v).Add(mean)
		}
		return mean.RandnLike().MulScalar(number64(std)).Add(mean)
	},
	"normal.number_mean": func(a *args) any {
		if v, ok := a.arg(1, "std").(float64); ok {
			return a.maker(dtype.F32).Normal(a.float(0, "mean", 0), v, a.ints(2, "size")...)
		}
		std := a.T(1, "std")
		return std.RandnLike().Mul(std).AddScalar(a.float(0, "mean", 0))
	},
}

// broadcastShape returns the shape of the sum of tensors with the given shapes.
func broadcastShape(list []T) any {
	y := list[0]
	for _, x := range list[1:] {
		y = y.Add(x)
	}
	var out []any
	for i := range y.Rank() {
		out = append(out, y.Dim(i))
	}
	return wholeShape(out)
}

// wholeShape is a shape as a single result, not as a list of results.
type wholeShape []any

func triangle(a *args, f func(x T, k int) T) any {
	m := a.scope.Ones(a.int(0, "row", 0), a.int(1, "col", 0))
	t := a.dtype(-1, "dtype", dtype.I64)
	a.ignored("device", "layout")
	return f(m, a.int(2, "offset", 0)).Nonzero().T().Cast(t)
}

var logspaces call = func(a *args) any {
	return a.maker(dtype.F32).Logspace(a.float(0, "start", 0), a.float(1, "end", 0), a.int(2,
		"steps", 0),
		a.float(3, "base", 10))
}

// maker returns the scope's Maker for the type that the argument dtype names, or for t.
func (a *args) maker(t dtype.Type) tensor.Maker {
	a.ignored("layout", "device", "memory_format", "requires_grad", "pin_memory")
	if a.double && t.IsFloat() {
		t = dtype.F64 // if the sample runs in float64, that is PyTorch's default type
	}
	return a.scope.Typed(a.dtype(-1, "dtype", t))
}

func (a *args) like() tensor.Maker { return a.maker(a.x().Type()) }

func made(f func(m tensor.Maker, dims ...int) T) call {
	return func(a *args) any { return f(a.maker(dtype.F32), a.intArgs(0, "size")...) }
}

func like(f func(x T) T) call {
	return func(a *args) any {
		a.ignored("memory_format", "layout", "device", "requires_grad", "pin_memory")
		return f(a.cast(-1, a.x()))
	}
}
