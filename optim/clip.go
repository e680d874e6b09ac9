package optim

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// A ClipOption changes how gradients are measured and clipped.
type ClipOption func(*clipOptions)

type clipOptions struct {
	p      float64
	finite bool
	scope  *tensor.Scope
}

// NormType sets the order of the norm, which must be above 0. With math.Inf(1) the norm is the
// largest absolute value. The default order is 2.
func NormType(p float64) ClipOption { return func(o *clipOptions) { o.p = p } }

// ErrorIfNonfinite raises a *tensor.Error for a norm that is infinite or NaN, before any gradient
// is changed. It waits for the device.
func ErrorIfNonfinite() ClipOption { return func(o *clipOptions) { o.finite = true } }

// InScope makes the norm belong to scope s, for example the scope of the step. By default it
// belongs to the innermost scope of the gradients, which is usually the root scope.
func InScope(s *tensor.Scope) ClipOption { return func(o *clipOptions) { o.scope = s } }

func clipOptionsOf(op string, opts []ClipOption) clipOptions {
	o := clipOptions{p: 2}
	for _, f := range opts {
		f(&o)
	}
	if !(o.p > 0) {
		panic(tensor.NewError(op, tensor.ErrValue, fmt.Sprintf("a norm of order %v; it has to be above 0", o.p)))
	}
	return o
}

// ClipGradNorm multiplies the gradients of params by min(1, limit/(norm + 1e-6)), where norm is the
// norm of all gradients concatenated to one vector. It returns norm, and is
// torch.nn.utils.clip_grad_norm_. ClipGradNorm waits for the device only with [ErrorIfNonfinite].
//
// For 16-bit gradients the norm is computed in float32, while torch rounds the norm to the type
// of the gradients. If a gradient is float64, the norm is computed in float64. The result is on
// the device of the first gradient. To save launches, small gradients are copied into one buffer
// and measured together. If no parameter has a gradient, the norm is 0.
func ClipGradNorm(params []*tensor.Tensor, limit float64, opts ...ClipOption) *tensor.Tensor {
	const op = "clip_grad_norm"
	o := clipOptionsOf(op, opts)
	if !(limit >= 0) {
		panic(tensor.NewError(op, tensor.ErrValue, fmt.Sprintf("a limit of %v; it cannot be negative", limit)))
	}
	return o.measured(op, params, func(s *tensor.Scope, with []*tensor.Tensor, total *tensor.Tensor) { shrink(s, with, total, limit) })
}

// GradNorm returns the norm of the gradients of params, concatenated to one vector:
// torch.nn.utils.get_total_norm of the gradients. It changes nothing.
func GradNorm(params []*tensor.Tensor, opts ...ClipOption) *tensor.Tensor {
	const op = "grad_norm"
	o := clipOptionsOf(op, opts)
	return o.measured(op, params, nil)
}

// measured computes and returns the norm. It passes the norm to the function use, unless use is
// nil. The norm belongs to the scope in the options. Without such a scope, it belongs to the
// scope of a capture if there is one, or else to the innermost scope of the gradients.
func (o *clipOptions) measured(op string, params []*tensor.Tensor, use func(s *tensor.Scope, tensors []*tensor.Tensor, total *tensor.Tensor)) (total *tensor.Tensor) {
	var tensors, grads []*tensor.Tensor
	for _, p := range params {
		if p == nil {
			panic(tensor.NewError(op, tensor.ErrValue, "a parameter is nil"))
		}
		if g := p.Grad(); g != nil {
			tensors, grads = append(tensors, p), append(grads, g)
		}
	}
	in := o.scope
	if g := tensor.Capturing(grads...); g != nil && in == nil {
		in = g.Scope()
	}
	if in == nil {
		in = tensor.Root()
		if len(grads) > 0 {
			in = tensor.Youngest(grads...)
		}
	}
	in.Do(func(s *tensor.Scope) {
		total = normOf(s, grads, o.p)
		if v := 0.0; o.finite {
			if v = total.Item(); math.IsNaN(v) || math.IsInf(v, 0) {
				panic(tensor.NewError(op, tensor.ErrValue, fmt.Sprintf("the norm of the gradients is %v", v)))
			}
		}
		if use != nil && len(grads) > 0 {
			use(s, tensors, total)
		}
		s.Close(total)
	}, tensor.NoGrad())
	return total
}

const (
	gathered = 1 << 16 // gradients with fewer elements are gathered into a buffer
	buffer   = 1 << 20 // number of elements of this buffer
)

func normOf(s *tensor.Scope, list []*tensor.Tensor, p float64) *tensor.Tensor {
	wide := dtype.F32
	for _, g := range list {
		if g.Type() == dtype.F64 {
			wide = dtype.F64
		}
	}
	var norms []*tensor.Tensor
	small := map[device.Device][]*tensor.Tensor{}
	var devs []device.Device
	for _, g := range list {
		if g.Size() == 0 {
			continue
		}
		g = g.In(s)
		if g.Type() == wide && g.Size() >= gathered {
			norms = append(norms, g.Norm(p))
			continue
		}
		g = g.Contiguous().Reshape(-1)
		if small[g.Device()] == nil {
			devs = append(devs, g.Device())
		}
		for at := 0; at < g.Size(); at += buffer {
			small[g.Device()] = append(small[g.Device()], g.Narrow(0, at, min(buffer, g.Size()-at)))
		}
	}
	for _, dev := range devs {
		for pieces := small[dev]; len(pieces) > 0; {
			k, n := 0, 0
			for k < len(pieces) && (k == 0 || n+pieces[k].Size() <= buffer) {
				n += pieces[k].Size()
				k++
			}
			norms = append(norms, gather(s, dev, wide, pieces[:k], n).Norm(p))
			pieces = pieces[k:]
		}
	}
	switch len(norms) {
	case 0:
		return s.Typed(wide).Zeros()
	case 1:
		return norms[0]
	}
	for i := range norms {
		norms[i] = norms[i].To(norms[0].Device())
	}
	return tensor.Stack(0, norms...).Norm(p)
}

// gather copies the elements of pieces, one piece after another, to a vector of n elements of type
// wide. The pieces are dense and on dev.
func gather(s *tensor.Scope, dev device.Device, wide dtype.Type, pieces []*tensor.Tensor, n int) *tensor.Tensor {
	all := s.On(dev).Typed(wide).Empty(n)
	byType := map[dtype.Type]*launch{}
	at := 0
	for _, x := range pieces {
		l := byType[x.Type()]
		if l == nil {
			l = &launch{dev: dev, program: expr.MustLower([]*expr.Expr{expr.X(0)}, []dtype.Type{wide}, []dtype.Type{x.Type()}, -1)}
			byType[x.Type()] = l
		}
		l.outs, l.ins = append(l.outs, []*tensor.Tensor{all.Narrow(0, at, x.Size())}), append(l.ins, []*tensor.Tensor{x})
		at += x.Size()
	}
	for _, t := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16} {
		if l := byType[t]; l != nil {
			l.pack(s)
			l.run("gather")
		}
	}
	return all
}

// run frees the reserved memory and runs the launch, which can then allocate this memory for its
// table of addresses. Afterwards the next packed launch can reserve the same memory. In this way
// several packed launches run one after another without running out of memory.
func (l *launch) run(name string) {
	if l.reserve != nil {
		l.reserve.Free()
		l.reserve = nil
	}
	tensor.Update(name, l.program, l.outs, l.ins, l.slots, l.bits)
}

// expanded reports whether several elements of x share memory.
func expanded(x *tensor.Tensor) bool {
	sh, st := x.Shape().Slice(), x.Strides().Slice()
	for i := range sh {
		if sh[i] > 1 && st[i] == 0 {
			return true
		}
	}
	return false
}

// shrink multiplies the gradients of the parameters by min(1, limit/(total+1e-6)). The factor stays
// on the device: an elementwise program computes it, and the launch that scales reads it as a
// Param. One launch scales all dense gradients of a type. shrink allocates all memory before it
// changes a gradient.
func shrink(s *tensor.Scope, with []*tensor.Tensor, total *tensor.Tensor, limit float64) {
	type place struct {
		dev device.Device
		t   dtype.Type
	}
	launches := map[place]*launch{}
	var order []place
	var rest []*tensor.Tensor
	for _, p := range with {
		g := p.Grad()
		multi := g.Device().Supports(&device.MultiMap{})
		if !multi || !g.IsContiguous() {
			rest = append(rest, p)
			continue
		}
		at := place{g.Device(), g.Type()}
		l := launches[at]
		if l == nil {
			l = &launch{dev: at.dev, t: at.t}
			launches[at], order = l, append(order, at)
		}
		l.outs, l.ins = append(l.outs, []*tensor.Tensor{g}), append(l.ins, []*tensor.Tensor{g})
	}
	for _, at := range order {
		l := launches[at]
		l.program = lowered("shrink", flags{}, at.t, 1, func(flags) []*expr.Expr { return []*expr.Expr{expr.X(0).Mul(expr.Param(0))} })
		l.scalars = []float64{0}
		l.pack(s)
		l.slots = factorSlots(s, at.dev, at.t.Compute(), total, limit)
	}
	factor := map[device.Device]*tensor.Tensor{}
	// anew holds new gradients in place of those whose elements share memory.
	anew := make([]*tensor.Tensor, len(rest))
	for i, p := range rest {
		g := p.Grad()
		f := factor[g.Device()]
		if f == nil {
			f = total.AddScalar(1e-6).RDivScalar(limit).ClampMax(1).To(g.Device())
			factor[g.Device()] = f
		}
		if expanded(g) {
			anew[i] = g.In(s).Mul(f).Cast(g.Type())
		}
	}
	for _, at := range order {
		launches[at].run("clip_grad_norm")
	}
	for i, p := range rest {
		if anew[i] != nil {
			p.SetGrad(anew[i])
			continue
		}
		g := p.Grad()
		g.In(s).MulInPlace(factor[g.Device()])
	}
}

// factorSlots computes the factor min(1, limit/(total+1e-6)) on dev, for launch l to read as its
// Param. The factor has type t.
func factorSlots(s *tensor.Scope, dev device.Device, t dtype.Type, total *tensor.Tensor, limit float64) *tensor.Tensor {
	total = total.To(dev).Reshape(1)
	bits := dtype.I32
	if t == dtype.F64 {
		bits = dtype.I64
	}
	f := expr.Param(0).Div(expr.X(0).Add(expr.C(1e-6))).Min(expr.C(1)).Cvt(t).Bitcast(bits)
	if bits != dtype.I64 {
		f = f.Cvt(dtype.I64)
	}
	l := &launch{dev: dev, scalars: []float64{limit}, program: expr.MustLower([]*expr.Expr{f}, []dtype.Type{dtype.I64}, []dtype.Type{total.Type()}, -1)}
	slots := s.On(dev).Typed(dtype.I64).Empty(1)
	l.outs, l.ins = [][]*tensor.Tensor{{slots}}, [][]*tensor.Tensor{{total}}
	l.pack(s)
	l.run("clip_grad_norm")
	return slots
}

// ClipGradValue limits every element of the gradients of params to [-limit, limit], as
// torch.nn.utils.clip_grad_value_. NaN stays NaN. One launch processes all dense gradients of one
// type on one device.
func ClipGradValue(params []*tensor.Tensor, limit float64) {
	const op = "clip_grad_value"
	if !(limit >= 0) {
		panic(tensor.NewError(op, tensor.ErrValue, fmt.Sprintf("a limit of %v; it cannot be negative", limit)))
	}
	tensor.CapturingGrads(params...).Scope().Do(func(s *tensor.Scope) {
		var list []*launch
		for _, p := range params {
			if p == nil {
				panic(tensor.NewError(op, tensor.ErrValue, "a parameter is nil"))
			}
			g := p.Grad()
			if g == nil {
				continue
			}
			if expanded(g) {
				p.SetGrad(p.Scope().Typed(g.Type()).On(g.Device()).Empty(g.Shape().Slice()...).Copy(g))
				g = p.Grad()
			}
			list = join(list, g, flags{}, []float64{-limit, limit}, []*tensor.Tensor{g}, []*tensor.Tensor{g})
		}
		for _, l := range list {
			l.program = lowered(op, flags{}, l.t, 1, func(flags) []*expr.Expr {
				return []*expr.Expr{expr.X(0).Max(expr.Param(0)).Min(expr.Param(1))}
			})
			l.pack(s)
		}
		for _, l := range list {
			l.run(op)
		}
	}, tensor.NoGrad())
}
