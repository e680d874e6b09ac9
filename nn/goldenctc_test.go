package nn_test

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// A logSum holds v, the logarithm of a probability, and sum, a bound on the rounding error of v. In
// a product of probabilities, the logarithms and the bounds are added. In a sum of probabilities,
// the bound is 1 for the rounding of the sum itself, plus the mean of the bounds weighted by the
// probabilities.
type logSum struct{ v, sum float64 }

func (a logSum) times(b logSum) logSum {
	return logSum{a.v + b.v, a.sum + b.sum}
}

func logSumExp(parts ...logSum) logSum {
	most := math.Inf(-1)
	for _, p := range parts {
		most = math.Max(most, p.v)
	}
	if math.IsInf(most, -1) {
		return logSum{v: most}
	}
	total, sum := 0.0, 0.0
	for _, p := range parts {
		if e := math.Exp(p.v - most); e > 0 {
			total += e
			sum += e * p.sum
		}
	}
	return logSum{most + math.Log(total), sum/total + 1}
}

// ctcSums returns the error terms of the CTC loss for golden.Rule. It follows the paths through
// each input forwards and backwards, in float64.
func ctcSums(a golden.Args, x []*tt) sums {
	logp, targets, times, lengths := x[0], x[1], x[2], x[3]
	alone := logp.Rank() == 2
	if !alone && targets.Rank() == 1 { // one vector holds the targets of all inputs
		n := lengths.Floats()
		rows, at := make([][]int64, len(n)), 0
		for i, k := range n {
			for _, v := range targets.Floats()[at : at+int(k)] {
				rows[i] = append(rows[i], int64(v))
			}
			rows[i], at = append(rows[i], make([]int64, targets.Size()-int(k))...), at+int(k)
		}
		targets = tensor.From(rows)
	}
	if alone {
		logp, targets = logp.Unsqueeze(1), targets.Unsqueeze(0)
	}
	steps, n, classes := logp.Dim(0), logp.Dim(1), logp.Dim(2)
	rounded := logp.ZerosLike() // error terms for the rounding of the logarithms in logp
	if a.Bool("soft") {
		below := logp.Amax(2).Unsqueeze(2).Sub(logp)
		logp = logp.LogSoftmax(2)
		rounded = logp.Add(below).Abs().Add(below).AddScalar(1)
	}
	l, r, to, blank := logp.Floats(), rounded.Floats(), targets.Floats(), a.Int("blank")
	loss, grads := make([]float64, n), make([]float64, len(l))
	for i := range n {
		t, s := int(times.Floats()[i]), int(lengths.Floats()[i])
		at := func(t, class int) logSum {
			k := (t*n+i)*classes + class
			return logSum{l[k], math.Abs(l[k]) + r[k]}
		}
		path := []int{blank}
		for k := range s {
			path = append(path, int(to[i*targets.Dim(1)+k]), blank)
		}
		skips := func(k int) bool { return k > 1 && path[k] != blank && path[k] != path[k-2] }
		nothing := logSum{v: math.Inf(-1)}
		forward, backward := make([][]logSum, t), make([][]logSum, t)
		for u := range t {
			forward[u], backward[u] = make([]logSum, len(path)), make([]logSum, len(path))
			for k, class := range path {
				before := []logSum{nothing}
				if u == 0 && k < 2 {
					before = []logSum{{}}
				} else if u > 0 {
					before = append(before, forward[u-1][max(0, k-1):k+1]...)
					if skips(k) {
						before = append(before, forward[u-1][k-2])
					}
				}
				forward[u][k] = logSumExp(before...).times(at(u, class))
			}
		}
		for u := t - 1; u >= 0; u-- {
			for k, class := range path {
				after := []logSum{nothing}
				if u == t-1 && k >= len(path)-2 {
					after = []logSum{{}}
				} else if u < t-1 {
					after = append(after, backward[u+1][k:min(k+2, len(path))]...)
					if k+2 < len(path) && skips(k+2) {
						after = append(after, backward[u+1][k+2])
					}
				}
				backward[u][k] = logSumExp(after...).times(at(u, class))
			}
		}
		chance := logSum{}
		if t > 0 {
			chance = logSumExp(forward[t-1][max(0, len(path)-2):]...)
		}
		loss[i] = chance.sum
		for u := range t {
			total := 0.0
			for k, class := range path {
				way := forward[u][k].times(backward[u][k])
				less := way.times(logSum{-at(u, class).v, at(u, class).sum}).times(logSum{-chance.v, chance.sum})
				if p := math.Exp(less.v); p > 0 {
					grads[(u*n+i)*classes+class] += p * (1 + less.sum)
				}
			}
			for class := range classes {
				k := (u*n+i)*classes + class
				if p := math.Exp(l[k]); p > 0 {
					grads[k] += p * (1 + r[k])
				}
				total += grads[k]
			}
			if a.Bool("soft") { // for probabilities p the gradient is g - p·Σ g
				for class := range classes {
					if k := (u*n+i)*classes + class; l[k] > math.Inf(-1) {
						grads[k] += math.Exp(l[k]) * (1 + r[k]) * total
					}
				}
			}
		}
	}
	m := x[0].Scope().Typed(dtype.F64)
	out, g := m.From(loss), m.From(grads).Reshape(steps, n, classes)
	if a.Text("reduction") == "mean" {
		by := lengths.Flatten(0, -1).ClampMin(1).Cast(dtype.F64)
		out, g = out.Div(by), g.Div(by.Unsqueeze(1))
	}
	if alone {
		return sums{loss: out, grads: map[int]*tt{0: g.Squeeze(1)}, dim: -1}
	}
	return sums{loss: out, grads: map[int]*tt{0: g}, dim: -1}
}
