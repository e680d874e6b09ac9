package tensor

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Linear returns x·weightᵀ + bias, torch's F.linear. x is [..., in], weight [out, in], and bias
// [out] or nil. x and weight have the same type, which is also the result's type. For 16-bit floats
// the bias may be float32. If the device can, it adds the bias in the product's launch, before the
// sums are rounded. Under [Autocast] x and weight are cast to 16 bits, and a float32 bias stays
// float32. The gradients of float32 parameters are then computed in float32, without rounding to 16
// bits in between.
func (x *Tensor) Linear(weight, bias *Tensor) *Tensor {
	checkLinear("linear", x, weight, bias, 1)
	return x.linear(weight, bias, false, nil)
}

// LinearT is [Tensor.Linear] for a weight of shape [in, out], such as GPT-2's: x·weight + bias.
func (x *Tensor) LinearT(weight, bias *Tensor) *Tensor {
	checkLinear("linear", x, weight, bias, 0)
	return x.linear(weight, bias, true, nil)
}

// checkLinear checks the shapes of a linear layer's operands. Dimension k of the weight is the
// dimension of the input features.
func checkLinear(op string, x, weight, bias *Tensor, k int) {
	x.use(op)
	weight.use(op)
	in := present(x, weight, bias)
	youngest(op, in)
	sameDevice(op, in)
	switch {
	case weight.Rank() != 2:
		fail(op, ErrShape, in, "the weight is a matrix, not of shape %v", weight.Shape())
	case x.Rank() == 0 || x.Dim(-1) != weight.Dim(k):
		e := newError(op, ErrShape, in, fmt.Sprintf("the weight %v takes %d features, x has shape %v", weight.Shape(), weight.Dim(k), x.Shape()))
		if x.Rank() > 0 && x.Dim(-1) == weight.Dim(1-k) {
			e.hint("did you mean weight.T()?")
		}
		panic(e)
	case bias != nil && bias.layout.Shape != shape.Of(weight.Dim(1-k)):
		fail(op, ErrShape, in, "the bias has shape %v, want [%d]", bias.Shape(), weight.Dim(1-k))
	}
}

// linear casts the operands as autocast says, and applies linearFunc to x, reshaped to a matrix. It
// then applies the activation act, unless act is nil.
func (x *Tensor) linear(w, b *Tensor, byInputs bool, act *Elementwise) *Tensor {
	const op = "linear"
	in := present(x, w, b)
	s := youngest(op, in)
	f := &linearFunc{byInputs: byInputs, act: act}
	var made []*Tensor
	defer freeAll(&made)
	if to := target(AutocastLow, s.modes.autocast, in, 0); to == dtype.Invalid {
		s.missCast(op, AutocastLow, in, 0)
	} else {
		// a cast that the cache keeps belongs to an outer scope
		if x = s.operands(AutocastLow, []*Tensor{x}, 0, &made)[0]; x.scope != s {
			x = x.In(s)
			made = append(made, x)
		}
		if castable(w, to) {
			if f.low = s.modes.casts.get(w, to); f.low == nil {
				w = s.operands(AutocastLow, []*Tensor{w}, 0, &made)[0]
			} else {
				s.missNoCast()
			}
		}
		if b != nil && b.dtype != dtype.F32 {
			b = s.operands(AutocastLow, []*Tensor{b}, 0, &made)[0]
		}
	}
	factor := w
	if f.low != nil {
		factor = f.low
	}
	if x.dtype == dtype.Bool {
		fail(op, ErrType, in, "bool matrices cannot be multiplied")
	}
	if x.dtype != factor.dtype {
		e := newError(op, ErrType, in, fmt.Sprintf("x is %v and the weight %v", x.dtype, factor.dtype))
		panic(e.hint("Cast one of them"))
	}
	if b != nil && (!x.dtype.IsFloat() || b.dtype != x.dtype && !(b.dtype == dtype.F32 && x.dtype.IsHalf())) {
		// here the types of product and bias differ, and Add promotes them as usual
		return applied(act, x.linear(w, nil, byInputs, nil).Add(b))
	}
	to := x.layout.Shape.With(x.Rank()-1, w.Dim(outputDim(byInputs)))
	rows := x.layout.Shape.Head(x.Rank() - 1).Size()
	flat := x
	if x.Rank() != 2 {
		flat = x.reshape(shape.Of(rows, x.Dim(-1)))
	}
	operands := []*Tensor{flat, w}
	if b != nil {
		operands = append(operands, b)
	}
	y := f.activated(freeView(Apply(f, operands...), flat, x))
	f.low = nil // the graph keeps its own handle of the cast
	if x.Rank() == 2 {
		return y
	}
	return y.reshaped(to)
}

// outputDim returns the dimension of the output features in a weight.
func outputDim(byInputs bool) int {
	if byInputs {
		return 1
	}
	return 0
}

// linearFunc computes x·wᵀ + b for matrices x and w. The operand b may be absent.
type linearFunc struct {
	byInputs bool // true if w is [in, out], and the product is x·w
	// the cast of the leaf w, which the product in Forward reads; nil without autocast and after
	// Forward
	low *Tensor

	// The activation after the layer, if there is one. It is nil once [linearFunc.activated] has
	// added the activation to the graph.
	act  *Elementwise
	done bool // true if Forward has applied act in the product's launch
	// the result of the activation, in the scope that encloses Forward's scope; nil if Forward
	// returned this result itself
	y *Tensor
}

func (*linearFunc) Name() string { return "linear" }

func (*linearFunc) Autocast() AutocastClass { return AutocastOff }

func (f *linearFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x, w, s := in[0], in[1], c.Scope()
	if f.low != nil {
		w = f.low
	}
	if c.Needs(0) {
		c.Save(w)
	}
	if c.Needs(1) {
		c.Save(x)
	}
	w = w.detachedIn(s)
	if !f.byInputs {
		w = w.T()
	}
	var b *Tensor
	if len(in) > 2 {
		b = in[2]
	}
	if y := f.activatedProduct(c, x, w, b); y != nil {
		return y
	}
	y := alloc("linear", s, x.st.dev, x.dtype, shape.Of(x.Dim(0), w.Dim(1)))
	multiplyAdd("linear", s, y, x, w, b)
	return y
}

func (f *linearFunc) VJP(c *Context, g *Tensor) []*Tensor {
	grads := make([]*Tensor, len(c.needs))
	var bias *Tensor
	k := 0
	if c.Needs(0) {
		k++
	}
	// Compute the weight's gradient first. It is small, and x can then be freed before the gradient
	// of x, which is large, is allocated.
	if c.Needs(1) {
		var x *Tensor
		if c.Wants(1) {
			x = c.Saved(k)
			p := matmulFunc{to: c.n.operands[1].dtype}
			grads[1], bias = f.parameters(c, x, g)
			switch {
			case bias != nil:
			case f.byInputs:
				grads[1] = Apply(p, x.T(), g)
			default:
				grads[1] = Apply(p, g.T(), x)
			}
		}
		c.release(k, x)
	}
	if len(grads) > 2 && c.Wants(2) {
		if bias == nil {
			sum := sumOp
			if c.n.operands[2].dtype != g.dtype {
				sum = wideSumOp
			}
			bias = sum.Apply(g, 0)
		}
		grads[2] = bias
	}
	if c.Wants(0) {
		w := c.Saved(0)
		if f.byInputs {
			w = w.T()
		}
		if grads[0] = c.activated(0, g, w); grads[0] == nil {
			grads[0] = Apply(matmulFunc{}, g, w)
		}
	}
	return grads
}

// parameters computes the gradients of weight and bias by one op. The bias's gradient is the row
// sums of gᵀ, the first factor of the weight's gradient. For a weight [in, out] it is the column
// sums of g, the second factor. Both results are nil if only one of the gradients is wanted or the
// device has no such op. Both are nil for second derivatives too, which need ops that record a
// graph.
func (f *linearFunc) parameters(c *Context, x, g *Tensor) (dw, db *Tensor) {
	const op = "linear.grad"
	if len(c.needs) < 3 || !c.Wants(1) || !c.Wants(2) || !c.scope.modes.noGrad {
		return nil, nil
	}
	s, w, b := c.scope, c.n.operands[1], c.n.operands[2]
	if b.dtype != dtype.F32 {
		return nil, nil
	}
	v := device.MatMul{Out: resultOf(w.dtype, shape.Of(1, w.shape.At(0), w.shape.At(1))), TF32: s.takesTF32(g.dtype)}
	first, second, sums := g, x, &v.Sums
	if f.byInputs {
		first, second, sums = x, g, &v.ColumnSums
	}
	*sums = resultOf(b.dtype, b.shape)
	t := first.T()
	defer t.Free()
	t.batchInto(&v.A)
	second.batchInto(&v.B)
	m := matmulOps.supported(s, g.st.dev, v)
	if m == nil {
		return nil, nil
	}
	dw, db = alloc(op, s, g.st.dev, w.dtype, w.shape), alloc(op, s, g.st.dev, b.dtype, b.shape)
	if f.byInputs {
		launch(op, s, m, dw, nil, nil, t, second, nil, db)
	} else {
		launch(op, s, m, dw, nil, db, t, second)
	}
	matmulOps.put(m)
	return dw, db
}
