package optest

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// init adds the ops of _golden/indexing.py to goldenOps.
func init() {
	type args = golden.Args
	maps.Copy(goldenOps, map[string]goldenOp{
		"scatter":       func(a args, x []*tt) *tt { return x[0].Scatter(a.Int("dim"), x[1], x[2]) },
		"scatter_value": func(a args, x []*tt) *tt { return x[0].ScatterScalar(a.Int("dim"), x[1], a.Float("value")) },
		"scatter_add":   func(a args, x []*tt) *tt { return x[0].ScatterAdd(a.Int("dim"), x[1], x[2]) },
		"scatter_reduce": func(a args, x []*tt) *tt {
			return x[0].ScatterReduce(a.Int("dim"), x[1], x[2], a.Text("reduce"), a.Bool("include_self"))
		},
		"index_reduce": func(a args, x []*tt) *tt {
			return x[0].IndexReduce(a.Int("dim"), x[1], x[2], a.Text("reduce"), a.Bool("include_self"))
		},
		"index_add":        func(a args, x []*tt) *tt { return x[0].IndexAdd(a.Int("dim"), x[1], x[2], a.Float("alpha")) },
		"index_copy":       func(a args, x []*tt) *tt { return x[0].IndexCopy(a.Int("dim"), x[1], x[2]) },
		"index_fill":       func(a args, x []*tt) *tt { return x[0].IndexFill(a.Int("dim"), x[1], a.Float("value")) },
		"index_fill_by":    func(a args, x []*tt) *tt { return x[0].IndexFillBy(a.Int("dim"), x[1], x[2]) },
		"masked_fill_by":   func(_ args, x []*tt) *tt { return x[0].MaskedFillBy(x[1], x[2]) },
		"take":             binaryOp((*tt).Take),
		"take_along_dim":   func(a args, x []*tt) *tt { return x[0].TakeAlong(x[1], a.Int("dim")) },
		"embedding_padded": func(a args, x []*tt) *tt { return x[0].EmbeddingPadded(x[1], a.Int("padding")) },
		"bincount": func(a args, x []*tt) *tt {
			if len(x) == 1 {
				return x[0].Bincount(nil, a.Int("minlength"))
			}
			return x[0].Bincount(x[1], a.Int("minlength"))
		},
		"nonzero":       unaryOp((*tt).Nonzero),
		"nonzero_tuple": func(a args, x []*tt) *tt { return x[0].NonzeroTuple()[a.Int("part")] },
		"masked_select": binaryOp((*tt).MaskedSelect),
		"index":         func(a args, x []*tt) *tt { return x[0].Index(brackets(a.Text("spec"), x[1:])...) },
		"index_put": func(a args, x []*tt) *tt {
			return x[0].IndexPut(x[1], a.Bool("accumulate"), brackets(a.Text("spec"), x[2:])...)
		},
		"masked_scatter": func(_ args, x []*tt) *tt { return x[0].MaskedScatter(x[1], x[2]) },
	})
	for _, op := range []string{"scatter_add", "scatter_reduce", "index_reduce", "index_add", "take", "take_along_dim", "embedding_padded", "bincount", "index", "index_put", "index_fill_by", "masked_fill_by"} {
		goldenTerms[op] = indexedTerms
	}
}

// brackets parses an index in the notation of _golden/indexing.py.
func brackets(spec string, tensors []*tt) (ix []any) {
	number := func(s string, or int) int {
		if s == "" {
			return or
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			panic(err)
		}
		return n
	}
	for _, p := range strings.Split(spec, ",") {
		switch {
		case p == "":
		case p == "...":
			ix = append(ix, tensor.Ellipsis)
		case p == "None":
			ix = append(ix, tensor.NewAxis)
		case p == "True" || p == "False":
			ix = append(ix, p == "True")
		case p[0] == 't':
			ix = append(ix, tensors[number(p[1:], 0)])
		case p[0] == '[':
			list := []int{}
			for _, v := range strings.Split(strings.Trim(p, "[]"), ";") {
				list = append(list, number(v, 0))
			}
			ix = append(ix, list)
		case p == ":":
			ix = append(ix, tensor.All)
		case strings.Contains(p, ":"):
			s := append(strings.Split(p, ":"), "")
			ix = append(ix, tensor.Range(number(s[0], 0), number(s[1], tensor.End), number(s[2], 1)))
		default:
			ix = append(ix, number(p, 0))
		}
	}
	return ix
}

// indexedTerms returns the sums of absolute terms for a case whose results are sums of products. It
// runs the case on the absolute values of its operands. It does not change integers, which are
// indices. For an op that selects extremes it returns nil sums.
func indexedTerms(c golden.Case) (t terms) {
	t.grads = map[int][]float64{}
	if c.Args.Has("reduce") && c.Args.Text("reduce")[0] == 'a' {
		return t
	}
	if c.Args.Has("alpha") {
		c.Args = maps.Clone(c.Args)
		c.Args["alpha"] = json.RawMessage(strings.TrimPrefix(string(c.Args["alpha"]), "-"))
	}
	tensor.Do(func(s *tensor.Scope) {
		var in, leaves []*tt
		var at []int
		for i, o := range c.In {
			a := viewed(o)
			if o.Base.DType == "BOOL" && i > 0 {
				in = append(in, s.From(a.v).Reshape(a.dims...).NeScalar(0))
				continue
			}
			if !o.Base.IsFloat() {
				in = append(in, s.Typed(dtype.I64).From(a.v).Reshape(a.dims...))
				continue
			}
			a = absolute(a)
			x := s.From(a.v).Reshape(a.dims...)
			if o.GradF64 != nil {
				leaves, at = append(leaves, x.RequiresGrad()), append(at, i)
			}
			in = append(in, x)
		}
		if !in[0].Type().IsFloat() && c.Op != "bincount" || c.In[0].Base.DType == "BOOL" {
			return // sums of whole numbers are exact
		}
		y := goldenOps[c.Op](c.Args, in)
		t.out = y.Floats()
		if c.Out[0].Seed == nil {
			return
		}
		seed := absolute(arrayOf(*c.Out[0].Seed))
		for k, g := range tensor.Gradients(y, leaves, tensor.GradOutput(s.From(seed.v).Reshape(seed.dims...))) {
			t.grads[at[k]] = g.Floats()
		}
	})
	return t
}
