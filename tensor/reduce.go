package tensor

import (
	"math"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// KeepDim may be passed among the dimensions of a reduction. The reduced dimensions are then kept
// with size 1: x.Sum(-1, tensor.KeepDim).
const KeepDim = math.MinInt

// A Reduction declares an op that combines elements over dimensions. Map is applied to each
// element, Kind combines the values, and Finish is applied to the combined value.
type Reduction struct {
	Name string
	Kind device.ReduceKind
	Map  *expr.Expr // function that is applied to each element X(0)
	// Finish is a function of X(0), the combined value, and Param(0), the number of elements. nil
	// means that the combined value is the result.
	Finish *expr.Expr
	// Grad is the gradient as an expression over X(0), Y, g = X(1) and Param(0). nil means that
	// there is no gradient. If Grad uses neither X nor Y, it is computed on the reduced shape.
	Grad *expr.Expr
	// Floating makes the result for integers floating point, as in mean. Without it, sums and
	// products of integers and bool are int64, as in torch.
	Floating bool
	// With Same the result has the operand's type, as in amax. With Wide the result for floats has
	// the type in which the op computes.
	Same, Wide bool
	// With Count, Map receives the operand in its own type and returns int64, which is also the
	// type of the result. With Truth too, the result is bool.
	Count, Truth bool
	// Autocast says what mixed precision does with the operand.
	Autocast AutocastClass
	// Ref computes the reduction in float64. Tests compare the op with it.
	Ref    func(x []float64) float64
	Domain [2]float64

	mu       sync.Mutex
	programs map[dtype.Type]*device.Reduction
	gradOnce sync.Once
	grad     *Elementwise
	gradX    bool
	gradY    bool
}

var reductions []*Reduction

// Reductions returns all declared reductions.
func Reductions() []*Reduction { return reductions }

func declareReduction(r *Reduction) *Reduction {
	reductions = append(reductions, r)
	return r
}

// resultType returns the type in which values are combined, and the type of the result.
func (r *Reduction) resultType(t dtype.Type) (acc, result dtype.Type) {
	switch {
	case r.Truth:
		return dtype.I64, dtype.Bool
	case r.Count:
		return dtype.I64, dtype.I64
	case r.Kind == device.ArgMax || r.Kind == device.ArgMin:
		return t.Compute(), dtype.I64
	case r.Same:
		return t.Compute(), t
	case t.IsFloat() && r.Wide:
		return t.Compute(), t.Compute()
	case t.IsFloat():
		return t.Compute(), t
	case r.Floating:
		return dtype.F32, dtype.F32
	}
	return dtype.I64, dtype.I64
}

func (r *Reduction) program(x *Tensor) (*device.Reduction, dtype.Type) {
	acc, result := r.resultType(x.dtype)
	finish := r.Finish
	// use float64, because every multiplication rounds, and a product of some of the factors may
	// overflow
	if r.Kind == device.Prod && acc.IsFloat() && finish == nil {
		acc, finish = dtype.F64, expr.X(0)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.programs[x.dtype]; p != nil {
		return p, result
	}
	body := r.Map
	if !r.Count {
		body = expr.Substitute(r.Map, func(int) *expr.Expr { return expr.X(0).Cvt(acc) }, nil)
	}
	p := &device.Reduction{Kind: r.Kind}
	var err error
	if p.Map, err = expr.Lower([]*expr.Expr{body}, []dtype.Type{acc}, []dtype.Type{x.dtype}, -1); err == nil && finish != nil {
		p.Finish, err = expr.Lower([]*expr.Expr{finish}, []dtype.Type{result}, []dtype.Type{acc}, -1)
	}
	if err != nil {
		fail(r.Name, ErrType, []*Tensor{x}, "%v", err)
	}
	if r.programs == nil {
		r.programs = map[dtype.Type]*device.Reduction{}
	}
	r.programs[x.dtype] = p
	return p, result
}

// axes returns a mask of the dimensions to reduce. If dims names none, all dimensions are reduced.
func (x *Tensor) axes(op string, dims []int) (mask uint, keep bool) {
	n := 0
	for _, d := range dims {
		if d == KeepDim {
			keep = true
			continue
		}
		a := x.axis(op, d)
		if mask>>a&1 != 0 {
			fail(op, ErrShape, []*Tensor{x}, "dimension %d appears twice", d)
		}
		mask |= 1 << a
		n++
	}
	if n == 0 {
		mask = 1<<x.Rank() - 1
	}
	return mask, keep
}

// reducedShapes returns two shapes of a reduction of shape s. In the first shape the dimensions in
// mask have size 1. The second shape lacks these dimensions, unless keep is true. The third result
// is the number of reduced elements.
func reducedShapes(s shape.Dims, mask uint, keep bool) (kept, out shape.Dims, count int) {
	kept, count = s, 1
	for i := range s.Rank() {
		if mask>>i&1 != 0 {
			count *= s.At(i)
			kept = kept.With(i, 1)
		} else if !keep {
			out = out.Append(s.At(i))
		}
	}
	if keep {
		out = kept
	}
	return kept, out, count
}

// Apply reduces x over dims.
func (r *Reduction) Apply(x *Tensor, dims ...int) *Tensor {
	x.use(r.Name)
	if t := device.Tracing(); t != nil {
		defer t.End(tracedOp(t, device.SpanOp, r.Name, nil, []*Tensor{x}))
	}
	if r.Autocast == AutocastThrough {
	} else if x.scope.modes.autocast == dtype.Invalid {
		x.scope.missCast(r.Name, r.Autocast, []*Tensor{x}, 0)
	} else {
		var made []*Tensor
		x = x.scope.operands(r.Autocast, []*Tensor{x}, 0, &made)[0]
		defer freeAll(&made)
	}
	mask, keep := x.axes(r.Name, dims)
	kept, out, count := reducedShapes(x.layout.Shape, mask, keep)
	if count == 0 && r.Kind != device.Sum && r.Kind != device.Prod {
		fail(r.Name, ErrShape, []*Tensor{x}, "cannot reduce over no elements: %s has no value for an empty set", r.Name)
	}
	p, result := r.program(x)
	s := x.scope
	y := alloc(r.Name, s, x.st.dev, result, out)
	params := r.params(p, count)
	runReduce(r.Name, s, p, y, kept, []*Tensor{x}, x.layout.Shape, params)
	if r.Grad != nil && result.IsFloat() && wantsGrad(r.Name, s, []*Tensor{x}) {
		f := &reductionFunc{r: r, kept: kept, count: count}
		r.gradient()
		var save []*Tensor
		if r.gradX {
			save = append(save, x)
		}
		if r.gradY {
			save = append(save, y)
		}
		record(y, f, []*Tensor{x}, save)
	}
	if s.modes.anomaly&AnomalyForward != 0 {
		y.inspect(r.Name, s.modes.anomaly, []*Tensor{x})
	}
	return y
}

func (r *Reduction) params(p *device.Reduction, count int) []uint64 {
	if p.Finish == nil || len(p.Finish.Params) == 0 {
		return nil
	}
	return []uint64{expr.Encode(p.Finish.Params[0], float64(count))}
}

func (r *Reduction) gradient() *Elementwise {
	r.gradOnce.Do(func() {
		used, usesY := expr.Uses(r.Grad)
		r.gradX, r.gradY = used[0], usesY
		n, gAt := 0, 0
		if r.gradX {
			n++
		}
		yAt := n
		if r.gradY {
			n++
		}
		gAt = n
		e := expr.Substitute(r.Grad, func(i int) *expr.Expr {
			if i == 0 {
				return expr.X(0)
			}
			return expr.X(gAt)
		}, expr.X(yAt))
		r.grad = &Elementwise{Name: r.Name + ".grad", Arity: n + 1, Result: Floating, Expr: e}
	})
	return r.grad
}

type reductionFunc struct {
	r     *Reduction
	kept  shape.Dims
	count int
}

func (f *reductionFunc) Name() string { return f.r.Name }

// Forward is never called, because Reduction.Apply computes reductions.
func (f *reductionFunc) Forward(c *Context, in []*Tensor) *Tensor { return f.r.Apply(in[0]) }

func (f *reductionFunc) VJP(c *Context, g *Tensor) []*Tensor {
	op := f.r.gradient()
	to := c.n.operands[0]
	var in []*Tensor
	k := 0
	if f.r.gradX {
		in = append(in, c.Saved(k))
		k++
	}
	if f.r.gradY {
		in = append(in, c.Saved(k).reshape(f.kept))
	}
	g = g.reshape(f.kept)
	if len(in) == 0 && f.r.Grad.IsX(1) {
		return []*Tensor{g.expand(to.shape).Cast(to.dtype)}
	}
	return []*Tensor{op.Apply(append(in, g), float64(f.count)).expand(to.shape).Cast(to.dtype)}
}

// fromOne is the VJP for a result whose gradient is 1. It computes the gradient 1/n of each element
// of a mean without a tensor that holds the 1.
func (f *reductionFunc) fromOne(c *Context) []*Tensor {
	if f.r != meanOp {
		return nil
	}
	to, t, part := c.n.operands[0], c.n.dtype, 1/float64(f.count)
	if t != dtype.F64 {
		part = float64(1 / float32(f.count))
	}
	g := c.scope.On(to.dev).Typed(t).Full(part, f.kept.Slice()...)
	return []*Tensor{g.expand(to.shape).Cast(to.dtype)}
}

var (
	sumOp = declareReduction(&Reduction{Name: "sum", Autocast: AutocastHigh, Kind: device.Sum, Map: expr.X(0), Grad: expr.X(1), Domain: [2]float64{-2, 2},
		Ref: func(x []float64) float64 {
			s := 0.0
			for _, v := range x {
				s += v
			}
			return s
		}})
	// wideSumOp computes the sum of 16-bit floats, with a float32 result.
	wideSumOp = &Reduction{Name: "sum", Kind: device.Sum, Map: expr.X(0), Grad: expr.X(1), Wide: true}
	meanOp    = declareReduction(&Reduction{Name: "mean", Kind: device.Sum, Map: expr.X(0), Finish: expr.X(0).Div(expr.Param(0)), Floating: true,
		Grad: expr.X(1).Div(expr.Param(0)), Domain: [2]float64{-2, 2},
		Ref: func(x []float64) float64 {
			s := 0.0
			for _, v := range x {
				s += v
			}
			return s / float64(len(x))
		}})
	amaxOp   = declareReduction(&Reduction{Name: "amax", Kind: device.Max, Map: expr.X(0), Same: true, Domain: [2]float64{-2, 2}, Ref: extreme(math.Max)})
	aminOp   = declareReduction(&Reduction{Name: "amin", Kind: device.Min, Map: expr.X(0), Same: true, Domain: [2]float64{-2, 2}, Ref: extreme(math.Min)})
	argmaxOp = declareReduction(&Reduction{Name: "argmax", Kind: device.ArgMax, Map: expr.X(0), Domain: [2]float64{-2, 2}, Ref: position(1)})
	argminOp = declareReduction(&Reduction{Name: "argmin", Kind: device.ArgMin, Map: expr.X(0), Domain: [2]float64{-2, 2}, Ref: position(-1)})
)

func extreme(f func(a, b float64) float64) func([]float64) float64 {
	return func(x []float64) float64 {
		m := x[0]
		for _, v := range x[1:] {
			m = f(m, v)
		}
		return m
	}
}

func position(sign float64) func([]float64) float64 {
	return func(x []float64) float64 {
		k := 0
		for i, v := range x {
			if sign*v > sign*x[k] || v != v && x[k] == x[k] {
				k = i
			}
		}
		return float64(k)
	}
}

// Sum returns the sum over dims, or over all elements if dims is empty. Integers and bool are
// summed as int64. The sum of no elements is 0.
func (x *Tensor) Sum(dims ...int) *Tensor { return sumOp.Apply(x, dims...) }

// Mean returns the mean over dims, or over all elements if dims is empty. The mean of no elements
// is NaN. For integers the result is float32.
func (x *Tensor) Mean(dims ...int) *Tensor { return meanOp.Apply(x, dims...) }

// Argmax returns the position, int64, of the first greatest element along one dimension. Without a
// dimension it returns the position in the flattened tensor.
func (x *Tensor) Argmax(dims ...int) *Tensor { return argmaxOp.Apply(x, x.oneAxis("argmax", dims)...) }

// Argmin returns the position, int64, of the first least element along one dimension. Without a
// dimension it returns the position in the flattened tensor.
func (x *Tensor) Argmin(dims ...int) *Tensor { return argminOp.Apply(x, x.oneAxis("argmin", dims)...) }

func (x *Tensor) oneAxis(op string, dims []int) []int {
	n := 0
	for _, d := range dims {
		if d != KeepDim {
			n++
		}
	}
	if n > 1 {
		fail(op, ErrShape, []*Tensor{x}, "takes one dimension, or none, not %d", n)
	}
	return dims
}

// Amax returns the greatest element over dims, or over all dimensions if dims is empty. Equal
// greatest elements share the gradient evenly.
func (x *Tensor) Amax(dims ...int) *Tensor { return Apply(&extremeFunc{r: amaxOp, dims: dims}, x) }

// Amin returns the least element over dims, or over all dimensions if dims is empty. Equal least
// elements share the gradient evenly.
func (x *Tensor) Amin(dims ...int) *Tensor { return Apply(&extremeFunc{r: aminOp, dims: dims}, x) }

// extremeFunc computes amax or amin, and their gradient.
type extremeFunc struct {
	r    *Reduction
	dims []int
}

func (f *extremeFunc) Name() string { return f.r.Name }

func (f *extremeFunc) Forward(c *Context, in []*Tensor) *Tensor {
	y := f.r.Apply(in[0], f.dims...)
	if c.Needs(0) {
		c.Save(in[0], y)
	}
	return y
}

func (f *extremeFunc) lean(c *Context, in []*Tensor) *Tensor {
	if c.Needs(0) {
		return nil
	}
	return f.r.Apply(in[0], f.dims...)
}

func (f *extremeFunc) VJP(c *Context, g *Tensor) []*Tensor {
	x, y := c.Saved(0), c.Saved(1)
	mask, _ := x.axes(f.r.Name, f.dims)
	kept, _, _ := reducedShapes(x.layout.Shape, mask, true)
	hit := x.Eq(y.reshape(kept)).Cast(g.dtype)
	over := axesOf(mask)
	share := g.reshape(kept)
	if len(over) > 0 {
		share = share.Div(hit.Sum(append(over, KeepDim)...))
	}
	return []*Tensor{hit.Mul(share)}
}

// sumTo sums x over the dimensions in which it was broadcast from shape s.
func (x *Tensor) sumTo(s shape.Dims) *Tensor {
	if x.layout.Shape == s {
		return x
	}
	add := x.Rank() - s.Rank()
	var dims []int
	for i := range x.Rank() {
		if i < add || s.At(i-add) == 1 && x.layout.Shape.At(i) != 1 {
			dims = append(dims, i)
		}
	}
	if len(dims) > 0 {
		x = x.Sum(append(dims, KeepDim)...)
	}
	return x.reshape(s)
}
