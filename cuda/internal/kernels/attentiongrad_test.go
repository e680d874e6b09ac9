package kernels

import (
	"math"
	"os"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// gradReference holds the expected gradients of a case in float64, with error bounds.
type gradReference struct{ out, lse, dq, dk, dv, bq, bk, bv []float64 }

// gradients computes out and lse with float64 and rounds them. From these and the operands it
// computes the gradients. A float32 sum of n products has an error of at most (n/8+2)·2⁻²³ times
// the sum of the products' magnitudes. The relative error of a weight is the error of its score
// plus 2⁻²⁰. Rounding to 16 bits adds half a unit in the last place, or 2⁻²⁵ for a small float16.
func (c *attentionCase) gradients(m *machine, o AttentionOperands, grad Operand) (r gradReference) {
	q, k, v, g := decoded(c.typ, m.read(o.Q)), decoded(c.typ, m.read(o.K)), decoded(c.typ, m.read(o.V)), decoded(c.typ, m.read(grad))
	var mask []float64
	if c.mask != dtype.Invalid {
		mask = decoded(c.mask, m.read(o.Mask))
	}
	const ulp = 0x1p-23
	unit, tiny := map[dtype.Type]float64{dtype.F16: 0x1p-11, dtype.BF16: 0x1p-8}[c.typ], 0.0
	if c.typ == dtype.F16 {
		tiny = 0x1p-25
	}
	F, V := c.features, c.values
	round := func(t dtype.Type, x float64) float64 { return expr.Decode(t, expr.Encode(t, x)) }
	list := func(n int) []float64 { return make([]float64, n) }
	queries, keys := c.batch*c.heads*c.queries, c.batch*c.shared*c.keys
	r.dq, r.bq = list(queries*F), list(queries*F)
	r.dk, r.bk, r.dv, r.bv = list(keys*F), list(keys*F), list(keys*V), list(keys*V)
	fq, fk := float64(c.queries*c.heads/c.shared/8+2)*ulp, float64(c.keys/8+2)*ulp
	for row := range queries {
		i, h, b := row%c.queries, row/c.queries%c.heads, row/c.queries/c.heads
		first := (b*c.shared + h/(c.heads/c.shared)) * c.keys
		seen := c.keys
		if c.lengths != nil {
			seen = max(0, min(seen, c.lengths[b]))
		}
		if c.causal {
			seen = min(seen, i+1)
		}
		scores, errs, most := list(seen), list(seen), math.Inf(-1)
		for j := range scores {
			var size float64
			for f := range F {
				x := q[row*F+f] * k[(first+j)*F+f]
				scores[j] += x
				size += math.Abs(x)
			}
			scores[j] *= c.scale
			size *= math.Abs(c.scale)
			if at := row*c.keys + j; mask != nil && c.mask == dtype.Bool {
				if mask[at] == 0 {
					scores[j] = math.Inf(-1)
				}
			} else if mask != nil {
				scores[j] += mask[at]
				size += math.Abs(mask[at])
			}
			errs[j], most = float64(F/8+4)*ulp*(size+1), max(most, scores[j])
		}
		var sum float64
		for _, s := range scores {
			sum += math.Exp(s - most)
		}
		lse := math.Inf(1)
		if !math.IsInf(most, -1) {
			lse = round(dtype.F32, most+math.Log(sum))
		}
		r.lse = append(r.lse, lse)
		var delta, deltaSize float64
		for f := range V {
			var y float64
			for j, s := range scores {
				if !math.IsInf(lse, 1) {
					y += math.Exp(s-lse) * c.weightOf(o, row*c.keys+j) * v[(first+j)*V+f]
				}
			}
			y = round(c.typ, y)
			r.out = append(r.out, y)
			delta += y * g[row*V+f]
			deltaSize += math.Abs(y * g[row*V+f])
		}
		for j, s := range scores {
			p, rest := math.Exp(s-lse), c.weightOf(o, row*c.keys+j)
			var dp, size float64
			rel := 4*ulp*math.Abs(lse) + errs[j] + 0x1p-20
			if p == 0 {
				continue
			}
			for f := range V {
				x := g[row*V+f] * v[(first+j)*V+f]
				dp += x
				size += math.Abs(x)
				at := (first+j)*V + f
				a := math.Abs(rest * g[row*V+f])
				r.dv[at] += p * rest * g[row*V+f]
				r.bv[at] += p*a*(rel+unit+fq) + tiny*a
			}
			ds := p * (dp*rest - delta)
			err := p*(size*rest+deltaSize)*float64(V/8+4)*ulp + math.Abs(ds)*(rel+unit) + tiny
			for f := range F {
				x, y := math.Abs(c.scale*k[(first+j)*F+f]), math.Abs(c.scale*q[row*F+f])
				r.dq[row*F+f] += ds * c.scale * k[(first+j)*F+f]
				r.bq[row*F+f] += x * (err + math.Abs(ds)*fk)
				r.dk[(first+j)*F+f] += ds * c.scale * q[row*F+f]
				r.bk[(first+j)*F+f] += y * (err + math.Abs(ds)*fq)
			}
		}
	}
	for _, x := range [][2][]float64{{r.dq, r.bq}, {r.dk, r.bk}, {r.dv, r.bv}} {
		for i := range x[0] {
			x[1][i] += unit*math.Abs(x[0][i]) + tiny
		}
	}
	return r
}

// checkGrad computes the gradients of the case and compares them with the reference. The argument
// want names the wanted gradients, for example "qkv" for the gradients of q, k and v.
func (c attentionCase) checkGrad(t *testing.T, want string) ([]Launch, []uint64) {
	t.Helper()
	m := newMachine(t)
	c.lse = true
	o := c.operands(m)
	like := func(x Operand) Operand {
		return m.tensor(c.typ, headLayout(c.form, x.Shape.At(0), x.Shape.At(1), x.Shape.At(2), x.Shape.At(3)), c.skip)
	}
	g := AttentionGradOperands{G: m.random(like(o.Out)), Q: o.Q, K: o.K, V: o.V, Out: o.Out, LSE: o.LSE, AttentionWeighing: o.AttentionWeighing}
	r := c.gradients(m, o, g.G)
	m.fill(o.Out, func(i int) uint64 { return expr.Encode(c.typ, r.out[i]) })
	m.fill(o.LSE, func(i int) uint64 { return expr.Encode(dtype.F32, r.lse[i]) })
	type result struct {
		name        string
		d           *Operand
		like        Operand
		want, bound []float64
	}
	var results []result
	for _, x := range []result{{"q", &g.DQ, o.Q, r.dq, r.bq}, {"k", &g.DK, o.K, r.dk, r.bk}, {"v", &g.DV, o.V, r.dv, r.bv}} {
		if slices.Contains([]byte(want), x.name[0]) {
			*x.d = like(x.like)
			results = append(results, x)
		}
	}
	// copies of less than 16 bytes may have bank conflicts
	for _, x := range []Operand{o.Q, o.K, o.V, o.Out} {
		m.conflicts = m.conflicts || rowVector(x)*x.Type.Size() < 16
	}
	list, err := AttentionGrad(g, m.scratch)
	m.run(list, err)
	if len(list) > max(3, c.launches) {
		t.Errorf("%v: %d launches", c, len(list))
	}
	var all []uint64
	for _, x := range results {
		stored, bad := m.read(*x.d), 0
		all = append(all, stored...)
		for i, got := range decoded(c.typ, stored) {
			if !near(got, x.want[i], x.bound[i]) && bad < 3 {
				bad++
				t.Errorf("%v: d%s %d is %v, want %v ± %v", c, x.name, i, got, x.want[i], x.bound[i])
			}
		}
	}
	return list, all
}

func TestAttentionGrad(t *testing.T) {
	h, f := dtype.BF16, dtype.F32
	for _, c := range []attentionCase{
		{typ: h, batch: 1, heads: 2, queries: 65, keys: 63, features: 64},
		{typ: dtype.F16, batch: 2, heads: 2, queries: 7, keys: 1, features: 40, form: "tokens"},
		{typ: h, batch: 1, heads: 4, shared: 2, queries: 5, keys: 129, features: 80, causal: true},
		{typ: dtype.F16, batch: 1, heads: 6, shared: 1, queries: 33, keys: 70, features: 16, values: 32, form: "turned"},
		{typ: h, batch: 1, heads: 1, queries: 129, keys: 7, features: 128, causal: true, form: "tokens"},
		{typ: h, batch: 1, heads: 1, queries: 20, keys: 70, features: 256, causal: true},
		{typ: dtype.F16, batch: 1, heads: 1, queries: 9, keys: 40, features: 160, values: 33, skip: 1, scale: -0.3},
		{typ: h, batch: 1, heads: 2, queries: 9, keys: 11, features: 33, form: "steps", skip: 1},
		{typ: h, batch: 4, heads: 2, queries: 17, keys: 80, features: 32, lengths: []int{0, 1, 80, 65}},
		{typ: h, batch: 2, heads: 2, queries: 17, keys: 33, features: 32, mask: dtype.Bool, maskDims: [4]bool{true, false, true, true}},
		{typ: h, batch: 2, heads: 2, queries: 17, keys: 33, features: 32, mask: dtype.F32, maskDims: [4]bool{false, true, false, true}},
		{typ: h, batch: 2, heads: 2, queries: 17, keys: 33, features: 96, mask: h, maskDims: [4]bool{true, true, true, false}, causal: true},
		{typ: h, batch: 2, heads: 2, queries: 17, keys: 33, features: 32, drop: 0.3},
		{typ: dtype.F16, batch: 1, heads: 2, queries: 17, keys: 70, features: 64, drop: 0.6, numbers: true, causal: true},
		{typ: h, batch: 1, heads: 1, queries: 3, keys: 9, features: 16, drop: 1},
		{typ: h, batch: 1, heads: 1, queries: 3, keys: 0, features: 16},
		{typ: h, batch: 1, heads: 1, queries: 0, keys: 3, features: 16},
		{typ: h, batch: 1, heads: 1, queries: 3, keys: 5, features: 16, values: 0},
		{typ: f, batch: 1, heads: 2, queries: 65, keys: 63, features: 64},
		{typ: f, batch: 2, heads: 2, queries: 7, keys: 1, features: 40, form: "tokens"},
		{typ: f, batch: 1, heads: 4, shared: 2, queries: 5, keys: 69, features: 80, causal: true},
		{typ: f, batch: 1, heads: 6, shared: 1, queries: 33, keys: 40, features: 16, values: 32, form: "turned"},
		{typ: f, batch: 1, heads: 1, queries: 37, keys: 33, features: 128, causal: true, form: "tokens"},
		{typ: f, batch: 1, heads: 1, queries: 20, keys: 35, features: 256, causal: true},
		{typ: f, batch: 1, heads: 1, queries: 9, keys: 20, features: 160, values: 33, skip: 1, scale: -0.3},
		{typ: f, batch: 1, heads: 2, queries: 9, keys: 11, features: 33, form: "steps", skip: 1},
		{typ: f, batch: 4, heads: 2, queries: 17, keys: 80, features: 32, lengths: []int{0, 1, 80, 65}},
		{typ: f, batch: 2, heads: 2, queries: 17, keys: 33, features: 32, mask: dtype.Bool, maskDims: [4]bool{true, false, true, true}},
		{typ: f, batch: 2, heads: 2, queries: 17, keys: 33, features: 96, mask: f, maskDims: [4]bool{true, true, true, false}, causal: true},
		{typ: f, batch: 1, heads: 2, queries: 17, keys: 70, features: 64, drop: 0.6, numbers: true, causal: true},
		{typ: f, batch: 1, heads: 1, queries: 3, keys: 9, features: 16, drop: 1},
		{typ: f, batch: 1, heads: 1, queries: 3, keys: 0, features: 16},
		{typ: f, batch: 1, heads: 1, queries: 0, keys: 3, features: 16},
		{typ: f, batch: 1, heads: 1, queries: 3, keys: 5, features: 16, values: 0},
		// With many values, the gradient of a transposed operand is computed in several parts of
		// its columns.
		{typ: f, batch: 1, heads: 2, queries: 5, keys: 7, features: 16, values: 72, form: "turned", launches: 4},
		{typ: h, batch: 1, heads: 2, queries: 5, keys: 7, features: 16, values: 130, form: "turned", launches: 4},
	} {
		c.checkGrad(t, "qkv")
	}
	if os.Getenv("FLAMBEAU_SOAK") != "1" {
		return
	}
	for _, typ := range []dtype.Type{h, dtype.F16, f} {
		for i, queries := range []int{1, 7, 63, 65, 129, 200} {
			for k, keys := range []int{200, 129, 65, 63, 7, 1} {
				for n, features := range []int{32, 40, 64, 80, 128, 160, 256} {
					if (i+k+n)%3 == 0 {
						c := attentionCase{typ: typ, batch: 1, heads: 4, shared: 2, queries: queries, keys: keys, features: features, causal: (i+k)%2 == 0}
						c.checkGrad(t, "qkv")
					}
				}
			}
		}
	}
}

// TestAttentionGradAbsent leaves out some of the gradients. No product must be computed for them,
// and the other gradients must keep their bits.
func TestAttentionGradAbsent(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.BF16, dtype.F32} {
		c := attentionCase{typ: typ, batch: 1, heads: 4, shared: 2, queries: 40, keys: 70, features: 64, causal: true, drop: 0.2}
		_, all := c.checkGrad(t, "qkv")
		if _, again := c.checkGrad(t, "qkv"); !slices.Equal(all, again) {
			t.Errorf("%v: the bits differ", typ)
		}
		var parts []uint64
		for _, want := range []struct {
			results  string
			launches int
		}{{"q", 2}, {"k", 2}, {"v", 1}} {
			list, bits := c.checkGrad(t, want.results)
			if len(list) != want.launches {
				t.Errorf("%v, %q: %d launches, want %d", typ, want.results, len(list), want.launches)
			}
			parts = append(parts, bits...)
		}
		if !slices.Equal(all, parts) {
			t.Errorf("%v: the bits differ without the other results", typ)
		}
	}
}
