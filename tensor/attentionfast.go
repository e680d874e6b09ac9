package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// attentionOperands are the operands of a device's attention kernel, each with four dimensions.
type attentionOperands struct {
	q, k, v, mask, lengths, numbers *Tensor
}

// kernelTypes are the types in which a device may compute attention, in the order of preference.
// The operands' own type is first, because it needs no copies.
func kernelTypes(t dtype.Type) []dtype.Type {
	if w := t.Compute(); w != t {
		return []dtype.Type{t, w}
	}
	return []dtype.Type{t}
}

// full returns the shapes of queries, keys, values and result, expanded to all batches and heads.
// ok is false if values have more batches or heads than the weights, or if there are no keys.
func (f *attentionFunc) full(in []*Tensor) (q, k, v, y shape.Dims, ok bool) {
	r := f.weights.Rank()
	heads := f.weights.Head(r - 2)
	shared := heads
	if f.groups > 1 {
		shared = heads.With(r-3, heads.At(r-3)/f.groups)
	}
	queries, keys, features, values := f.weights.At(r-2), f.weights.At(r-1), in[0].Dim(-1), in[2].Dim(-1)
	q, y = heads.Append(queries, features), heads.Append(queries, values)
	k, v = shared.Append(keys, features), shared.Append(keys, values)
	_, ok = in[2].layout.Expand(v)
	return q, k, v, y, ok && keys > 0
}

// fourDims joins the leading dimensions of s, which has at least two, to get [batch, heads, length,
// features].
func fourDims(s shape.Dims) shape.Dims {
	r := s.Rank()
	heads := 1
	if r > 2 {
		heads = s.At(r - 3)
	}
	return shape.Of(s.Head(max(r-3, 0)).Size(), heads, s.At(r-2), s.At(r-1))
}

// viewFourDims describes x as a kernel's operand of type t and four dimensions, expanded to s. The
// view has the layout of the tensor that toFourDims will return, but nothing is copied yet.
func (x *Tensor) viewFourDims(t dtype.Type, s shape.Dims) device.View {
	if x.dtype == t {
		if l, ok := x.layout.Expand(s); ok {
			if l, ok = l.View(fourDims(s)); ok {
				return device.View{Type: t, Layout: l}
			}
		}
	}
	return resultOf(t, fourDims(s))
}

// toFourDims returns x as an operand of a kernel: converted to type t, expanded to s, and reshaped
// to the shape that fourDims returns. The result is a view if x has type t already and its leading
// dimensions can be joined without a copy.
func (x *Tensor) toFourDims(c *Scope, t dtype.Type, s shape.Dims) *Tensor {
	if x.isFourDims(t, s) {
		return x
	}
	return x.In(c).Cast(t).expand(s).reshape(fourDims(s))
}

// isFourDims reports whether toFourDims returns x itself.
func (x *Tensor) isFourDims(t dtype.Type, s shape.Dims) bool {
	return x.dtype == t && s.Rank() == 4 && x.layout.Shape == s
}

// maskType returns the type in which kernels read a mask if they compute in type t.
func maskType(mask *Tensor, t dtype.Type) dtype.Type {
	if m := mask.dtype; m == dtype.Bool || m == dtype.F32 || m == t {
		return m
	}
	return t.Compute()
}

// weighing returns the description from which a kernel computes the attention weights. The views in
// the description have no buffers yet.
func (f *attentionFunc) weighing(in []*Tensor, t dtype.Type, numbers *Tensor) device.Weighing {
	w := device.Weighing{Scale: f.scale, Causal: f.causal}
	if f.masked {
		w.Mask = in[3].viewFourDims(maskType(in[3], t), f.weights)
	}
	if f.lengths {
		w.Lengths = in[len(in)-1].operand()
	}
	if f.drop != nil {
		w.Drop, w.Seed, w.Offset = f.drop.p, f.drop.seed, f.drop.offset
		if numbers != nil {
			w.Numbers = numbers.operand()
		}
	}
	return w
}

// numbers returns the tensor from which a captured step reads the seed and offset of its dropout.
// It is nil if there is no dropout, or if the step is not captured.
func (f *attentionFunc) numbers(s *Scope, dev device.Device) *Tensor {
	if f.drop == nil {
		return nil
	}
	return s.numbers(f.drop.seed, dev)
}

func (f *attentionFunc) operands(c *Scope, in []*Tensor, t dtype.Type, numbers *Tensor) (a attentionOperands) {
	q, k, v, _, _ := f.full(in)
	a = attentionOperands{q: in[0].toFourDims(c, t, q), k: in[1].toFourDims(c, t, k), v: in[2].toFourDims(c, t, v), numbers: numbers}
	if f.masked {
		a.mask = in[3].toFourDims(c, maskType(in[3], t), f.weights)
	}
	if f.lengths {
		a.lengths = in[len(in)-1]
	}
	return a
}

// viewOrNone returns the view of x, or the zero View if x is nil.
func (x *Tensor) viewOrNone() device.View {
	if x == nil {
		return device.View{}
	}
	return x.operand()
}

// fill copies the views of the operands to q, k, v and w, which are fields of a primitive.
func (a *attentionOperands) fill(q, k, v *device.View, w *device.Weighing) {
	*q, *k, *v = a.q.operand(), a.k.operand(), a.v.operand()
	w.Mask, w.Lengths, w.Numbers = a.mask.viewOrNone(), a.lengths.viewOrNone(), a.numbers.viewOrNone()
}

// allocLike allocates a result of type t and shape sh. Its dimensions have the same order in memory
// as the dimensions of x, except that the last dimension stays last. Suppose that the heads of x
// are parts of one projection. Then the heads of the result are adjacent in memory at each
// position, and a view joins them.
func (x *Tensor) allocLike(op string, s *Scope, t dtype.Type, sh shape.Dims) *Tensor {
	order := x.memoryOrder()
	if order == [4]int{0, 1, 2, 3} {
		return alloc(op, s, x.st.dev, t, sh)
	}
	var inMemory [4]int
	back := make([]int, 4)
	for i, d := range order {
		inMemory[i], back[d] = sh.At(d), i
	}
	return alloc(op, s, x.st.dev, t, shape.Of(inMemory[:]...)).Permute(back...)
}

// memoryOrder returns the order of x's four dimensions in memory, except that the last stays last.
func (x *Tensor) memoryOrder() [4]int {
	order := [4]int{0, 1, 2, 3}
	for i := 1; i < 3; i++ {
		for k := i; k > 0; k-- {
			a, b := order[k-1], order[k]
			if x.Dim(a) < 2 || x.Dim(b) < 2 || x.layout.Strides.At(a) == 0 || x.layout.Strides.At(a) >= x.layout.Strides.At(b) {
				break
			}
			order[k-1], order[k] = b, a
		}
	}
	return order
}

// fastForward runs the device's attention kernel, if there is one and the operands suit it.
// Otherwise it returns nil. lse holds the logarithm of each row's sum of exponentials. It is nil if
// no gradient will need it.
func (f *attentionFunc) fastForward(c *Context, in []*Tensor) (y, lse *Tensor) {
	const op = "scaled_dot_product_attention"
	fq, fk, fv, fy, ok := f.full(in)
	if !ok || f.masked && c.Needs(3) {
		return nil, nil
	}
	s, q, dev := c.Scope(), in[0], in[0].st.dev
	numbers := f.numbers(s, dev)
	saves := c.Needs(0) || c.Needs(1) || c.Needs(2)
	for _, t := range kernelTypes(q.dtype) {
		to := fourDims(fy)
		ask := device.Attention{Out: resultOf(t, to), Q: q.viewFourDims(t, fq), K: in[1].viewFourDims(t, fk), V: in[2].viewFourDims(t, fv), Weighing: f.weighing(in, t, numbers)}
		if saves {
			ask.LSE = resultOf(t.Compute(), to.Head(3))
		}
		o := attentionOps.supported(s, dev, ask)
		if o == nil {
			continue
		}
		if saves {
			lse = alloc(op, s, dev, t.Compute(), to.Head(3))
		}
		compute := func(c *Scope) *Tensor {
			a := f.operands(c, in, t, numbers)
			y := a.q.allocLike(op, c, t, to)
			a.fill(&o.Q, &o.K, &o.V, &o.Weighing)
			o.Out, o.LSE = y.operand(), lse.viewOrNone()
			launch(op, c, o, y, lse, a.q, a.k, a.v, a.mask, a.lengths, a.numbers)
			return y.reshape(fy).Cast(q.dtype)
		}
		if q.isFourDims(t, fq) && in[1].isFourDims(t, fk) && in[2].isFourDims(t, fv) && !f.masked {
			y = compute(s) // here compute makes no tensor except y
		} else {
			y = within(s, compute)
		}
		attentionOps.put(o)
		return y, lse
	}
	return nil, nil
}

// fastGradient runs the device's attention kernel for the gradient. It returns nil if the device
// has no such kernel, if the forward pass did not run its kernel, or if the gradient is recorded
// for second derivatives.
func (f *attentionFunc) fastGradient(c *Context, in []*Tensor, g *Tensor) []*Tensor {
	const op = "scaled_dot_product_attention.grad"
	n, s, q, dev := len(in), c.Scope(), in[0], in[0].st.dev
	if c.NumSaved() == n || !s.modes.noGrad {
		return nil
	}
	y, lse := c.Saved(n), c.Saved(n+1)
	fq, fk, fv, fy, _ := f.full(in)
	full := [3]shape.Dims{fq, fk, fv}
	numbers := f.numbers(s, dev)
	for _, t := range kernelTypes(q.dtype) {
		ask := device.AttentionGrad{G: g.viewFourDims(t, fy), Q: q.viewFourDims(t, fq), K: in[1].viewFourDims(t, fk), V: in[2].viewFourDims(t, fv), Out: y.viewFourDims(t, fy),
			LSE: lse.operand(), Weighing: f.weighing(in, t, numbers)}
		together := c.projected(in, full, t)
		together.results(c, &ask, full, t)
		o := attentionGradOps.supported(s, dev, ask)
		if o == nil && together != nil {
			together = nil
			together.results(c, &ask, full, t)
			o = attentionGradOps.supported(s, dev, ask)
		}
		if o == nil {
			continue
		}
		grads := make([]*Tensor, n)
		w := s.child()
		defer w.recycle()
		a := f.operands(w, in, t, numbers)
		from, out := g.toFourDims(w, t, fy), y.toFourDims(w, t, fy)
		a.fill(&o.Q, &o.K, &o.V, &o.Weighing)
		o.G, o.Out = from.operand(), out.operand()
		d := together.alloc(op, s, dev, t)
		for i, to := range []*device.View{&o.DQ, &o.DK, &o.DV} {
			if together == nil && c.Wants(i) {
				d[i] = [3]*Tensor{a.q, a.k, a.v}[i].allocLike(op, s, t, fourDims(full[i]))
				*to = d[i].operand()
			}
		}
		launch(op, s, o, d[0], d[1], d[2], from, a.q, a.k, a.v, out, lse, a.mask, a.lengths, a.numbers)
		attentionGradOps.put(o)
		w.close(nil, false)
		for i, x := range d {
			if x != nil {
				grads[i] = x.reshape(full[i]).sumTo(in[i].layout.Shape).Cast(in[i].dtype)
			}
		}
		return grads
	}
	return nil
}
