package devicetest

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

var kinds = []device.ReduceKind{device.Sum, device.Prod, device.Max, device.Min, device.ArgMax, device.ArgMin}

// groups returns, for each element of the result, the storage offsets of the operand's elements
// that are combined into it. The offsets are in row-major order.
func groups(in, out shape.Dims) [][]int {
	g := make([][]int, out.Size())
	each := in.Size() / max(1, out.Size())
	for i := range g {
		g[i] = make([]int, 0, each)
	}
	dense := out.Contiguous()
	l := shape.Layout{Shape: in, Strides: dense}
	for k := range in.Rank() {
		if out.At(k) == 1 {
			l.Strides = l.Strides.With(k, 0)
		}
	}
	for i, o := range offsets(l) {
		g[o] = append(g[o], i)
	}
	return g
}

// reference combines the values v as [device.Reduce] specifies. For error bounds, it also returns
// the sum of their magnitudes.
func reference(k device.ReduceKind, t dtype.Type, v []float64) (r, magnitude float64) {
	switch k {
	case device.Sum:
		// use Neumaier's compensated sum (1974): the reference must be more precise than the
		// device's result
		var lost float64
		for _, x := range v {
			s := r + x
			if math.Abs(r) >= math.Abs(x) {
				lost += r - s + x
			} else {
				lost += x - s + r
			}
			r = s
			magnitude += math.Abs(x)
		}
		if lost == lost && !math.IsInf(r, 0) {
			r += lost
		}
		if t == dtype.Bool && r != 0 {
			r = 1
		}
	case device.Prod:
		r = 1
		for _, x := range v {
			r *= x
		}
		magnitude = math.Abs(r)
	case device.Max, device.Min:
		r = identity(k, t)
		for _, x := range v {
			if k == device.Max {
				r = max(r, x)
			} else {
				r = min(r, x)
			}
		}
	default:
		best := 0
		for i, x := range v {
			b := v[best]
			if math.IsNaN(b) {
				break
			}
			if math.IsNaN(x) || k == device.ArgMax && x > b || k == device.ArgMin && x < b {
				best = i
			}
		}
		r = float64(best)
	}
	return r, magnitude
}

func identity(k device.ReduceKind, t dtype.Type) float64 {
	hi, lo := math.Inf(1), math.Inf(-1)
	switch {
	case t == dtype.Bool:
		hi, lo = 1, 0
	case t == dtype.U8:
		hi, lo = 255, 0
	case t.IsInteger():
		hi = math.Ldexp(1, 8*t.Size()-1) - 1
		lo = -math.Ldexp(1, 8*t.Size()-1)
	}
	if k == device.Max {
		return lo
	}
	return hi
}

// epsilon returns the unit roundoff of type t, or 0 if t is not a float type.
func epsilon(t dtype.Type) float64 {
	switch t {
	case dtype.F16:
		return 0x1p-11
	case dtype.BF16:
		return 0x1p-8
	case dtype.F32:
		return 0x1p-24
	case dtype.F64:
		return 0x1p-53
	}
	return 0
}

// tiny returns half of the smallest positive number of type t.
func tiny(t dtype.Type) float64 {
	if t == dtype.F16 {
		return 0x1p-25
	}
	return 1e-40
}

func (r *rig) checkReduce(k device.ReduceKind, t dtype.Type, in *array, out *array) {
	r.Helper()
	what := fmt.Sprintf("%v of %v over %v to %v, operand %s", k, t, in.v.Shape, out.v.Shape, in.form)
	red := &device.Reduction{Kind: k, Map: lower(expr.X(0), t, t)}
	if err := device.Run(r.dev, r.s, &device.Reduce{Reduction: red, Out: out.v, Ins: []device.View{in.v}}); err != nil {
		r.Errorf("%s: %v", what, err)
		return
	}
	x := in.floats()
	g := groups(in.v.Shape, out.v.Shape)
	want, bound := make([]float64, len(g)), make([]float64, len(g))
	for i, idx := range g {
		v := make([]float64, len(idx))
		for j, e := range idx {
			v[j] = x[e]
		}
		var mag float64
		want[i], mag = reference(k, t, v)
		if t.IsFloat() {
			// A device adds pairwise, so the error of a sum grows with the logarithm of the length.
			// The error of a product grows with the length.
			steps := 16 + math.Log2(float64(len(v)+1))
			if k == device.Prod {
				steps = float64(len(v) + 1)
			}
			bound[i] = steps*epsilon(t.Compute())*mag + epsilon(out.v.Type)*math.Abs(want[i]) + tiny(out.v.Type)
			if out.v.Type.IsFloat() {
				want[i] = rangeOf(out.v.Type, want[i])
			}
		} else if k == device.Sum || k == device.Prod {
			want[i] = wrap(out.v.Type, want[i])
		}
	}
	out.close(what, want, func(i int) float64 { return bound[i] })
}

// rangeOf returns v, or an infinity if v is too large for type t.
func rangeOf(t dtype.Type, v float64) float64 {
	if math.IsInf(expr.Decode(t, expr.Encode(t, v)), 0) {
		return math.Copysign(math.Inf(1), v)
	}
	return v
}

// wrap converts the integer v to type t and wraps as an overflow does. The magnitude of v is below
// 2⁵³.
func wrap(t dtype.Type, v float64) float64 {
	if t == dtype.Bool {
		return v
	}
	return expr.Decode(t, uint64(int64(v))&(1<<(8*t.Size()-1)<<1-1))
}

// axesOf returns the result shapes to test for reductions of an operand of shape s. These shapes
// reduce no dimension, one dimension, all but one, or all. For four dimensions, one more shape
// reduces the first and the third.
func axesOf(s shape.Dims) []shape.Dims {
	var out []shape.Dims
	seen := map[shape.Dims]bool{}
	for mask := range 1 << s.Rank() {
		o := s
		n := 0
		for k := range s.Rank() {
			if mask>>k&1 == 1 {
				o = o.With(k, 1)
				n++
			}
		}
		if n <= 1 || n >= s.Rank()-1 || s.Rank() == 4 && (mask == 5 || mask == 13) {
			if !seen[o] {
				out = append(out, o)
			}
			seen[o] = true
		}
	}
	return out
}

func testReduce(r *rig) {
	shapes := []shape.Dims{shape.Of(), shape.Of(5), shape.Of(4, 6), shape.Of(3, 4, 5)}
	if r.large {
		shapes = append(shapes, shape.Of(2100), shape.Of(40, 70), shape.Of(3, 1500), shape.Of(700, 3), shape.Of(2, 5, 3, 9))
	}
	n := 0
	for _, t := range dtype.Types() {
		for _, s := range shapes {
			for _, o := range axesOf(s) {
				for _, k := range kinds {
					n++
					fi, fo := inForms[n%len(inForms)], outForms[n/3%len(outForms)]
					if !r.large && n%3 != 0 {
						continue
					}
					in := r.small(t, s, fi)
					if n%5 == 0 && k != device.Sum && k != device.Prod {
						in = r.random(t, s, fi)
					}
					// use ones and twos, so that the product stays below 2⁵³
					if k == device.Prod && t.IsInteger() {
						in = r.array(t, s, fi, func(i int) uint64 { return uint64(1 + i%97/96) })
					}
					result := t
					if k >= device.ArgMax {
						result = dtype.I64
					}
					r.checkReduce(k, t, in, r.empty(result, o, fo))
				}
				r.end()
			}
		}
	}
	// A reduction of no elements must return the identity of its operation.
	for _, t := range dtype.Types() {
		for _, k := range kinds[:4] {
			r.checkReduce(k, t, r.small(t, shape.Of(3, 0), contiguous), r.empty(t, shape.Of(3, 1), contiguous))
		}
	}
	r.checkReduce(device.Sum, dtype.F32, r.small(dtype.F32, shape.Of(0, 3), contiguous), r.empty(dtype.F32, shape.Of(0, 1), contiguous))
	if r.large {
		// Compute long sums over several axes, in two layouts.
		for _, s := range []shape.Dims{shape.Of(80_000), shape.Of(1500, 50), shape.Of(50, 1500), shape.Of(2, 40_000), shape.Of(40_000, 2)} {
			for _, o := range axesOf(s) {
				if o == s {
					continue
				}
				for _, f := range []form{contiguous, transposed} {
					for _, k := range []device.ReduceKind{device.Sum, device.ArgMax} {
						result := dtype.F32
						if k == device.ArgMax {
							result = dtype.I64
						}
						r.checkReduce(k, dtype.F32, r.small(dtype.F32, s, f), r.empty(result, o, contiguous))
					}
					r.end()
				}
			}
		}
	}
}

// testReduceForms tests reductions with several operands, Finish programs, parameters, positions
// and conversions.
func testReduceForms(r *rig) {
	s, o := shape.Of(6, 37), shape.Of(6, 1)
	x, y := expr.X(0), expr.X(1)
	a, b := r.small(dtype.F32, s, transposed), r.small(dtype.F32, s, rowCast)
	out := r.empty(dtype.F32, o, strided)
	reduce := func(what string, red *device.Reduction, out *array, of ...*array) {
		r.Helper()
		params := []uint64{expr.Encode(dtype.F32, 2), expr.Encode(dtype.F32, 37)}
		r.run(what, &device.Reduce{Reduction: red, Out: out.v, Ins: views(of), Params: params})
	}
	reduce("reduce with finish", &device.Reduction{Kind: device.Sum,
		Map:    lower(x.Sub(y).Mul(x.Sub(y)).Mul(expr.Param(0)), dtype.F32, dtype.F32, dtype.F32),
		Finish: lower(x.Div(expr.Param(1)).Sqrt(), dtype.F32, dtype.F32)}, out, a, b)
	want := make([]float64, 6)
	fa, fb := a.floats(), b.floats()
	for i, g := range groups(s, o) {
		for _, e := range g {
			want[i] += (fa[e] - fb[e]) * (fa[e] - fb[e]) * 2
		}
		want[i] = math.Sqrt(want[i] / 37)
	}
	out.close("reduce with finish and parameters", want, func(i int) float64 { return 20 * epsilon(dtype.F32) * want[i] })

	// Find the first position of the maximum with a Map program that uses the index of the element.
	pos := r.empty(dtype.I64, shape.Of(1, 37), contiguous)
	reduce("reduce of index", &device.Reduction{Kind: device.Max, Map: lower(expr.Index(dtype.I64).Add(x.Cvt(dtype.I64).Mul(expr.C(0))), dtype.I64, dtype.F32)}, pos, a)
	wantPos := make([]float64, 37)
	for i := range wantPos {
		wantPos[i] = float64(5*37 + i)
	}
	pos.close("max of positions", wantPos, func(int) float64 { return 0 })

	// Reduce truth values: any, all, and the number of true elements.
	for _, c := range []struct {
		name string
		k    device.ReduceKind
		t    dtype.Type
	}{{"any", device.Sum, dtype.Bool}, {"all", device.Prod, dtype.Bool}, {"count", device.Sum, dtype.I64}} {
		e := x.Gt(expr.C(1.5))
		if c.t == dtype.I64 {
			e = e.Cvt(dtype.I64)
		}
		out := r.empty(c.t, o, contiguous)
		reduce(c.name, &device.Reduction{Kind: c.k, Map: lower(e, c.t, dtype.F32)}, out, a)
		want := make([]float64, 6)
		for i, g := range groups(s, o) {
			n := 0
			for _, e := range g {
				if fa[e] > 1.5 {
					n++
				}
			}
			switch {
			case c.t == dtype.I64:
				want[i] = float64(n)
			case c.k == device.Sum && n > 0, c.k == device.Prod && n == len(g):
				want[i] = 1
			}
		}
		out.close(c.name, want, func(int) float64 { return 0 })
	}

	// 16-bit floats must be summed in float32. A sum of 4096 ones in 16 bits would stop growing at
	// 256 or 2048.
	for _, t := range []dtype.Type{dtype.F16, dtype.BF16} {
		ones := r.array(t, shape.Of(1, 4096), contiguous, func(int) uint64 { return expr.Encode(t, 1) })
		for _, res := range []dtype.Type{t, dtype.F32} {
			out := r.empty(res, shape.Of(1, 1), contiguous)
			reduce("sum of ones", &device.Reduction{Kind: device.Sum, Map: lower(x, t, t)}, out, ones)
			out.close(fmt.Sprintf("sum of 4096 ones of %v as %v", t, res), []float64{4096}, func(int) float64 { return 0 })
		}
		mean := r.empty(t, shape.Of(1, 1), contiguous)
		reduce("mean of ones", &device.Reduction{Kind: device.Sum, Map: lower(x, t, t), Finish: lower(x.Scale(1.0/4096), t, t)}, mean, ones)
		mean.close(fmt.Sprintf("mean of 4096 ones of %v", t), []float64{1}, func(int) float64 { return 0 })
	}
}
