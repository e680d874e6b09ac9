package samples

import (
	"github.com/flambeau-go/flambeau/nn"
)

// size0 returns output_size, the first argument of a layer. PyTorch's None becomes -1.
func size0(a *args) []int {
	return sizes(&args{pos: []any{nil, a.arg(0, "output_size")}, used: map[string]bool{}})
}

// sized returns options for the sizes of a layer's windows: one option for each name whose argument
// is present.
func (a *args) sized(at int, opts []nn.Option, names ...string) []nn.Option {
	made := map[string]func(size ...int) nn.Option{
		"stride": nn.Stride, "padding": nn.Padding, "dilation": nn.Dilation,
		"output_padding": nn.OutputPadding,
	}
	for i, name := range names {
		if v := a.ints(at+i, name); v != nil {
			opts = append(opts, made[name](v...))
		}
	}
	return opts
}

func (a *args) avgPool() (kernel []int, o []nn.Option) {
	o = a.sized(1, nil, "stride", "padding")
	if a.bool(3, "ceil_mode", false) {
		o = append(o, nn.CeilMode())
	}
	if !a.bool(4, "count_include_pad", true) {
		o = append(o, nn.ExcludePadding())
	}
	if n := a.int(5, "divisor_override", 0); n != 0 {
		o = append(o, nn.Divisor(n))
	}
	return a.ints(0, "kernel_size"), o
}

func (a *args) lpPool() (p float64, kernel []int, o []nn.Option) {
	o = a.sized(2, nil, "stride")
	if a.bool(3, "ceil_mode", false) {
		o = append(o, nn.CeilMode())
	}
	return a.float(0, "norm_type", 0), a.ints(1, "kernel_size"), o
}

// An indexed layer is a max pooling layer that also returns the indices of the maxima.
type indexed struct {
	Pool interface{ ForwardIndices(x T) (values, indices T) }
}

func (l indexed) Forward(x T) (values, indices T) { return l.Pool.ForwardIndices(x) }

// places returns the layer l, or an indexed layer of l if the argument return_indices, at position
// i, is true.
func (a *args) places(i int, l interface{ ForwardIndices(x T) (values, indices T) }) any {
	if a.bool(i, "return_indices", false) {
		return indexed{l}
	}
	return l
}

func (a *args) maxPool() (kernel []int, o []nn.Option) {
	o = a.sized(1, nil, "stride", "padding", "dilation")
	if a.bool(5, "ceil_mode", false) {
		o = append(o, nn.CeilMode())
	}
	return a.ints(0, "kernel_size"), o
}

func (a *args) conv() (in, out int, kernel []int, o []nn.Option) {
	o = append(a.sized(3, a.opts(7), "stride"), nn.Groups(a.int(6, "groups", 1)))
	switch p := a.arg(4, "padding").(type) {
	case string:
		if p == "same" {
			o = append(o, nn.SamePadding())
		}
	default:
		o = a.sized(4, o, "padding")
	}
	o = append(o, nn.PaddingMode(a.text(-1, "padding_mode", "zeros")))
	return a.int(0, "in_channels", 0), a.int(1, "out_channels", 0), a.ints(2, "kernel_size"),
		a.sized(5, o, "dilation")
}

func (a *args) convTranspose() (in, out int, kernel []int, o []nn.Option) {
	o = append(a.sized(3, a.opts(7), "stride", "padding", "output_padding"), nn.Groups(a.int(6,
		"groups", 1)))
	return a.int(0, "in_channels", 0), a.int(1, "out_channels", 0), a.ints(2, "kernel_size"), o
}

// batch returns the options of a batch or instance normalisation. affine and track are the
// positions of torch's arguments affine and track_running_stats. The parameter on is the default of
// both: true for a batch normalisation, false for an instance normalisation.
func (a *args) batch(affine, track int, on bool) []nn.Option {
	o := a.opts(-1)
	switch w, s := a.bool(affine, "affine", on), a.bool(track, "track_running_stats", on); {
	case on:
		if !w {
			o = append(o, nn.NoAffine())
		}
		if !s {
			o = append(o, nn.NoStats())
		}
	default:
		if w {
			o = append(o, nn.Affine())
		}
		if s {
			o = append(o, nn.Stats())
		}
	}
	return o
}

// moments returns eps and momentum of a batch or instance normalisation. A momentum of None means a
// cumulative average.
func (a *args) moments() (eps, momentum float64) {
	momentum = a.float(2, "momentum", 0.1)
	if len(a.pos) > 2 && a.arg(2, "") == nil {
		momentum = nn.CumulativeAverage
	}
	return a.float(1, "eps", 1e-5), momentum
}

// alone returns the only argument of an activation, or fallback if the argument is absent.
func (a *args) alone(name string, fallback float64) float64 {
	a.ignored("inplace")
	return a.float(0, name, fallback)
}

func (a *args) ignoreIndex() *int {
	if !a.has(-1, "ignore_index") {
		return nil
	}
	return new(a.int(-1, "ignore_index", 0))
}

// recurrent returns the sizes and options of RNN, LSTM and GRU.
func (a *args) recurrent() (in, hidden int, o nn.RecurrentOptions, opts []nn.Option) {
	o = nn.RecurrentOptions{
		Layers: a.int(2, "num_layers", 1), Bidirectional: a.bool(-1, "bidirectional", false),
		BatchFirst: a.bool(-1, "batch_first", false), Dropout: a.float(-1, "dropout", 0),
		ProjSize: a.int(-1, "proj_size", 0), Relu: a.text(-1, "nonlinearity", "tanh") == "relu",
	}
	return a.int(0, "input_size", 0), a.int(1, "hidden_size", 0), o, a.opts(-1)
}

func (a *args) transformer(at int) nn.TransformerOptions {
	o := nn.TransformerOptions{
		FeedForward: a.int(at, "dim_feedforward", 2048), Dropout: a.float(at+1, "dropout", 0.1),
		Eps: a.float(-1, "layer_norm_eps", 1e-5), BatchFirst: a.bool(-1, "batch_first", false),
		NormFirst: a.bool(-1, "norm_first", false),
	}
	switch v := a.arg(at+2, "activation").(type) {
	case nil:
	case string:
		if v == "gelu" {
			o.Activation = T.Gelu
		}
	}
	return o
}

// masks returns the masks of a transformer layer, from the arguments with the given names.
func (a *args) masks(mask, padding, causal string) nn.Masks {
	m := nn.Masks{Mask: a.opt(-1, mask), KeyPadding: a.opt(-1, padding)}
	if a.bool(-1, causal, false) {
		m.Causal = m.Mask == nil
	}
	return m
}

// longLayers holds layers whose Forward has arguments that are not tensors, or whose arguments
// become options.
var longLayers = map[string]layer{
	"nn.CTCLoss": {
		make: lossLayer(func(a *args, r nn.Reduction) nn.CTCLoss {
			return nn.CTCLoss{Blank: a.int(0, "blank", 0), ZeroInfinity: a.bool(-1,
				"zero_infinity", false), Reduction: r}
		}),
		call: func(m any, a *args) any {
			return m.(nn.CTCLoss).Forward(a.T(0, "log_probs"), a.T(1, "targets"), a.lengths(2),
				a.lengths(3))
		},
	},
	"nn.RNNCell": {make: func(a *args) any {
		l := nn.NewRNNCell(a.int(0, "input_size", 0), a.int(1, "hidden_size", 0), a.opts(2)...)
		l.Relu = a.text(-1, "nonlinearity", "tanh") == "relu"
		return l
	}},
	"nn.GRUCell": {make: func(a *args) any {
		return nn.NewGRUCell(a.int(0, "input_size", 0), a.int(1, "hidden_size", 0), a.opts(2)...)
	}},
	"nn.LSTMCell": {
		make: func(a *args) any {
			return nn.NewLSTMCell(a.int(0, "input_size", 0), a.int(1, "hidden_size", 0),
				a.opts(2)...)
		},
		call: func(m any, a *args) any {
			h, c := a.pairOf(1)
			h, c = m.(*nn.LSTMCell).Forward(a.T(0, "input"), h, c)
			return []T{h, c}
		},
	},
	"nn.RNN": {
		make: func(a *args) any {
			in, hidden, o, opts := a.recurrent()
			return nn.NewRNN(in, hidden, o, opts...)
		},
	},
	"nn.GRU": {
		make: func(a *args) any {
			in, hidden, o, opts := a.recurrent()
			return nn.NewGRU(in, hidden, o, opts...)
		},
	},
	"nn.LSTM": {
		make: func(a *args) any {
			in, hidden, o, opts := a.recurrent()
			return nn.NewLSTM(in, hidden, o, opts...)
		},
		call: func(m any, a *args) any {
			h, c := a.pairOf(1)
			y, h, c := m.(*nn.LSTM).Forward(a.T(0, "input"), h, c)
			return []T{y, h, c}
		},
	},
	"nn.MultiheadAttention": {
		make: func(a *args) any {
			o := nn.MultiheadOptions{
				Dropout: a.float(-1, "dropout", 0), KDim: a.int(-1, "kdim", 0), VDim: a.int(-1,
					"vdim", 0),
				BatchFirst: a.bool(-1, "batch_first", false), AddBiasKV: a.bool(-1, "add_bias_kv",
					false),
				AddZeroAttn: a.bool(-1, "add_zero_attn", false),
			}
			return nn.NewMultiheadAttention(a.int(0, "embed_dim", 0), a.int(1, "num_heads", 0), o,
				a.opts(-1)...)
		},
		call: func(m any, a *args) any {
			o := nn.AttendOptions{
				Masks:       a.masks("attn_mask", "key_padding_mask", "is_causal"),
				NeedWeights: a.bool(-1, "need_weights", true),
				PerHead:     !a.bool(-1, "average_attn_weights", true),
			}
			y, w := m.(*nn.MultiheadAttention).Forward(a.T(0, "query"), a.T(1, "key"), a.T(2,
				"value"), o)
			if w == nil {
				return y
			}
			return []T{y, w}
		},
	},
	"nn.TransformerEncoderLayer": {
		make: func(a *args) any {
			return nn.NewTransformerEncoderLayer(a.int(0, "d_model", 0), a.int(1, "nhead", 0),
				a.transformer(2), a.opts(-1)...)
		},
		call: func(m any, a *args) any {
			return m.(*nn.TransformerEncoderLayer).ForwardMasked(a.T(0, "src"),
				a.masks("src_mask", "src_key_padding_mask", "is_causal"))
		},
	},
	"nn.TransformerDecoderLayer": {
		make: func(a *args) any {
			return nn.NewTransformerDecoderLayer(a.int(0, "d_model", 0), a.int(1, "nhead", 0),
				a.transformer(2), a.opts(-1)...)
		},
		call: func(m any, a *args) any {
			return m.(*nn.TransformerDecoderLayer).Forward(a.T(0, "tgt"), a.T(1, "memory"),
				a.masks("tgt_mask", "tgt_key_padding_mask", "tgt_is_causal"),
				a.masks("memory_mask", "memory_key_padding_mask", "memory_is_causal"))
		},
	},
	"nn.Transformer": {
		make: func(a *args) any {
			return nn.NewTransformer(a.int(0, "d_model", 512), a.int(1, "nhead", 8), a.int(2,
				"num_encoder_layers", 6),
				a.int(3, "num_decoder_layers", 6), a.transformer(4), a.opts(-1)...)
		},
		call: func(m any, a *args) any {
			return m.(*nn.Transformer).Forward(a.T(0, "src"), a.T(1, "tgt"),
				a.masks("src_mask", "src_key_padding_mask", "src_is_causal"),
				a.masks("tgt_mask", "tgt_key_padding_mask", "tgt_is_causal"),
				a.masks("memory_mask", "memory_key_padding_mask", "memory_is_causal"))
		},
	},
}

// lengths returns whole numbers as a tensor. The argument is a tensor or a list.
func (a *args) lengths(i int) T {
	if v, ok := a.arg(i, "lengths").(T); ok {
		return v
	}
	var n []int64
	for _, v := range a.ints(i, "lengths") {
		n = append(n, int64(v))
	}
	return a.scope.From(n)
}

// pairOf returns the two states passed to an LSTM, or nil.
func (a *args) pairOf(i int) (h, c T) {
	if !a.has(i, "hx") {
		return nil, nil
	}
	l := tensors(a.arg(i, "hx"))
	return l[0], l[1]
}
