package tensor

import (
	"reflect"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// LinearAct returns act(x.Linear(weight, bias)): a linear layer with its activation. If act is one
// of the methods below and the device supports this, the activation is applied in the product's
// launch. It is applied to the rounded sums, so the result has the same bits as the layer followed
// by act. Pass the method itself:
//
//	x.LinearAct(w, b, (*tensor.Tensor).Gelu)
//
// The methods are Relu, Relu6, Silu, Gelu, GeluTanh, Tanh, Sigmoid, Selu, Mish, Hardsigmoid and
// Hardswish. Any other function is called with the layer's result. Linear's result is kept only if
// the gradient of the activation needs it. Autocast works as for [Tensor.Linear].
func (x *Tensor) LinearAct(weight, bias *Tensor, act func(*Tensor) *Tensor) *Tensor {
	checkLinear("linear", x, weight, bias, 1)
	return x.linearAct(weight, bias, false, act)
}

// LinearTAct is [Tensor.LinearAct] for a weight of shape [in, out]: act(x.LinearT(weight, bias)).
func (x *Tensor) LinearTAct(weight, bias *Tensor, act func(*Tensor) *Tensor) *Tensor {
	checkLinear("linear", x, weight, bias, 0)
	return x.linearAct(weight, bias, true, act)
}

func (x *Tensor) linearAct(w, b *Tensor, byInputs bool, act func(*Tensor) *Tensor) *Tensor {
	if act == nil {
		fail("linear", ErrValue, present(x, w, b), "the activation is nil")
	}
	if e := activations()[reflect.ValueOf(act).Pointer()]; e != nil {
		return x.linear(w, b, byInputs, e)
	}
	return act(x.linear(w, b, byInputs, nil))
}

// activations maps the code address of a method to the declared op that the method applies. A
// closure that calls the method has a different address.
var activations = sync.OnceValue(func() map[uintptr]*Elementwise {
	list := map[uintptr]*Elementwise{}
	for _, a := range []struct {
		method func(*Tensor) *Tensor
		op     *Elementwise
	}{
		{(*Tensor).Relu, reluOp}, {(*Tensor).Relu6, relu6Op}, {(*Tensor).Silu, siluOp}, {(*Tensor).Gelu, geluOp},
		{(*Tensor).GeluTanh, geluTanhOp}, {(*Tensor).Tanh, tanhOp}, {(*Tensor).Sigmoid, sigmoidOp}, {(*Tensor).Selu, seluOp},
		{(*Tensor).Mish, mishOp}, {(*Tensor).Hardsigmoid, hardsigmoidOp}, {(*Tensor).Hardswish, hardswishOp},
	} {
		list[reflect.ValueOf(a.method).Pointer()] = a.op
	}
	return list
})

// applied returns act(y), and frees y, which nothing else uses. Without act it returns y.
func applied(act *Elementwise, y *Tensor) *Tensor {
	if act == nil {
		return y
	}
	return freeView(act.Apply([]*Tensor{y}), y, nil)
}

// activatedProduct does the work of Forward, with the activation in the product's launch. It
// returns nil if there is no activation or the device has no such launch. It returns the product if
// the activation's gradient needs it, and otherwise the activation's result.
func (f *linearFunc) activatedProduct(c *Context, x, w, b *Tensor) *Tensor {
	if f.act == nil || !x.dtype.IsFloat() || c.scope.parent.modes.anomaly&AnomalyForward != 0 {
		return nil
	}
	s, to, like := c.scope, shape.Of(x.Dim(0), w.Dim(1)), []*Tensor{x}
	common, result := f.act.resultType(like)
	if f.act.Autocast != AutocastThrough || result != x.dtype {
		return nil
	}
	v := device.MatMul{Out: resultOf(x.dtype, shape.Of(1, to.At(0), to.At(1))), Act: f.act.program(like, common, result), TF32: s.takesTF32(x.dtype)}
	x.batchInto(&v.A)
	w.batchInto(&v.B)
	if b != nil {
		v.Bias = b.operand()
	}
	for i := range c.needs {
		if c.needs[i] && len(f.act.gradParts()[0].x) > 0 {
			v.Pre = v.Out
		}
	}
	m := matmulOps.supported(s, x.st.dev, v)
	if m == nil {
		return nil
	}
	var pre *Tensor
	if !v.Pre.Absent() {
		pre = alloc("linear", s, x.st.dev, x.dtype, to)
	}
	y := alloc(f.act.called(), s, x.st.dev, x.dtype, to)
	launch("linear", s, m, y, pre, nil, x, w, b)
	matmulOps.put(m)
	f.done = true
	if pre == nil {
		return y
	}
	s.parent.addOwned(y, true)
	f.y = y
	return pre
}

// activated applies f.act to r and returns the result. r is the result of f, and nothing else uses
// it. The graph records the activation as a separate op, even if one launch did both.
func (f *linearFunc) activated(r *Tensor) *Tensor {
	act, y := f.act, f.y
	f.act, f.y = nil, nil
	switch {
	case !f.done:
		return applied(act, r)
	case r.node == nil:
		r.op = act.called()
		return r
	case y == nil:
		y = r.handle(act.called(), r.scope, r.layout)
	}
	g := &elementwiseFunc{op: act}
	record(y, g, []*Tensor{r}, g.saves([]*Tensor{r}, y))
	return freeView(y, r, nil)
}
