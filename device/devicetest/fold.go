package devicetest

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// foldTypes are pairs of element types: the type of X, then the type of Y. Most devices support the
// first four pairs.
var foldTypes = [][2]dtype.Type{{dtype.F32, dtype.F32}, {dtype.F64, dtype.F64}, {dtype.I32, dtype.I32}, {dtype.I64, dtype.I64},
	{dtype.BF16, dtype.BF16}, {dtype.F32, dtype.F16}, {dtype.F16, dtype.F32}, {dtype.F32, dtype.BF16}, {dtype.U8, dtype.U8}, {dtype.I16, dtype.I8}}

// randomFold returns the sizes of a random fold: the shape of Y, the shape of X, and the window.
func (r *rig) randomFold(rank int) (y, x shape.Dims, w device.Window) {
	w.Rank = rank
	y = shape.Of(1+r.rnd.IntN(3), 1+r.rnd.IntN(3))
	var kernel, out shape.Dims
	unit := r.rnd.IntN(3)
	for i := range rank {
		w.Kernel[i], w.Stride[i], w.Dilation[i], w.Before[i] = 1+r.rnd.IntN(4), 1, 1, r.rnd.IntN(4)
		if unit != 0 {
			w.Stride[i] = 1 + r.rnd.IntN(4)
		}
		if unit != 1 {
			w.Dilation[i] = 1 + r.rnd.IntN(3)
		}
		y = y.Append(1 + r.rnd.IntN([...]int{40, 12, 6}[rank-1]))
		kernel, out = kernel.Append(w.Kernel[i]), out.Append(1+r.rnd.IntN([...]int{30, 9, 5}[rank-1]))
	}
	return y, y.Head(2).Append(kernel.Slice()...).Append(out.Slice()...), w
}

func testFold(r *rig) {
	if !r.supports("fold") {
		return
	}
	cases := 60
	if r.large {
		cases = 400
	}
	for i := range cases {
		of, from, w := r.randomFold(1 + i%3)
		t := foldTypes[r.rnd.IntN(len(foldTypes))]
		if i%2 == 0 {
			t = foldTypes[i/2%4]
		}
		form := func() form { return outForms[r.rnd.IntN(len(outForms))] }
		y, x := r.small(t[1], of, form()), r.small(t[0], from, form())
		o := &device.Fold{Y: y.v, X: x.v, Window: w, Add: r.rnd.IntN(3) == 0}
		var weight *array
		if r.rnd.IntN(3) == 0 {
			weight = r.small(t[0], shape.Of(of.At(1)).Append(w.Kernel[:w.Rank]...), form())
			o.W = weight.v
		}
		if !r.dev.Supports(o) {
			r.end()
			continue
		}
		what := fmt.Sprintf("fold of %v to %v, %+v, add %v, weights %v", t[0], t[1], w, o.Add, weight != nil)
		want := foldReference(o, y, x, weight)
		r.run(what, o)
		y.equal(what, want)
		r.end()
	}
	r.foldRepeated()
	r.foldEmpty()
}

// foldReference computes a fold. It adds in the order that [device.Fold] specifies.
func foldReference(o *device.Fold, y, x, w *array) []uint64 {
	acc := o.Y.Type.Compute()
	e, in := expr.X(0).Add(expr.X(1)), []dtype.Type{acc, o.X.Type}
	if w != nil {
		in = append(in, o.X.Type)
		if e = expr.X(0).Add(expr.X(1).Mul(expr.X(2))); acc.IsFloat() {
			e = expr.X(1).FMA(expr.X(2), expr.X(0))
		}
	}
	add, load, store := lower(e, acc, in...), lower(expr.X(0), acc, o.Y.Type), lower(expr.X(0), o.Y.Type, acc)
	sums, terms := make([]uint64, y.v.Size()), x.bits()
	var weights []uint64
	if w != nil {
		weights = w.bits()
	}
	if o.Add {
		for i, b := range y.bits() {
			sums[i] = load.Eval(nil, []uint64{b}, nil, 0)[0]
		}
	}
	r := o.Rank
	kernel, out := x.v.Shape.Tail(2).Head(r), x.v.Shape.Tail(2+r)
	taps, places, plane := kernel.Size(), out.Size(), y.v.Shape.Tail(2).Size()
	for i := range y.v.Shape.Head(2).Size() {
		for k := range taps {
			for p := range places {
				at, inside, leftK, leftP, size := 0, true, k, p, 1
				for d := r - 1; d >= 0; d-- {
					v := leftP%out.At(d)*o.Stride[d] + leftK%kernel.At(d)*o.Dilation[d] - o.Before[d]
					inside = inside && v >= 0 && v < y.v.Shape.At(2+d)
					at += v * size
					size *= y.v.Shape.At(2 + d)
					leftP, leftK = leftP/out.At(d), leftK/kernel.At(d)
				}
				if !inside {
					continue
				}
				args := []uint64{sums[i*plane+at], terms[(i*taps+k)*places+p]}
				if w != nil {
					args = append(args, weights[i%y.v.Shape.At(1)*taps+k])
				}
				sums[i*plane+at] = add.Eval(nil, args, nil, 0)[0]
			}
		}
	}
	for i, b := range sums {
		sums[i] = store.Eval(nil, []uint64{b}, nil, 0)[0]
	}
	return sums
}

// foldRepeated checks folds in which all elements of a window are the same number. Here a device
// may add in another order, so the results need only be close.
func (r *rig) foldRepeated() {
	for i, w := range []window{
		{n: 3, in: [2]int{6, 8}, kernel: [2]int{2, 2}, stride: [2]int{2, 2}, dilation: [2]int{1, 1}, out: [2]int{3, 4}},
		{n: 2, in: [2]int{7, 40}, kernel: [2]int{3, 5}, stride: [2]int{2, 1}, dilation: [2]int{1, 2}, before: [2]int{1, 2}, out: [2]int{4, 36}},
		{n: 2, in: [2]int{5, 6}, kernel: [2]int{5, 6}, stride: [2]int{1, 1}, dilation: [2]int{1, 1}, out: [2]int{1, 1}},
		{n: 2, in: [2]int{9, 50}, kernel: [2]int{3, 3}, stride: [2]int{1, 1}, dilation: [2]int{1, 1}, before: [2]int{1, 1}, out: [2]int{9, 50}},
	} {
		f := []form{contiguous, offset}[i%2]
		what := fmt.Sprintf("fold of numbers %+v", w)
		g, y := r.small(dtype.F32, shape.Of(w.n, 1, w.out[0], w.out[1]), f), r.empty(dtype.F32, shape.Of(w.n, 1, w.in[0], w.in[1]), f)
		o := &device.Fold{Y: y.v, X: g.v, Window: device.Window{Rank: 2, Kernel: three(w.kernel), Stride: three(w.stride), Dilation: three(w.dilation), Before: three(w.before)}}
		s, strides := g.v.Shape, g.v.Strides
		o.X.Shape = s.Head(2).Append(w.kernel[:]...).Append(s.Tail(2).Slice()...)
		o.X.Strides = strides.Head(2).Append(0, 0).Append(strides.Tail(2).Slice()...)
		want, size := make([]float64, y.v.Size()), make([]float64, y.v.Size())
		for k, v := range g.floats() {
			n, place := k/(w.out[0]*w.out[1]), k%(w.out[0]*w.out[1])
			for e := range w.kernel[0] * w.kernel[1] {
				if at, ok := w.sees([2]int{place / w.out[1], place % w.out[1]}, [2]int{e / w.kernel[1], e % w.kernel[1]}); ok {
					want[n*w.in[0]*w.in[1]+at] += v
					size[n*w.in[0]*w.in[1]+at] += math.Abs(v)
				}
			}
		}
		r.run(what, o)
		y.close(what, want, func(i int) float64 { return 8 * epsilon(dtype.F32) * size[i] })
		r.end()
	}
}

// foldEmpty checks a fold without windows, which must set Y to 0, and a fold with an empty Y.
func (r *rig) foldEmpty() {
	w := device.Window{Rank: 1, Kernel: [3]int{2}, Stride: [3]int{1}, Dilation: [3]int{1}}
	y := r.empty(dtype.F32, shape.Of(2, 3, 5), contiguous)
	r.run("fold without windows", &device.Fold{Y: y.v, X: r.small(dtype.F32, shape.Of(2, 3, 2, 0), contiguous).v, Window: w})
	y.equal("fold without windows", make([]uint64, 30))
	r.run("fold without planes", &device.Fold{Y: r.empty(dtype.F32, shape.Of(0, 3, 5), contiguous).v, X: r.small(dtype.F32, shape.Of(0, 3, 2, 4), contiguous).v, Window: w})
	r.end()
}
