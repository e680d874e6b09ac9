package samples

import (
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

var activations = map[string]call{
	"nn.functional.relu": inert(T.Relu), "nn.functional.relu6": inert(T.Relu6),
	"nn.functional.silu": inert(T.Silu), "nn.functional.mish": inert(T.Mish),
	"nn.functional.selu": inert(T.Selu), "nn.functional.hardswish": inert(T.Hardswish),
	"nn.functional.hardsigmoid": inert(T.Hardsigmoid),
	"nn.functional.logsigmoid":  inert(T.LogSigmoid),
	"nn.functional.softsign":    inert(T.Softsign), "nn.functional.tanhshrink": inert(T.Tanhshrink),
	"nn.functional.gelu": func(a *args) any {
		switch how := a.text(-1, "approximate", "none"); how {
		case "none":
			return a.x().Gelu()
		case "tanh":
			return a.x().GeluTanh()
		default:
			panic(wrong("approximate=" + how))
		}
	},
	"nn.functional.elu":        slope("alpha", 1, T.Elu),
	"nn.functional.celu":       slope("alpha", 1, T.Celu),
	"nn.functional.leaky_relu": slope("negative_slope", 0.01, T.LeakyRelu),
	"nn.functional.hardshrink": slope("lambd", 0.5, T.Hardshrink),
	"nn.functional.softshrink": slope("lambd", 0.5, T.Softshrink),
	"nn.functional.hardtanh": func(a *args) any {
		a.ignored("inplace")
		return a.x().Hardtanh(a.float(1, "min_val", -1), a.float(2, "max_val", 1))
	},
	"nn.functional.threshold": func(a *args) any {
		a.ignored("inplace")
		return a.x().Threshold(a.float(1, "threshold", 0), a.float(2, "value", 0))
	},
	"nn.functional.softplus": func(a *args) any {
		return a.x().Softplus(a.float(1, "beta", 1), a.float(2, "threshold", 20))
	},
	"nn.functional.prelu": func(a *args) any { return a.x().PRelu(a.T(1, "weight")) },
	"nn.functional.glu":   func(a *args) any { return a.x().Glu(a.int(1, "dim", -1)) },
	"nn.functional.rrelu": func(a *args) any {
		a.ignored("inplace")
		l := nn.NewRReLU(a.float(1, "lower", 1.0/8), a.float(2, "upper", 1.0/3))
		if !a.bool(3, "training", false) {
			nn.Eval(l)
		}
		return l.Forward(a.x())
	},
	"softmax": softmaxes(T.Softmax), "softmax.with_dtype": softmaxes(T.Softmax),
	"log_softmax": softmaxes(T.LogSoftmax), "log_softmax.with_dtype": softmaxes(T.LogSoftmax),
	"nn.functional.softmin":                          softmaxes(T.Softmin),
	"nn.functional.softmin.with_dtype":               softmaxes(T.Softmin),
	"nn.functional.dropout":                          dropouts(T.Dropout, true),
	"nn.functional.dropout2d":                        dropouts(T.Dropout2d, true),
	"nn.functional.dropout3d":                        dropouts(T.Dropout3d, true),
	"nn.functional.alpha_dropout":                    dropouts(T.AlphaDropout, false),
	"nn.functional.feature_alpha_dropout.with_train": dropouts(T.FeatureAlphaDropout, false),
	"nn.functional.feature_alpha_dropout.without_train": func(a *args) any {
		a.ignored("p", "training")
		return a.x()
	},
	"nn.functional.scaled_dot_product_attention": func(a *args) any {
		o := tensor.AttentionOptions{
			Mask: a.opt(3, "attn_mask"), Dropout: a.float(4, "dropout_p", 0),
			Causal: a.bool(5, "is_causal", false), Scale: a.float(-1, "scale", 0),
			GroupedHeads: a.bool(-1, "enable_gqa", false),
		}
		return tensor.ScaledDotProductAttention(a.x(), a.T(1, "key"), a.T(2, "value"), o)
	},
}

func inert(f func(x T) T) call {
	return func(a *args) any {
		a.ignored("inplace")
		return f(a.x())
	}
}

func slope(name string, or float64, f func(x T, v float64) T) call {
	return func(a *args) any {
		a.ignored("inplace")
		return f(a.x(), a.float(1, name, or))
	}
}

func softmaxes(f func(x T, dim int) T) call {
	return func(a *args) any { return f(a.cast(2, a.x()), a.int(1, "dim", 0)) }
}

// dropouts adapts f, a method that drops elements. If a sample lacks the argument training, the
// parameter training takes its place.
func dropouts(f func(x T, p float64) T, training bool) call {
	return func(a *args) any {
		a.ignored("inplace")
		p := a.float(1, "p", 0.5)
		if !a.bool(2, "training", training) {
			return a.x()
		}
		return f(a.x(), p)
	}
}

var convolutions = map[string]call{
	"nn.functional.conv1d": convs(T.Conv1d), "nn.functional.conv2d": convs(T.Conv2d),
	"nn.functional.conv3d":           convs(T.Conv3d),
	"nn.functional.conv_transpose1d": transposed(T.ConvTranspose1d),
	"nn.functional.conv_transpose2d": transposed(T.ConvTranspose2d),
	"nn.functional.conv_transpose3d": transposed(T.ConvTranspose3d),
	"nn.functional.unfold": func(a *args) any {
		return a.x().Unfold2d(tensor.FoldOptions{
			Kernel: a.ints(1, "kernel_size"), Dilation: a.ints(2, "dilation"), Padding: a.ints(3,
				"padding"),
			Stride: a.ints(4, "stride"),
		})
	},
	"nn.functional.grid_sample":               gridSample,
	"grid_sampler_2d":                         gridSampler,
	"nn.functional.interpolate.nearest":       interpolate(""),
	"nn.functional.interpolate.nearest-exact": interpolate(""),
	"nn.functional.interpolate.linear":        interpolate(""),
	"nn.functional.interpolate.bilinear":      interpolate(""),
	"nn.functional.interpolate.bicubic":       interpolate(""),
	"nn.functional.interpolate.trilinear":     interpolate(""),
	"nn.functional.interpolate.area":          interpolate(""),
	"nn.functional.upsample_bilinear":         interpolate("bilinear"),
	"nn.functional.upsample_nearest":          interpolate("nearest"),
}

func convs(f func(x, w, b T, o tensor.ConvOptions) T) call {
	return func(a *args) any {
		o := tensor.ConvOptions{
			Stride: a.ints(3, "stride"), Dilation: a.ints(5, "dilation"), Groups: a.int(6,
				"groups", 1),
		}
		switch p := a.arg(4, "padding").(type) {
		case string:
			if o.Same = p == "same"; !o.Same && p != "valid" {
				panic(wrong("padding " + p))
			}
		default:
			o.Padding = toInts(p)
		}
		return f(a.x(), a.T(1, "weight"), a.opt(2, "bias"), o)
	}
}

func transposed(f func(x, w, b T, o tensor.ConvTransposeOptions) T) call {
	return func(a *args) any {
		return f(a.x(), a.T(1, "weight"), a.opt(2, "bias"), tensor.ConvTransposeOptions{
			Stride: a.ints(3, "stride"), Padding: a.ints(4, "padding"),
			OutputPadding: a.ints(5, "output_padding"), Groups: a.int(6, "groups", 1),
			Dilation: a.ints(7, "dilation"),
		})
	}
}

// gridSample calls grid_sample for images. It does not support volumes.
func gridSample(a *args) any {
	var o tensor.GridSampleOptions
	if a.x().Rank() == 5 {
		lacks("sampling of volumes")
	}
	mode, padding := a.text(2, "mode", "bilinear"), a.text(3, "padding_mode", "zeros")
	for o.Mode < tensor.GridBicubic && o.Mode.String() != mode {
		o.Mode++
	}
	for o.Padding < tensor.GridReflection && o.Padding.String() != padding {
		o.Padding++
	}
	o.AlignCorners = a.bool(4, "align_corners", false)
	return a.x().GridSample(a.T(1, "grid"), o)
}

// gridSampler is grid_sample whose modes are numbers instead of words.
func gridSampler(a *args) any {
	return a.x().GridSample(a.T(1, "grid"), tensor.GridSampleOptions{
		Mode: device.GridMode(a.int(2, "interpolation_mode", 0)), Padding: device.GridPadding(a.int(3, "padding_mode", 0)),
		AlignCorners: a.bool(4, "align_corners", false)})
}

func interpolate(mode string) call {
	modes := map[string]tensor.InterpolateMode{
		"nearest": tensor.InterpolateNearest, "nearest-exact": tensor.InterpolateNearestExact,
		"linear": tensor.InterpolateLinear, "bilinear": tensor.InterpolateLinear,
		"trilinear": tensor.InterpolateLinear, "bicubic": tensor.InterpolateCubic,
		"area": tensor.InterpolateArea,
	}
	return func(a *args) any {
		o := tensor.InterpolateOptions{Size: a.ints(1, "size")}
		switch v := a.arg(2, "scale_factor").(type) {
		case nil:
		case []any, tuple:
			for _, f := range items(v) {
				o.Scale = append(o.Scale, number64(f))
			}
		default:
			o.Scale = []float64{number64(v)}
		}
		name := a.text(3, "mode", mode)
		if name == "" {
			name = "nearest"
		}
		var ok bool
		if o.Mode, ok = modes[name]; !ok {
			panic(wrong("mode " + name))
		}
		o.AlignCorners = a.bool(4, "align_corners", mode == "bilinear")
		if a.bool(5, "recompute_scale_factor", false) {
			o.Size = scaled(a.x(), o.Scale)
			o.Scale = nil
		}
		o.Antialias = a.bool(6, "antialias", false)
		return a.x().Interpolate(o)
	}
}

// scaled returns the size that results from scale factors. There is one factor for all dimensions,
// or one for each dimension. Given this size instead of the factors, Interpolate computes the
// factors anew, as recompute_scale_factor requires.
func scaled(x T, factors []float64) (size []int) {
	for i := 2; i < x.Rank(); i++ {
		f := factors[0]
		if len(factors) > 1 {
			f = factors[i-2]
		}
		size = append(size, int(math.Floor(float64(x.Dim(i))*f)))
	}
	return size
}

// smoothed is interpolation with antialiasing. PyTorch names the sizes differently here than in
// interpolate.
var smoothed call = func(a *args) any {
	o := tensor.InterpolateOptions{Size: a.ints(1, "output_size"), Mode: tensor.InterpolateLinear,
		AlignCorners: a.bool(2, "align_corners", false), Antialias: true}
	if l := a.arg(3, "scale_factors"); l != nil {
		for _, f := range items(l) {
			o.Scale = append(o.Scale, number64(f))
		}
	}
	if a.has(-1, "scales_h") || a.has(-1, "scales_w") {
		lacks("a size and factors")
	}
	return a.x().Interpolate(o)
}

var pools = map[string]call{
	"_upsample_bilinear2d_aa":         smoothed,
	"nn.functional.max_pool1d":        maxPools(T.MaxPool1dIndices),
	"nn.functional.max_pool2d":        maxPools(T.MaxPool2dIndices),
	"nn.functional.max_pool3d":        maxPools(T.MaxPool3dIndices),
	"nn.functional.avg_pool1d":        avgPools(T.AvgPool1d),
	"nn.functional.avg_pool2d":        avgPools(T.AvgPool2d),
	"nn.functional.avg_pool3d":        avgPools(T.AvgPool3d),
	"nn.functional.max_unpool1d":      unpools(1, T.MaxUnpool1d),
	"nn.functional.max_unpool1d.grad": unpools(1, T.MaxUnpool1d),
	"nn.functional.max_unpool2d":      unpools(2, T.MaxUnpool2d),
	"nn.functional.max_unpool2d.grad": unpools(2, T.MaxUnpool2d),
	"nn.functional.max_unpool3d":      unpools(3, T.MaxUnpool3d),
	"nn.functional.max_unpool3d.grad": unpools(3, T.MaxUnpool3d),
	"nn.functional.adaptive_avg_pool1d": func(a *args) any {
		return a.x().AdaptiveAvgPool1d(one(sizes(a)))
	},
	"nn.functional.adaptive_avg_pool2d": func(a *args) any { return a.x().AdaptiveAvgPool2d(sizes(a)...) },
	"nn.functional.adaptive_avg_pool3d": func(a *args) any { return a.x().AdaptiveAvgPool3d(sizes(a)...) },
	"nn.functional.adaptive_max_pool1d": func(a *args) any {
		return withIndices(a, a.arg(2, "return_indices"), func() (v, i T) {
			return a.x().AdaptiveMaxPool1d(one(sizes(a)))
		})
	},
	"nn.functional.adaptive_max_pool2d": func(a *args) any {
		return withIndices(a, a.arg(2, "return_indices"), func() (v, i T) {
			return a.x().AdaptiveMaxPool2d(sizes(a)...)
		})
	},
	"nn.functional.adaptive_max_pool3d": func(a *args) any {
		return withIndices(a, a.arg(2, "return_indices"), func() (v, i T) {
			return a.x().AdaptiveMaxPool3d(sizes(a)...)
		})
	},
}

func withIndices(_ *args, wanted any, f func() (v, i T)) any {
	v, i := f()
	if w, _ := wanted.(bool); w {
		return []T{v, i}
	}
	return v
}

// sizes returns output_size. PyTorch's None becomes -1.
func sizes(a *args) (out []int) {
	v := a.arg(1, "output_size")
	if n, ok := v.(int); ok {
		return []int{n}
	}
	for _, e := range items(v) {
		if e == nil {
			out = append(out, -1)
		} else {
			out = append(out, whole(e))
		}
	}
	return out
}

func one(v []int) int {
	if len(v) != 1 {
		panic(wrong("not one size"))
	}
	return v[0]
}

func maxPools(f func(x T, o tensor.MaxPoolOptions) (v, i T)) call {
	return func(a *args) any {
		o := tensor.MaxPoolOptions{
			Kernel: a.ints(1, "kernel_size"), Stride: a.ints(2, "stride"), Padding: a.ints(3,
				"padding"),
			Dilation: a.ints(4, "dilation"), CeilMode: a.bool(5, "ceil_mode", false),
		}
		return withIndices(a, a.arg(6, "return_indices"), func() (v, i T) { return f(a.x(), o) })
	}
}

func unpools(spatial int, f func(x, indices T, o tensor.MaxPoolOptions, size ...int) T) call {
	return func(a *args) any {
		o := tensor.MaxPoolOptions{
			Kernel: a.ints(2, "kernel_size"), Stride: a.ints(3, "stride"), Padding: a.ints(4,
				"padding"),
		}
		// output_size may also contain the sizes of batch and channels
		size := a.ints(5, "output_size")
		if len(size) == a.x().Rank() {
			size = size[len(size)-spatial:]
		}
		return f(a.x(), a.T(1, "indices"), o, size...)
	}
}

func avgPools(f func(x T, o tensor.AvgPoolOptions) T) call {
	return func(a *args) any {
		return f(a.x(), tensor.AvgPoolOptions{
			Kernel: a.ints(1, "kernel_size"), Stride: a.ints(2, "stride"), Padding: a.ints(3,
				"padding"),
			CeilMode: a.bool(4, "ceil_mode", false), ExcludePadding: !a.bool(5,
				"count_include_pad", true),
			Divisor: a.divisor(),
		})
	}
}

func (a *args) divisor() int {
	v, ok := a.arg(6, "divisor_override").(int)
	if ok && v == 0 {
		panic(wrong("a divisor of 0"))
	}
	return v
}

var norms = map[string]call{
	"nn.functional.layer_norm": func(a *args) any {
		return a.x().LayerNorm(a.ints(1, "normalized_shape"), a.opt(2, "weight"), a.opt(3, "bias"),
			a.float(4, "eps", 1e-5))
	},
	"nn.functional.rms_norm": func(a *args) any {
		return a.x().RMSNorm(a.ints(1, "normalized_shape"), a.opt(2, "weight"), a.float(3, "eps",
			-1))
	},
	"nn.functional.group_norm": func(a *args) any {
		return a.x().GroupNorm(a.int(1, "num_groups", 0), a.opt(2, "weight"), a.opt(3, "bias"),
			a.float(4, "eps", 1e-5))
	},
	"nn.functional.batch_norm": batchNorms, "nn.functional.batch_norm.without_cudnn": batchNorms,
	"nn.functional.instance_norm": func(a *args) any {
		return a.x().InstanceNorm(a.opt(1, "running_mean"), a.opt(2, "running_var"), a.opt(3,
			"weight"),
			a.opt(4, "bias"), a.bool(5, "use_input_stats", true), a.float(6, "momentum", 0.1),
			a.float(7, "eps", 1e-5))
	},
	"nn.functional.local_response_norm": func(a *args) any {
		return a.x().LocalResponseNorm(a.int(1, "size", 0), a.float(2, "alpha", 1e-4),
			a.float(3, "beta", 0.75), a.float(4, "k", 1))
	},
	"nn.functional.normalize": func(a *args) any {
		return a.x().Normalize(a.float(1, "p", 2), a.int(2, "dim", 1), a.float(3, "eps", 1e-12))
	},
	"nn.functional.cosine_similarity": func(a *args) any {
		return a.x().CosineSimilarity(a.T(1, "x2"), a.int(2, "dim", 1), a.float(3, "eps", 1e-8))
	},
	"nn.functional.pairwise_distance": func(a *args) any {
		y := a.x().PairwiseDistance(a.T(1, "x2"), a.float(2, "p", 2), a.float(3, "eps", 1e-6))
		if a.bool(4, "keepdim", false) {
			y = y.Unsqueeze(-1)
		}
		return y
	},
}

var batchNorms call = func(a *args) any {
	return a.x().BatchNorm(a.opt(1, "running_mean"), a.opt(2, "running_var"), a.opt(3, "weight"),
		a.opt(4, "bias"), a.bool(5, "training", false), a.float(6, "momentum", 0.1), a.float(7,
			"eps", 1e-5))
}
