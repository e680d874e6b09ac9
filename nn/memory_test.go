package nn_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// layersThatKeep returns calls of layers, with the shapes of their inputs.
func layersThatKeep(in nn.Option) map[string]struct {
	dims [][]int
	call func(x []*tt) []*tt
} {
	type entry = struct {
		dims [][]int
		call func(x []*tt) []*tt
	}
	all := map[string]entry{}
	one := func(name string, l nn.Module, dims ...int) {
		all[name] = entry{[][]int{dims}, func(x []*tt) []*tt { return []*tt{l.Forward(x[0])} }}
	}
	two := func(name string, f func(x, z *tt) *tt, first, second []int) {
		all[name] = entry{[][]int{first, second}, func(x []*tt) []*tt { return []*tt{f(x[0], x[1])} }}
	}
	matrix, image := []int{64, 64}, []int{4, 16, 12, 12}
	for name, l := range map[string]nn.Module{
		"relu": nn.ReLU{}, "relu6": nn.ReLU6{}, "gelu": nn.GELU{}, "gelu tanh": nn.GELU{Tanh: true}, "tanh": nn.Tanh{}, "sigmoid": nn.Sigmoid{}, "silu": nn.SiLU{},
		"selu": nn.SELU{}, "mish": nn.Mish{}, "softsign": nn.Softsign{}, "tanhshrink": nn.Tanhshrink{}, "logsigmoid": nn.LogSigmoid{}, "hardswish": nn.Hardswish{},
		"hardsigmoid": nn.Hardsigmoid{}, "leaky": nn.NewLeakyReLU(0.1), "prelu": nn.NewPReLU(64, 0.25, in), "elu": nn.NewELU(1), "celu": nn.NewCELU(1),
		"softplus": nn.NewSoftplus(1, 20), "hardtanh": nn.NewHardtanh(-1, 1), "hardshrink": nn.NewHardshrink(0.5), "softshrink": nn.NewSoftshrink(0.5),
		"threshold": nn.NewThreshold(0, 1), "softmax": nn.NewSoftmax(-1), "logsoftmax": nn.NewLogSoftmax(-1), "softmin": nn.NewSoftmin(-1), "glu": nn.NewGLU(-1),
		"rrelu": nn.NewRReLU(0.1, 0.3), "identity": nn.Identity{}, "dropout": nn.NewDropout(0.5), "alpha dropout": nn.NewAlphaDropout(0.5),
		"feature alpha dropout": nn.NewFeatureAlphaDropout(0.5), "layer norm": nn.NewLayerNorm([]int{64}, in), "rms norm": nn.NewRMSNorm([]int{64}, in),
		"batch norm 1d": nn.NewBatchNorm1d(64, in), "linear": nn.NewLinear(64, 64, in), "linear without bias": nn.NewLinear(64, 64, in, nn.NoBias()),
		"sequential": nn.NewSequential(nn.NewLinear(64, 64, in)),
		"flatten":    nn.Flatten{}, "unflatten": nn.NewUnflatten(-1, 8, 8),
	} {
		one(name, l, matrix...)
	}
	average := nn.NewBatchNorm2d(16, in)
	average.Momentum = nn.CumulativeAverage
	for name, l := range map[string]nn.Module{
		"batch norm": nn.NewBatchNorm2d(16, in), "batch norm eval": nn.Eval(nn.NewBatchNorm2d(16, in)), "batch norm, cumulative": average, "instance norm": nn.NewInstanceNorm2d(16, in, nn.Affine()),
		"group norm": nn.NewGroupNorm(4, 16, in), "local response": nn.NewLocalResponseNorm(5), "softmax2d": nn.Softmax2d{}, "dropout2d": nn.NewDropout2d(0.5),
		"conv": nn.NewConv2d(16, 16, 3, in), "conv groups": nn.NewConv2d(16, 16, 3, nn.Groups(16), in),
		"conv transposed": nn.NewConvTranspose2d(16, 16, 3, in),
		"max pool":        nn.NewMaxPool2d(2), "avg pool": nn.NewAvgPool2d(2), "lp pool": nn.NewLPPool2d(2, 2), "lp pool 3d": nn.NewLPPool3d(2, 2), "fractional max": nn.NewFractionalMaxPool2d(2, nn.OutputSize(5)), "adaptive avg": nn.NewAdaptiveAvgPool2d(5),
		"adaptive max": nn.NewAdaptiveMaxPool2d(5), "upsample": nn.NewUpsample(tensor.InterpolateOptions{Scale: []float64{2}}), "shuffle": nn.NewPixelShuffle(2),
		"unshuffle": nn.NewPixelUnshuffle(2), "channel shuffle": nn.NewChannelShuffle(4), "unfold": nn.NewUnfold(3),
		"zero pad": nn.NewZeroPad2d(1), "reflection pad": nn.NewReflectionPad2d(1), "replication pad": nn.NewReplicationPad2d(1), "circular pad": nn.NewCircularPad2d(1),
	} {
		one(name, l, image...)
	}
	one("conv 1d", nn.NewConv1d(16, 16, 3, in), 4, 16, 100)
	one("conv 1d alone", nn.NewConv1d(16, 16, 3, in), 16, 100)
	one("conv 3d", nn.NewConv3d(4, 4, 3, in), 2, 4, 8, 8, 8)
	one("conv transposed 1d", nn.NewConvTranspose1d(16, 16, 3, in), 4, 16, 100)
	one("instance norm alone", nn.NewInstanceNorm1d(16, in, nn.Stats()), 16, 100)
	one("max pool 1d", nn.NewMaxPool1d(2), 4, 16, 100)
	one("avg pool 1d", nn.NewAvgPool1d(2), 4, 16, 100)
	one("lp pool 1d", nn.NewLPPool1d(2, 2), 4, 16, 100)
	one("fold", nn.NewFold(12, 12, 3), 4, 9*4, 100)
	one("fractional max 3d", nn.NewFractionalMaxPool3d(2, nn.OutputRatio(0.5)), 2, 4, 6, 6, 6)
	all["max unpool"] = entry{[][]int{image}, func(x []*tt) []*tt {
		y, at := nn.NewMaxPool2d(2).ForwardIndices(x[0])
		return []*tt{nn.NewMaxUnpool2d(2).Forward(y, at), y, at}
	}}
	two("bilinear", nn.NewBilinear(32, 32, 32, in).Forward, []int{64, 32}, []int{64, 32})
	two("cosine", nn.NewCosineSimilarity(1, 1e-8).Forward, matrix, matrix)
	two("distance", nn.PairwiseDistance{P: 2, Eps: 1e-6, KeepDim: true}.Forward, matrix, matrix)
	two("mse", func(x, z *tt) *tt { return nn.MSE(x, z, nn.None) }, matrix, matrix)
	two("huber", func(x, z *tt) *tt { return nn.Huber(x, z, 1, nn.None) }, matrix, matrix)
	two("kl", nn.KLDivLoss{Reduction: nn.BatchMean}.Forward, matrix, matrix)
	two("bce", nn.BCEWithLogitsLoss{}.Forward, matrix, matrix)
	two("poisson", nn.NewPoissonNLLLoss().Forward, matrix, matrix)
	two("soft margin", nn.MultiLabelSoftMarginLoss{}.Forward, matrix, matrix)
	two("cross entropy", nn.CrossEntropyLoss{}.Forward, matrix, matrix)
	two("pairs", func(x, z *tt) *tt { return nn.NewTripletMarginLoss().Forward(x, z, z) }, matrix, matrix)
	attention, coder := nn.NewMultiheadAttention(32, 4, nn.MultiheadOptions{Dropout: 0.1}, in), nn.NewTransformer(32, 4, 1, 1, nn.TransformerOptions{FeedForward: 64, Dropout: 0.1}, in)
	sequence := []int{10, 4, 32}
	for name, o := range map[string]nn.AttendOptions{"": {}, " with weights": {NeedWeights: true}, " causal": {Masks: nn.Masks{Causal: true}}} {
		all["attention"+name] = entry{[][]int{sequence}, func(x []*tt) []*tt {
			y, w := attention.Forward(x[0], x[0], x[0], o)
			if w == nil {
				return []*tt{y}
			}
			return []*tt{y, w}
		}}
	}
	two("transformer", func(x, z *tt) *tt { return coder.Forward(x, z, nn.Masks{}, nn.Masks{Causal: true}, nn.Masks{}) }, sequence, sequence)
	rnn, lstm, gru := nn.NewRNN(32, 32, nn.RecurrentOptions{}, in), nn.NewLSTM(32, 32, nn.RecurrentOptions{Layers: 2, Bidirectional: true, Dropout: 0.1, ProjSize: 8}, in), nn.NewGRU(32, 32, nn.RecurrentOptions{BatchFirst: true}, in)
	all["rnn"] = entry{[][]int{sequence}, func(x []*tt) []*tt { y, h := rnn.Forward(x[0], nil); return []*tt{y, h} }}
	all["lstm"] = entry{[][]int{sequence}, func(x []*tt) []*tt { y, h, c := lstm.Forward(x[0], nil, nil); return []*tt{y, h, c} }}
	all["gru"] = entry{[][]int{sequence}, func(x []*tt) []*tt { y, h := gru.Forward(x[0], nil); return []*tt{y, h} }}
	all["packed"] = entry{[][]int{sequence}, func(x []*tt) []*tt {
		return []*tt{nn.PackPaddedSequence(x[0], []int{3, 10, 7, 1}, nn.PackOptions{Unsorted: true}).Data}
	}}
	cell := nn.NewLSTMCell(64, 32, in)
	all["lstm cell"] = entry{[][]int{matrix}, func(x []*tt) []*tt { h, c := cell.Forward(x[0], nil, nil); return []*tt{h, c} }}
	return all
}

// Forward leaves in memory only its results and the tensors that the layer's gradient needs. So the
// device has no more bytes in use than after a call in a separate scope, which is then closed.
func TestLayersFreeWhatTheyMake(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mode=meta,mem=1GiB")
	if err != nil {
		t.Fatal(err)
	}
	dev := gpus[0]
	tensor.Do(func(s *tensor.Scope) {
		for name, l := range layersThatKeep(nn.In(s)) {
			for k, modes := range [][]tensor.Option{{tensor.NoGrad()}, nil, {tensor.NoGrad()}, nil} {
				base := s // the scope with autocast, which caches the 16-bit copies of parameters
				if k > 1 {
					base = s.New(tensor.Autocast(dtype.BF16))
				}
				warm := false
				held := func(own bool) (bytes, results int) {
					base.Do(func(c *tensor.Scope) {
						var x []*tt
						for _, d := range l.dims {
							x = append(x, c.Zeros(d...).RequiresGrad())
						}
						before := dev.Stats().Allocated
						var y []*tt
						if own {
							c.Do(func(c *tensor.Scope) {
								in := make([]*tt, len(x))
								for i := range x {
									in[i] = x[i].In(c)
								}
								y = l.call(in)
								c.Close(y...)
							})
						} else {
							y = l.call(x)
						}
						for _, y := range y {
							results += (y.Type().Size()*y.Size() + 511) / 512 * 512
						}
						bytes = int(dev.Stats().Allocated - before)
						if modes != nil && warm {
							for _, y := range y {
								y.Free()
							}
							if left := dev.Stats().Allocated - before; left > 0 {
								t.Errorf("%s: %d of %d bytes are held when the results are freed", name, left, bytes)
							}
						}
					}, modes...)
					return bytes, results
				}
				held(false) // the first call makes programs, constants and 16-bit copies of parameters
				warm = true
				most, _ := held(true)
				got, results := held(false)
				// The results of recurrent layers are views of one block of memory.
				if recurrent := map[string]bool{"rnn": true, "lstm": true, "gru": true, "lstm cell": true}[name]; recurrent {
					results = most
				}
				if got > most || modes != nil && got > results {
					t.Errorf("%s, gradients %v, autocast %v: %d bytes are held, %d in a scope of its own; the results have %d", name, modes == nil, base.Autocast(), got, most, results)
				}
				if base != s {
					base.Close()
				}
			}
		}
	}, tensor.On(dev))
}
