package optest

import (
	"math"
	"slices"
	"strconv"

	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// init adds the ops of _golden/shapes.py to goldenOps.
func init() {
	type args = golden.Args
	of := func(f func(a args, x *tt) *tt) goldenOp {
		return func(a args, x []*tt) *tt { return f(a, x[0]) }
	}
	part := func(a args, values, indices *tt) *tt {
		if a.Int("part") == 1 {
			return indices
		}
		return values
	}
	for name, op := range map[string]goldenOp{
		"slice":             of(func(a args, x *tt) *tt { return x.Slice(a.Int("dim"), a.Int("start"), a.Int("stop"), a.Int("step")) }),
		"diagonal":          of(func(a args, x *tt) *tt { return x.Diagonal(a.Int("offset"), a.Int("dim1"), a.Int("dim2")) }),
		"diag_embed":        of(func(a args, x *tt) *tt { return x.DiagEmbed(a.Int("offset"), a.Int("dim1"), a.Int("dim2")) }),
		"diag":              of(func(a args, x *tt) *tt { return x.Diag(a.Int("k")) }),
		"tril":              of(func(a args, x *tt) *tt { return x.Tril(a.Int("k")) }),
		"triu":              of(func(a args, x *tt) *tt { return x.Triu(a.Int("k")) }),
		"unfold":            of(func(a args, x *tt) *tt { return x.Unfold(a.Int("dim"), a.Int("size"), a.Int("step")) }),
		"as_strided":        of(func(a args, x *tt) *tt { return x.AsStrided(a.Ints("size"), a.Ints("stride"), a.Int("offset")) }),
		"unflatten":         of(func(a args, x *tt) *tt { return x.Unflatten(a.Int("dim"), a.Ints("sizes")...) }),
		"movedim":           of(func(a args, x *tt) *tt { return x.MoveAxes(a.Ints("source"), a.Ints("destination")) }),
		"moveaxis":          of(func(a args, x *tt) *tt { return x.MoveAxis(a.Int("source"), a.Int("destination")) }),
		"broadcast_to":      of(func(a args, x *tt) *tt { return x.BroadcastTo(a.Ints("size")...) }),
		"repeat":            of(func(a args, x *tt) *tt { return x.Repeat(a.Ints("repeats")...) }),
		"tile":              of(func(a args, x *tt) *tt { return x.Tile(a.Ints("repeats")...) }),
		"repeat_interleave": of(func(a args, x *tt) *tt { return x.RepeatInterleave(a.Int("repeats"), a.Int("dim")) }),
		"flip":              of(func(a args, x *tt) *tt { return x.Flip(a.Ints("dims")...) }),
		"roll":              of(func(a args, x *tt) *tt { return x.Roll(a.Ints("shifts"), a.Ints("dims")) }),
		"pad": of(func(a args, x *tt) *tt {
			switch pads := a.Ints("pad"); a.Text("mode") {
			case "reflect":
				return x.PadReflect(pads...)
			case "replicate":
				return x.PadReplicate(pads...)
			case "circular":
				return x.PadCircular(pads...)
			default:
				return x.Pad(a.Float("value"), pads...)
			}
		}),
		"split": of(func(a args, x *tt) *tt {
			if a.Has("sizes") {
				return x.SplitSizes(a.Ints("sizes"), a.Int("dim"))[a.Int("part")]
			}
			return x.Split(a.Int("size"), a.Int("dim"))[a.Int("part")]
		}),
		"chunk":  of(func(a args, x *tt) *tt { return x.Chunk(a.Int("n"), a.Int("dim"))[a.Int("part")] }),
		"unbind": of(func(a args, x *tt) *tt { return x.Unbind(a.Int("dim"))[a.Int("part")] }),
		"hstack": func(_ args, x []*tt) *tt { return tensor.HStack(x...) },
		"vstack": func(_ args, x []*tt) *tt { return tensor.VStack(x...) },
		"meshgrid": func(a args, x []*tt) *tt {
			if a.Text("indexing") == "xy" {
				return tensor.MeshgridXY(x...)[a.Int("part")]
			}
			return tensor.Meshgrid(x...)[a.Int("part")]
		},

		"prod": reduceOp((*tt).Prod), "any": reduceOp((*tt).Any), "all": reduceOp((*tt).All), "count_nonzero": reduceOp((*tt).CountNonzero),
		"logsumexp": reduceOp((*tt).LogSumExp),
		"max": of(func(a args, x *tt) *tt {
			d := dims(a)
			if !a.Has("dim") {
				d = []int{0} // the operand is a scalar
			}
			v, i := x.Max(d...)
			return part(a, v, i)
		}),
		"min": of(func(a args, x *tt) *tt {
			d := dims(a)
			if !a.Has("dim") {
				d = []int{0}
			}
			v, i := x.Min(d...)
			return part(a, v, i)
		}),
		"var":  of(func(a args, x *tt) *tt { return x.Var(a.Int("correction"), dims(a)...) }),
		"std":  of(func(a args, x *tt) *tt { return x.Std(a.Int("correction"), dims(a)...) }),
		"norm": of(func(a args, x *tt) *tt { return x.Norm(order(a), dims(a)...) }),

		"outer": binaryOp((*tt).Outer), "dot": binaryOp((*tt).Dot), "bmm": binaryOp((*tt).Bmm),
		"addmm":   func(a args, x []*tt) *tt { return x[0].Addmm(x[1], x[2], a.Float("beta"), a.Float("alpha")) },
		"baddbmm": func(a args, x []*tt) *tt { return x[0].Baddbmm(x[1], x[2], a.Float("beta"), a.Float("alpha")) },
		"one_hot": of(func(a args, x *tt) *tt { return x.OneHot(a.Int("num_classes")) }),
		"cosine_similarity": func(a args, x []*tt) *tt {
			return x[0].CosineSimilarity(x[1], a.Int("dim"), a.Float("eps"))
		},
		"pairwise_distance": func(a args, x []*tt) *tt { return x[0].PairwiseDistance(x[1], order(a), a.Float("eps")) },
		"cdist":             func(a args, x []*tt) *tt { return x[0].Cdist(x[1], order(a)) },
		"einsum":            func(a args, x []*tt) *tt { return tensor.Einsum(a.Text("equation"), x...) },
	} {
		goldenOps[name] = op
	}
}

func order(a golden.Args) float64 {
	p, err := strconv.ParseFloat(a.Text("p"), 64)
	if err != nil {
		panic(err)
	}
	return p
}

// productSums lists the ops whose results and gradients are sums of products of their operands. The
// op gives the sums of absolute terms if its operands are replaced by their absolute values.
var productSums = map[string]bool{"expand": true, "broadcast_to": true, "repeat": true, "tile": true, "repeat_interleave": true, "unfold": true, "as_strided": true, "pad": true,
	"outer": true, "dot": true, "bmm": true, "addmm": true, "baddbmm": true, "einsum": true, "gather": true, "scatter_add": true, "embedding": true, "index_select": true}

// shapeTerms returns the sums of absolute terms of reductions and the other ops of
// _golden/shapes.py.
func shapeTerms(c golden.Case, x []array, out, seed array) (t terms) {
	t.grads = map[int][]float64{}
	switch c.Op {
	case "cosine_similarity":
		n := c.Args.Int("dim")
		t.out, t.grads = cosineTerms(x, seed, (n+len(seed.dims)+1)%(len(seed.dims)+1), c.Args.Float("eps"))
	case "pairwise_distance", "cdist":
		if c.Out[0].Seed != nil {
			t.grads = distanceTerms(c.Op, x, out, seed, order(c.Args))
		}
		t.out = absolute(out).v
	case "norm": // the norm is a power of a sum, and its gradient contains a power of order 1 - p
		p := math.Abs(1 - order(c.Args))
		if math.IsInf(p, 0) {
			p = 0
		}
		t.out = absolute(out).v
		if g := c.In[0].GradF64; g != nil {
			t.grads[0] = absolute(arrayOf(*g)).apply(func(v float64) float64 { return (2 + p) * v }).v
		}
	case "logsumexp":
		// The result is the greatest element plus a logarithm. exp(x - y) amplifies the rounding of
		// x - y.
		full, over := maximaOf(x[0], dims(c.Args))
		t.out, t.grads[0] = absolute(out).v, make([]float64, len(x[0].v))
		for i, group := range over {
			most := full[i]
			t.out[i] = 1 + math.Abs(most) + math.Abs(out.v[i]-most)
			for _, at := range group {
				d := most - x[0].v[at]
				if t.out[i] += math.Exp(-d) * finite(d); c.In[0].GradF64 != nil {
					t.grads[0][at] = seed.v[i] * math.Exp(x[0].v[at]-out.v[i]) * (2 + finite(x[0].v[at]) + finite(out.v[i]))
				}
			}
		}
	// Variance and deviation depend on distances from the mean. The rounding error of the mean is
	// as large as that of the greatest element.
	case "var", "std":
		t.out = absolute(out).v
		most, factor := 0.0, 0.0
		for _, v := range x[0].v {
			if v = math.Abs(v); v < 1e18 {
				most = max(most, v)
			}
		}
		for _, v := range seed.v {
			factor = max(factor, v)
		}
		n := float64(len(x[0].v)) / float64(max(1, len(out.v)))
		if g := c.In[0].GradF64; g != nil {
			t.grads[0] = absolute(arrayOf(*g)).apply(func(v float64) float64 { return v + 4*most*factor/max(1, n-float64(c.Args.Int("correction"))) }).v
		}
	default:
		if productSums[c.Op] {
			return absoluteRun(c)
		}
	}
	return t
}

// maximaOf returns the greatest element of each group that a reduction over dims combines. It also
// returns, for each group, the positions of its elements.
func maximaOf(x array, dims []int) (most []float64, places [][]int) {
	dims = slices.DeleteFunc(slices.Clone(dims), func(d int) bool { return d == tensor.KeepDim })
	if len(x.dims) == 0 {
		dims = nil
	}
	_, groups, places := groupsOf(x, dims)
	for _, g := range groups {
		v := math.Inf(-1)
		for _, e := range g {
			v = math.Max(v, e)
		}
		most = append(most, v)
	}
	return most, places
}

// cosineTerms returns the sums of absolute terms of Σ x̂·ŷ for unit vectors x̂ and ŷ. The gradients
// are g·(ŷ - cos·x̂)/‖x‖, and their terms are at most |ŷ| and |x̂|.
func cosineTerms(x []array, seed array, dim int, eps float64) (out []float64, grads map[int][]float64) {
	full := joint(x...)
	unit, length := make([]array, 2), make([]array, 2)
	kept := slices.Clone(full)
	kept[dim] = 1
	for k := range x {
		a := x[k].expand(full)
		length[k] = a.apply(func(v float64) float64 { return v * v }).sumTo(kept).apply(func(v float64) float64 { return max(math.Sqrt(v), eps) }).expand(full)
		unit[k] = arrayOfFunc(full, func(i []int) float64 { return math.Abs(a.at(i...)) / length[k].at(i...) })
	}
	g := seed.reshape(kept...).expand(full)
	sum := arrayOfFunc(full, func(i []int) float64 { return unit[0].at(i...) * unit[1].at(i...) }).sumTo(kept)
	grads = map[int][]float64{}
	for k := range x {
		grads[k] = arrayOfFunc(full, func(i []int) float64 {
			return finite(g.at(i...) * (unit[0].at(i...) + unit[1].at(i...)) / length[k].at(i...))
		}).sumTo(x[k].dims).v
	}
	return sum.v, grads
}

// distanceTerms returns the sums of absolute terms of the gradients of distances:
// g·sign(d)·(|d|/‖d‖)^(p-1) for each difference d. The factor max(p, 1) is needed because the power
// amplifies a rounding.
func distanceTerms(op string, x []array, out, seed array, p float64) map[int][]float64 {
	a, b, rows := x[0], x[1], slices.Clone(out.dims)
	if op == "cdist" { // the shapes become [..., n, 1, m] and [..., 1, k, m]
		n := len(a.dims)
		a = a.reshape(slices.Insert(slices.Clone(a.dims), n-1, 1)...)
		n = len(b.dims)
		b = b.reshape(slices.Insert(slices.Clone(b.dims), n-2, 1)...)
	}
	full := joint(a, b)
	y, g := out.reshape(append(rows, 1)...).expand(full), seed.reshape(append(rows, 1)...).expand(full)
	wa, wb := a.expand(full), b.expand(full)
	each := arrayOfFunc(full, func(i []int) float64 {
		switch d, n := math.Abs(wa.at(i...)-wb.at(i...)), y.at(i...); {
		case d == 0 && p < 1 || n == 0 || math.IsInf(p, 0):
			return g.at(i...)
		default:
			return finite(g.at(i...) * math.Pow(d/n, p-1) * max(p, 1))
		}
	})
	return map[int][]float64{0: each.sumTo(a.dims).v, 1: each.sumTo(b.dims).v}
}
