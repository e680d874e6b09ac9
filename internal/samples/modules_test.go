package samples

import (
	"maps"
	"reflect"
	"slices"

	"github.com/flambeau-go/flambeau/nn"
)

// A layer says how to make one of PyTorch's layers from its arguments, and how to call it.
type layer struct {
	make func(a *args) any
	call func(m any, a *args) any // calls the layer; nil means to call Forward with the tensors
}

// layers holds adapters by the name of PyTorch's layer.
var layers = map[string]layer{}

func init() {
	for name, f := range simpleLayers {
		layers[name] = layer{make: f}
	}
	maps.Copy(layers, longLayers)
}

// noArgs returns the adapter of a layer that has no argument except inplace.
func noArgs[M any](m M) func(a *args) any {
	return func(a *args) any {
		a.ignored("inplace")
		return m
	}
}

// opts returns the options of a layer. They place the layer in the scope of the sample, and leave
// out its bias if the argument at position bias is False.
func (a *args) opts(bias int) []nn.Option {
	o := []nn.Option{nn.In(a.scope)}
	if !a.bool(bias, "bias", true) {
		o = append(o, nn.NoBias())
	}
	return o
}

func lossLayer[M any](f func(a *args, r nn.Reduction) M) func(a *args) any {
	return func(a *args) any { return f(a, a.reduction(-1)) }
}

var simpleLayers = map[string]func(a *args) any{
	"nn.AdaptiveAvgPool1d": func(a *args) any { return nn.NewAdaptiveAvgPool1d(one(size0(a))) },
	"nn.AdaptiveAvgPool2d": func(a *args) any { return nn.NewAdaptiveAvgPool2d(size0(a)...) },
	"nn.AdaptiveAvgPool3d": func(a *args) any { return nn.NewAdaptiveAvgPool3d(size0(a)...) },
	"nn.AdaptiveMaxPool1d": func(a *args) any { return a.places(1, nn.NewAdaptiveMaxPool1d(one(size0(a)))) },
	"nn.AdaptiveMaxPool2d": func(a *args) any { return a.places(1, nn.NewAdaptiveMaxPool2d(size0(a)...)) },
	"nn.AdaptiveMaxPool3d": func(a *args) any { return a.places(1, nn.NewAdaptiveMaxPool3d(size0(a)...)) },
	"nn.AvgPool1d": func(a *args) any {
		k, o := a.avgPool()
		return nn.NewAvgPool1d(k, o...)
	},
	"nn.AvgPool2d": func(a *args) any {
		k, o := a.avgPool()
		return nn.NewAvgPool2d(k, o...)
	},
	"nn.AvgPool3d": func(a *args) any {
		k, o := a.avgPool()
		return nn.NewAvgPool3d(k, o...)
	},
	"nn.LPPool1d": func(a *args) any {
		p, k, o := a.lpPool()
		return nn.NewLPPool1d(p, k, o...)
	},
	"nn.LPPool2d": func(a *args) any {
		p, k, o := a.lpPool()
		return nn.NewLPPool2d(p, k, o...)
	},
	"nn.LPPool3d": func(a *args) any {
		p, k, o := a.lpPool()
		return nn.NewLPPool3d(p, k, o...)
	},
	"nn.MaxPool1d": func(a *args) any {
		k, o := a.maxPool()
		return a.places(4, nn.NewMaxPool1d(k, o...))
	},
	"nn.MaxPool2d": func(a *args) any {
		k, o := a.maxPool()
		return a.places(4, nn.NewMaxPool2d(k, o...))
	},
	"nn.MaxPool3d": func(a *args) any {
		k, o := a.maxPool()
		return a.places(4, nn.NewMaxPool3d(k, o...))
	},

	"nn.Conv1d": func(a *args) any {
		in, out, k, o := a.conv()
		return nn.NewConv1d(in, out, k, o...)
	},
	"nn.Conv2d": func(a *args) any {
		in, out, k, o := a.conv()
		return nn.NewConv2d(in, out, k, o...)
	},
	"nn.Conv3d": func(a *args) any {
		in, out, k, o := a.conv()
		return nn.NewConv3d(in, out, k, o...)
	},
	"nn.ConvTranspose1d": func(a *args) any {
		in, out, k, o := a.convTranspose()
		return nn.NewConvTranspose1d(in, out, k, o...)
	},
	"nn.ConvTranspose2d": func(a *args) any {
		in, out, k, o := a.convTranspose()
		return nn.NewConvTranspose2d(in, out, k, o...)
	},
	"nn.ConvTranspose3d": func(a *args) any {
		in, out, k, o := a.convTranspose()
		return nn.NewConvTranspose3d(in, out, k, o...)
	},

	"nn.BatchNorm1d": func(a *args) any {
		l := nn.NewBatchNorm1d(a.int(0, "num_features", 0), a.batch(3, 4, true)...)
		l.Eps, l.Momentum = a.moments()
		return l
	},
	"nn.BatchNorm2d": func(a *args) any {
		l := nn.NewBatchNorm2d(a.int(0, "num_features", 0), a.batch(3, 4, true)...)
		l.Eps, l.Momentum = a.moments()
		return l
	},
	"nn.BatchNorm3d": func(a *args) any {
		l := nn.NewBatchNorm3d(a.int(0, "num_features", 0), a.batch(3, 4, true)...)
		l.Eps, l.Momentum = a.moments()
		return l
	},
	"nn.InstanceNorm1d": func(a *args) any {
		l := nn.NewInstanceNorm1d(a.int(0, "num_features", 0), a.batch(3, 4, false)...)
		l.Eps, l.Momentum = a.moments()
		return l
	},
	"nn.InstanceNorm2d": func(a *args) any {
		l := nn.NewInstanceNorm2d(a.int(0, "num_features", 0), a.batch(3, 4, false)...)
		l.Eps, l.Momentum = a.moments()
		return l
	},
	"nn.InstanceNorm3d": func(a *args) any {
		l := nn.NewInstanceNorm3d(a.int(0, "num_features", 0), a.batch(3, 4, false)...)
		l.Eps, l.Momentum = a.moments()
		return l
	},
	"nn.GroupNorm": func(a *args) any {
		o := a.opts(-1)
		if !a.bool(3, "affine", true) {
			o = append(o, nn.NoAffine())
		}
		l := nn.NewGroupNorm(a.int(0, "num_groups", 0), a.int(1, "num_channels", 0), o...)
		l.Eps = a.float(2, "eps", 1e-5)
		return l
	},
	"nn.LayerNorm": func(a *args) any {
		o := a.opts(-1)
		if !a.bool(2, "elementwise_affine", true) {
			o = append(o, nn.NoAffine())
		}
		l := nn.NewLayerNorm(a.ints(0, "normalized_shape"), o...)
		l.Eps = a.float(1, "eps", 1e-5)
		return l
	},
	"nn.RMSNorm": func(a *args) any {
		o := a.opts(-1)
		if !a.bool(2, "elementwise_affine", true) {
			o = append(o, nn.NoAffine())
		}
		l := nn.NewRMSNorm(a.ints(0, "normalized_shape"), o...)
		if a.has(1, "eps") {
			l.Eps = a.float(1, "eps", 0)
		}
		return l
	},
	"nn.LocalResponseNorm": func(a *args) any {
		l := nn.NewLocalResponseNorm(a.int(0, "size", 0))
		l.Alpha, l.Beta, l.K = a.float(1, "alpha", 1e-4), a.float(2, "beta", 0.75), a.float(3,
			"k", 1)
		return l
	},

	"nn.ELU":  func(a *args) any { return nn.NewELU(a.alone("alpha", 1)) },
	"nn.CELU": func(a *args) any { return nn.NewCELU(a.alone("alpha", 1)) },
	"nn.GELU": func(a *args) any {
		return nn.GELU{Tanh: a.text(0, "approximate",
			"none") == "tanh"}
	},
	"nn.GLU":        func(a *args) any { return nn.NewGLU(a.int(0, "dim", -1)) },
	"nn.Hardshrink": func(a *args) any { return nn.NewHardshrink(a.alone("lambd", 0.5)) },
	"nn.Softshrink": func(a *args) any { return nn.NewSoftshrink(a.alone("lambd", 0.5)) },
	"nn.LeakyReLU":  func(a *args) any { return nn.NewLeakyReLU(a.alone("negative_slope", 0.01)) },
	"nn.Hardtanh": func(a *args) any {
		a.ignored("inplace")
		return nn.NewHardtanh(a.float(0, "min_val", -1), a.float(1, "max_val", 1))
	},
	"nn.Threshold": func(a *args) any {
		a.ignored("inplace")
		return nn.NewThreshold(a.float(0, "threshold", 0), a.float(1, "value", 0))
	},
	"nn.Softplus": func(a *args) any {
		return nn.NewSoftplus(a.float(0, "beta", 1), a.float(1, "threshold", 20))
	},
	"nn.PReLU": func(a *args) any {
		return nn.NewPReLU(a.int(0, "num_parameters", 1), a.float(1, "init", 0.25), nn.In(a.scope))
	},
	"nn.Softmax":    func(a *args) any { return nn.NewSoftmax(a.int(0, "dim", 0)) },
	"nn.LogSoftmax": func(a *args) any { return nn.NewLogSoftmax(a.int(0, "dim", 0)) },
	"nn.Softmin":    func(a *args) any { return nn.NewSoftmin(a.int(0, "dim", 0)) },
	"nn.Softmax2d":  noArgs(nn.Softmax2d{}), "nn.Hardswish": noArgs(nn.Hardswish{}),
	"nn.ReLU": noArgs(nn.ReLU{}), "nn.ReLU6": noArgs(nn.ReLU6{}), "nn.SELU": noArgs(nn.SELU{}),
	"nn.Sigmoid": noArgs(nn.Sigmoid{}), "nn.LogSigmoid": noArgs(nn.LogSigmoid{}),
	"nn.SiLU": noArgs(nn.SiLU{}), "nn.Softsign": noArgs(nn.Softsign{}), "nn.Tanh": noArgs(nn.Tanh{}),
	"nn.Tanhshrink": noArgs(nn.Tanhshrink{}), "nn.Mish": noArgs(nn.Mish{}),

	"nn.Linear": func(a *args) any {
		return nn.NewLinear(a.int(0, "in_features", 0), a.int(1, "out_features", 0), a.opts(2)...)
	},
	"nn.Bilinear": func(a *args) any {
		return nn.NewBilinear(a.int(0, "in1_features", 0), a.int(1, "in2_features", 0),
			a.int(2, "out_features", 0), a.opts(3)...)
	},
	"nn.Embedding": func(a *args) any {
		return nn.NewEmbedding(a.int(0, "num_embeddings", 0), a.int(1, "embedding_dim", 0),
			nn.In(a.scope))
	},

	"nn.ReflectionPad1d": func(a *args) any {
		return nn.NewReflectionPad1d(a.ints(0,
			"padding")...)
	},
	"nn.ReflectionPad2d": func(a *args) any {
		return nn.NewReflectionPad2d(a.ints(0,
			"padding")...)
	},
	"nn.ReflectionPad3d": func(a *args) any {
		return nn.NewReflectionPad3d(a.ints(0,
			"padding")...)
	},
	"nn.ReplicationPad1d": func(a *args) any {
		return nn.NewReplicationPad1d(a.ints(0,
			"padding")...)
	},
	"nn.ReplicationPad2d": func(a *args) any {
		return nn.NewReplicationPad2d(a.ints(0,
			"padding")...)
	},
	"nn.ReplicationPad3d": func(a *args) any {
		return nn.NewReplicationPad3d(a.ints(0,
			"padding")...)
	},
	"nn.ZeroPad1d": func(a *args) any { return nn.NewZeroPad1d(a.ints(0, "padding")...) },
	"nn.ZeroPad2d": func(a *args) any { return nn.NewZeroPad2d(a.ints(0, "padding")...) },
	"nn.ZeroPad3d": func(a *args) any { return nn.NewZeroPad3d(a.ints(0, "padding")...) },
	"nn.CircularPad1d": func(a *args) any {
		return nn.NewCircularPad1d(a.ints(0,
			"padding")...)
	},
	"nn.CircularPad2d": func(a *args) any {
		return nn.NewCircularPad2d(a.ints(0,
			"padding")...)
	},
	"nn.CircularPad3d": func(a *args) any {
		return nn.NewCircularPad3d(a.ints(0,
			"padding")...)
	},
	"nn.ConstantPad1d": func(a *args) any {
		return nn.NewConstantPad1d(a.float(1, "value", 0), a.ints(0, "padding")...)
	},
	"nn.ConstantPad2d": func(a *args) any {
		return nn.NewConstantPad2d(a.float(1, "value", 0), a.ints(0, "padding")...)
	},
	"nn.ConstantPad3d": func(a *args) any {
		return nn.NewConstantPad3d(a.float(1, "value", 0), a.ints(0, "padding")...)
	},

	"nn.L1Loss": lossLayer(func(a *args,
		r nn.Reduction) nn.L1Loss {
		return nn.L1Loss{Reduction: r}
	}),
	"nn.MSELoss": lossLayer(func(a *args,
		r nn.Reduction) nn.MSELoss {
		return nn.MSELoss{Reduction: r}
	}),
	"nn.SmoothL1Loss": lossLayer(func(a *args, r nn.Reduction) nn.SmoothL1Loss {
		return nn.SmoothL1Loss{Beta: a.float(-1, "beta", 1), Reduction: r}
	}),
	"nn.HuberLoss": lossLayer(func(a *args, r nn.Reduction) nn.HuberLoss {
		return nn.HuberLoss{Delta: a.float(-1, "delta", 1), Reduction: r}
	}),
	"nn.KLDivLoss": lossLayer(func(a *args, r nn.Reduction) nn.KLDivLoss {
		return nn.KLDivLoss{LogTarget: a.bool(-1, "log_target", false), Reduction: r}
	}),
	"nn.CosineEmbeddingLoss": lossLayer(func(a *args, r nn.Reduction) nn.CosineEmbeddingLoss {
		return nn.CosineEmbeddingLoss{Margin: a.float(-1, "margin", 0), Reduction: r}
	}),
	"nn.MarginRankingLoss": lossLayer(func(a *args, r nn.Reduction) nn.MarginRankingLoss {
		return nn.MarginRankingLoss{Margin: a.float(-1, "margin", 0), Reduction: r}
	}),
	"nn.MultiLabelMarginLoss": lossLayer(func(a *args, r nn.Reduction) nn.MultiLabelMarginLoss {
		return nn.MultiLabelMarginLoss{Reduction: r}
	}),
	"nn.MultiMarginLoss": lossLayer(func(a *args, r nn.Reduction) *nn.MultiMarginLoss {
		return &nn.MultiMarginLoss{P: a.int(-1, "p", 1), Margin: a.float(-1, "margin", 1),
			Weight: a.opt(-1, "weight"), Reduction: r}
	}),
	"nn.SoftMarginLoss": lossLayer(func(a *args, r nn.Reduction) nn.SoftMarginLoss {
		return nn.SoftMarginLoss{Reduction: r}
	}),
	"nn.MultiLabelSoftMarginLoss": lossLayer(func(a *args,
		r nn.Reduction) *nn.MultiLabelSoftMarginLoss {
		return &nn.MultiLabelSoftMarginLoss{Weight: a.opt(-1, "weight"), Reduction: r}
	}),
	"nn.NLLLoss": lossLayer(func(a *args, r nn.Reduction) *nn.NLLLoss {
		return &nn.NLLLoss{Weight: a.opt(-1, "weight"), IgnoreIndex: a.ignoreIndex(), Reduction: r}
	}),
	"nn.CrossEntropyLoss": lossLayer(func(a *args, r nn.Reduction) *nn.CrossEntropyLoss {
		return &nn.CrossEntropyLoss{Weight: a.opt(-1, "weight"), IgnoreIndex: a.ignoreIndex(),
			LabelSmoothing: a.float(-1, "label_smoothing", 0), Reduction: r}
	}),
	"nn.LinearCrossEntropyLoss": lossLayer(func(a *args,
		r nn.Reduction) *nn.LinearCrossEntropyLoss {
		if n, ok := a.arg(-1, "out_features").(tuple); ok && len(n) > 0 {
			lacks("out_features of several numbers")
		}
		l := nn.NewLinearCrossEntropyLoss(a.int(0, "in_features", 0), a.int(1, "num_classes", 0),
			nn.In(a.scope))
		if a.bool(-1, "bias", false) {
			l.Linear = nn.NewLinear(a.int(0, "in_features", 0), a.int(1, "num_classes", 0),
				nn.In(a.scope))
		}
		l.Weight, l.IgnoreIndex = a.opt(-1, "weight"), a.ignoreIndex()
		l.LabelSmoothing, l.Reduction = a.float(-1, "label_smoothing", 0), r
		return l
	}),
	"nn.GaussianNLLLoss": lossLayer(func(a *args, r nn.Reduction) *nn.GaussianNLLLoss {
		return &nn.GaussianNLLLoss{Full: a.bool(-1, "full", false), Eps: a.float(-1, "eps", 1e-6),
			Reduction: r}
	}),
	"nn.PoissonNLLLoss": lossLayer(func(a *args, r nn.Reduction) *nn.PoissonNLLLoss {
		return &nn.PoissonNLLLoss{LogInput: a.bool(0, "log_input", true), Full: a.bool(1, "full",
			false),
			Eps: a.float(-1, "eps", 1e-8), Reduction: r}
	}),
	"nn.HingeEmbeddingLoss": lossLayer(func(a *args, r nn.Reduction) nn.HingeEmbeddingLoss {
		return nn.HingeEmbeddingLoss{Margin: a.float(-1, "margin", 1), Reduction: r}
	}),
	"nn.BCELoss": lossLayer(func(a *args, r nn.Reduction) *nn.BCELoss {
		return &nn.BCELoss{Weight: a.opt(-1, "weight"), Reduction: r}
	}),
	"nn.BCEWithLogitsLoss": lossLayer(func(a *args, r nn.Reduction) *nn.BCEWithLogitsLoss {
		return &nn.BCEWithLogitsLoss{Weight: a.opt(-1, "weight"), PosWeight: a.opt(-1,
			"pos_weight"), Reduction: r}
	}),
}

// forward calls m's Forward with the tensors, and with nil for all other parameters.
func forward(m any, a *args) any {
	f := reflect.ValueOf(m).MethodByName("Forward")
	var in []reflect.Value
	for i := range f.Type().NumIn() {
		v := reflect.Zero(f.Type().In(i))
		name := ""
		if i == 0 {
			name = "input"
		}
		if a.has(i, name) {
			v = reflect.ValueOf(a.T(i, name))
		}
		in = append(in, v)
	}
	var out []T
	for _, v := range f.Call(in) {
		if y := v.Interface().(T); y != nil {
			out = append(out, y)
		}
	}
	return out
}

// callLayer returns a call that makes the layer of a row, loads its recorded state and calls it.
func callLayer(l layer, r *row) call {
	return func(a *args) any {
		m := &maker{file: r.file, scope: a.scope, double: a.double}
		made := &args{scope: a.scope, kw: map[string]any{}, used: map[string]bool{}}
		for _, v := range r.New.Args {
			made.pos = append(made.pos, m.value(v))
		}
		for name, v := range r.New.Kw {
			made.kw[name] = m.value(v)
		}
		x := l.make(made)
		if u := made.unused(); u != "" {
			lacks("%s", u)
		}
		if len(a.pos) == 0 {
			return nil // PyTorch too refuses these arguments
		}
		state := map[string]T{}
		for name, v := range a.arg(0, "").(map[string]any) {
			state[name] = v.(T)
		}
		if !r.Training {
			nn.Eval(x)
		}
		if len(state) > 0 {
			x = nn.Replace(x, state)
		}
		f := l.call
		if f == nil {
			f = forward
		}
		in := &args{scope: a.scope, pos: a.pos[1:], kw: a.kw, used: map[string]bool{}}
		out := []any{f(x, in)}
		if u := in.unused(); u != "" {
			lacks("%s", u)
		}
		for i := range a.pos {
			a.arg(i, "")
		}
		a.ignored(sortedKeys(a.kw)...)
		// Compare the buffers after the call: the parts of the state for which no gradient was
		// recorded.
		for i, name := range sortedKeys(state) {
			if state[name].Type().IsFloat() && !slices.Contains(r.Leaves, i) {
				out = append(out, state[name])
			}
		}
		return out
	}
}
