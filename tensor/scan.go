package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// scanName returns the name of a scan in messages.
func scanName(k device.ScanKind) string {
	return [...]string{"cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "recurrence"}[k]
}

// scanType returns the type in which a scan of type t is computed. For float32 and 16-bit floats it
// is wider than t, so that only the rounding of the result counts, even for a long sum. PyTorch's
// CPU does the same.
func scanType(t dtype.Type) dtype.Type {
	switch {
	case t == dtype.F32:
		return dtype.F64
	case t.IsFloat():
		return t.Compute()
	}
	return dtype.I64
}

// doubling combines each entry along an axis with all entries before it, or with all entries after
// it if reverse is set. An entry has a part in each tensor of x, at the same index. After s steps
// an entry has been combined with the 2ˢ-1 nearest entries. In the call combine(far, near), the
// entries far come before near in the order of the scan. combine must be associative.
func doubling(x []*Tensor, axis int, reverse bool, combine func(far, near []*Tensor) []*Tensor) []*Tensor {
	n := x[0].layout.Shape.At(axis)
	part := func(start, n int) []*Tensor {
		p := make([]*Tensor, len(x))
		for i, t := range x {
			p[i] = t.Narrow(axis, start, n)
		}
		return p
	}
	for k := 1; k < n; k *= 2 {
		var next []*Tensor
		if reverse {
			next = combine(part(k, n-k), part(0, n-k))
			for i, rest := range part(n-k, k) {
				next[i] = Cat(axis, next[i], rest)
			}
		} else {
			next = combine(part(0, n-k), part(k, n-k))
			for i, rest := range part(0, k) {
				next[i] = Cat(axis, rest, next[i])
			}
		}
		x = next
	}
	return x
}

// fusedOp combines the terms of two entries of a linear recurrence. Its operands are the factor of
// the later entry, the term of the earlier entry, and the term of the later entry.
var fusedOp = &Elementwise{Name: "recurrence", Arity: 3, Expr: x0.Mul(x1).Add(x2), NoGrad: true}

// scanned computes a scan in one pass on the device. It returns nil if the device cannot.
func scanned(op string, s *Scope, kind device.ScanKind, t dtype.Type, axis int, reverse bool, in []*Tensor) *Tensor {
	sh := in[0].layout.Shape
	outer, inner := around(sh, axis)
	flat := shape.Of(outer, sh.At(axis), inner)
	o := scanOps.get()
	*o = device.Scan{Kind: kind, Out: resultOf(t, flat), Ins: room(o.Ins, len(in)), Reverse: reverse}
	for i := range in {
		o.Ins[i] = resultOf(in[0].dtype, flat)
	}
	if s.modes.composed || !in[0].st.dev.Supports(o) {
		return nil
	}
	var some [3]*Tensor
	list := some[:1]
	for i, x := range in {
		l, ok := x.layout.View(flat)
		if !ok {
			x = x.reshape(flat)
			l = x.layout
		}
		list, o.Ins[i] = append(list, x), device.View{Type: x.dtype, Layout: l}
	}
	y := alloc(op, s, in[0].st.dev, t, sh)
	list[0] = y
	launch(op, s, o, list...)
	drop(o.Ins)
	*o = device.Scan{Ins: o.Ins}
	scanOps.free.Put(o) // o keeps its list for the next use
	return y
}

// scannedDense does what scanned does if the operands are contiguous. Otherwise it returns nil, so
// that no operand is copied.
func scannedDense(op string, s *Scope, kind device.ScanKind, t dtype.Type, axis int, reverse bool, in []*Tensor) *Tensor {
	for _, x := range in {
		if !x.layout.Contiguous() {
			return nil
		}
	}
	return scanned(op, s, kind, t, axis, reverse, in)
}

// scanFunc computes a scan along an axis, backwards if reverse is set. It has one operand. For a
// linear recurrence it has two operands: factors and terms.
type scanFunc struct {
	kind    device.ScanKind
	axis    int
	reverse bool
}

func (f scanFunc) Name() string { return scanName(f.kind) }

func (f scanFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	y := f.compute(c.Scope(), in)
	switch {
	case (f.kind == device.ScanLogSumExp || f.kind == device.ScanProd) && c.Needs(0):
		c.Save(x)
	case f.kind == device.ScanLinear && (c.Needs(0) || c.Needs(1)):
		c.Save(x, y)
	}
	return y
}

func (f scanFunc) lean(c *Context, in []*Tensor) *Tensor {
	if len(in) > 1 || c.Needs(0) {
		return nil
	}
	return scannedDense(f.Name(), c.Scope(), f.kind, f.result(in[0]), f.axis, f.reverse, in)
}

// result returns the type of f's result on x.
func (f scanFunc) result(x *Tensor) dtype.Type {
	if x.dtype.IsFloat() {
		return x.dtype
	}
	return dtype.I64
}

func (f scanFunc) compute(s *Scope, in []*Tensor) *Tensor {
	t := f.result(in[0])
	if y := scanned(f.Name(), s, f.kind, t, f.axis, f.reverse, in); y != nil {
		return y
	}
	wide := make([]*Tensor, len(in))
	for i, x := range in {
		wide[i] = x.Cast(scanType(x.dtype))
	}
	if t.IsFloat() && (f.kind == device.ScanSum || f.kind == device.ScanLogSumExp) {
		wide[0] = wide[0].AddScalar(0) // A sum starts with +0, so it is never -0.
	}
	done := doubling(wide, f.axis, f.reverse, func(far, near []*Tensor) []*Tensor {
		switch f.kind {
		case device.ScanSum:
			return []*Tensor{far[0].Add(near[0])}
		case device.ScanProd:
			return []*Tensor{far[0].Mul(near[0])}
		case device.ScanLogSumExp:
			return []*Tensor{far[0].LogAddExp(near[0])}
		}
		return []*Tensor{far[0].Mul(near[0]), fusedOp.Apply([]*Tensor{near[0], far[1], near[1]})}
	})
	return done[len(done)-1].Cast(t)
}

// recurrence solves yᵢ = bᵢ + aᵢ·yᵢ₋₁ along an axis, with y₋₁ = 0. If reverse is set it solves yᵢ =
// bᵢ + aᵢ·yᵢ₊₁.
func recurrence(a, b *Tensor, axis int, reverse bool) *Tensor {
	return Apply(scanFunc{device.ScanLinear, axis, reverse}, a, b)
}

// shifted returns x moved by one entry along an axis: towards the end, or towards the start if
// toStart is true. The entry v is added at one end, and the entry at the other end is dropped.
func (x *Tensor) shifted(axis int, toStart bool, v float64) *Tensor {
	return x.shiftedIn(axis, toStart, func() *Tensor {
		return x.Scope().On(x.st.dev).Typed(x.dtype).Full(v, x.layout.Shape.With(axis, 1).Slice()...)
	})
}

// follower moves x by one entry as shifted does, but repeats the entry at the edge instead of
// adding a number.
func (x *Tensor) follower(axis int, toStart bool) *Tensor {
	return x.shiftedIn(axis, toStart, func() *Tensor {
		if toStart {
			return x.Narrow(axis, x.layout.Shape.At(axis)-1, 1)
		}
		return x.Narrow(axis, 0, 1)
	})
}

// shiftedIn does what shifted does, but calls the function entry for the entry that is added.
func (x *Tensor) shiftedIn(axis int, toStart bool, entry func() *Tensor) *Tensor {
	n := x.layout.Shape.At(axis)
	if n == 0 {
		return x
	}
	edge := entry()
	if toStart {
		return Cat(axis, x.Narrow(axis, 1, n-1), edge)
	}
	return Cat(axis, edge, x.Narrow(axis, 0, n-1))
}

// prodGrads holds the programs that multiply the factors of a gradient of CumProd.
var prodGrads cache[dtype.Type, *expr.Program]

func (f scanFunc) VJP(c *Context, g *Tensor) []*Tensor {
	back := !f.reverse
	switch f.kind {
	case device.ScanProd:
		// The gradient is Πⱼ<ₖ xⱼ · Σᵢ≥ₖ gᵢ·Πₖ<ⱼ≤ᵢ xⱼ. It has no division, so zeros need no special
		// case.
		x := c.Saved(0)
		wide := x.Cast(scanType(x.dtype))
		before := Apply(scanFunc{device.ScanProd, f.axis, f.reverse}, wide.shifted(f.axis, f.reverse, 1))
		behind := recurrence(wide.shifted(f.axis, back, 0), g.Cast(wide.dtype), f.axis, back)
		if t := x.dtype; c.scope.modes.noGrad && t.Compute() == t {
			dx := alloc("cumprod.grad", c.scope, x.st.dev, t, x.layout.Shape)
			p := prodGrads.get(t, func() *expr.Program {
				return expr.MustLower([]*expr.Expr{x0.Mul(x1).Cvt(t).Add(zeroC)}, []dtype.Type{t}, []dtype.Type{wide.dtype, wide.dtype}, -1)
			})
			run("cumprod.grad", c.scope, p, dx, []*Tensor{before, behind}, nil)
			return []*Tensor{dx}
		}
		return []*Tensor{before.Mul(behind).Cast(x.dtype).AddScalar(0)}
	case device.ScanLogSumExp:
		// The gradient is exp(xₖ - yₖ)·uₖ with uₖ = gₖ + exp(yₖ - yₖ₊₁)·uₖ₊₁. Both exponentials are
		// at most 1.
		t := c.Saved(0).dtype
		x := c.Saved(0).Cast(scanType(t))
		// y is computed again in the wider type, because exp would amplify the rounding error of
		// the saved result.
		y := Apply(f, x)
		// The last entry counts as its own follower. So fall is 1 there, with a finite derivative.
		next := y.follower(f.axis, back)
		// fall is also 1 if an entry and its follower are the same infinity.
		fall := y.Sub(next).MaskedFill(y.Eq(next), 0).Exp()
		u := recurrence(fall, g.Cast(x.dtype), f.axis, back)
		return []*Tensor{x.Sub(y).Exp().Mul(u).Cast(t).AddScalar(0)}
	case device.ScanLinear:
		// The gradient of the terms is a recurrence in the other direction. In it each entry uses
		// the factor of the entry after it.
		a, y := c.Saved(0), c.Saved(1)
		gb := recurrence(a.shifted(f.axis, back, 0), g, f.axis, back)
		return []*Tensor{gb.Mul(y.shifted(f.axis, f.reverse, 0)), gb}
	}
	return []*Tensor{Apply(scanFunc{device.ScanSum, f.axis, back}, g)}
}

// scan computes a scan of x along dim. kind says which scan. A tensor of rank 0 counts as a vector
// of one element.
func (x *Tensor) scan(kind device.ScanKind, dim int) *Tensor {
	a := x.axis(scanName(kind), dim)
	if x.Rank() == 0 {
		return Apply(scanFunc{kind: kind}, x.reshape(shape.Of(1))).reshape(shape.Dims{})
	}
	return Apply(scanFunc{kind: kind, axis: a}, x)
}

// CumSum returns, for each entry along a dimension, the sum of this entry and all entries before
// it: yᵢ = x₀ + … + xᵢ. Integers and bool are summed as int64, float32 in float64, and
// 16-bit floats in float32.
func (x *Tensor) CumSum(dim int) *Tensor {
	x.use("cumsum")
	return x.scan(device.ScanSum, dim)
}

// CumProd returns, for each entry along a dimension, the product of this entry and all entries
// before it: yᵢ = x₀ · … · xᵢ. Integers and bool are multiplied as int64, float32 in float64, and
// 16-bit floats in float32. The gradient is right also where entries are 0. Where an entry is NaN
// or infinite, its gradient is computed from the other factors. PyTorch divides, and returns NaN
// there.
func (x *Tensor) CumProd(dim int) *Tensor {
	x.use("cumprod")
	return x.scan(device.ScanProd, dim)
}

// LogCumSumExp returns log(exp x₀ + … + exp xᵢ) for each entry along a dimension, without overflow.
// The tensor must be floating point.
func (x *Tensor) LogCumSumExp(dim int) *Tensor {
	x.use("logcumsumexp")
	if !x.dtype.IsFloat() {
		e := newError("logcumsumexp", ErrType, []*Tensor{x}, "needs a floating point tensor, not "+x.dtype.String())
		panic(e.hint("use Float"))
	}
	return x.scan(device.ScanLogSumExp, dim)
}

var (
	// laterMax is true if the second entry, which comes later, replaces the first as the greatest.
	// A later NaN always does.
	laterMax = &Elementwise{Name: "cummax", Arity: 2, Result: Truth, Expr: x1.Ne(x1).Or(x1.Ge(x0)), NoGrad: true}
	laterMin = &Elementwise{Name: "cummin", Arity: 2, Result: Truth, Expr: x1.Ne(x1).Or(x1.Le(x0)), NoGrad: true}
)

// placesFunc computes the positions, along an axis, of the greatest or least entry so far.
type placesFunc struct {
	kind device.ScanKind
	axis int
}

func (f placesFunc) Name() string { return scanName(f.kind) }

func (f placesFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	if y := scanned(f.Name(), c.Scope(), f.kind, dtype.I64, f.axis, false, in); y != nil {
		return y
	}
	later := laterMax
	if f.kind == device.ScanMin {
		later = laterMin
	}
	done := doubling([]*Tensor{x, alongAxis(c.Scope(), x, f.axis)}, f.axis, false, func(far, near []*Tensor) []*Tensor {
		take := later.Apply([]*Tensor{far[0], near[0]})
		return []*Tensor{Where(take, near[0], far[0]), Where(take, near[1], far[1])}
	})
	return done[1].Contiguous()
}

func (f placesFunc) lean(c *Context, in []*Tensor) *Tensor {
	return scannedDense(f.Name(), c.Scope(), f.kind, dtype.I64, f.axis, false, in)
}

func (placesFunc) VJP(*Context, *Tensor) []*Tensor { return []*Tensor{nil} }

func (x *Tensor) cumulativeExtreme(kind device.ScanKind, dim int) (values, indices *Tensor) {
	op := scanName(kind)
	x.use(op)
	a := x.axis(op, dim)
	if x.Rank() == 0 {
		values, indices = x.reshape(shape.Of(1)).cumulativeExtreme(kind, 0)
		return values.reshape(shape.Dims{}), indices.reshape(shape.Dims{})
	}
	d := x
	if x.NeedsGrad() {
		d = x.Detach()
		defer d.Free()
	}
	indices = Apply(placesFunc{kind, a}, d)
	return Apply(gatherFunc{a, op}, x, indices), indices
}

// CumMax returns, for each entry along a dimension, the greatest of this entry and all entries
// before it. It also returns the position of that entry in the dimension, int64. Among equal
// entries it selects the last. NaN counts as greatest. The gradient goes to the element at the
// position.
func (x *Tensor) CumMax(dim int) (values, indices *Tensor) {
	return x.cumulativeExtreme(device.ScanMax, dim)
}

// CumMin returns, for each entry along a dimension, the least of this entry and all entries before
// it. It also returns the position of that entry in the dimension, int64. Among equal entries it
// selects the last. NaN counts as least. The gradient goes to the element at the position.
func (x *Tensor) CumMin(dim int) (values, indices *Tensor) {
	return x.cumulativeExtreme(device.ScanMin, dim)
}
