package optest

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// init adds the ops of _golden/attention.py to goldenOps.
func init() {
	goldenOps["scaled_dot_product_attention"] = func(a golden.Args, x []*tt) *tt {
		o := tensor.AttentionOptions{Causal: a.Bool("causal"), Scale: a.Float("scale"), GroupedHeads: a.Bool("gqa")}
		if len(x) > 3 {
			o.Mask = x[3]
		}
		return tensor.ScaledDotProductAttention(x[0], x[1], x[2], o)
	}
	goldenOps["bilinear"] = func(_ golden.Args, x []*tt) *tt {
		if len(x) > 3 {
			return x[0].Bilinear(x[1], x[2], x[3])
		}
		return x[0].Bilinear(x[1], x[2], nil)
	}
	goldenOps["softmin"] = func(a golden.Args, x []*tt) *tt { return x[0].Softmin(a.Int("dim")) }
	goldenOps["rope"] = func(a golden.Args, x []*tt) *tt {
		o := tensor.RoPEOptions{Base: a.Float("base"), Offset: a.Int("offset"), Interleaved: a.Bool("interleaved"), Dims: a.Int("dims")}
		if len(x) > 1 {
			o.Positions = x[1]
		}
		return x[0].RoPE(o)
	}
}

// attentionTerms returns the sums of absolute terms of attention. A score is a sum of products, and
// the rounding of the score changes the weight. Therefore the relative error of a weight grows with
// the scores.
func attentionTerms(c golden.Case) (t terms) {
	t.grads = map[int][]float64{}
	tensor.Do(func(s *tensor.Scope) {
		in := make([]*tt, len(c.In))
		for i, o := range c.In {
			a := viewed(o)
			in[i] = s.On(hostDevice()).Typed(dtype.F64).From(a.v).Reshape(a.dims...)
		}
		q, k, v := in[0], in[1], in[2]
		if c.Args.Bool("gqa") {
			g := q.Dim(-3) / k.Dim(-3)
			k, v = k.RepeatInterleave(g, -3), v.RepeatInterleave(g, -3)
		}
		scale := c.Args.Float("scale")
		if scale == 0 {
			scale = 1 / math.Sqrt(float64(q.Dim(-1)))
		}
		finite := func(x *tt) *tt { return x.NanToNum(0, 0, 0) }
		scores, most := q.MatMul(k.T()).MulScalar(scale), finite(q).Abs().MatMul(finite(k).Abs().T()).MulScalar(math.Abs(scale))
		if c.Args.Bool("causal") {
			scores = scores.Add(scores.OnesLike().Tril(0).Log())
		}
		if len(in) > 3 && c.In[3].Base.DType == "BOOL" {
			scores = scores.Add(in[3].Log())
		} else if len(in) > 3 {
			scores, most = scores.Add(in[3]), most.Add(finite(in[3]).Abs())
		}
		if scores.Size() == 0 {
			return
		}
		p := finite(scores.Softmax(-1))
		rough := p.Mul(finite(most).Amax(-1, tensor.KeepDim).AddScalar(4))
		t.out = rough.MatMul(finite(v).Abs()).Floats()
		seed := absolute(arrayOf(*c.Out[0].Seed))
		g := s.On(hostDevice()).Typed(dtype.F64).From(seed.v).Reshape(seed.dims...)
		back := g.MatMul(finite(v).Abs().T())
		back = rough.Mul(back.Add(back.Mul(p).Sum(-1, tensor.KeepDim)))
		for i, d := range []*tt{back.MatMul(finite(k).Abs()).MulScalar(math.Abs(scale)), back.T().MatMul(finite(q).Abs()).MulScalar(math.Abs(scale)), rough.T().MatMul(g), back} {
			if i >= len(c.In) || c.In[i].GradF64 == nil {
				continue
			}
			a, to := array{d.Shape().Slice(), d.Floats()}, viewed(c.In[i]).dims
			// with grouped heads, several heads of queries share keys and values
			if c.Args.Bool("gqa") && (i == 1 || i == 2) {
				n := len(to)
				h, g := to[n-3], a.dims[n-3]/to[n-3]
				split := append(append(append([]int(nil), a.dims[:n-3]...), h, g), a.dims[n-2:]...)
				one := append(append(append([]int(nil), a.dims[:n-3]...), h, 1), a.dims[n-2:]...)
				a = a.reshape(split...).sumTo(one).reshape(to...)
			}
			t.grads[i] = a.sumTo(to).v
		}
	})
	return t
}

// ropeTerms returns the sums of absolute terms of rotated features. A rotated feature is
// x·cos ± y·sin for a pair of features x and y. The terms are therefore at most |x| + |y|.
func ropeTerms(c golden.Case) (t terms) {
	dims := c.Args.Int("dims")
	both := func(a array) []float64 {
		n := a.dims[len(a.dims)-1]
		d := dims
		if d == 0 {
			d = n
		}
		y := newArray(a.dims...)
		for i := range a.v {
			at, other := i%n, i
			switch {
			case at >= d:
			case c.Args.Bool("interleaved"):
				other = i - at + (at ^ 1)
			case at < d/2:
				other = i + d/2
			default:
				other = i - d/2
			}
			y.v[i] = 2 * (finite(a.v[i]) + finite(a.v[other]))
		}
		return y.v
	}
	out := arrayOf(c.Out[0].F64)
	if len(out.v) == 0 {
		return t
	}
	t.out = both(viewed(c.In[0]))
	t.grads = map[int][]float64{0: both(arrayOf(*c.Out[0].Seed))}
	return t
}
