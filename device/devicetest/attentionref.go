package devicetest

import (
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// expected holds reference values v. The difference between a device's value i and v[i] may be at
// most tol[i].
type expected struct{ v, tol []float64 }

func (j *expected) bound(i int) float64 { return j.tol[i] }

func (j *expected) put(v, by float64) { j.v, j.tol = append(j.v, v), append(j.tol, by) }

// sumError bounds the error of a float32 sum of n products, relative to the sum of their
// magnitudes. It assumes that the device keeps eight partial sums, and scales and adds them at the
// end.
func sumError(n int) float64 { return float64(n/8+2) * 0x1p-23 }

// rounding bounds the error of a weight, or of its gradient, that is rounded to type t before a
// multiplication. It returns a relative bound and an absolute bound.
func rounding(t dtype.Type) (part, least float64) {
	switch t {
	case dtype.BF16:
		return 0x1p-8, 0
	case dtype.F16:
		return 0x1p-11, 0x1p-24 // the absolute bound applies to subnormal numbers
	}
	return 0, 0
}

var keepProgram = lower(expr.RandomKeeps(expr.Param(0, dtype.I64), expr.Param(1, dtype.I64), expr.Index(dtype.I64), expr.Param(2, dtype.U32)), dtype.Bool)

// dropFactors returns the factor of each weight: 0 if dropout drops the weight, else 1/(1-Drop).
func (c *attentionCase) dropFactors() []float64 {
	m := make([]float64, c.batch*c.heads*c.queries*c.keys)
	if c.w.Drop == 0 {
		for i := range m {
			m[i] = 1
		}
		return m
	}
	params := []uint64{c.w.Seed, c.w.Offset, uint64(expr.DropLimit(c.w.Drop))}
	if c.numbers != nil {
		n := c.numbers.bits()
		params[0], params[1] = n[0], c.w.Offset+n[1]
	}
	var buf []uint64
	for i := range m {
		row, key := i/c.keys, i%c.keys
		if buf = keepProgram.Eval(buf[:0], nil, params, int64(row*device.RowNumbers(c.keys)+key)); buf[0] != 0 {
			m[i] = c.w.Rest()
		}
	}
	return m
}

// scores returns the scores s of one query, and bounds of their errors. The score of a key that the
// query does not see is -Inf.
func (c *attentionCase) scores(row int, q, k, mask, lengths []float64) (s, by []float64) {
	s, by = make([]float64, c.keys), make([]float64, c.keys)
	first, seen := c.firstKey(row), c.keys
	if c.w.Causal {
		seen = min(seen, row%c.queries+1)
	}
	if lengths != nil {
		seen = int(min(float64(seen), lengths[row/c.queries/c.heads]))
	}
	for j := range s {
		var sum, size float64
		for f := range c.features {
			x := c.w.Scale * q[row*c.features+f] * k[(first+j)*c.features+f]
			sum, size = sum+x, size+math.Abs(x)
		}
		by[j] = sumError(c.features) * size
		if mask != nil {
			switch m := mask[row*c.keys+j]; {
			case c.mask.v.Type != dtype.Bool:
				sum += m
				if !math.IsInf(m, -1) {
					by[j] += 0x1p-23 * (math.Abs(m) + size)
				}
			case m == 0:
				sum = math.Inf(-1)
			}
		}
		if s[j] = sum; j >= seen {
			s[j] = math.Inf(-1)
		}
	}
	return s, by
}

type operandValues struct{ q, k, v, mask, lengths, drop []float64 }

func (c *attentionCase) known() (x operandValues) {
	x = operandValues{q: c.q.floats(), k: c.k.floats(), v: c.v.floats(), drop: c.dropFactors()}
	if c.mask != nil {
		x.mask = c.mask.floats()
	}
	if c.lengths != nil {
		x.lengths = c.lengths.floats()
	}
	return x
}

// expError bounds the relative error of exp(s - top), if the error of s is at most bound. The bound
// includes the rounding of the difference s - top, and the error of the device's exp.
func expError(s, bound, top float64) float64 {
	return 1.01*bound + (math.Abs(s)+math.Abs(top)+16)*0x1p-22
}

// reference computes the attention's result and the logarithms LSE in float64.
func (c *attentionCase) reference() (r struct{ out, lse expected }) {
	x := c.known()
	part, least := rounding(c.t)
	for row := range c.batch * c.heads * c.queries {
		s, by := c.scores(row, x.q, x.k, x.mask, x.lengths)
		m, log := math.Inf(-1), 0.0
		if c.keys > 0 {
			m, log = logSumExp(s)
		}
		if math.IsInf(m, -1) {
			r.lse.put(math.Inf(1), 0)
			for range c.values {
				r.out.put(0, 0)
			}
			continue
		}
		worst := 0.0
		for j := range s {
			if !math.IsInf(s[j], -1) {
				worst = max(worst, expError(s[j], by[j], m))
			}
		}
		r.lse.put(m+log, worst+0x1p-22*(math.Abs(m)+math.Abs(log)+1)+sumError(c.keys))
		first := c.firstKey(row)
		for f := range c.values {
			var sum, size, most float64
			for j := range s {
				v := x.v[(first+j)*c.values+f] * x.drop[row*c.keys+j]
				w := math.Exp(s[j]-m-log) * v
				sum, size, most = sum+w, size+math.Abs(w), max(most, math.Abs(v))
			}
			full := size*(2*worst+part+2*sumError(c.keys)) + float64(c.keys)*least*most
			r.out.put(sum, full*1.1+epsilon(c.t)*math.Abs(sum)*1.01+1e-30+least)
		}
	}
	return r
}

func (c *attentionCase) firstKey(row int) int {
	head := row / c.queries
	return (head/c.heads*c.shared + head%c.heads/(c.heads/c.shared)) * c.keys
}

// gradients computes the gradients of queries, keys and values in float64.
func (c *attentionCase) gradients(g, out, lse []float64) (d [3]expected) {
	x := c.known()
	part, least := rounding(c.t)
	space := func(n int) expected { return expected{make([]float64, n), make([]float64, n)} }
	size := space(len(x.q))
	d = [3]expected{space(len(x.q)), space(len(x.k)), space(len(x.v))}
	sizes := [3][]float64{size.v, make([]float64, len(x.k)), make([]float64, len(x.v))}
	add := func(i, at int, v, by float64) {
		d[i].v[at] += v
		d[i].tol[at] += by
		sizes[i][at] += math.Abs(v)
	}
	for row := range c.batch * c.heads * c.queries {
		if math.IsInf(lse[row], 1) {
			continue
		}
		s, by := c.scores(row, x.q, x.k, x.mask, x.lengths)
		first := c.firstKey(row)
		var mean, meanSize float64
		for f := range c.values {
			y := g[row*c.values+f] * out[row*c.values+f]
			mean, meanSize = mean+y, meanSize+math.Abs(y)
		}
		for j := range s {
			if math.IsInf(s[j], -1) {
				continue
			}
			kept := x.drop[row*c.keys+j]
			p, off := math.Exp(s[j]-lse[row]), expError(s[j], by[j], lse[row])
			var dp, dpSize float64
			for f := range c.values {
				gf, v := g[row*c.values+f], x.v[(first+j)*c.values+f]
				dp, dpSize = dp+gf*v, dpSize+math.Abs(gf*v)
				w := p * kept
				add(2, (first+j)*c.values+f, w*gf, (w*(off+part)+least*max(1, kept))*math.Abs(gf))
			}
			ds := p * (dp*kept - mean)
			dsBy := math.Abs(ds)*(off+part+0x1p-22) + p*(sumError(c.values)*(dpSize*kept+meanSize)+0x1p-22*(dpSize*kept+meanSize)) + least
			for f := range c.features {
				qf, k := row*c.features+f, (first+j)*c.features+f
				add(0, qf, c.w.Scale*ds*x.k[k], dsBy*math.Abs(c.w.Scale*x.k[k]))
				add(1, k, c.w.Scale*ds*x.q[qf], dsBy*math.Abs(c.w.Scale*x.q[qf]))
			}
		}
	}
	queries := c.queries * max(1, c.heads/max(1, c.shared))
	for i, n := range []int{c.keys, queries, queries} {
		for k, v := range d[i].v {
			d[i].tol[k] = d[i].tol[k]*1.1 + sumError(n)*sizes[i][k] + epsilon(c.t)*math.Abs(v)*1.01 + least + 1e-30
		}
	}
	return d
}
