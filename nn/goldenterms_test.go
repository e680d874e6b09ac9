package nn_test

import (
	"encoding/json"
	"maps"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// sums holds golden.Rule's error terms for a loss. The error term of a sum is the sum of the
// absolute values of its summands. A field is nil or absent if nothing can cancel, because there is
// only one summand or all summands have the same sign. If a factor of a summand is itself a rounded
// sum, the summand counts once more.
type sums struct {
	loss *tt // the error term of each loss, before the reduction
	// grads maps an operand's index to the error terms of the losses' derivatives with respect to
	// the operand's elements. They have the shape of the losses, or one dimension more.
	grads map[int]*tt
	dim   int // the dimension that grads have and the losses lack
	by    *tt // the divisor of the mean; nil means the number of losses
}

// lossSums maps the name of a loss to a function that computes its error terms from the operands in
// float64.
var lossSums = map[string]func(a golden.Args, x []*tt) sums{
	// x - y is a single rounded difference, so a function of x - y needs no error terms. Only the
	// gradients of broadcast operands are sums.
	"l1_loss": func(a golden.Args, x []*tt) sums {
		d := x[0].Sub(x[1])
		return differences(a, x, d.Abs(), d.Sign().Abs())
	},
	"mse_loss": func(a golden.Args, x []*tt) sums {
		d := x[0].Sub(x[1])
		return differences(a, x, d.Square(), d.Abs().MulScalar(2))
	},
	"smooth_l1_loss": func(a golden.Args, x []*tt) sums {
		return differences(a, x, nil, x[0].Sub(x[1]).Abs().DivScalar(max(a.Float("beta"), 1e-30)).ClampMax(1))
	},
	"huber_loss": func(a golden.Args, x []*tt) sums {
		return differences(a, x, nil, x[0].Sub(x[1]).Abs().ClampMax(a.Float("delta")))
	},
	// the gradient with respect to y is log(1-x) - log x
	"binary_cross_entropy": func(a golden.Args, x []*tt) sums {
		return sums{grads: map[int]*tt{1: x[0].Neg().Log1p().Neg().ClampMax(100).Add(x[0].Log().Neg().ClampMax(100))}}
	},
	"binary_cross_entropy_with_logits": func(a golden.Args, x []*tt) sums {
		if len(x) < 3 { // without weights the gradient is σ(x) - y
			return sums{grads: map[int]*tt{0: x[0].Sigmoid().Add(x[1].Abs())}}
		}
		// With p = posWeight, the gradients are
		//
		//	for x: 1 - y - ((p-1)·y + 1)·σ(-x)
		//	for y: -x - (p-1)·log σ(x)
		p := x[len(x)-1].SubScalar(1).Abs()
		s := sums{grads: map[int]*tt{
			0: x[1].RSubScalar(1).Abs().Add(p.Mul(x[1]).AddScalar(1).Mul(x[0].Neg().Sigmoid())),
			1: x[0].Abs().Add(p.Mul(x[0].LogSigmoid().Abs()))}}
		if len(x) == 4 {
			s.grads[0], s.grads[1] = s.grads[0].Mul(x[2]), s.grads[1].Mul(x[2])
		}
		return s
	},
	"kl_div": func(a golden.Args, x []*tt) sums { // the loss is y·(log y - x)
		if a.Bool("log_target") {
			return sums{loss: x[1].Exp().Mul(x[1].Abs().Add(x[0].Abs()))}
		}
		return sums{loss: x[1].Mul(x[1].Log().Abs().Add(x[0].Abs())).MaskedFill(x[1].EqScalar(0), 0)}
	},
	"cross_entropy": crossEntropySums,
	"margin_ranking_loss": func(a golden.Args, x []*tt) sums { // the loss is max(0, m - y·(x1-x2))
		active := x[2].Neg().Mul(x[0].Sub(x[1])).AddScalar(a.Float("margin")).GtScalar(0).Cast(dtype.F64)
		return sums{loss: active.Mul(x[0].Sub(x[1]).Abs().AddScalar(a.Float("margin"))), grads: map[int]*tt{0: active, 1: active}}
	},
	"cosine_embedding_loss": func(a golden.Args, x []*tt) sums { // the loss is 1 - cos, or cos - margin
		length := func(v *tt) *tt { return v.Square().Sum(-1).AddScalar(1e-12) }
		n := length(x[0]).Mul(length(x[1])).Sqrt()
		cos := x[0].Mul(x[1]).Abs().Sum(-1).Div(n) // a sum of products
		by := func(v, other *tt) *tt {
			first, second := other.Abs().Div(n.Unsqueeze(-1)), cos.Div(length(v)).Unsqueeze(-1).Mul(v.Abs())
			// The factors 2 and 3 account for the rounded sums in a summand. The first summand
			// contains n. The second contains cos, n as the divisor of cos, and the length of v.
			return first.MulScalar(2).Add(second.MulScalar(3))
		}
		return sums{loss: cos.AddScalar(max(1, math.Abs(a.Float("margin")))), grads: map[int]*tt{0: by(x[0], x[1]), 1: by(x[1], x[0])}, dim: -1}
	},
	"triplet_margin_loss": tripletSums,
	"ctc_loss":            ctcSums,
	"poisson_nll_loss": func(a golden.Args, x []*tt) sums {
		var s sums
		if a.Bool("log_input") { // the loss is e^x - y·x
			s = sums{loss: x[0].Exp().Add(x[1].Mul(x[0]).Abs()), grads: map[int]*tt{0: x[0].Exp().Add(x[1])}}
		} else { // the loss is x - y·log(x + ε)
			v := x[0].AddScalar(1e-8)
			s = sums{loss: x[0].Add(x[1].Mul(v.Log()).Abs()), grads: map[int]*tt{0: x[1].Div(v).AddScalar(1)}}
		}
		if a.Bool("full") { // adds y·log y - y + ½·log 2πy
			y := x[1].ClampMin(1)
			s.loss = s.loss.Add(tensor.Where(x[1].GtScalar(1), y.Mul(y.Log()).Add(y).Add(y.MulScalar(2*math.Pi).Log().MulScalar(0.5)), y.ZerosLike()))
		}
		return s
	},
	"gaussian_nll_loss": func(a golden.Args, x []*tt) sums {
		v, d := x[2], x[0].Sub(x[1])
		if v.Rank() < d.Rank() {
			v = v.Unsqueeze(-1)
		}
		v = v.ClampMin(a.Float("eps"))
		loss := v.Log().Abs().Add(d.Square().Div(v)).MulScalar(0.5) // the loss is ½(log v + d²/v)
		if a.Bool("full") {
			loss = loss.AddScalar(0.5 * math.Log(2*math.Pi))
		}
		return sums{loss: loss, grads: map[int]*tt{0: d.Abs().Div(v), 1: d.Abs().Div(v), 2: d.Square().Div(v).AddScalar(1).Div(v).MulScalar(0.5)}, dim: -1}
	},
	// The gradient for the scores x is (1-y)·σ(x) - y·σ(-x).
	"multilabel_soft_margin_loss": func(a golden.Args, x []*tt) sums {
		g := x[1].Mul(x[0].Neg().Sigmoid()).Add(x[1].RSubScalar(1).Mul(x[0].Sigmoid())).DivScalar(float64(x[0].Dim(-1)))
		if len(x) > 2 {
			g = g.Mul(x[2])
		}
		return sums{grads: map[int]*tt{0: g}, dim: -1}
	},
}

// differences returns the error terms of losses that are functions of x - y. loss holds the losses,
// and d the absolute values of their derivatives. x[2], if present, holds the weights w.
func differences(a golden.Args, x []*tt, loss, d *tt) sums {
	if len(x) < 3 {
		return sums{grads: map[int]*tt{0: d, 1: d}}
	}
	s := sums{grads: map[int]*tt{0: d.Mul(x[2]), 1: d.Mul(x[2])}}
	// The mean is Σ w·l / Σ w. Its derivative with respect to a weight is l/Σw - Σ w·l/(Σw)².
	if loss != nil && a.Text("reduction") == "mean" {
		s.by = x[2].Sum()
		s.grads[2] = loss.Add(loss.Mul(x[2]).Sum().Div(s.by))
	}
	return s
}

// crossEntropySums returns the error terms of the loss -Σ y·log p and of its gradient p·Σy - y.
// Here log p = (x - m) - log Σ e^(x-m), where m is the greatest logit.
func crossEntropySums(a golden.Args, x []*tt) (s sums) {
	s.dim = min(1, x[0].Rank()-1)
	classes := x[0].Dim(s.dim)
	even := a.Float("label_smoothing") / float64(classes)
	w := x[0].Scope().Typed(dtype.F64).Ones(classes)
	if len(x) > 2 {
		w = x[2]
	}
	var y *tt
	if t := x[1]; t.Type().IsFloat() {
		y = t.Abs().MulScalar(1 - a.Float("label_smoothing")).AddScalar(even)
	} else {
		out := t.EqScalar(float64(tensor.CrossEntropyOptions{IgnoreIndex: ignored(a)}.Ignored()))
		safe := t.MaskedFill(out, 0)
		s.by = w.IndexSelect(0, safe.Flatten(0, -1)).Reshape(t.Shape().Slice()...).MaskedFill(out, 0).Sum()
		y = safe.OneHot(classes).Cast(dtype.F64).MulScalar(1-a.Float("label_smoothing")).AddScalar(even).MaskedFill(out.Unsqueeze(-1), 0).MoveAxis(-1, s.dim)
	}
	weights := make([]int, x[0].Rank())
	for i := range weights {
		weights[i] = 1
	}
	weights[s.dim] = classes
	w = w.Reshape(weights...)
	y = y.Mul(w)
	if x[0].Size() == 0 {
		return s
	}
	logp := x[0].LogSoftmax(s.dim)
	below := x[0].Amax(s.dim, tensor.KeepDim).Sub(x[0])
	// plus 1 for the rounding of the sum inside the logarithm
	l := logp.Add(below).Abs().Add(below).AddScalar(1)
	s.loss = y.Mul(l).Sum(s.dim)
	s.grads = map[int]*tt{
		0: logp.Exp().Mul(l).Mul(y.Sum(s.dim, tensor.KeepDim)).Add(y),
		1: l.Mul(w).MulScalar(1 - a.Float("label_smoothing"))}
	return s
}

// tripletSums returns the error terms of the loss margin + d(a, p) - d(a, n), where d is the norm
// of a difference.
func tripletSums(a golden.Args, x []*tt) sums {
	p := a.Float("p")
	d := func(i, j int) *tt { return x[i].PairwiseDistance(x[j], p, 1e-6) }
	// by returns p times the derivative of the distance d, (|x|/d)^(p-1). The factor p accounts for
	// d, which is a rounded sum.
	by := func(i, j int, d *tt) *tt {
		return x[i].Sub(x[j]).Abs().AddScalar(1e-6).Div(d.Unsqueeze(-1)).PowScalar(p - 1).MulScalar(p)
	}
	near, far := d(0, 1), d(0, 2)
	s := sums{loss: near.AddScalar(a.Float("margin")).Add(far), dim: -1}
	active := near.AddScalar(a.Float("margin")).Sub(far).GtScalar(0)
	s.grads = map[int]*tt{1: by(0, 1, near), 2: by(0, 2, far)}
	if a.Bool("swap") {
		other := d(1, 2)
		least := far.Minimum(other)
		s.loss, active = near.AddScalar(a.Float("margin")).Add(least), near.AddScalar(a.Float("margin")).Sub(least).GtScalar(0)
		swapped := other.Lt(far).Cast(dtype.F64).Unsqueeze(-1)
		third := by(1, 2, other).Mul(swapped)
		s.grads[2] = s.grads[2].Mul(swapped.RSubScalar(1))
		s.grads[0] = s.grads[1].Add(s.grads[2])
		s.grads[1], s.grads[2] = s.grads[1].Add(third), s.grads[2].Add(third)
	} else {
		s.grads[0] = s.grads[1].Add(s.grads[2])
	}
	for k := range s.grads {
		s.grads[k] = s.grads[k].Mul(active.Cast(dtype.F64).Unsqueeze(-1))
	}
	return s
}

// goldenTerms returns the error terms of a case's results and gradients, or nil if the case
// computes no sums.
func goldenTerms(c golden.Case) (out []float64, grads [][]float64) {
	grads = make([][]float64, len(c.In))
	f := lossSums[c.Op]
	if f == nil {
		return absoluteTerms(c)
	}
	cpu, err := device.Open("cpu")
	if err != nil {
		panic(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		x := make([]*tt, len(c.In))
		for i, o := range c.In {
			x[i] = placed(s, cpu, o, dtype.F64)
		}
		all := f(c.Args, x)
		how := c.Args.Text("reduction")
		args := maps.Clone(c.Args)
		args["reduction"] = json.RawMessage(`"none"`)
		shape := goldenLayers[c.Op](args, x).Shape()
		by := s.Typed(dtype.F64).Full(float64(shape.Size()))
		switch {
		case all.by != nil:
			by = all.by
		case how == "batchmean":
			by = s.Typed(dtype.F64).Full(float64(shape.At(0)))
		}
		if all.loss != nil {
			switch y := all.loss; how {
			case "none":
				out = y.Floats()
			case "sum":
				out = y.Sum().Floats()
			default:
				out = y.Sum().Div(by).Floats()
			}
		}
		if c.Out[0].Seed == nil {
			return
		}
		seed := s.From(c.Out[0].Seed.Float64s()).Reshape(c.Out[0].Seed.Shape...).Cast(dtype.F64).Abs()
		if how == "mean" || how == "batchmean" {
			seed = seed.Div(by)
		}
		seed = seed.Expand(shape.Slice()...)
		for k, d := range all.grads {
			if c.In[k].GradF64 == nil {
				continue
			}
			g := seed
			if d.Rank() > g.Rank() {
				g = g.Unsqueeze(all.dim)
			}
			// The gradient of a broadcast operand is a sum over the broadcast elements.
			leaf := x[k].Detach().RequiresGrad()
			wide := leaf
			if g = g.Mul(d); wide.Rank() == g.Rank()-1 {
				wide = wide.Unsqueeze(all.dim)
			}
			grads[k] = tensor.Gradients(wide.Add(g.ZerosLike()), []*tt{leaf}, tensor.GradOutput(g))[0].Floats()
		}
	})
	return out, grads
}
