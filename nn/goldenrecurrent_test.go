package nn_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/nn"
)

// recurrentModel returns the function that applies the layer of a golden case. The function calls
// run or pack with the initial states, h0 first.
func recurrentModel(a golden.Args, run func(x *tt, s []*tt) []*tt, pack func(p *nn.PackedSequence, s []*tt) (*nn.PackedSequence, []*tt)) func(x, masks []*tt) []*tt {
	return func(x, _ []*tt) []*tt {
		first := append(append([]*tt(nil), x[1:]...), nil, nil)
		if !a.Has("lengths") {
			return run(x[0], first)
		}
		p := nn.PackPaddedSequence(x[0], a.Ints("lengths"), nn.PackOptions{BatchFirst: a.Bool("batch_first"), Unsorted: !a.Bool("sorted")})
		y, last := pack(p, first)
		padded, _ := nn.PadPackedSequence(y, nn.PadOptions{BatchFirst: a.Bool("batch_first"), Value: 0.5})
		return append([]*tt{padded}, last...)
	}
}

func recurrentOptions(a golden.Args) nn.RecurrentOptions {
	return nn.RecurrentOptions{Layers: a.Int("layers"), Bidirectional: a.Bool("bidirectional"), BatchFirst: a.Bool("batch_first"), ProjSize: a.Int("proj")}
}

func rnnModel(relu bool) goldenModel {
	return func(a golden.Args, opts ...nn.Option) (any, func(x, masks []*tt) []*tt) {
		o := recurrentOptions(a)
		o.Relu = relu
		l := nn.NewRNN(2, 3, o, biasOption(a, opts)...)
		return l, recurrentModel(a,
			func(x *tt, s []*tt) []*tt { y, h := l.Forward(x, s[0]); return []*tt{y, h} },
			func(p *nn.PackedSequence, s []*tt) (*nn.PackedSequence, []*tt) {
				y, h := l.ForwardPacked(p, s[0])
				return y, []*tt{h}
			})
	}
}

func rnnCellModel(relu bool) goldenModel {
	return func(a golden.Args, opts ...nn.Option) (any, func(x, masks []*tt) []*tt) {
		l := nn.NewRNNCell(2, 3, biasOption(a, opts)...)
		l.Relu = relu
		return l, func(x, _ []*tt) []*tt { return []*tt{l.Forward(x[0], append(x, nil)[1])} }
	}
}

var recurrentModels = map[string]goldenModel{
	"rnn_tanh": rnnModel(false), "rnn_relu": rnnModel(true), "rnn_tanh_cell": rnnCellModel(false), "rnn_relu_cell": rnnCellModel(true),
	"lstm": func(a golden.Args, opts ...nn.Option) (any, func(x, masks []*tt) []*tt) {
		l := nn.NewLSTM(2, 3, recurrentOptions(a), biasOption(a, opts)...)
		return l, recurrentModel(a,
			func(x *tt, s []*tt) []*tt { y, h, c := l.Forward(x, s[0], s[1]); return []*tt{y, h, c} },
			func(p *nn.PackedSequence, s []*tt) (*nn.PackedSequence, []*tt) {
				y, h, c := l.ForwardPacked(p, s[0], s[1])
				return y, []*tt{h, c}
			})
	},
	"gru": func(a golden.Args, opts ...nn.Option) (any, func(x, masks []*tt) []*tt) {
		l := nn.NewGRU(2, 3, recurrentOptions(a), biasOption(a, opts)...)
		return l, recurrentModel(a,
			func(x *tt, s []*tt) []*tt { y, h := l.Forward(x, s[0]); return []*tt{y, h} },
			func(p *nn.PackedSequence, s []*tt) (*nn.PackedSequence, []*tt) {
				y, h := l.ForwardPacked(p, s[0])
				return y, []*tt{h}
			})
	},
	"lstm_cell": func(a golden.Args, opts ...nn.Option) (any, func(x, masks []*tt) []*tt) {
		l := nn.NewLSTMCell(2, 3, biasOption(a, opts)...)
		return l, func(x, _ []*tt) []*tt {
			x = append(x, nil, nil)
			h, c := l.Forward(x[0], x[1], x[2])
			return []*tt{h, c}
		}
	},
	"gru_cell": func(a golden.Args, opts ...nn.Option) (any, func(x, masks []*tt) []*tt) {
		l := nn.NewGRUCell(2, 3, biasOption(a, opts)...)
		return l, func(x, _ []*tt) []*tt { return []*tt{l.Forward(x[0], append(x, nil)[1])} }
	},
}

// Recurrent layers and cells have PyTorch's results, last states and gradients. Their parameters
// have the same names in the same order.
func TestGoldenRecurrent(t *testing.T) {
	goldenModels(t, "testdata/recurrent.safetensors.gz", 75, recurrentModels)
}
