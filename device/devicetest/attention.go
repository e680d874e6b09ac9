package devicetest

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// attentionSize holds the dimensions of a test case. The field heads is the number of heads of the
// queries. The field shared is the number of heads of keys and values; several query heads share
// each of them.
type attentionSize struct{ batch, heads, shared, queries, keys, features, values int }

// attentionCase is a [device.Attention] and its operands. Operands that the test leaves out are
// nil.
type attentionCase struct {
	attentionSize
	t                      dtype.Type
	w                      device.Weighing
	q, k, v                *array
	mask, lengths, numbers *array
}

// These layouts occur only for the operands of attention.
const (
	// queries, keys and values are slices of one array [batch, length, 3, heads, features]
	packed form = "one projection"
	// the keys and values of one head and one sample, broadcast to all heads and samples
	shared form = "one for all"
)

// attentionKinds are the kinds of test cases. Most kinds combine several properties, such as a mask
// with dropout. In this way few kinds test many combinations.
var attentionKinds = []struct {
	name string
	set  func(r *rig, c *attentionCase)
}{
	{"plain", func(r *rig, c *attentionCase) {}},
	{"causal", func(r *rig, c *attentionCase) { c.w.Causal = true }},
	{"with a mask of bool", func(r *rig, c *attentionCase) {
		c.setMask(r, dtype.Bool, shape.Of(c.batch, c.heads, c.queries, c.keys), contiguous)
	}},
	{"with a mask of keys", func(r *rig, c *attentionCase) { c.setMask(r, dtype.Bool, shape.Of(c.batch, 1, 1, c.keys), strided) }},
	{"with float32 to add, the same for all samples", func(r *rig, c *attentionCase) {
		c.setMask(r, dtype.F32, shape.Of(1, c.heads, c.queries, c.keys), transposed)
	}},
	{"with numbers of its type to add to queries, of which some see nothing", func(r *rig, c *attentionCase) {
		c.setMask(r, c.t, shape.Of(1, 1, c.queries, 1), strided)
	}},
	{"of some lengths", func(r *rig, c *attentionCase) { c.setLengths(r) }},
	{"with dropout", func(r *rig, c *attentionCase) { c.w.Drop, c.w.Seed, c.w.Offset = 0.3, 1<<63|5, 1<<40 }},
	{"causal, of some lengths, with dropout from numbers", func(r *rig, c *attentionCase) {
		c.setLengths(r)
		c.w.Causal, c.w.Drop, c.w.Seed, c.w.Offset = true, 0.5, 3, 70
		c.numbers = r.array(dtype.I64, shape.Of(2), strided, func(i int) uint64 { return 1<<50 + uint64(i) })
		c.w.Numbers = c.numbers.v
	}},
	{"causal, with a mask, lengths and nothing that stays", func(r *rig, c *attentionCase) {
		c.setLengths(r)
		c.setMask(r, dtype.Bool, shape.Of(c.batch, 1, c.queries, c.keys), offset)
		c.w.Causal, c.w.Drop = true, 1
	}},
}

func (c *attentionCase) setMask(r *rig, t dtype.Type, s shape.Dims, f form) {
	c.mask = r.array(t, s, f, func(i int) uint64 {
		if t != dtype.Bool && r.rnd.IntN(8) == 0 {
			return expr.Encode(t, math.Inf(-1))
		}
		return r.tame(t)
	})
	c.mask.expand(shape.Of(c.batch, c.heads, c.queries, c.keys))
	c.w.Mask = c.mask.v
}

// setLengths sets each sample's number of visible keys. From sample to sample the numbers are: half
// of the keys, none, all, far more than the tensor has, and half rounded up.
func (c *attentionCase) setLengths(r *rig) {
	c.lengths = r.array(dtype.I64, shape.Of(c.batch), strided, func(i int) uint64 {
		return uint64([]int{c.keys / 2, 0, c.keys, min(1<<40, math.MaxInt), (c.keys + 1) / 2}[(i+c.queries)%5])
	})
	c.w.Lengths = c.lengths.v
}

func (a *array) expand(s shape.Dims) {
	a.v.Layout, _ = a.v.Layout.Expand(s)
	a.at = offsets(a.v.Layout)
}

// withLayout returns a new array that shares a's storage and has layout l.
func (a *array) withLayout(f form, l shape.Layout) *array {
	b := *a
	b.v.Layout, b.form, b.at = l, f, offsets(l)
	return &b
}

// operands creates queries, keys and values.
func (c *attentionCase) operands(r *rig, f form) {
	heads, keys := func(n, features int) shape.Dims { return shape.Of(c.batch, c.shared, n, features) }, c.keys
	switch {
	case f == packed && c.heads == c.shared && c.queries == c.keys && c.features == c.values:
		all := r.small(c.t, shape.Of(c.batch, c.keys, 3, c.heads, c.features), contiguous)
		part := func(i int) *array { return all.withLayout(packed, all.v.Layout.Select(2, i).Transpose(1, 2)) }
		c.q, c.k, c.v = part(0), part(1), part(2)
		return
	case f == shared:
		one := func(features int) *array {
			a := r.small(c.t, shape.Of(min(1, c.batch), min(1, c.shared), keys, features), contiguous)
			a.expand(heads(keys, features))
			a.form = shared
			return a
		}
		c.k, c.v = one(c.features), one(c.values)
	default:
		c.k, c.v = r.small(c.t, heads(keys, c.features), f), r.small(c.t, heads(keys, c.values), transposed)
	}
	c.q = r.small(c.t, shape.Of(c.batch, c.heads, c.queries, c.features), strided)
}

func testAttention(r *rig) {
	if !r.supports("attention") {
		return
	}
	sizes := []attentionSize{
		{1, 1, 1, 1, 1, 1, 1}, {2, 2, 2, 3, 5, 4, 3}, {3, 4, 2, 5, 3, 7, 6}, {2, 2, 2, 9, 9, 8, 8}, {5, 6, 2, 33, 17, 16, 16}, {2, 2, 1, 1, 70, 8, 8}, {2, 2, 2, 20, 3, 16, 8},
	}
	edges := []attentionSize{
		{1, 1, 1, 300, 260, 8, 5}, {2, 2, 1, 1, 700, 8, 8}, {1, 0, 0, 3, 3, 3, 3}, {2, 2, 2, 0, 3, 3, 3}, {1, 4, 2, 6, 3, 0, 5}, {2, 2, 2, 3, 4, 5, 0}, {2, 2, 1, 3, 0, 4, 5}, {1, 2, 1, 70, 130, 64, 64},
		// sizes as in decoding: few queries and many keys
		{1, 6, 2, 2, 400, 16, 8}, {2, 4, 4, 16, 257, 24, 16},
	}
	if r.large {
		edges = append(edges, attentionSize{1, 2, 1, 130, 1050, 16, 8})
	}
	types := []dtype.Type{dtype.F32, dtype.BF16, dtype.F16}
	n := 0
	try := func(s attentionSize, kind int) {
		c := attentionCase{attentionSize: s, t: types[n%3], w: device.Weighing{Scale: 0.3}}
		attentionKinds[kind].set(r, &c)
		c.operands(r, []form{contiguous, packed, strided, offset, shared, transposed}[n%6])
		c.check(r, attentionKinds[kind].name, n)
		r.end()
		n++
	}
	for _, s := range sizes {
		for kind := range attentionKinds {
			try(s, kind)
		}
		n++ // n selects the type and the layout, so each kind gets another pair at the next size
	}
	for i, s := range edges {
		for kind := range 3 {
			try(s, (i+3*kind)%len(attentionKinds))
		}
	}
	// at one size, run every kind with every type
	for _, t := range types {
		for kind := range attentionKinds {
			n = kind*6 + int(t)%6
			c := attentionCase{attentionSize: attentionSize{2, 2, 1, 7, 12, 8, 8}, t: t, w: device.Weighing{Scale: 0.3}}
			attentionKinds[kind].set(r, &c)
			c.operands(r, contiguous)
			c.check(r, attentionKinds[kind].name, n)
			r.end()
		}
	}
}

// check runs the case and its gradient if the device supports them.
func (c *attentionCase) check(r *rig, kind string, n int) {
	r.Helper()
	s := shape.Of(c.batch, c.heads, c.queries, c.values)
	what := fmt.Sprintf("attention %s of %v, %+v, keys %s", kind, c.t, c.attentionSize, c.k.form)
	form := []form{contiguous, strided, transposed, offset}[n%4]
	result := func(t dtype.Type, s shape.Dims) *array {
		if n%3 > 0 {
			return r.empty(t, s, form)
		}
		// memory order [batch, length, heads, features]: a model can concatenate the heads without
		// a copy
		a := r.empty(t, shape.Of(s.At(0), s.At(2), s.At(1), s.At(3)), contiguous)
		return a.withLayout("heads inside", a.v.Layout.Transpose(1, 2))
	}
	if !r.dev.Supports(&device.Attention{Out: emptyView(c.t, s.Slice()...), Q: c.q.v, K: c.k.v, V: c.v.v, Weighing: c.w}) {
		return
	}
	want := c.reference()
	lse := r.empty(c.t.Compute(), s.Head(3), contiguous)
	for _, saves := range []bool{false, true} {
		out := result(c.t, s)
		o := &device.Attention{Out: out.v, Q: c.q.v, K: c.k.v, V: c.v.v, Weighing: c.w}
		if saves {
			o.LSE = lse.v
		}
		if !r.dev.Supports(o) {
			continue
		}
		r.run(what, o)
		out.close(what, want.out.v, want.out.bound)
		if saves {
			lse.close(what+", logarithms", want.lse.v, want.lse.bound)
		}
	}
	// Compute the gradient from the reference's result and not from the device's result.
	g, out := r.small(c.t, s, form), r.fromValues(c.t, s, transposed, want.out.v)
	lse = r.fromValues(c.t.Compute(), s.Head(3), contiguous, want.lse.v)
	grads := c.gradients(g.floats(), out.floats(), lse.floats())
	dense := func(a *array) shape.Dims { return a.v.Shape }
	// indices of absent gradients: none, one, or all but one
	for _, absent := range []int{-1, n % 3, 3 + n%3} {
		d := [3]*array{result(c.t, dense(c.q)), result(c.t, dense(c.k)), result(c.t, dense(c.v))}
		o := &device.AttentionGrad{G: g.v, Q: c.q.v, K: c.k.v, V: c.v.v, Out: out.v, LSE: lse.v, Weighing: c.w}
		for i, to := range []*device.View{&o.DQ, &o.DK, &o.DV} {
			if i != absent && (absent < 3 || i == absent-3) {
				*to = d[i].v
			}
		}
		if !r.dev.Supports(o) {
			continue
		}
		r.run(what+", gradient", o)
		for i, of := range []string{"queries", "keys", "values"} {
			if !o.Operand(i).View.Absent() {
				d[i].close(what+", gradient of "+of, grads[i].v, grads[i].bound)
			}
		}
	}
}

// fromValues returns an array of the given values, rounded to type t.
func (r *rig) fromValues(t dtype.Type, s shape.Dims, f form, values []float64) *array {
	r.Helper()
	a := r.empty(t, s, f)
	for i, at := range a.at {
		setBits(a.host, t, at, expr.Encode(t, values[i]))
	}
	r.must(r.dev.Upload(r.s, a.v.Buf, 0, a.host), "Upload")
	return a
}
