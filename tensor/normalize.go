package tensor

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// normKind says over which dimensions of x mean and variance are computed. x has the shape [n,
// groups, channels, inner].
type normKind uint8

const (
	normRows  normKind = iota // mean over channels and inner: each of the n·groups rows separately
	normBatch                 // mean over n, channels and inner
	normFixed                 // no mean is computed: running statistics are used
)

// normalizeFunc computes (x - mean)·rstd·weight + bias for x of shape [n, groups, channels, inner]
// and weight and bias of shape [groups, channels]. All normalisations are this function on a
// reshaped x. The operands are x, then weight, bias, running mean and running variance. Operands
// that do not exist are left out.
type normalizeFunc struct {
	op   string
	kind normKind
	rms  bool // true for RMS norm: the mean is taken as 0, and the variance is the mean square
	// If zero is true, 0 is added in place of a bias. This turns -0 into 0, as PyTorch does for
	// some normalisations.
	zero         bool
	weight, bias bool
	running      bool // true if there are running statistics, to update or (with normFixed) to use
	eps          float64
	momentum     float64
	// type of the result: a 16-bit type for float32 x; Invalid means x's type
	resultType dtype.Type
	// shape to which x must still be reshaped; rank 0 if x already has that shape
	viewShape shape.Dims
}

func (f *normalizeFunc) Name() string { return f.op }

// stats returns the index of the first operand after x, weight and bias.
func (f *normalizeFunc) stats() int {
	n := 1
	if f.weight {
		n++
	}
	if f.bias {
		n++
	}
	return n
}

func (f *normalizeFunc) over() []int {
	if f.kind == normBatch {
		return []int{0, 2, 3}
	}
	return []int{2, 3}
}

// normTypes are the types of a normalisation's operands. An absent operand has the type Invalid.
type normTypes struct {
	x, w, b   dtype.Type
	rms, zero bool
}

// normPrograms holds the programs of a normalisation for one combination of operand types.
type normPrograms struct {
	mean, variance, rstd    *device.Reduction // mean reads x; variance and rstd read x and mean
	rstdOf, apply, gradient *expr.Program
	// sum has the operands g and w; product has the operands g, w, x, mean and rstd
	sum, product *device.Reduction
}

var normCache cache[normTypes, *normPrograms]

// programs returns the programs for these types. The programs' operands have a fixed order. In the
// forward pass they are x, mean, rstd, weight and bias. In the backward pass they are g, weight, x,
// mean and rstd. The program for the gradient has two more means as operands. Absent operands are
// left out.
func (k normTypes) programs() *normPrograms {
	return normCache.get(k, func() *normPrograms {
		acc := k.x.Compute()
		type operand struct {
			e *expr.Expr
			t dtype.Type
		}
		list := func(types ...dtype.Type) (all []*operand, present []dtype.Type) {
			for _, t := range types {
				o := &operand{t: t}
				if t != dtype.Invalid {
					o.e = expr.X(len(present)).Cvt(acc)
					present = append(present, t)
				}
				all = append(all, o)
			}
			return all, present
		}
		meanType := acc
		if k.rms {
			meanType = dtype.Invalid
		}
		distance := func(x, mean *operand) *expr.Expr {
			if mean.e == nil {
				return x.e
			}
			return x.e.Sub(mean.e)
		}
		times := func(e *expr.Expr, w *operand) *expr.Expr {
			if w.e == nil {
				return e
			}
			return e.Mul(w.e)
		}
		reduction := func(m *expr.Expr, in []dtype.Type, finish *expr.Expr) *device.Reduction {
			r := &device.Reduction{Kind: device.Sum, Map: expr.MustLower([]*expr.Expr{m}, []dtype.Type{acc}, in, -1)}
			if finish != nil {
				r.Finish = expr.MustLower([]*expr.Expr{finish}, []dtype.Type{acc}, []dtype.Type{acc}, -1)
			}
			return r
		}
		p := &normPrograms{}
		average, root := x0.Div(p0), unit.Div(x0.Div(p0).Add(p1).Sqrt())
		o, in := list(k.x)
		p.mean = reduction(o[0].e, in, average)
		o, in = list(k.x, meanType)
		d := distance(o[0], o[1])
		p.variance, p.rstd = reduction(d.Mul(d), in, average), reduction(d.Mul(d), in, root)
		p.rstdOf = expr.MustLower([]*expr.Expr{unit.Div(x0.Add(p0).Sqrt())}, []dtype.Type{acc}, []dtype.Type{acc}, -1)
		o, in = list(k.x, meanType, acc, k.w, k.b)
		y := times(distance(o[0], o[1]).Mul(o[2].e), o[3])
		switch {
		case o[4].e != nil:
			y = y.Add(o[4].e)
		case k.zero:
			y = y.Add(expr.C(0))
		}
		p.apply = expr.MustLower([]*expr.Expr{y}, []dtype.Type{k.x}, in, -1)

		o, in = list(k.x, k.w)
		p.sum = reduction(times(o[0].e, o[1]), in, nil)
		o, in = list(k.x, k.w, k.x, meanType, acc)
		p.product = reduction(times(o[0].e, o[1]).Mul(distance(o[2], o[3]).Mul(o[4].e)), in, nil)
		// The operands are g, w, x, mean and rstd, then the mean of h (not for rms) and the mean of
		// h·z. h and z are the variables below.
		o, in = list(k.x, k.w, k.x, meanType, acc, meanType, acc)
		h, z := times(o[0].e, o[1]), distance(o[2], o[3]).Mul(o[4].e)
		if o[5].e != nil {
			h = h.Sub(o[5].e)
		}
		p.gradient = expr.MustLower([]*expr.Expr{h.Sub(z.Mul(o[6].e)).Mul(o[4].e)}, []dtype.Type{k.x}, in, -1)
		return p
	})
}

func present(list ...*Tensor) []*Tensor {
	var in []*Tensor
	for _, t := range list {
		if t != nil {
			in = append(in, t)
		}
	}
	return in
}

func typeOrNone(t *Tensor) dtype.Type {
	if t == nil {
		return dtype.Invalid
	}
	return t.dtype
}

// fold applies the reduction r to operands, over the dimensions dims of x's shape, and keeps these
// dimensions with size 1. The result has the type in which x is computed.
func (f *normalizeFunc) fold(s *Scope, r *device.Reduction, x *Tensor, dims []int, operands []*Tensor, params ...float64) *Tensor {
	mask := uint(0)
	for _, d := range dims {
		mask |= 1 << d
	}
	kept, _, _ := reducedShapes(x.layout.Shape, mask, true)
	y := alloc(f.op, s, x.st.dev, x.dtype.Compute(), kept)
	f.foldInto(s, r, y, x, operands, params...)
	return y
}

// foldInto is fold with a given result y. y is contiguous, and has x's shape with the reduced
// dimensions of size 1.
func (f *normalizeFunc) foldInto(s *Scope, r *device.Reduction, y, x *Tensor, in []*Tensor, params ...float64) {
	var bits []uint64
	if r.Finish != nil {
		bits = encode(r.Finish, params)
	}
	runReduce(f.op, s, r, y, y.layout.Shape, in, x.layout.Shape, bits)
}

// normOperands holds the operands of a normalisation by name. An absent operand is nil.
type normOperands struct{ x, w, b, runningMean, runningVar *Tensor }

func (f *normalizeFunc) named(in []*Tensor) (o normOperands) {
	o.x, in = f.viewed(in[0]), in[1:]
	if f.weight {
		o.w, in = f.affine(in[0]), in[1:]
	}
	if f.bias {
		o.b, in = f.affine(in[0]), in[1:]
	}
	if f.running {
		o.runningMean, o.runningVar = in[0], in[1]
	}
	return o
}

// viewed returns x, or a gradient of it, as [n, groups, channels, inner].
func (f *normalizeFunc) viewed(x *Tensor) *Tensor {
	if f.viewShape.Rank() == 0 {
		return x
	}
	return x.reshape(f.viewShape)
}

// affine reshapes a weight or bias so that it broadcasts to [n, groups, channels, inner].
func (f *normalizeFunc) affine(x *Tensor) *Tensor {
	s := x.layout.Shape
	if f.viewShape.Rank() > 0 {
		return x.reshape(shape.Of(1, f.viewShape.At(1), f.viewShape.At(2), 1))
	}
	return x.reshape(shape.Of(1, s.At(0), s.At(1), 1))
}

func (f *normalizeFunc) Forward(c *Context, in []*Tensor) *Tensor {
	s, o := c.Scope(), f.named(in)
	x := o.x
	p := normTypes{x.dtype, typeOrNone(o.w), typeOrNone(o.b), f.rms, f.zero}.programs()
	mean, variance, rstd, y := f.channelForward(s, &o)
	if y == nil {
		mean, rstd, y = f.fastForward(s, &o)
	}
	if y == nil {
		mean, rstd = f.statistics(s, &o, p)
		y = alloc(f.op, s, x.st.dev, x.dtype, x.layout.Shape)
		run(f.op, s, p.apply, y, present(x, mean, rstd, o.w, o.b), nil)
	} else if f.running {
		if variance == nil {
			variance = f.fold(s, p.variance, x, f.over(), []*Tensor{x, mean}, f.count(x))
		}
		f.update(s, &o, mean, variance)
	}
	wants := c.Needs(0) || f.weight && c.Needs(1)
	if wants {
		c.Save(in[0])
		if f.weight {
			c.Save(in[1])
		}
		c.Save(present(mean, rstd)...)
	}
	if f.resultType != dtype.Invalid {
		y = y.Cast(f.resultType)
	}
	return y.reshape(in[0].layout.Shape)
}

// count returns the number of elements from which one mean and one variance are computed.
func (f *normalizeFunc) count(x *Tensor) float64 {
	n := 1
	for _, d := range f.over() {
		n *= x.layout.Shape.At(d)
	}
	return float64(n)
}

// statistics returns the mean (nil for rms) and 1/√(variance + eps), in the type in which x is
// computed.
func (f *normalizeFunc) statistics(s *Scope, o *normOperands, p *normPrograms) (mean, rstd *Tensor) {
	x, n := o.x, f.count(o.x)
	inverse := func(variance *Tensor) *Tensor {
		y := alloc(f.op, s, x.st.dev, variance.dtype, variance.layout.Shape)
		run(f.op, s, p.rstdOf, y, []*Tensor{variance}, []float64{f.eps})
		return y
	}
	if f.kind == normFixed {
		acc := x.dtype.Compute()
		kept := shape.Of(1, x.layout.Shape.At(1), 1, 1)
		// The running mean is cloned, because it may change before the gradient is computed.
		return o.runningMean.Clone().Cast(acc).reshape(kept), inverse(o.runningVar.Cast(acc).reshape(kept))
	}
	if !f.rms {
		mean = f.fold(s, p.mean, x, f.over(), []*Tensor{x}, n)
	}
	in := present(x, mean)
	if !f.running {
		return mean, f.fold(s, p.rstd, x, f.over(), in, n, f.eps)
	}
	variance := f.fold(s, p.variance, x, f.over(), in, n)
	f.update(s, o, mean, variance)
	return mean, inverse(variance)
}

// runningOp mixes a running value x0 with a new value x1: it returns p0·x0 + p1·x1.
var runningOp = &Elementwise{Name: "running", Arity: 2, Expr: x0.Mul(p0).Add(x1.Mul(p1)), NoGrad: true}

// update mixes the batch's mean and unbiased variance into the running statistics. For the kind
// normRows, which has statistics for each sample, it first averages them over the samples.
func (f *normalizeFunc) update(s *Scope, o *normOperands, mean, variance *Tensor) {
	n := f.count(o.x)
	// when a checkpointed segment is recomputed, the running statistics include this batch already
	if n == 0 || s.modes.recomputing {
		return
	}
	for _, r := range []struct {
		to, v  *Tensor
		factor float64
	}{{o.runningMean, mean, 1}, {o.runningVar, variance, n / (n - 1)}} {
		v := r.v
		if f.kind == normRows {
			v = v.Mean(0)
		}
		v = v.reshape(r.to.layout.Shape)
		run(f.op, s, runningOp.program([]*Tensor{r.to, v}, v.dtype, r.to.dtype), r.to, []*Tensor{r.to, v}, []float64{1 - f.momentum, f.momentum * r.factor})
		r.to.st.version.Add(1)
	}
}

func (f *normalizeFunc) VJP(c *Context, g *Tensor) []*Tensor {
	g = f.viewed(g)
	if needW, _ := f.needsAffine(c); !c.Needs(0) && !needW { // Forward saved nothing
		return f.operandGradients(c, nil, nil, g.Cast(g.dtype.Compute()).Sum(0, 3))
	}
	x, k := f.viewed(c.Saved(0)), 1
	var w, mean *Tensor
	if f.weight {
		w, k = f.affine(c.Saved(1)), 2
	}
	if !f.rms {
		mean, k = c.Saved(k), k+1
	}
	rstd := c.Saved(k)
	var dx, dw, db *Tensor
	if c.Scope().modes.noGrad && (g.dtype == x.dtype || g.dtype == f.resultType) && f.kind != normFixed {
		dx, dw, db = f.gradients(c, g, x, w, mean, rstd)
	} else {
		dx, dw, db = f.composed(c, g, x, w, mean, rstd)
	}
	return f.operandGradients(c, dx, dw, db)
}

// operandGradients lists the gradients of all operands, in the operands' shapes.
func (f *normalizeFunc) operandGradients(c *Context, dx, dw, db *Tensor) []*Tensor {
	grads := []*Tensor{dx}
	if f.weight {
		grads = append(grads, dw)
	}
	if f.bias {
		grads = append(grads, db)
	}
	for i, d := range grads {
		if d != nil {
			grads[i] = d.reshape(c.n.operands[i].shape)
		}
	}
	if f.running {
		grads = append(grads, nil, nil)
	}
	return grads
}

func (f *normalizeFunc) needsAffine(c *Context) (weight, bias bool) {
	return f.weight && c.Needs(1), f.bias && c.Needs(f.stats()-1)
}

// gradients computes the gradients of x, weight and bias in a few fused passes over the data.
func (f *normalizeFunc) gradients(c *Context, g, x, w, mean, rstd *Tensor) (dx, dw, db *Tensor) {
	s := c.Scope()
	if dx, dw, db, ok := f.channelGradients(s, c.Needs(0), g, x, w, mean, rstd); ok {
		return dx, dw, db
	}
	needW, needB := f.needsAffine(c)
	if dx, dw, db, ok := f.fastGradients(c, rowGradients{c.Needs(0), needW, needB}, g, x, w, mean, rstd); ok {
		return dx, dw, db
	}
	g = g.Cast(x.dtype)
	p := normTypes{x: x.dtype, w: typeOrNone(w), rms: f.rms}.programs()
	plain := normTypes{x: x.dtype, rms: f.rms}.programs()
	// For batch norm, dx contains two means, which are computed from dw and db. A large norm of
	// rows with long channels first sums each channel of each instance, and computes all other sums
	// from these first sums. They are not needed if the rows suit the device's kernel for dx.
	batch := f.kind == normBatch
	parts := f.kind == normRows && !f.suitsRows(x) && (needW || needB) && x.layout.Shape.At(3) >= longChannel && x.Size() >= largeNorm
	outer := []int{0, 3}
	if parts {
		outer = []int{3}
	}
	if needW || batch || parts && c.Needs(0) {
		dw = f.fold(s, plain.product, x, outer, present(g, x, mean, rstd))
	}
	if needB || batch || parts && c.Needs(0) && !f.rms {
		db = f.fold(s, plain.sum, x, outer, []*Tensor{g})
	}
	products, sums := dw, db
	if parts {
		dw, db = overInstances(dw, needW), overInstances(db, needB)
	}
	if !c.Needs(0) {
		return nil, dw, db
	}
	if dx, _, _, ok := f.fastGradients(c, rowGradients{x: true}, g, x, w, mean, rstd); ok {
		return dx, dw, db
	}
	n := f.count(x)
	var sum, product *Tensor
	if batch || parts {
		sum, product = f.weighted(s, sums, w, parts), f.weighted(s, products, w, parts)
	} else {
		product = f.fold(s, p.product, x, f.over(), present(g, w, x, mean, rstd))
		if !f.rms {
			sum = f.fold(s, p.sum, x, f.over(), present(g, w))
		}
	}
	if sum != nil {
		sum = sum.DivScalar(n)
	}
	dx = alloc(f.op+".grad", s, x.st.dev, x.dtype, x.layout.Shape)
	run(f.op, s, p.gradient, dx, present(g, w, x, mean, rstd, sum, product.DivScalar(n)), nil)
	return dx, dw, db
}

// A norm of rows first sums each channel of each instance if a channel has at least longChannel
// elements, and x has at least largeNorm. For shorter channels, these sums would be about as much
// work as the elements. For a smaller x, the additional launches would take longer than they save.
const longChannel, largeNorm = 16, 1 << 17

// overInstances adds the sums of the instances. It returns nil if the result is not wanted.
func overInstances(sums *Tensor, wanted bool) *Tensor {
	if !wanted {
		return nil
	}
	return sums.Sum(0, KeepDim)
}

// weighted multiplies the sums of channels by their weights, if there are any. If parts is true, it
// also adds the channels of each group. It returns nil if there are no sums.
func (f *normalizeFunc) weighted(s *Scope, sums, w *Tensor, parts bool) *Tensor {
	switch {
	case sums == nil:
		return nil
	case parts:
		p := normTypes{x: sums.dtype, w: typeOrNone(w)}.programs()
		return f.fold(s, p.sum, sums, []int{2}, present(sums, w))
	case w == nil:
		return sums
	}
	return sums.Mul(w.Cast(sums.dtype))
}

// composed computes the gradients with tensor ops, so that they can be differentiated. It computes
// mean and rstd from x again, unless running statistics are used.
func (f *normalizeFunc) composed(c *Context, g, x, w, mean, rstd *Tensor) (dx, dw, db *Tensor) {
	acc := x.dtype.Compute()
	over := append(f.over(), KeepDim)
	wide, h := x.Cast(acc), g.Cast(acc)
	g = h
	if w != nil {
		h = h.Mul(w.Cast(acc))
	}
	d := wide
	switch {
	case f.kind == normFixed:
		d = wide.Sub(mean)
	case f.rms:
		rstd = wide.Square().Mean(over...).AddScalar(f.eps).Rsqrt()
	default:
		d = wide.Sub(wide.Mean(over...))
		rstd = d.Square().Mean(over...).AddScalar(f.eps).Rsqrt()
	}
	z := d.Mul(rstd)
	needW, needB := f.needsAffine(c)
	if needW {
		dw = g.Mul(z).Sum(0, 3)
	}
	if needB {
		db = g.Sum(0, 3)
	}
	if !c.Needs(0) {
		return nil, dw, db
	}
	if f.kind == normFixed {
		return h.Mul(rstd), dw, db
	}
	dx = h.Sub(z.Mul(h.Mul(z).Mean(over...)))
	if !f.rms {
		dx = dx.Sub(h.Mean(over...))
	}
	return dx.Mul(rstd), dw, db
}

// normInput checks a normalisation's input and the types of weight and bias. It returns the list of
// operands.
func normInput(op string, x, weight, bias *Tensor, more ...*Tensor) []*Tensor {
	x.use(op)
	in := present(append([]*Tensor{x, weight, bias}, more...)...)
	youngest(op, in)
	sameDevice(op, in)
	x.mustFloat(op)
	for _, t := range in[1:] {
		if t.dtype != x.dtype && t.dtype != x.dtype.Compute() {
			e := newError(op, ErrType, in, fmt.Sprintf("weight, bias and statistics for an input of %v are of that type or %v, not %v", x.dtype, x.dtype.Compute(), t.dtype))
			panic(e.hint("use Cast"))
		}
	}
	return in
}

// normalize applies f to x reshaped to [n, groups, channels, inner].
func (f *normalizeFunc) normalize(x, weight, bias *Tensor, n, groups, channels, inner int, running ...*Tensor) *Tensor {
	as := shape.Of(n, groups, channels, inner)
	if _, ok := x.layout.View(as); !ok || f.kind != normRows || len(running) > 0 {
		return f.normalizeBy(f, x, weight, bias, n, groups, channels, inner, running...)
	}
	// If f itself reshapes x, then x is f's operand. So f's VJP can add to the gradient that x
	// already has.
	f.weight, f.bias, f.viewShape = weight != nil, bias != nil, as
	return Apply(f, present(x, weight, bias)...)
}

// normalizeBy does what normalize does, but applies fn, a function that contains f.
func (f *normalizeFunc) normalizeBy(fn Function, x, weight, bias *Tensor, n, groups, channels, inner int, running ...*Tensor) *Tensor {
	to := x.layout.Shape
	f.weight, f.bias, f.running = weight != nil, bias != nil, len(running) > 0
	s := youngest(f.op, present(append([]*Tensor{x, weight, bias}, running...)...))
	return within(s, func(c *Scope) *Tensor {
		in := []*Tensor{x.In(c).reshape(shape.Of(n, groups, channels, inner))}
		for _, t := range present(weight, bias) {
			in = append(in, t.In(c).reshape(shape.Of(groups, channels)))
		}
		return Apply(fn, append(in, running...)...).reshape(to)
	})
}
