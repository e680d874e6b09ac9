package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

type maxKey struct {
	t, place dtype.Type
	n        int
}

var maxPrograms cache[maxKey, *expr.Program]

// maxProgram compares n elements of a window with its greatest element so far. The operands are the
// position at which the window begins, the position of the greatest element, that element, and the
// n elements. The parameters are the distances of the n elements from the window's beginning. The
// results are the new position and element. If the type of positions is Invalid, there are neither
// positions nor parameters.
func maxProgram(t, position dtype.Type, n int) *expr.Program {
	return maxPrograms.get(maxKey{t, position, n}, func() *expr.Program {
		var outs, ins []dtype.Type
		var place *expr.Expr
		placed := position != dtype.Invalid
		if placed {
			outs, ins = []dtype.Type{position}, []dtype.Type{position, position}
			place = expr.X(1)
		}
		most := expr.X(len(ins))
		outs, ins = append(outs, t), append(ins, t)
		for k := range n {
			v := expr.X(len(ins))
			more := v.Gt(most)
			// for floats NaN counts as the greatest number, and the last NaN is taken
			if t.IsFloat() {
				more = more.Or(v.Ne(v))
			}
			if placed {
				place = more.Select(expr.X(0).Add(expr.Param(k, position.Compute())), place)
			}
			most = more.Select(v, most)
			ins = append(ins, t)
		}
		results := []*expr.Expr{place, most}
		if !placed {
			results = results[1:]
		}
		return expr.MustLower(results, outs, ins, -1)
	})
}

// leastNumber returns the least number of type t. For floating point types it is -Inf.
func leastNumber(t dtype.Type) float64 {
	switch t {
	case dtype.U8:
		return 0
	case dtype.I8:
		return math.MinInt8
	case dtype.I16:
		return math.MinInt16
	case dtype.I32:
		return math.MinInt32
	case dtype.I64:
		return math.MinInt64
	}
	return math.Inf(-1)
}

// maxima returns the greatest element of each window of x, [n, c, …], and its position in the
// flattened spatial dimensions.
func maxima(op string, x *Tensor, g grid) (values, indices *Tensor) {
	c := x.scope.child()
	defer c.recycle()
	c.modes.noGrad = true
	var most, place *Tensor
	if g.manyTaps(x) {
		most, place = maximaByReduction(op, c, x.detachedIn(c), g)
	} else {
		begin, first := g.windowStarts(c, x)
		most, place = maximaByTaps(op, c, x.detachedIn(c), g, begin, first)
	}
	c.close([]*Tensor{most, place}, false)
	if !wantsGrad(op, x.scope, []*Tensor{x}) {
		return most, place
	}
	values = Apply(maxFunc{op: op, g: g}, x, most, place)
	most.Free()
	return values, place
}

// manyTaps reports whether the windows are so large that their maxima are found by a reduction.
func (g *grid) manyTaps(x *Tensor) bool {
	return x.dtype.IsFloat() && g.unpadded() && g.taps() > 8*tapsAtOnce
}

// maximaAlone does what the function maxima does, but does not return the positions. A gradient
// needs only the distance of each maximum from the beginning of its window, in a short type.
// Without a gradient no positions are computed, unless the windows are so large that their maxima
// are found by a reduction.
func maximaAlone(op string, x *Tensor, g grid) *Tensor {
	f := maxFunc{op: op, g: g, relative: true}
	t, short := f.savedType()
	needs := wantsGrad(op, x.scope, []*Tensor{x})
	if g.manyTaps(x) || needs && !short {
		values, indices := maxima(op, x, g)
		indices.Free()
		return values
	}
	c := x.scope.child()
	defer c.recycle()
	c.modes.noGrad = true
	var begin, first *Tensor
	if needs {
		begin = c.On(x.st.dev).Typed(t).Zeros()
		if first = begin; !g.unpadded() {
			from, inside := g.windowStarts(c, x)
			first = inside.Sub(from).Cast(t)
		}
	}
	most, near := maximaByTaps(op, c, x.detachedIn(c), g, begin, first)
	if !needs {
		c.close([]*Tensor{most}, false)
		return most
	}
	c.close([]*Tensor{most, near}, false)
	values := Apply(f, x, most, near)
	most.Free()
	near.Free()
	return values
}

// strides returns the strides of the spatial dimensions in the flattened input.
func (g *grid) strides() shape.Dims { return g.list(g.in).Contiguous() }

// broadcastVector reshapes v, a vector along spatial dimension i, so that it broadcasts to [n, c,
// …].
func (g *grid) broadcastVector(v *Tensor, i int) *Tensor {
	return v.reshape(onesOf(2+g.rank).With(2+i, v.Size()))
}

// windowStarts returns two tensors of positions in the flattened input. The first holds the
// positions at which windows begin, which may be before the input. The second holds, for each
// window, the position of its first element inside of the input. Both are int64, [1, 1, out…].
func (g *grid) windowStarts(c *Scope, x *Tensor) (begin, first *Tensor) {
	s := g.strides()
	for i := range g.rank {
		v := positioned(c, x, g.out[i], -g.before[i], g.stride[i])
		w := v
		if d := float64(g.dilation[i]); g.before[i] > 0 {
			w = v.Add(v.Neg().ClampMin(0).AddScalar(d - 1).FloorDivideScalar(d).MulScalar(d))
		}
		v, w = g.broadcastVector(v.MulScalar(float64(s.At(i))), i), g.broadcastVector(w.MulScalar(float64(s.At(i))), i)
		if begin == nil {
			begin, first = v, w
		} else {
			begin, first = begin.Add(v), first.Add(w)
		}
	}
	return begin, first
}

// maximaByTaps processes the elements of all windows, a few of each window at a time. begin holds
// the positions at which windows begin, and first holds the positions of the windows' first
// elements inside of the input. The positions of the maxima have begin's type. If begin is nil,
// they are not computed.
func maximaByTaps(op string, c *Scope, x *Tensor, g grid, begin, first *Tensor) (most, place *Tensor) {
	padded := g.pad(op, c, x, leastNumber(x.dtype))
	to := g.shaped(x.Dim(0), x.Dim(1), g.out)
	most = alloc(op, c, x.st.dev, x.dtype, to)
	var in []*Tensor
	outs, t := []*Tensor{most}, dtype.Invalid
	if begin != nil {
		t = begin.dtype
		place = alloc(op, c, x.st.dev, t, to)
		outs, in = []*Tensor{place, most}, []*Tensor{begin, first}
	}
	if most.Size() == 0 {
		return most, place
	}
	in = append(in, c.On(x.st.dev).Typed(x.dtype).Full(leastNumber(x.dtype)))
	s := g.strides()
	for k := 0; k < g.taps(); {
		n := min(tapsAtOnce, g.taps()-k)
		var from []float64
		for ; len(from) < n; k++ {
			in = append(in, padded.handle(op, c, g.tap(padded.layout, k)))
			at, left := 0, k
			for i := g.rank - 1; i >= 0; i-- {
				at += left % g.kernel[i] * g.dilation[i] * s.At(i)
				left /= g.kernel[i]
			}
			from = append(from, float64(at))
		}
		// repeat the last element until the program has its fixed number of operands; this does not
		// change the maximum
		for range passOf(n) - n {
			in, from = append(in, in[len(in)-1]), append(from, from[n-1])
		}
		p := maxProgram(x.dtype, t, passOf(n))
		if begin == nil {
			runMap(op, c, p, outs, in, nil)
			in = []*Tensor{most}
			continue
		}
		runMap(op, c, p, outs, in, encode(p, from))
		in = []*Tensor{begin, place, most}
	}
	return most, place
}

var lastNaNs cache[dtype.Type, *device.Reduction]

// lastNaN returns a reduction to the greatest position (operand 1) at which operand 0 is NaN. If
// there is no NaN, its result is negative.
func lastNaN(t dtype.Type) *device.Reduction {
	return lastNaNs.get(t, func() *device.Reduction {
		e := expr.X(0).Ne(expr.X(0)).Select(expr.X(1), expr.Bits(dtype.I64, math.MaxUint64))
		return &device.Reduction{Kind: device.Max, Map: expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.I64}, []dtype.Type{t, dtype.I64}, -1)}
	})
}

// maximaByReduction finds the maxima by a reduction over the elements of each window. It is for
// large windows.
func maximaByReduction(op string, c *Scope, x *Tensor, g grid) (most, place *Tensor) {
	n, channels := x.Dim(0), x.Dim(1)
	seen := x.handle(op, c, g.windows(x.layout))
	var over []int
	for i := range g.rank {
		over = append(over, 2+i)
	}
	to := g.shaped(n, channels, g.out)
	if to.Size() == 0 {
		return alloc(op, c, x.st.dev, x.dtype, to), alloc(op, c, x.st.dev, dtype.I64, to)
	}
	tap := argmaxOp.Apply(seen, over...)
	numbers := positioned(c, x, g.taps(), 0, 1).reshape(shape.Of(1, 1).Append(g.list(g.kernel).Slice()...).Append(onesOf(g.rank).Slice()...))
	nan := alloc(op, c, x.st.dev, dtype.I64, to)
	kept, _, _ := reducedShapes(seen.layout.Shape, 1<<(2+g.rank)-4, true)
	runReduce(op, c, lastNaN(x.dtype), nan, kept, []*Tensor{seen, numbers}, seen.layout.Shape, nil)
	tap = tap.Maximum(nan)

	s := g.strides()
	var steps shape.Dims
	for i := range g.rank {
		steps = steps.Append(g.dilation[i] * s.At(i))
	}
	from := positions(c, x, g.list(g.kernel), steps, 0)
	begin, _ := g.windowStarts(c, x)
	place = from.indexSelect(op, 0, tap.reshape(shape.Of(tap.Size()))).reshape(to).Add(begin)
	most = pick(op, x, place)
	return most, place
}

// pick returns the elements of x, [n, c, …], at the given positions in the flattened spatial
// dimensions.
func pick(op string, x, positions *Tensor) *Tensor {
	n, channels := x.Dim(0), x.Dim(1)
	flat := positions.reshape(shape.Of(n, channels, positions.layout.Shape.Tail(2).Size()))
	return Apply(gatherFunc{2, op}, x.reshape(shape.Of(n, channels, x.layout.Shape.Tail(2).Size())), flat).reshape(positions.layout.Shape)
}

// maxFunc adds maxima to the graph, after they have been computed. Its operands are x, the maxima
// and their positions.
type maxFunc struct {
	op string
	g  grid // grid of the windows whose maxima were computed; rank 0 if there is none
	// true if the positions are already distances from the beginning of their windows
	relative bool
}

func (f maxFunc) Name() string { return f.op }

func (f maxFunc) Forward(c *Context, in []*Tensor) *Tensor {
	if t, ok := f.savedType(); ok && !f.relative {
		s := c.Scope()
		begin, _ := f.g.windowStarts(s, in[0])
		ends := []*Tensor{in[2], begin}
		near := alloc(f.op, s, in[0].st.dev, t, in[2].layout.Shape)
		run(f.op, s, fromBeginOp.program(ends, dtype.I64, t), near, ends, nil)
		c.Save(near)
	} else {
		c.Save(in[2])
	}
	return in[1]
}

// fromBeginOp computes the distance of a position from the beginning of its window.
var fromBeginOp = &Elementwise{Name: "max_pool", Arity: 2, Expr: x0.Sub(x1), NoGrad: true}

// savedType returns the type in which the positions of maxima are saved. They are saved as
// distances from the beginning of their windows, so that a short type is enough. The second result
// is false if distances cannot be saved.
func (f maxFunc) savedType() (dtype.Type, bool) {
	if f.g.rank == 0 {
		return dtype.I64, false
	}
	far, s := 0, f.g.strides()
	for i := range f.g.rank {
		far += (f.g.span(i) - 1) * s.At(i)
	}
	switch {
	case far <= math.MaxUint8:
		return dtype.U8, true
	case far <= math.MaxInt16:
		return dtype.I16, true
	}
	return dtype.I32, far <= math.MaxInt32
}

func (f maxFunc) VJP(c *Context, g *Tensor) []*Tensor {
	to, place := c.n.operands[0].shape, c.Saved(0)
	if _, ok := f.savedType(); ok {
		if c.scope.modes.noGrad {
			if dx := f.byKernel(c.scope, place, g, to); dx != nil {
				return []*Tensor{dx, nil, nil}
			}
		}
		if c.scope.modes.noGrad && f.byTaps() {
			return []*Tensor{f.spread(c.scope, place, g, to), nil, nil}
		}
		begin, _ := f.g.windowStarts(c.Scope(), place)
		near := place
		place = near.Add(begin)
		c.release(0, near)
	}
	flat := shape.Of(to.At(0), to.At(1), place.layout.Shape.Tail(2).Size())
	dx := Apply(scatterFunc{2, shape.Of(to.At(0), to.At(1), to.Tail(2).Size()), f.op + ".grad", false}, g.reshape(flat), place.reshape(flat))
	return []*Tensor{dx.reshape(to), nil, nil}
}

// byTaps reports whether the gradient is computed by one pass for each element of a window. This
// method needs neither indices nor sorting.
func (f maxFunc) byTaps() bool { return f.g.taps() <= fewTaps }

// maxTapOp returns X(0) + X(2) if X(1) equals p0, and otherwise X(0). X(2) is the gradient of a
// window, and X(1) the position of the window's maximum in the window.
var maxTapOp = &Elementwise{Name: "max_pool", Arity: 3, Expr: x1.Eq(p0).Select(x0.Add(x2), x0), Fixed: 2, NoGrad: true}

// spread adds g to the elements that were maxima. offsets holds the position of each maximum in its
// window. spread processes the elements of the windows backwards. So the gradients of several
// windows are added to one element in the order of the windows.
//
// If there is padding, or several windows add 16-bit floats to one element, spread adds in a
// temporary tensor, for some of the samples at a time. There 16-bit floats are added in float32 and
// rounded once.
func (f maxFunc) spread(s *Scope, offsets, g *Tensor, to shape.Dims) *Tensor {
	op := f.op + ".grad"
	dx := alloc(op, s, g.st.dev, g.dtype, to)
	t := g.dtype
	if !f.g.disjoint() {
		t = t.Compute()
	}
	n := to.At(0)
	if f.g.unpadded() && t == g.dtype || g.Size() == 0 {
		if dx.fill(0); g.Size() > 0 {
			f.addMaxima(s, dx, offsets, g)
		}
		return dx
	}
	one := f.g.padded(1, to.At(1))
	step := max(1, min(n, max(columnLeast, dx.Size()*dx.dtype.Size()/spreadPart)/(one.Size()*t.Size())))
	for at := 0; at < n; at += step {
		part, n := s.child(), min(step, n-at)
		func() {
			defer part.recycle()
			wide := alloc(op, part, g.st.dev, t, one.With(0, n)).fill(0)
			f.addMaxima(part, wide, offsets.In(part).Narrow(0, at, n), g.In(part).Narrow(0, at, n))
			dx.In(part).Narrow(0, at, n).store(op, part, f.g.cut(op, part, wide))
		}()
	}
	return dx
}

// A padded gradient is made for a few samples at a time, in a temporary tensor. This tensor has at
// most columnLeast bytes, or 1/spreadPart of the gradient's bytes if that is more. It always has
// room for one sample.
const spreadPart = 4

// addMaxima adds g to the elements of y that were maxima. It adds the gradients of several windows
// to one element in the order of the windows. y includes the padding of the windows, and is zero at
// first.
func (f maxFunc) addMaxima(s *Scope, y, offsets, g *Tensor) {
	op := f.op + ".grad"
	steps := f.g.strides()
	for k := f.g.taps() - 1; k >= 0; k-- {
		at, left := 0, k
		for i := f.g.rank - 1; i >= 0; i-- {
			at += left % f.g.kernel[i] * f.g.dilation[i] * steps.At(i)
			left /= f.g.kernel[i]
		}
		out := y.handle(op, s, f.g.tap(y.layout, k))
		in := []*Tensor{out, offsets, g}
		run(op, s, maxTapOp.program(in, y.dtype, y.dtype), out, in, []float64{float64(at)})
		out.Free()
	}
}
