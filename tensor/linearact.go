package tensor

import (
	"reflect"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// LinearAct returns act(x.Linear(weight, bias)): a linear layer with its activation. A device that
// can applies the activation in the product's launch, to results as they are rounded, so that the
// bits are those of the two ops. It can for methods of tensors of one operand without numbers:
//
//	x.LinearAct(w, b, (*tensor.Tensor).Gelu)
//
// Known are Relu, Relu6, Silu, Gelu, GeluTanh, Tanh, Sigmoid, Selu, Mish, Hardsigmoid, Hardswish.
// Any other function is called with the layer's result. What Linear returned is kept only where the
// gradient of the activation asks for it. Autocast is that of [Tensor.Linear].
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

// activations are the declared ops by the code of their methods. Only a method has its code: a
// closure over it has another.
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

// applied is act of y, which nobody else has; y itself without act.
func applied(act *Elementwise, y *Tensor) *Tensor {
	if act == nil {
		return y
	}
	return passing(act.Apply([]*Tensor{y}), y, nil)
}

// activatedProduct is Forward with the activation in the product's launch: nil where there is none,
// or the device does not do that. What it returns is the product, if the activation's gradient asks
// for that, or else what the activation made of it.
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
		if c.needs[i] && len(f.act.parts()[0].x) > 0 {
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
	s.parent.own(y, true)
	f.y = y
	return pre
}

// activated is what f.act makes of f's result r, which nobody else has. It is in the graph as an op
// of its own, also where both were one launch.
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
	return passing(y, r, nil)
}
