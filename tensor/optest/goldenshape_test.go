package optest

import (
	"math"
	"strconv"

	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// The ops of _golden/shapes.py.
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
				d = []int{0} // of a scalar
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
	for op, why := range map[string]string{
		"dot":     "sums of 0 and -0",
		"addmm":   "sums of 0 and -0, and products with alpha = 0",
		"baddbmm": "sums of 0 and -0, and products with alpha = 0",
		"prod":    "PyTorch takes cumulative products where an element is 0",
	} {
		looseZero[op] = why
	}
	for name, why := range map[string]string{
		"var extreme correction=5": "squares of denormals are 0 in float32; PyTorch adds up in float64 on the CPU",
		"var scalar correction=5":  "PyTorch makes the gradient of a scalar NaN without degrees of freedom, and that of one element of a dimension 0",
		"std extreme correction=0": "squares overflow in float32; PyTorch adds up in float64 on the CPU",
		"std extreme correction=1": "squares overflow in float32; PyTorch adds up in float64 on the CPU",
		"std extreme correction=5": "squares of denormals are 0 in float32; PyTorch adds up in float64 on the CPU",
	} {
		otherwise[name] = why
	}
}

func order(a golden.Args) float64 {
	p, err := strconv.ParseFloat(a.Text("p"), 64)
	if err != nil {
		panic(err)
	}
	return p
}

// shapeTerms are the terms of what a reduction adds up or multiplies, for the ops of _golden/shapes.py.
func shapeTerms(c golden.Case, x []array, out, seed array) (t terms) {
	t.grads = map[int][]float64{}
	grad := func() array {
		if c.In[0].GradF64 == nil {
			return newArray(x[0].dims...)
		}
		return absolute(arrayOf(*c.In[0].GradF64))
	}
	n := float64(len(x[0].v)) / float64(max(1, len(out.v))) // elements of a group
	scaled := func(a array, f float64) []float64 { return a.apply(func(v float64) float64 { return f * v }).v }
	switch c.Op {
	case "prod":
		t.out, t.grads[0] = scaled(absolute(out), n), scaled(grad(), 2*n)
	case "norm":
		t.out, t.grads[0] = scaled(absolute(out), 4), scaled(grad(), 8)
	case "cosine_similarity", "pairwise_distance", "cdist":
		t.out = absolute(out).apply(func(v float64) float64 { return 2 + 4*v }).v
		for k := range x {
			if c.In[k].GradF64 != nil {
				t.grads[k] = absolute(arrayOf(*c.In[k].GradF64)).apply(func(v float64) float64 { return 8 + 8*v }).v
			}
		}
	case "logsumexp": // exp(x - y) has the rounding of x and y in it
		t.out = absolute(out).apply(func(v float64) float64 { return 2 + v }).v
		most := 0.0
		for _, v := range append(x[0].v, out.v...) {
			if v = math.Abs(v); v < math.Inf(1) {
				most = max(most, v)
			}
		}
		t.grads[0] = scaled(grad(), 4+most)
	case "var", "std": // of distances from a mean that rounds as the greatest element does
		t.out = scaled(absolute(out), 4)
		most := 0.0
		for _, v := range x[0].v {
			if v = math.Abs(v); v < 1e18 {
				most = max(most, v)
			}
		}
		factor := 0.0
		for _, v := range seed.v {
			factor = max(factor, v)
		}
		t.grads[0] = grad().apply(func(v float64) float64 { return 4*v + 4*most*factor/max(1, n-float64(c.Args.Int("correction"))) }).v
	case "expand", "broadcast_to", "repeat", "tile", "repeat_interleave", "unfold", "as_strided", "pad", "outer", "dot", "bmm", "addmm", "baddbmm", "einsum":
		return absoluteRun(c)
	}
	return t
}
