package optest

import (
	"math"

	"github.com/flambeau-go/flambeau/internal/golden"
)

// init adds the ops of _golden/norms.py to goldenOps.
func init() {
	type args = golden.Args
	opt := func(x []*tt, k int) *tt {
		if k < len(x) {
			return x[k]
		}
		return nil
	}
	// The operands of a channel norm are x, or x and the statistics, or x, weight, bias and the
	// statistics. Parts 1 and 2 of the result are the statistics after the call.
	channel := func(f func(x, mean, variance, w, b *tt, training bool, momentum, eps float64) *tt) goldenOp {
		return func(a args, x []*tt) *tt {
			var w, b *tt
			rest := x[1:]
			if len(x) == 5 {
				w, b, rest = x[1], x[2], x[3:]
			}
			mean, variance := opt(rest, 0), opt(rest, 1)
			y := f(x[0], mean, variance, w, b, a.Bool("training"), a.Float("momentum"), a.Float("eps"))
			return []*tt{y, mean, variance}[a.Int("part")]
		}
	}
	for name, op := range map[string]goldenOp{
		"layer_norm": func(a args, x []*tt) *tt {
			return x[0].LayerNorm(a.Ints("shape"), opt(x, 1), opt(x, 2), a.Float("eps"))
		},
		"rms_norm": func(a args, x []*tt) *tt { return x[0].RMSNorm(a.Ints("shape"), opt(x, 1), a.Float("eps")) },
		"group_norm": func(a args, x []*tt) *tt {
			return x[0].GroupNorm(a.Int("groups"), opt(x, 1), opt(x, 2), a.Float("eps"))
		},
		"batch_norm":    channel((*tt).BatchNorm),
		"instance_norm": channel((*tt).InstanceNorm),
		"normalize":     func(a args, x []*tt) *tt { return x[0].Normalize(order(a), a.Int("dim"), a.Float("eps")) },
		"local_response_norm": func(a args, x []*tt) *tt {
			return x[0].LocalResponseNorm(a.Int("size"), a.Float("alpha"), a.Float("beta"), a.Float("k"))
		},
	} {
		goldenOps[name] = op
		goldenTerms[name] = normTerms
	}
}

// normTerms returns the sums of absolute terms of (x - mean)·rstd·weight + bias and of its
// gradients. The mean, rstd and the gradients contain sums, which are replaced by sums of absolute
// values.
func normTerms(c golden.Case) (t terms) {
	in, out, seed := parts(c)
	t.grads = map[int][]float64{}
	x, part := in[0], 0
	var key func(idx []int) int
	affine := channelOf
	var w, b array
	fixed := false
	switch c.Op {
	case "normalize", "local_response_norm":
		return quotientTerms(c, x, out, seed)
	case "layer_norm", "rms_norm":
		from := len(x.dims) - len(c.Args.Ints("shape"))
		flat := func(lo, hi int) func(idx []int) int {
			return func(idx []int) (k int) {
				for d := lo; d < hi; d++ {
					k = k*x.dims[d] + idx[d]
				}
				return k
			}
		}
		key, affine = flat(0, from), flat(from, len(x.dims))
	case "group_norm":
		groups := c.Args.Int("groups")
		key = func(idx []int) int { return idx[0]*groups + idx[1]/(x.dims[1]/groups) }
	case "batch_norm":
		key, part, fixed = channelOf, c.Args.Int("part"), !c.Args.Bool("training")
	case "instance_norm":
		key, part, fixed = func(idx []int) int { return idx[0]*x.dims[1] + idx[1] }, c.Args.Int("part"), !c.Args.Bool("training")
		if fixed {
			key = channelOf
		}
	}
	if n := len(in); n == 5 || n == 3 && !fixed {
		w, b = in[1], in[2]
	} else if n == 2 {
		w = in[1]
	}
	if part > 0 { // part 1 of the result is a mean, and part 2 a mean of squared deviations
		momentum, most := c.Args.Float("momentum"), newArray(out.dims...)
		count := float64(len(x.v)) / float64(max(1, len(out.v)))
		each(x.dims, func(i int, idx []int) { most.v[idx[1]] += math.Abs(x.v[i]) / count })
		running := in[2+part]
		for k := range most.v {
			v := most.v[k]
			if part == 2 {
				v = math.Abs(out.v[k]-(1-momentum)*running.v[k]) / momentum * 4
			}
			t.out = append(t.out, momentum*v+(1-momentum)*math.Abs(running.v[k]))
		}
		return t
	}
	eps := c.Args.Float("eps")
	if eps < 0 {
		eps = 0x1p-23
	}
	group := func(f func(i int, idx []int) float64) map[int]float64 {
		sum, count := map[int]float64{}, map[int]float64{}
		each(x.dims, func(i int, idx []int) { sum[key(idx)] += f(i, idx); count[key(idx)]++ })
		for k := range sum {
			sum[k] /= count[k]
		}
		return sum
	}
	weight := func(idx []int) float64 {
		if w.v == nil {
			return 1
		}
		return w.v[affine(idx)]
	}
	mean, size := map[int]float64{}, map[int]float64{}
	rms := c.Op == "rms_norm"
	if !rms {
		mean, size = group(func(i int, _ []int) float64 { return x.v[i] }), group(func(i int, _ []int) float64 { return math.Abs(x.v[i]) })
	}
	variance := group(func(i int, idx []int) float64 { d := x.v[i] - mean[key(idx)]; return d * d })
	if fixed {
		for k, v := range in[len(in)-2].v {
			mean[k], size[k], variance[k] = v, math.Abs(v), in[len(in)-1].v[k]
		}
	}
	rstd := func(idx []int) float64 { return 1 / math.Sqrt(variance[key(idx)]+eps) }
	// z bounds the absolute value of the normalised element: |x| + Σ|x|/n, divided by the standard
	// deviation.
	z := func(i int, idx []int) float64 { return (math.Abs(x.v[i]) + size[key(idx)]) * rstd(idx) }
	t.out = make([]float64, len(x.v))
	each(x.dims, func(i int, idx []int) {
		t.out[i] = z(i, idx) * math.Abs(weight(idx))
		if b.v != nil {
			t.out[i] += math.Abs(b.v[affine(idx)])
		}
	})
	if c.Out[0].Seed == nil {
		return t
	}
	h := func(i int, idx []int) float64 { return seed.v[i] * math.Abs(weight(idx)) }
	mh, mhz := group(h), group(func(i int, idx []int) float64 { return h(i, idx) * z(i, idx) })
	t.grads[0] = make([]float64, len(x.v))
	each(x.dims, func(i int, idx []int) {
		k := key(idx)
		if t.grads[0][i] = h(i, idx) * rstd(idx); !fixed {
			t.grads[0][i] += (mh[k] + z(i, idx)*mhz[k]) * rstd(idx)
		}
	})
	if w.v != nil {
		dw := make([]float64, len(w.v))
		each(x.dims, func(i int, idx []int) { dw[affine(idx)] += seed.v[i] * z(i, idx) })
		t.grads[1] = dw
	}
	if b.v != nil {
		db := make([]float64, len(b.v))
		each(x.dims, func(i int, idx []int) { db[affine(idx)] += seed.v[i] })
		t.grads[2] = db
	}
	// Nothing is added for an expanded operand: its gradient is the gradient of the view, which is
	// not summed.
	return t
}

// quotientTerms returns the sums of absolute terms of x / f(x). The gradient is g/f - Σ g·x·f'/f².
func quotientTerms(c golden.Case, x, out, seed array) (t terms) {
	t.grads = map[int][]float64{}
	t.out = absolute(out).apply(func(v float64) float64 { return 8 * v }).v
	if c.Out[0].Seed == nil {
		return t
	}
	g := newArray(x.dims...)
	if c.Op == "normalize" {
		dim := c.Args.Int("dim")
		mean, _ := rowSums(absolute(out), seed, dim)
		each(x.dims, func(i int, idx []int) {
			f := math.Abs(out.v[i] / x.v[i])
			if x.v[i] == 0 {
				f = 1
			}
			g.v[i] = 4 * f * (seed.v[i] + mean.v[i])
		})
	} else {
		size := c.Args.Int("size")
		each(x.dims, func(i int, idx []int) {
			at := append([]int(nil), idx...)
			s := seed.v[i] * math.Abs(out.v[i]/x.v[i])
			for ch := max(0, idx[1]-size); ch <= min(x.dims[1]-1, idx[1]+size); ch++ {
				at[1] = ch
				o := out.offset(at)
				s += 2 * c.Args.Float("alpha") * c.Args.Float("beta") / float64(size) * seed.v[o] * math.Abs(x.v[i]*out.v[o])
			}
			g.v[i] = 4 * finite(s)
		})
	}
	t.grads[0] = g.v
	return t
}
