package tensor

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// AttentionOptions are the options of [ScaledDotProductAttention]. The zero value has torch's
// defaults.
type AttentionOptions struct {
	// Mask broadcasts to [..., queries, keys]. A bool mask is true where a query may attend to a
	// key. A floating point mask is added to the scores.
	Mask *Tensor
	// Causal lets query i attend only to the keys 0 … i, even if there are fewer keys than
	// queries. It may be combined with Mask and Lengths; torch refuses Mask with is_causal. A query
	// then attends only to keys that Causal, Mask and Lengths all allow. So Mask need not repeat
	// what Causal says.
	Causal bool
	// Dropout is the probability with which a weight is dropped. Pass 0 outside of training:
	// nothing else switches it off.
	Dropout float64
	// Scale multiplies the products of queries and keys; 0 means 1/√features.
	Scale float64
	// GroupedHeads lets g neighbouring heads of queries share one head of keys and values: queries
	// are [..., h·g, queries, features], keys [..., h, keys, features]. It is torch's enable_gqa.
	GroupedHeads bool
	// Lengths, int64 [batch], holds the number of valid keys of each sample. The weights must then
	// be [batch, heads, queries, keys]. Queries of a sample attend only to its first keys, up to
	// this number. If the number is not positive, they attend to no key. Lengths may be combined
	// with Mask and Causal, and costs less than an equivalent mask.
	Lengths *Tensor
}

// attentionFunc computes attention over queries, keys, values, an optional mask and optional
// lengths.
type attentionFunc struct {
	scale           float64
	causal          bool
	groups          int // number of heads of queries that share one head of keys
	masked, lengths bool
	weights         shape.Dims // shape of the weights: [..., queries, keys]
	drop            *dropoutFunc
}

func (*attentionFunc) Name() string { return "scaled_dot_product_attention" }

func (f *attentionFunc) Forward(c *Context, in []*Tensor) *Tensor {
	q, v := in[0], in[2]
	y, lse := f.fastForward(c, in)
	if y == nil {
		p := f.computeWeights(c.scope, in)
		kept := p
		if f.drop != nil {
			kept = f.dropped(p)
		}
		y = f.unfold(f.fold(kept).MatMul(v.Cast(p.dtype))).Cast(q.dtype)
	}
	f.save(c, in, y, lse)
	return y
}

// lean launches the device's kernel on the operands themselves. So the operands must already have
// the type and the shapes that the kernel reads, and the result must be contiguous.
func (f *attentionFunc) lean(c *Context, in []*Tensor) *Tensor {
	q := in[0]
	fq, fk, fv, _, ok := f.full(in)
	if !ok || f.masked || f.drop != nil || fq.Rank() != 4 || q.dtype.Compute() != q.dtype || q.memoryOrder() != [4]int{0, 1, 2, 3} ||
		q.layout.Shape != fq || in[1].layout.Shape != fk || in[2].layout.Shape != fv {
		return nil
	}
	y, lse := f.fastForward(c, in)
	if y != nil {
		f.save(c, in, y, lse)
	}
	return y
}

// save saves what VJP needs. lse is nil if no kernel has computed the result y.
func (f *attentionFunc) save(c *Context, in []*Tensor, y, lse *Tensor) {
	for i := range in {
		if c.Needs(i) {
			c.Save(in...)
			if lse != nil {
				c.Save(y, lse)
			}
			break
		}
	}
}

// dropped applies dropout to x, [..., queries, keys]. It draws random numbers for rows padded to a
// multiple of 4, so that a row begins with a whole block of the generator. Kernels can then compute
// where a row's numbers begin.
func (f *attentionFunc) dropped(x *Tensor) *Tensor {
	n := x.Dim(-1)
	if n%4 == 0 {
		return Apply(f.drop, x)
	}
	return within(x.scope, func(c *Scope) *Tensor {
		return Apply(f.drop, x.In(c).Pad(0, 0, 4-n%4)).Narrow(-1, 0, n)
	})
}

// fold joins the heads of queries that share one head of keys: [..., h·g, n, m] becomes [..., h,
// g·n, m].
func (f *attentionFunc) fold(x *Tensor) *Tensor {
	if f.groups == 1 {
		return x
	}
	s, r := x.layout.Shape, x.Rank()
	return x.reshape(s.With(r-3, s.At(r-3)/f.groups).With(r-2, s.At(r-2)*f.groups))
}

func (f *attentionFunc) unfold(x *Tensor) *Tensor {
	if f.groups == 1 {
		return x
	}
	s, r := x.layout.Shape, x.Rank()
	return x.reshape(s.With(r-3, s.At(r-3)*f.groups).With(r-2, s.At(r-2)/f.groups))
}

var (
	// Masking adds minus infinity to a score. So a masked score that is NaN or +infinity still
	// gives NaN, as in torch.
	maskOp      = &Elementwise{Name: "scaled_dot_product_attention", Arity: 2, Expr: x1.Ne(zeroC).Select(x0, x0.Add(expr.C(math.Inf(-1)))), Fixed: 2, Grad: []*expr.Expr{x2, nil}}
	attentionOp = &Elementwise{Name: "scaled_dot_product_attention", Arity: 2, Expr: x0.Add(x1)}
)

// computeWeights returns softmax(scale·q·kᵀ + mask), [..., queries, keys]. Its type is the type in
// which the op computes, which is float32 for 16-bit floats. The row of a query that may attend to
// no key is 0.
func (f *attentionFunc) computeWeights(s *Scope, in []*Tensor) *Tensor {
	return within(s, func(c *Scope) *Tensor {
		q, k := in[0].In(c), in[1].In(c)
		t := q.dtype.Compute()
		scores := f.unfold(f.fold(q.Cast(t).MulScalar(f.scale)).MatMul(k.Cast(t).T()))
		apply := func(op *Elementwise, x *Tensor) {
			if c.modes.noGrad {
				scores.inPlace(op, []*Tensor{scores, x})
			} else {
				scores = op.Apply([]*Tensor{scores, x})
			}
		}
		n := scores.Dim(-1)
		if f.causal {
			m := c.On(q.st.dev).Typed(dtype.I64)
			apply(maskOp, m.Arange(n).Le(m.Arange(scores.Dim(-2)).Unsqueeze(1)))
		}
		if f.lengths {
			// The weights are [batch, heads, queries, keys], as Lengths requires.
			apply(maskOp, c.On(q.st.dev).Typed(dtype.I64).Arange(n).Lt(in[len(in)-1].In(c).reshape(shape.Of(f.weights.At(0), 1, 1, 1))))
		}
		if f.masked {
			if mask := in[3].In(c); mask.dtype == boolType {
				apply(maskOp, mask)
			} else {
				apply(attentionOp, mask.Cast(t))
			}
		}
		if n == 0 {
			return scores
		}
		nothing := scores.Amax(-1, KeepDim).EqScalar(math.Inf(-1))
		if c.modes.noGrad {
			return scores.Softmax(-1).MaskedFillInPlace(nothing, 0)
		}
		// The softmax of a row of -Inf is NaN, which the last MaskedFill replaces by 0. The second
		// derivative would still be NaN. So such rows are filled with 0 before the softmax too.
		return scores.MaskedFill(nothing, 0).Softmax(-1).MaskedFill(nothing, 0)
	})
}

func (f *attentionFunc) VJP(c *Context, g *Tensor) []*Tensor {
	n := len(c.n.operands)
	in, grads := make([]*Tensor, n), make([]*Tensor, n)
	for i := range in {
		in[i] = c.Saved(i)
	}
	q, k, v := in[0], in[1], in[2]
	if grads := f.fastGradient(c, in, g); grads != nil {
		return grads
	}
	s, t := c.Scope(), q.dtype.Compute()
	p := f.computeWeights(s, in) // if s records a graph, it records the computation of p
	g = f.fold(g.Cast(t))
	if c.Needs(2) {
		grads[2] = within(s, func(c *Scope) *Tensor {
			kept := p.In(c)
			if f.drop != nil {
				kept = f.dropped(kept)
			}
			return f.fold(kept).T().MatMul(g).sumTo(v.layout.Shape).Cast(v.dtype)
		})
	}
	d := within(s, func(c *Scope) *Tensor {
		d := f.unfold(g.In(c).MatMul(v.In(c).Cast(t).T()))
		if d.layout.Shape != p.layout.Shape {
			d = d.sumTo(p.layout.Shape) // values may have more batches than the weights
		}
		if f.drop != nil {
			d = f.dropped(d)
		}
		rows := shape.Of(p.layout.Shape.Head(p.Rank()-1).Size(), p.Dim(-1))
		return softmaxFunc{}.gradient(c, p.In(c).reshape(rows), d.reshape(rows)).reshape(p.layout.Shape)
	})
	if f.masked && c.Needs(3) {
		grads[3] = d.sumTo(in[3].layout.Shape).Cast(in[3].dtype)
	}
	d = f.fold(d)
	if c.Needs(0) {
		grads[0] = f.unfold(d.MatMul(k.Cast(t))).MulScalar(f.scale).sumTo(q.layout.Shape).Cast(q.dtype)
	}
	if c.Needs(1) {
		grads[1] = d.T().MatMul(f.fold(q.Cast(t).MulScalar(f.scale))).sumTo(k.layout.Shape).Cast(k.dtype)
	}
	return grads
}

// ScaledDotProductAttention returns softmax(scale·q·kᵀ + mask)·v, which is [..., queries, values]
// (A. Vaswani et al., arXiv:1706.03762). Queries q are [..., queries, features], keys k [..., keys,
// features] and values v [..., keys, values]. The leading dimensions are batches and heads. They
// are broadcast to common sizes, or share heads as GroupedHeads says. All operands have one
// floating point type. 16-bit floats are computed in float32 and rounded once. A GPU also rounds
// the weights to the operands' type before it multiplies them by the values. If a query may attend
// to no key, its result and its gradients are 0, as in torch.
//
// A device with attention kernels, such as the CPU, works by blocks of queries and keys. The op and
// its gradient hold the weights of one block only. The gradient computes the weights again from
// queries, keys and one number for each query (T. Dao et al., arXiv:2205.14135). So the memory is
// linear in the length. The dimensions of the result have the same order in memory as those of the
// queries.
//
// On other devices the weights of all queries and keys are in memory while the op or its gradient
// is computed. For a short time there are even two copies. The weights are freed between the
// forward pass and the backward pass. The same holds on every device for float64, for a mask that
// requires a gradient, and for second derivatives.
func ScaledDotProductAttention(q, k, v *Tensor, o AttentionOptions) *Tensor {
	const op = "scaled_dot_product_attention"
	if y := underAutocast(op, AutocastLow, func(in []*Tensor) *Tensor {
		o := o
		o.Mask = in[3]
		return ScaledDotProductAttention(in[0], in[1], in[2], o)
	}, q, k, v, o.Mask); y != nil {
		return y
	}
	in := []*Tensor{q, k, v}
	if o.Mask != nil {
		in = append(in, o.Mask)
	}
	if o.Lengths != nil {
		in = append(in, o.Lengths)
	}
	s := youngest(op, in)
	sameDevice(op, in)
	f := &attentionFunc{scale: o.Scale, causal: o.Causal, groups: 1, masked: o.Mask != nil, lengths: o.Lengths != nil}
	f.weights = f.check(in, o)
	if o.Scale == 0 {
		f.scale = 1 / math.Sqrt(float64(q.Dim(-1)))
		if q.Dim(-1) == 0 {
			f.scale = 1 // without features every product is 0
		}
	}
	if o.Dropout > 0 {
		seed, offset := s.modes.gen.Draw(f.weights.Size())
		f.drop = &dropoutFunc{o.Dropout, dropoutScale(o.Dropout), seed, offset}
	}
	return Apply(f, in...)
}

// check checks the operands of attention, sets f.groups and returns the shape of the weights.
func (f *attentionFunc) check(in []*Tensor, o AttentionOptions) shape.Dims {
	const op = "scaled_dot_product_attention"
	q, k, v := in[0], in[1], in[2]
	if q.Rank() < 2 || k.Rank() < 2 || v.Rank() < 2 {
		fail(op, ErrShape, in, "queries, keys and values are [..., length, features]; shapes are %s", shapes(in[:3]))
	}
	q.mustFloat(op)
	if k.dtype != q.dtype || v.dtype != q.dtype {
		e := newError(op, ErrType, in, "queries are "+q.dtype.String()+", keys "+k.dtype.String()+" and values "+v.dtype.String())
		panic(e.hint("Cast to one type"))
	}
	if q.Dim(-1) != k.Dim(-1) {
		fail(op, ErrShape, in, "queries have %d features (dimension -1), keys %d", q.Dim(-1), k.Dim(-1))
	}
	if k.Dim(-2) != v.Dim(-2) {
		fail(op, ErrShape, in, "there are %d keys (dimension -2) and %d values", k.Dim(-2), v.Dim(-2))
	}
	if o.GroupedHeads {
		if q.Rank() < 3 || k.Rank() < 3 || v.Rank() < 3 {
			fail(op, ErrShape, in, "grouped heads are dimension -3; shapes are %s", shapes(in[:3]))
		}
		if h := k.Dim(-3); h == 0 || v.Dim(-3) != h || q.Dim(-3)%h != 0 {
			fail(op, ErrShape, in, "%d heads of queries (dimension -3) cannot share %d of keys and %d of values", q.Dim(-3), h, v.Dim(-3))
		}
		f.groups = q.Dim(-3) / k.Dim(-3)
	}
	weights := f.broadcast(in)
	if !(o.Dropout >= 0 && o.Dropout <= 1) {
		fail(op, ErrValue, in, "%v is not a probability of dropout", o.Dropout)
	}
	if math.IsNaN(o.Scale) {
		fail(op, ErrValue, in, "the scale is NaN")
	}
	if l := o.Lengths; l != nil {
		if l.dtype != dtype.I64 {
			e := newError(op, ErrType, in, "lengths are int64, not "+l.dtype.String())
			panic(e.hint("use Long"))
		}
		if weights.Rank() != 4 || l.layout.Shape != weights.Head(1) {
			fail(op, ErrShape, in, "lengths are [batch] of [batch, heads, queries, keys], not %v of %v", l.Shape(), weights)
		}
	}
	if o.Mask == nil {
		return weights
	}
	if o.Mask.dtype != boolType && !o.Mask.dtype.IsFloat() {
		e := newError(op, ErrType, in, "a mask is of bool or floating point, not "+o.Mask.dtype.String())
		panic(e.hint("use Cast(dtype.Bool)"))
	}
	if _, ok := o.Mask.layout.Expand(weights); !ok {
		e := newError(op, ErrShape, in, fmt.Sprintf("a mask of shape %v does not broadcast to %v, [..., queries, keys]", o.Mask.Shape(), weights))
		m, n := o.Mask.layout.Shape, weights.Rank()
		switch batch, keys := weights.At(0), weights.At(n-1); {
		case n == 4 && m == shape.Of(batch, weights.At(2), keys):
			e.hint("a mask of each sequence lacks the dimension of heads: Unsqueeze(1)")
		case n == 4 && m == shape.Of(batch, keys):
			e.hint("a mask of keys lacks the dimensions of heads and queries: Unsqueeze(1).Unsqueeze(1)")
		}
		panic(e)
	}
	return weights
}

// broadcast checks that batches and heads fit, and returns the shape of the weights.
func (f *attentionFunc) broadcast(in []*Tensor) shape.Dims {
	const op = "scaled_dot_product_attention"
	q, k, v := in[0], in[1], in[2]
	head := func(x *Tensor) shape.Dims { return x.layout.Shape.Head(x.Rank() - 2) }
	hq := head(q)
	if f.groups > 1 {
		hq = hq.With(hq.Rank()-1, k.Dim(-3))
	}
	sh, _, ok := shape.Broadcast(hq, head(k))
	if ok { // values may have more batches and heads than the weights
		_, _, ok = shape.Broadcast(sh, head(v))
	}
	if !ok {
		e := newError(op, ErrShape, in, "the dimensions before the last two do not broadcast; shapes are "+shapes(in[:3]))
		if r := q.Rank(); r > 2 && k.Rank() == r && k.Dim(-3) > 0 && q.Dim(-3)%k.Dim(-3) == 0 {
			e.hint("GroupedHeads lets heads of queries share those of keys and values")
		}
		panic(e)
	}
	if f.groups > 1 {
		sh = sh.With(sh.Rank()-1, q.Dim(-3))
	}
	return sh.Append(q.Dim(-2)).Append(k.Dim(-2))
}

// ALiBi returns the biases that attention with linear biases adds to the scores, [heads, queries,
// keys] (O. Press et al., arXiv:2108.12409). The bias is -m·|i - j| for query i and key j, where
// the last query has the position of the last key. The slopes m of n heads are 2^(-8/n), 2^(-16/n)
// …. If n is not a power of two, the first slopes are the slopes for the next lower power of two.
// They are followed by every second slope for the next higher power of two, as in the authors'
// code. For causal attention, fill the bias above the diagonal with -Inf. Pass the result as the
// Mask of [ScaledDotProductAttention].
func (m Maker) ALiBi(heads, queries, keys int) *Tensor {
	const op = "alibi"
	if heads < 1 || queries < 0 || keys < 0 {
		fail(op, ErrShape, nil, "%d heads, %d queries, %d keys", heads, queries, keys)
	}
	power := 1
	for 2*power <= heads {
		power *= 2
	}
	t := m.floatType()
	if !t.IsFloat() {
		fail(op, ErrType, nil, "a bias is of floating point, not %v", t)
	}
	return within(m.s, func(c *Scope) *Tensor {
		w := Maker{c, t.Compute(), m.dev}
		slopes := w.ArangeStep(1, float64(power+1), 1).MulScalar(-8 / float64(power))
		if more := heads - power; more > 0 {
			slopes = Cat(0, slopes, w.ArangeStep(1, float64(2*more), 2).MulScalar(-4/float64(power)))
		}
		i := w.ArangeStep(float64(keys-queries), float64(keys), 1).Unsqueeze(1)
		return w.Arange(keys).Sub(i).Abs().Mul(slopes.Exp2().Neg().Unsqueeze(-1).Unsqueeze(-1)).Cast(t)
	})
}
