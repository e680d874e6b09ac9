package optest

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// terms holds, for each element of a result and of its gradients, the sum of the absolute values of
// the terms that are added. If terms are added in another order or rounded in another way, the
// element changes. The change is at most the rounding error of that sum. A slice is nil if nothing
// is added or nothing cancels.
type terms struct {
	out   []float64
	grads map[int][]float64
}

// viewed returns the operand with its views applied, as the op reads it.
func viewed(o golden.Operand) array {
	a := arrayOf(o.Base)
	for _, v := range o.Views {
		switch v.Name {
		case "transpose":
			p := make([]int, len(a.dims))
			for i := range p {
				p[i] = i
			}
			p[v.Args[0]], p[v.Args[1]] = p[v.Args[1]], p[v.Args[0]]
			a = a.permute(p)
		case "narrow":
			a = a.narrow(v.Args[0], v.Args[1], v.Args[2])
		case "expand":
			a = a.expand(v.Args)
		}
	}
	return a
}

// parts returns the operands of a case with their views applied, the result, and the absolute
// values of the seed.
func parts(c golden.Case) (x []array, out, seed array) {
	for _, o := range c.In {
		x = append(x, viewed(o))
	}
	if c.Out[0].Seed != nil {
		seed = absolute(arrayOf(*c.Out[0].Seed))
	}
	return x, arrayOf(c.Out[0].F64), seed
}

// goldenTerms has, for some ops, the function that computes the sums of absolute terms of a golden
// case. Other files add to it in init.
var goldenTerms = map[string]func(c golden.Case) terms{}

// caseTerms returns the sums of absolute terms of a golden case.
func caseTerms(c golden.Case) terms {
	if f := goldenTerms[c.Op]; f != nil {
		return f(c)
	}
	t := terms{grads: map[int][]float64{}}
	if _, ok := fromMethods[c.Op]; ok || c.Op == "prelu" || c.Op == "logit" || c.Op == "pow_tensor" || strings.HasSuffix(c.Op, "_scalar") {
		return elementTerms(c)
	}
	x, out, seed := parts(c)
	// byElement sets the sums of absolute terms of gradient k from the derivative at each element
	// of the result.
	byElement := func(k int, factor func(i int, in []float64) float64) {
		if c.In[k].GradF64 == nil {
			return
		}
		g := newArray(out.dims...)
		in := make([]float64, len(x))
		each(out.dims, func(i int, idx []int) {
			for j := range x {
				in[j] = x[j].v[x[j].offset(idx)]
			}
			g.v[i] = seed.v[i] * math.Abs(factor(i, in))
		})
		t.grads[k] = g.sumTo(x[k].dims).v
	}
	one := func(int, []float64) float64 { return 1 }
	switch c.Op {
	case "add", "sub", "minimum", "maximum", "where":
		for k := range x {
			byElement(k, one)
		}
	case "mul":
		byElement(0, func(_ int, in []float64) float64 { return in[1] })
		byElement(1, func(_ int, in []float64) float64 { return in[0] })
	case "div":
		byElement(0, func(_ int, in []float64) float64 { return 1 / in[1] })
		byElement(1, func(_ int, in []float64) float64 { return in[0] / in[1] / in[1] })
	case "tanh": // the derivative is 1 - y²
		byElement(0, one)
	case "gelu": // the derivative is Φ(x) + x·φ(x); Φ, or its tanh form, is a sum that cancels
		t.out = absolute(x[0]).v
		byElement(0, func(_ int, in []float64) float64 { v := math.Abs(in[0]); return 1 + 0.4*v*(1+0.134*v*v) })
	case "matmul", "linear", "bilinear", "sum", "mean", "inplace":
		t = absoluteRun(c)
	case "softmax", "softmin":
		if c.Op == "softmin" {
			x[0] = x[0].apply(func(v float64) float64 { return -v })
		}
		p, below := softmax(x[0], c.Args.Int("dim"))
		t.out = make([]float64, len(p.v))
		g := make([]float64, len(p.v))
		gp, _ := rowSums(p, seed, c.Args.Int("dim"))
		for i, v := range p.v {
			t.out[i] = v * (1 + below.v[i])
			g[i] = v * (seed.v[i] + gp.v[i]) * (1 + below.v[i])
		}
		t.grads[0] = g
	case "log_softmax":
		p, below := softmax(x[0], c.Args.Int("dim"))
		t.out = make([]float64, len(p.v))
		g := make([]float64, len(p.v))
		_, gs := rowSums(p, seed, c.Args.Int("dim"))
		for i, v := range p.v {
			// The result is x minus the greatest element, minus the logarithm of a sum. Both
			// differences are rounded.
			t.out[i] = 1 + below.v[i] + math.Abs(out.v[i]+below.v[i])
			g[i] = seed.v[i] + v*gs.v[i]*(1+below.v[i])
		}
		t.grads[0] = g
	case "cross_entropy":
		dim, scale := min(1, len(x[0].dims)-1), 0.0
		for _, v := range seed.v {
			scale = max(scale, v)
		}
		if c.Args.Text("reduction") == "mean" {
			scale /= float64(max(1, len(x[1].v)))
		}
		p, below := softmax(x[0], dim)
		g := make([]float64, len(p.v))
		for i, v := range p.v { // the gradient is exp(x - lse), so the rounding of lse counts
			g[i] = scale * v * (1 + below.v[i])
		}
		// The gradient is p minus the target. With label smoothing, the target is a sum of terms.
		if s := c.Args.Float("label_smoothing"); s > 0 {
			each(x[0].dims, func(i int, idx []int) {
				g[i] += scale * s / float64(x[0].dims[dim])
				if row := slices.Delete(slices.Clone(idx), dim, dim+1); x[1].v[x[1].offset(row)] == float64(idx[dim]) {
					g[i] += scale * (1 - s)
				}
			})
		}
		t.grads[0] = g
	case "scaled_dot_product_attention":
		return attentionTerms(c)
	case "rope":
		return ropeTerms(c)
	default:
		return shapeTerms(c, x, out, seed)
	}
	return t
}

// rowSums returns Σ s·p and Σ s over dim, expanded to every element.
func rowSums(p, s array, dim int) (sp, ss array) {
	if dim < 0 {
		dim += len(p.dims)
	}
	if len(p.dims) == 0 {
		return s, s
	}
	rows := append([]int(nil), p.dims...)
	rows[dim] = 1
	weighted := s.clone()
	for i := range weighted.v {
		weighted.v[i] *= p.v[i]
	}
	return weighted.sumTo(rows).expand(p.dims), s.sumTo(rows).expand(p.dims)
}

// absoluteRun runs a case on the absolute values of its operands, in float64. No sum cancels, so
// the results are the terms. The terms of the case must be products of the operands.
func absoluteRun(c golden.Case) (t terms) {
	t.grads = map[int][]float64{}
	tensor.Do(func(s *tensor.Scope) {
		var in, leaves []*tensor.Tensor
		var at []int
		for i, o := range c.In {
			a := absolute(viewed(o))
			x := s.Typed(dtype.F64).From(a.v).Reshape(a.dims...)
			if o.Base.DType == "I64" {
				x = x.Long()
			}
			if o.GradF64 != nil {
				x.RequiresGrad()
				leaves, at = append(leaves, x), append(at, i)
			}
			in = append(in, x)
		}
		args := maps.Clone(c.Args)
		for _, factor := range []string{"alpha", "beta"} {
			if v, ok := args[factor]; ok {
				args[factor] = bytes.TrimPrefix(v, []byte("-"))
			}
		}
		y := goldenOps[c.Op](args, in)
		t.out = y.Floats()
		if c.Out[0].Seed == nil {
			return
		}
		seed := absolute(arrayOf(*c.Out[0].Seed))
		g := tensor.Gradients(y, leaves, tensor.GradOutput(s.From(seed.v).Reshape(seed.dims...)))
		for k, i := range at {
			t.grads[i] = g[k].Floats()
		}
	})
	return t
}

func dimOr0(a golden.Args) int {
	if a.Has("dim") {
		return a.Int("dim")
	}
	return 0
}
