package nn

import (
	"fmt"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// MultiheadOptions are the settings of a new [MultiheadAttention]; the zero value is torch's
// default.
type MultiheadOptions struct {
	Dropout float64 // probability of dropping an attention weight in training
	// KDim and VDim are the numbers of features of the keys and of the values. 0 means the number
	// of features of the queries.
	KDim, VDim  int
	BatchFirst  bool // sequences are [n, length, features] instead of [length, n, features]
	AddBiasKV   bool // appends one learnt key and one learnt value to each sequence
	AddZeroAttn bool // appends one key and one value of zeros to each sequence
}

// Masks say which queries attend to which keys, as in torch. In a bool mask, true means that the
// query does not attend to the key. A floating-point mask is added to the scores. The zero value
// masks nothing. In [tensor.ScaledDotProductAttention], as in torch's function of that name, true
// has the opposite meaning.
type Masks struct {
	// Mask is [queries, keys], or [n·heads, queries, keys] with one mask for each sequence and
	// head.
	Mask *tensor.Tensor
	// KeyPadding is [n, keys], or [keys] if the input has no dimension n.
	KeyPadding *tensor.Tensor
	// Causal lets query i attend only to keys 0 … i. Unlike torch's is_causal, which only describes
	// a given mask, it needs no Mask.
	Causal bool
}

// CausalMask returns the mask that lets each of n queries i attend only to keys 0 … i. The mask is
// 0 on and below the diagonal and -Inf above, and has the element type of m. CausalMask is torch's
// generate_square_subsequent_mask. The field Causal of [Masks] has the same effect without a mask
// in memory.
func CausalMask(m tensor.Maker, n int) *tensor.Tensor { return m.Full(math.Inf(-1), n, n).Triu(1) }

// AttendOptions are the settings of one call of a [MultiheadAttention]. The zero value attends to
// all keys and returns no weights.
type AttendOptions struct {
	Masks
	// NeedWeights makes Forward return the attention weights as well. The attention then consists
	// of separate ops instead of the device's fused kernel, so it is slower.
	NeedWeights bool
	// PerHead makes Forward return the weights of each head instead of the mean over the heads.
	PerHead bool
}

// MultiheadAttention is attention with several heads. Each head sees its own projection of queries,
// keys and values (A. Vaswani et al., arXiv:1706.03762). The parameters have torch's names and
// shapes.
type MultiheadAttention struct {
	Base
	// InProjWeight is [3·features, features]. It is nil if KDim or VDim differs from features.
	InProjWeight *tensor.Tensor `nn:"in_proj_weight"`
	// QProjWeight is [features, features]. The layer uses QProjWeight, KProjWeight and VProjWeight
	// if InProjWeight is nil.
	QProjWeight *tensor.Tensor `nn:"q_proj_weight"`
	KProjWeight *tensor.Tensor `nn:"k_proj_weight"` // [features, KDim]
	VProjWeight *tensor.Tensor `nn:"v_proj_weight"` // [features, VDim]
	InProjBias  *tensor.Tensor `nn:"in_proj_bias"`  // [3·features], nil for none
	BiasK       *tensor.Tensor `nn:"bias_k"`        // [1, 1, features], nil for none
	BiasV       *tensor.Tensor `nn:"bias_v"`        // [1, 1, features], nil for none
	OutProj     *Linear        `nn:"out_proj"`
	Features    int
	Heads       int
	Options     MultiheadOptions // the layer's settings, with KDim and VDim filled in
}

// NewMultiheadAttention returns a layer whose heads divide the features among themselves. As in
// torch, the weights of the input projections are uniform in ±√(6/(in + out)). The weight of the
// output projection is initialised as in [NewLinear]. Biases are 0. [NoBias] leaves out the biases
// of the projections.
func NewMultiheadAttention(features, heads int, mo MultiheadOptions, opts ...Option) *MultiheadAttention {
	if features < 1 || heads < 1 || features%heads != 0 {
		panic(wrong("MultiheadAttention", fmt.Sprintf("%d heads cannot share %d features", heads, features)))
	}
	if mo.KDim < 0 || mo.VDim < 0 || !(mo.Dropout >= 0 && mo.Dropout <= 1) {
		panic(wrong("MultiheadAttention", fmt.Sprintf("KDim %d and VDim %d must not be negative, Dropout %v lies between 0 and 1", mo.KDim, mo.VDim, mo.Dropout)))
	}
	if mo.KDim == 0 {
		mo.KDim = features
	}
	if mo.VDim == 0 {
		mo.VDim = features
	}
	o := options("MultiheadAttention", opts, biased...)
	m := &MultiheadAttention{Features: features, Heads: heads, Options: mo, OutProj: NewLinear(features, features, opts...)}
	weight := func(out, in int) *tensor.Tensor {
		w := o.parameters().Empty(out, in)
		initial.XavierUniform(w, 1)
		return w.RequiresGrad()
	}
	if mo.KDim == features && mo.VDim == features {
		m.InProjWeight = weight(3*features, features)
	} else {
		m.QProjWeight, m.KProjWeight, m.VProjWeight = weight(features, features), weight(features, mo.KDim), weight(features, mo.VDim)
	}
	if !o.noBias {
		m.InProjBias = o.parameters().Zeros(3 * features).RequiresGrad()
		initial.Zeros(m.OutProj.Bias)
	}
	if mo.AddBiasKV {
		for _, p := range []**tensor.Tensor{&m.BiasK, &m.BiasV} {
			*p = o.parameters().Empty(1, 1, features)
			initial.XavierNormal(*p, 1)
			(*p).RequiresGrad()
		}
	}
	return m
}

// Forward returns the result [length, n, features] for queries [length, n, features], keys [keys,
// n, KDim] and values [keys, n, VDim]. With NeedWeights it also returns the attention weights, [n,
// length, keys] or, with PerHead, [n, heads, length, keys]. Otherwise weights is nil. All tensors
// may omit n. With BatchFirst n is the first dimension. The returned weights include the effect of
// dropout. A query that attends to no key gets weights of 0, where torch returns NaN. Hooks see the
// queries and the result.
func (m *MultiheadAttention) Forward(q, k, v *tensor.Tensor, o AttendOptions) (y, weights *tensor.Tensor) {
	defer m.Enter(&q, &y)()
	m.check(q, k, v, o)
	given := []*tensor.Tensor{q, k, v}
	for _, t := range []*tensor.Tensor{o.Mask, o.KeyPadding} {
		if t != nil {
			given = append(given, t)
		}
	}
	tensor.Youngest(given...).Do(func(c *tensor.Scope) {
		alone := q.Rank() == 2
		q, k, v := m.project(c, q, k, v)
		n, keys := q.Dim(0), k.Dim(-2)
		extra := 0
		if m.BiasK != nil {
			k, v, extra = m.append(k, m.BiasK), m.append(v, m.BiasV), extra+1
		}
		if m.Options.AddZeroAttn {
			k, v, extra = k.Pad(0, 0, 0, 0, 1), v.Pad(0, 0, 0, 0, 1), extra+1
		}
		masks := o.Masks
		a := tensor.AttentionOptions{Causal: o.Causal && extra == 0 && !o.NeedWeights}
		// The mask must be causal unless the op itself is.
		masks.Causal = o.Causal && !a.Causal
		a.Mask = m.mask(c, q, n, keys, extra, masks)
		if m.Training() {
			a.Dropout = m.Options.Dropout
		}
		var r, w *tensor.Tensor
		if o.NeedWeights {
			w = chances(q, k, a)
			if a.Dropout > 0 {
				w = w.Dropout(a.Dropout)
			}
			if r = w.MatMul(v); !o.PerHead {
				w = w.Mean(1)
			}
		} else {
			r = tensor.ScaledDotProductAttention(q, k, v, a)
		}
		order := []int{2, 0, 1, 3}
		if m.Options.BatchFirst {
			order = []int{0, 2, 1, 3}
		}
		r = m.OutProj.Forward(r.Permute(order...).Flatten(2, -1))
		if alone {
			if r = r.Reshape(r.Size()/m.Features, m.Features); w != nil {
				w = w.Select(0, 0)
			}
		}
		if y = r; w == nil {
			c.Close(y)
			return
		}
		weights = w
		c.Close(y, weights)
	})
	return y, weights
}

// chances returns softmax(q·kᵀ/√d), the attention weights, as [n, heads, queries, keys].
func chances(q, k *tensor.Tensor, a tensor.AttentionOptions) *tensor.Tensor {
	scores := q.MulScalar(1 / math.Sqrt(float64(q.Dim(-1)))).MatMul(k.T())
	if a.Mask == nil || scores.Dim(-1) == 0 {
		return scores.Softmax(-1)
	}
	if a.Mask.Type() == dtype.Bool {
		scores = scores.MaskedFill(a.Mask.LogicalNot(), math.Inf(-1))
	} else {
		scores = scores.Add(a.Mask.Cast(scores.Type()))
	}
	nothing := scores.Amax(-1, tensor.KeepDim).EqScalar(math.Inf(-1))
	return scores.MaskedFill(nothing, 0).Softmax(-1).MaskedFill(nothing, 0)
}

// project returns the queries, keys and values of each head, [n, heads, length, features], in scope
// c. If two or three of the inputs q, k and v are the same tensor, one matrix product computes
// their projections.
func (m *MultiheadAttention) project(c *tensor.Scope, q, k, v *tensor.Tensor) (_, _, _ *tensor.Tensor) {
	f := m.Features
	heads := func(x *tensor.Tensor) *tensor.Tensor {
		x = x.Unflatten(-1, m.Heads, f/m.Heads)
		switch {
		case x.Rank() == 3:
			return x.Transpose(0, 1).Unsqueeze(0)
		case m.Options.BatchFirst:
			return x.Transpose(1, 2)
		}
		return x.Permute(1, 2, 0, 3)
	}
	linear := func(x, w *tensor.Tensor, from, parts int) []*tensor.Tensor {
		bias := m.InProjBias
		if bias != nil {
			if bias = bias.In(c); w.Dim(0) < bias.Dim(0) {
				bias = bias.Narrow(0, from*f, parts*f)
			}
		}
		y := x.In(c).Linear(w, bias)
		out := make([]*tensor.Tensor, parts)
		for i, p := range y.Split(f, -1) {
			out[i] = heads(p)
		}
		return out
	}
	if m.InProjWeight == nil {
		return linear(q, m.QProjWeight.In(c), 0, 1)[0], linear(k, m.KProjWeight.In(c), 1, 1)[0], linear(v, m.VProjWeight.In(c), 2, 1)[0]
	}
	w := m.InProjWeight.In(c)
	if q == k && k == v {
		p := linear(q, w, 0, 3)
		return p[0], p[1], p[2]
	}
	first := linear(q, w.Narrow(0, 0, f), 0, 1)[0]
	if k == v {
		p := linear(k, w.Narrow(0, f, 2*f), 1, 2)
		return first, p[0], p[1]
	}
	return first, linear(k, w.Narrow(0, f, f), 1, 1)[0], linear(v, w.Narrow(0, 2*f, f), 2, 1)[0]
}

// append appends one key or value to each head of x. bias holds it, as [1, 1, features].
func (m *MultiheadAttention) append(x, bias *tensor.Tensor) *tensor.Tensor {
	b := bias.In(x.Scope()).Reshape(1, m.Heads, 1, m.Features/m.Heads)
	return tensor.Cat(2, x, b.Expand(x.Dim(0), m.Heads, 1, m.Features/m.Heads))
}

// mask combines all masks of o into one mask for the queries q, the given number of keys, and the
// extra keys that the layer appends. Every query attends to the appended keys. The result is a bool
// mask that is true where a query attends, or a float mask to add to the scores. If only keys are
// masked, the result is [n, 1, 1, keys + extra]. A nil result masks nothing.
func (m *MultiheadAttention) mask(c *tensor.Scope, q *tensor.Tensor, n, keys, extra int, o Masks) *tensor.Tensor {
	var attends, adds *tensor.Tensor
	use := func(mask *tensor.Tensor) {
		mask = mask.In(c)
		if extra > 0 {
			dims := mask.Shape().Slice()
			dims[len(dims)-1] = extra
			mask = tensor.Cat(-1, mask, c.On(q.Device()).Typed(mask.Type()).Zeros(dims...))
		}
		switch {
		case mask.Type() != dtype.Bool && adds == nil:
			adds = mask
		case mask.Type() != dtype.Bool:
			adds = adds.Add(mask)
		case attends == nil:
			attends = mask.LogicalNot()
		default:
			attends = attends.LogicalAnd(mask.LogicalNot())
		}
	}
	if p := o.KeyPadding; p != nil {
		use(p.In(c).Reshape(n, 1, 1, keys))
	}
	if p := o.Mask; p != nil {
		if p.Rank() == 3 {
			p = p.In(c).Unflatten(0, n, m.Heads)
		}
		use(p)
	}
	if o.Causal {
		at := c.On(q.Device()).Typed(dtype.I64)
		use(at.Arange(q.Dim(-2)).Unsqueeze(1).Lt(at.Arange(keys)))
	}
	switch {
	case adds == nil:
		return attends
	case attends == nil:
		return adds
	}
	return tensor.WhereScalar(attends, adds, math.Inf(-1))
}

func (m *MultiheadAttention) check(q, k, v *tensor.Tensor, o AttendOptions) {
	const op = "multi_head_attention"
	requireUsable(op, q, k, v)
	in := []*tensor.Tensor{q, k, v}
	if r := q.Rank(); r != 2 && r != 3 || k.Rank() != r || v.Rank() != r {
		misuse(op, tensor.ErrShape, fmt.Sprintf("queries, keys and values are all [length, n, features] or all [length, features]; shapes are %v, %v and %v", q.Shape(), k.Shape(), v.Shape()), in...)
	}
	for i, want := range []int{m.Features, m.Options.KDim, m.Options.VDim} {
		if have := in[i].Dim(-1); have != want {
			misuse(op, tensor.ErrShape, fmt.Sprintf("the %s have %d features, the layer needs %d", []string{"queries", "keys", "values"}[i], have, want), in...)
		}
	}
	n, length, batch := 1, 0, 1
	if q.Rank() == 3 {
		if m.Options.BatchFirst {
			length, batch = 1, 0
		}
		if n = q.Dim(batch); k.Dim(batch) != n || v.Dim(batch) != n {
			misuse(op, tensor.ErrShape, fmt.Sprintf("there are %d sequences of queries, %d of keys and %d of values; is BatchFirst what was meant?", n, k.Dim(batch), v.Dim(batch)), in...)
		}
	}
	queries, keys := q.Dim(length), k.Dim(length)
	if v.Dim(length) != keys {
		misuse(op, tensor.ErrShape, fmt.Sprintf("there are %d keys and %d values", keys, v.Dim(length)), in...)
	}
	fits := func(name string, mask *tensor.Tensor, shapes ...[]int) {
		if mask == nil {
			return
		}
		if mask.Type() != dtype.Bool && !mask.Type().IsFloat() {
			hinted(op, tensor.ErrType, fmt.Sprintf("%s is of bool or floating point, not %v", name, mask.Type()), "use Cast(dtype.Bool)", append(in, mask)...)
		}
		for _, s := range shapes {
			if slices.Equal(mask.Shape().Slice(), s) {
				return
			}
		}
		misuse(op, tensor.ErrShape, fmt.Sprintf("%s has shape %v, it may be %v", name, mask.Shape(), shapes), append(in, mask)...)
	}
	padding := [][]int{{n, keys}}
	if q.Rank() == 2 {
		padding = [][]int{{keys}}
	}
	fits("KeyPadding", o.KeyPadding, padding...)
	fits("Mask", o.Mask, []int{queries, keys}, []int{n * m.Heads, queries, keys})
}
