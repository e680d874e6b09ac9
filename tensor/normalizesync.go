package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// BatchRanks are the ranks that [Tensor.SyncBatchNorm] works on, each with a part of a batch.
// Package dist implements it. All ranks must call the same methods in the same order.
type BatchRanks interface {
	// Gather returns the vectors x of all ranks, concatenated. The vectors have the same length on
	// all ranks. Gather has no gradient.
	Gather(x *Tensor) *Tensor
	// Sum returns the sum of x over all ranks. x has the same shape on all ranks. Gradients flow
	// through it.
	Sum(x *Tensor) *Tensor
}

// SyncBatchNorm is [Tensor.BatchNorm] in training for a batch that is divided among ranks: mean and
// variance are those of the whole batch. The parts may differ in size, and some may be empty. The
// running statistics, if given, are updated with the statistics of the whole batch, equally on all
// ranks. The gradient of x is the gradient of the sum of all ranks' losses. The gradients of weight
// and bias are this rank's part: the caller must sum them over the ranks.
//
// There is one collective in the forward pass, and one in the backward pass if x requires a
// gradient. x must require a gradient on all ranks or on none. A rank does not know the sizes of
// the other parts. So a whole batch of one value per channel is not an error: its variance is 0.
func (x *Tensor) SyncBatchNorm(ranks BatchRanks, runningMean, runningVar, weight, bias *Tensor, momentum, eps float64) *Tensor {
	const op = "sync_batch_norm"
	in := normInput(op, x, weight, bias, runningMean, runningVar)
	if !(eps > 0) {
		fail(op, ErrValue, in, "eps is %v, in training it must be positive", eps)
	}
	if ranks == nil {
		fail(op, ErrValue, in, "there are no ranks")
	}
	running := statistics(op, in, runningMean, runningVar, true)
	n, channels, inner := channelled(op, in)
	f := &syncNormFunc{normalizeFunc{op: op, kind: normBatch, zero: true, eps: eps, momentum: momentum}, ranks}
	return f.normalizeBy(f, x, weight, bias, n, channels, 1, inner, running...)
}

// syncNormFunc computes a normalisation of channels over the parts of a batch on all ranks.
type syncNormFunc struct {
	normalizeFunc
	ranks BatchRanks
}

// syncPrograms are the programs, for one element type, that combine the statistics of all ranks.
// The count of a rank may be 0; its mean and variance are then 0 too.
type syncPrograms struct {
	total   *device.Reduction // operands: counts
	mean    *device.Reduction // operands: counts, means, total
	squares *device.Reduction // sums squared distances; operands: counts, variances, means, mean
	rstd    *expr.Program     // operands: squares, total
}

var syncCache cache[dtype.Type, *syncPrograms]

func syncProgramsOf(acc dtype.Type) *syncPrograms {
	return syncCache.get(acc, func() *syncPrograms {
		types := []dtype.Type{acc, acc, acc, acc}
		sum := func(m *expr.Expr, n int) *device.Reduction {
			return &device.Reduction{Kind: device.Sum, Map: expr.MustLower([]*expr.Expr{m}, types[:1], types[:n], -1)}
		}
		d := x2.Sub(expr.X(3))
		return &syncPrograms{
			total:   sum(x0, 1),
			mean:    sum(x0.Mul(x1).Div(x2.Max(unit)), 3),
			squares: sum(x0.Mul(x1.Add(d.Mul(d))), 4),
			rstd:    expr.MustLower([]*expr.Expr{unit.Div(x0.Div(x1.Max(unit)).Add(p0).Sqrt())}, types[:1], types[:2], -1),
		}
	})
}

// These ops mix a new value into the running value x0, if the number of values, x2, is not 0. For
// syncMeanOp the new value is the mean x1. For syncVarOp it is the variance, computed from the sum
// of squared distances x1.
var (
	syncMeanOp = &Elementwise{Name: "running", Arity: 3, Expr: mixedIf(x1), NoGrad: true}
	syncVarOp  = &Elementwise{Name: "running", Arity: 3, Expr: mixedIf(x1.Div(x2.Sub(unit).Max(unit))), NoGrad: true}
)

func mixedIf(v *expr.Expr) *expr.Expr {
	return x2.Gt(expr.C(0)).Select(x0.Mul(p0).Add(v.Mul(p1)), x0)
}

// rankStatistics returns this rank's statistics as one vector: the mean of each channel, the
// variance of each channel, and the number of values per channel.
func (f *syncNormFunc) rankStatistics(s *Scope, x *Tensor, p *normPrograms) *Tensor {
	channels, n := x.layout.Shape.At(1), f.count(x)
	all := alloc(f.op, s, x.st.dev, x.dtype.Compute(), shape.Of(2*channels+1))
	if n == 0 {
		return all.Zero()
	}
	all.Narrow(0, 2*channels, 1).Fill(n)
	part := func(i int) *Tensor {
		return all.Narrow(0, i*channels, channels).reshape(shape.Of(1, channels, 1, 1))
	}
	mean := part(0)
	f.foldInto(s, p.mean, mean, x, []*Tensor{x}, n)
	f.foldInto(s, p.variance, part(1), x, []*Tensor{x, mean}, n)
	return all
}

// pooled combines the statistics of all ranks. It returns the mean and the sum of squared distances
// from it, both [1, channels], and the number of values, [1, 1].
func (f *syncNormFunc) pooled(s *Scope, own *Tensor, channels int) (mean, squares, total *Tensor) {
	all := f.ranks.Gather(own)
	all.use(f.op)
	ranks := all.Size() / own.Size()
	if ranks == 0 || all.Size() != ranks*own.Size() || all.dtype != own.dtype {
		fail(f.op, ErrValue, []*Tensor{own, all}, "the ranks' statistics are those of operand 0, one behind the other, and not operand 1")
	}
	all = all.reshape(shape.Of(ranks, 2*channels+1))
	means, variances, counts := all.Narrow(1, 0, channels), all.Narrow(1, channels, channels), all.Narrow(1, 2*channels, 1)
	p := syncProgramsOf(own.dtype)
	sum := func(r *device.Reduction, width int, in ...*Tensor) *Tensor {
		y := alloc(f.op, s, own.st.dev, own.dtype, shape.Of(1, width))
		runReduce(f.op, s, r, y, y.layout.Shape, in, shape.Of(ranks, width), nil)
		return y
	}
	total = sum(p.total, 1, counts)
	mean = sum(p.mean, channels, counts, means, total)
	return mean, sum(p.squares, channels, counts, variances, means, mean), total
}

func (f *syncNormFunc) Forward(c *Context, in []*Tensor) *Tensor {
	s, o := c.Scope(), f.named(in)
	x := o.x
	channels := x.layout.Shape.At(1)
	p := normTypes{x.dtype, typeOrNone(o.w), typeOrNone(o.b), false, f.zero}.programs()
	mean, squares, total := f.pooled(s, f.rankStatistics(s, x, p), channels)
	rstd := alloc(f.op, s, x.st.dev, mean.dtype, mean.layout.Shape)
	run(f.op, s, syncProgramsOf(mean.dtype).rstd, rstd, []*Tensor{squares, total}, []float64{f.eps})
	if f.running && !s.modes.recomputing {
		f.mix(s, syncMeanOp, o.runningMean, mean, total)
		f.mix(s, syncVarOp, o.runningVar, squares, total)
	}
	each := shape.Of(1, channels, 1, 1)
	mean, rstd = mean.reshape(each), rstd.reshape(each)
	y := alloc(f.op, s, x.st.dev, x.dtype, x.layout.Shape)
	run(f.op, s, p.apply, y, present(x, mean, rstd, o.w, o.b), nil)
	if c.Needs(0) || f.weight && c.Needs(1) {
		c.Save(x)
		if f.weight {
			c.Save(in[1])
		}
		c.Save(mean, rstd, total)
	}
	return y
}

func (f *syncNormFunc) mix(s *Scope, op *Elementwise, running, v, total *Tensor) {
	in := []*Tensor{running, v.reshape(running.layout.Shape), total.reshape(shape.Of(1))}
	run(f.op, s, op.program(in, v.dtype, running.dtype), running, in, []float64{1 - f.momentum, f.momentum})
	running.st.version.Add(1)
}

func (f *syncNormFunc) VJP(c *Context, g *Tensor) []*Tensor {
	needW, needB := f.needsAffine(c)
	if !c.Needs(0) && !needW { // Forward saved nothing
		return f.operandGradients(c, nil, nil, g.Cast(g.dtype.Compute()).Sum(0, 3))
	}
	x, k := c.Saved(0), 1
	var w *Tensor
	if f.weight {
		w, k = f.affine(c.Saved(1)), 2
	}
	mean, rstd, total := c.Saved(k), c.Saved(k+1), c.Saved(k+2)
	var dx, dw, db *Tensor
	if c.Scope().modes.noGrad && g.dtype == x.dtype {
		dx, dw, db = f.gradients(c, g, x, w, mean, rstd, total)
	} else {
		dx, dw, db = f.composed(c, g, x, w, mean, rstd, total)
	}
	if !needW {
		dw = nil
	}
	if !needB {
		db = nil
	}
	return f.operandGradients(c, dx, dw, db)
}

// gradients computes the gradients of x, weight and bias in a few fused passes over the data.
func (f *syncNormFunc) gradients(c *Context, g, x, w, mean, rstd, total *Tensor) (dx, dw, db *Tensor) {
	s := c.Scope()
	_, dw, db, ok := f.channelGradients(s, false, g, x, nil, mean, rstd)
	if !ok {
		plain := normTypes{x: x.dtype}.programs()
		dw = f.fold(s, plain.product, x, f.over(), []*Tensor{g, x, mean, rstd})
		db = f.fold(s, plain.sum, x, f.over(), []*Tensor{g})
	}
	if !c.Needs(0) {
		return nil, dw, db
	}
	both := f.ranks.Sum(Cat(0, db, dw)) // both has the shape [2, channels, 1, 1]
	if w != nil {
		both = both.Mul(w.Cast(both.dtype))
	}
	both = both.Div(total.ClampMin(1).reshape(shape.Of(1)))
	sum, product := both.Narrow(0, 0, 1), both.Narrow(0, 1, 1)
	dx = alloc(f.op+".grad", s, x.st.dev, x.dtype, x.layout.Shape)
	run(f.op, s, normTypes{x: x.dtype, w: typeOrNone(w)}.programs().gradient, dx, present(g, w, x, mean, rstd, sum, product), nil)
	return dx, dw, db
}

// composed computes the gradients with tensor ops and collectives, so that they can be
// differentiated. It computes mean and rstd again from all ranks' x.
func (f *syncNormFunc) composed(c *Context, g, x, w, mean, rstd, total *Tensor) (dx, dw, db *Tensor) {
	acc := x.dtype.Compute()
	over := append(f.over(), KeepDim)
	wide := x.Cast(acc)
	g = g.Cast(acc)
	n := total.ClampMin(1).reshape(shape.Of(1))
	d := wide.Sub(mean)
	if c.Needs(0) {
		d = wide.Sub(f.ranks.Sum(wide.Sum(over...)).Div(n))
		rstd = f.ranks.Sum(d.Square().Sum(over...)).Div(n).AddScalar(f.eps).Rsqrt()
	}
	z := d.Mul(rstd)
	dw, db = g.Mul(z).Sum(over...), g.Sum(over...)
	if !c.Needs(0) {
		return nil, dw, db
	}
	h := g
	if w != nil {
		h = h.Mul(w.Cast(acc))
	}
	both := f.ranks.Sum(Cat(0, h.Sum(over...), h.Mul(z).Sum(over...))).Div(n)
	return h.Sub(both.Narrow(0, 0, 1)).Sub(z.Mul(both.Narrow(0, 1, 1))).Mul(rstd), dw, db
}
