package optest

import (
	"math"

	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// optional returns the list of numbers called name. It returns nil if the case has no such list.
func optional(a golden.Args, name string) []int {
	if a.Has(name) {
		return a.Ints(name)
	}
	return nil
}

// init adds the ops of _golden/conv.py to goldenOps.
func init() {
	type args = golden.Args
	groups := func(a args) int {
		if a.Has("groups") {
			return a.Int("groups")
		}
		return 0
	}
	conv := func(f func(x, w, b *tt, o tensor.ConvOptions) *tt) goldenOp {
		return func(a args, x []*tt) *tt {
			return f(x[0], x[1], biasOf(x), tensor.ConvOptions{Stride: optional(a, "stride"), Padding: optional(a, "padding"), Dilation: optional(a, "dilation"),
				Groups: groups(a), Same: a.Has("same")})
		}
	}
	transposed := func(f func(x, w, b *tt, o tensor.ConvTransposeOptions) *tt) goldenOp {
		return func(a args, x []*tt) *tt {
			return f(x[0], x[1], biasOf(x), tensor.ConvTransposeOptions{Stride: optional(a, "stride"), Padding: optional(a, "padding"), Dilation: optional(a, "dilation"),
				OutputPadding: optional(a, "output_padding"), Groups: groups(a)})
		}
	}
	maxOptions := func(a args) tensor.MaxPoolOptions {
		return tensor.MaxPoolOptions{Kernel: a.Ints("kernel"), Stride: optional(a, "stride"), Padding: optional(a, "padding"), Dilation: optional(a, "dilation"), CeilMode: a.Has("ceil")}
	}
	mostOf := func(plain func(*tt, tensor.MaxPoolOptions) *tt, both func(*tt, tensor.MaxPoolOptions) (*tt, *tt)) goldenOp {
		return func(a args, x []*tt) *tt {
			if !a.Has("part") {
				return plain(x[0], maxOptions(a))
			}
			return partOf(a)(both(x[0], maxOptions(a)))
		}
	}
	unpooled := func(f func(x, at *tt, o tensor.MaxPoolOptions, size ...int) *tt) goldenOp {
		return func(a args, x []*tt) *tt { return f(x[0], x[1], maxOptions(a), optional(a, "size")...) }
	}
	fractional := func(f func(*tt, tensor.FractionalPoolOptions) (*tt, *tt)) goldenOp {
		return func(a args, x []*tt) *tt {
			o := tensor.FractionalPoolOptions{Kernel: a.Ints("kernel"), Size: optional(a, "size"), Samples: x[1]}
			if a.Has("ratio") {
				o.Ratio = a.Floats("ratio")
			}
			return partOf(a)(f(x[0], o))
		}
	}
	avgOptions := func(a args) tensor.AvgPoolOptions {
		o := tensor.AvgPoolOptions{Kernel: a.Ints("kernel"), Stride: optional(a, "stride"), Padding: optional(a, "padding"), CeilMode: a.Has("ceil"), ExcludePadding: a.Has("exclude")}
		if a.Has("divisor") {
			o.Divisor = a.Int("divisor")
		}
		return o
	}
	meanOf := func(f func(*tt, tensor.AvgPoolOptions) *tt) goldenOp {
		return func(a args, x []*tt) *tt { return f(x[0], avgOptions(a)) }
	}
	normOf := func(f func(*tt, float64, tensor.AvgPoolOptions) *tt) goldenOp {
		return func(a args, x []*tt) *tt { return f(x[0], a.Float("p"), avgOptions(a)) }
	}
	foldOptions := func(a args) tensor.FoldOptions {
		return tensor.FoldOptions{Kernel: a.Ints("kernel"), Stride: optional(a, "stride"), Padding: optional(a, "padding"), Dilation: optional(a, "dilation")}
	}
	for name, op := range map[string]goldenOp{
		"max_pool1d": mostOf((*tt).MaxPool1d, (*tt).MaxPool1dIndices), "max_pool2d": mostOf((*tt).MaxPool2d, (*tt).MaxPool2dIndices),
		"max_pool3d":          mostOf((*tt).MaxPool3d, (*tt).MaxPool3dIndices),
		"adaptive_max_pool1d": func(a args, x []*tt) *tt { return partOf(a)(x[0].AdaptiveMaxPool1d(a.Ints("size")[0])) },
		"adaptive_max_pool2d": func(a args, x []*tt) *tt { return partOf(a)(x[0].AdaptiveMaxPool2d(a.Ints("size")...)) },
		"adaptive_max_pool3d": func(a args, x []*tt) *tt { return partOf(a)(x[0].AdaptiveMaxPool3d(a.Ints("size")...)) },
		"lp_pool1d":           normOf((*tt).LPPool1d), "lp_pool2d": normOf((*tt).LPPool2d), "lp_pool3d": normOf((*tt).LPPool3d),
		"max_unpool1d": unpooled((*tt).MaxUnpool1d), "max_unpool2d": unpooled((*tt).MaxUnpool2d), "max_unpool3d": unpooled((*tt).MaxUnpool3d),
		"fractional_max_pool2d": fractional((*tt).FractionalMaxPool2d), "fractional_max_pool3d": fractional((*tt).FractionalMaxPool3d),
	} {
		goldenOps[name] = op
		goldenTerms[name] = pickTerms
	}
	for name, op := range map[string]goldenOp{
		"avg_pool1d": meanOf((*tt).AvgPool1d), "avg_pool2d": meanOf((*tt).AvgPool2d), "avg_pool3d": meanOf((*tt).AvgPool3d),
		"adaptive_avg_pool1d": func(a args, x []*tt) *tt { return x[0].AdaptiveAvgPool1d(a.Ints("size")[0]) },
		"adaptive_avg_pool2d": func(a args, x []*tt) *tt { return x[0].AdaptiveAvgPool2d(a.Ints("size")...) },
		"adaptive_avg_pool3d": func(a args, x []*tt) *tt { return x[0].AdaptiveAvgPool3d(a.Ints("size")...) },
		"unfold2d":            func(a args, x []*tt) *tt { return x[0].Unfold2d(foldOptions(a)) },
		"interpolate":         func(a args, x []*tt) *tt { return x[0].Interpolate(interpolateOptions(a)) },
		"pixel_shuffle":       func(a args, x []*tt) *tt { return x[0].PixelShuffle(a.Int("factor")) },
		"pixel_unshuffle":     func(a args, x []*tt) *tt { return x[0].PixelUnshuffle(a.Int("factor")) },
		"channel_shuffle":     func(a args, x []*tt) *tt { return x[0].ChannelShuffle(a.Int("factor")) },
		"fold":                func(a args, x []*tt) *tt { return x[0].Fold(5, 4, foldOptions(a)) },
	} {
		goldenOps[name] = op
		goldenTerms[name] = convTerms
	}
	goldenOps["grid_sample"] = func(a args, x []*tt) *tt { return x[0].GridSample(x[1], gridOptions(a)) }
	goldenTerms["grid_sample"] = gridTerms
	goldenTerms["interpolate"] = func(c golden.Case) terms {
		o := interpolateOptions(c.Args)
		if o.Mode != tensor.InterpolateCubic {
			return convTerms(c)
		}
		if o.Antialias {
			x, to := viewed(c.In[0]), c.Out[0].F64.Shape[2:]
			sum := smoothRef(o, to, math.Abs)
			return terms{out: sum(x.apply(finite)).v, grads: map[int][]float64{0: adjoint(sum, x.dims...)(absolute(arrayOf(*c.Out[0].Seed))).v}}
		}
		// Some weights are negative, so the sums of absolute terms use the absolute weights.
		x, to := viewed(c.In[0]), c.Out[0].F64.Shape[2:]
		sum := resampleRef(o.Mode, to, o.Scale, o.AlignCorners, func(t float64) float64 { return math.Abs(keys(t)) })
		return terms{out: sum(x.apply(finite)).v, grads: map[int][]float64{0: adjoint(sum, x.dims...)(absolute(arrayOf(*c.Out[0].Seed))).v}}
	}
	for name, op := range map[string]goldenOp{
		"conv1d": conv((*tt).Conv1d), "conv2d": conv((*tt).Conv2d), "conv3d": conv((*tt).Conv3d),
		"conv_transpose1d": transposed((*tt).ConvTranspose1d), "conv_transpose2d": transposed((*tt).ConvTranspose2d), "conv_transpose3d": transposed((*tt).ConvTranspose3d),
	} {
		goldenOps[name] = op
		goldenTerms[name] = convTerms
	}
}

func gridOptions(a golden.Args) (o tensor.GridSampleOptions) {
	o.AlignCorners = a.Has("align")
	for o.Mode.String() != a.Text("mode") {
		o.Mode++
	}
	for o.Padding.String() != a.Text("padding") {
		o.Padding++
	}
	return o
}

// gridTerms returns the sums of absolute terms of GridSample. They are sums of the elements that
// are read, plus the error that the rounding of the position causes. This error is a multiple of
// the largest element. For the gradient of positions it also grows with the size of the image.
func gridTerms(c golden.Case) terms {
	x, grid := viewed(c.In[0]).apply(finite), viewed(c.In[1])
	sum := func(x array) array { return gridRef(gridOptions(c.Args), math.Abs)([]array{x, grid}) }
	top, seeds, far := 0.0, 0.0, 1.0
	for _, v := range x.v {
		top = math.Max(top, v)
	}
	t := terms{out: sum(x).apply(func(v float64) float64 { return v + 8*top }).v, grads: map[int][]float64{}}
	if c.Out[0].Seed == nil {
		return t
	}
	for _, v := range grid.v {
		far = math.Max(far, math.Abs(v))
	}
	seed := absolute(arrayOf(*c.Out[0].Seed))
	for _, v := range seed.v {
		seeds = math.Max(seeds, v)
	}
	t.grads[0] = adjoint(sum, x.dims...)(seed).apply(func(v float64) float64 { return v + 8*far*seeds }).v
	t.grads[1] = grid.apply(func(float64) float64 { return 8 * far * top * seeds * float64(x.dims[1]*(x.dims[2]+x.dims[3])) }).v
	return t
}

func interpolateOptions(a golden.Args) tensor.InterpolateOptions {
	o := tensor.InterpolateOptions{Size: optional(a, "size"), AlignCorners: a.Has("align"), Antialias: a.Has("antialias")}
	if a.Has("scale") {
		o.Scale = a.Floats("scale")
	}
	for m := range tensor.InterpolateArea + 1 {
		if m.String() == a.Text("mode") {
			o.Mode = m
		}
	}
	return o
}

// partOf returns a function that selects one of two results.
func partOf(a golden.Args) func(values, indices *tt) *tt {
	return func(values, indices *tt) *tt {
		if a.Int("part") == 1 {
			return indices
		}
		return values
	}
}

// pickTerms returns the sums of absolute terms for an op that only selects elements. Where windows
// overlap, its gradient is a sum of the result's gradients. 8 is an upper bound of this sum.
func pickTerms(c golden.Case) (t terms) {
	t.grads = map[int][]float64{}
	if c.In[0].GradF64 != nil {
		t.grads[0] = absolute(arrayOf(*c.In[0].GradF64)).apply(func(v float64) float64 { return finite(v) + 8 }).v
	}
	return t
}

// convTerms returns the sums of absolute terms for an op that is linear in each operand. They are
// the op's results for absolute values.
func convTerms(c golden.Case) terms {
	t := absoluteRun(c)
	for i, v := range t.out {
		t.out[i] = finite(v)
	}
	for _, g := range t.grads {
		for i, v := range g {
			g[i] = finite(v)
		}
	}
	return t
}
