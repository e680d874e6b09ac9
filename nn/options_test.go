package nn_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Layers with windows store the kernel and the options of their constructors in the field Options.
func TestWindowOptions(t *testing.T) {
	one, two, three, both := []int{1}, []int{2}, []int{3}, []int{3, 5}
	for name, c := range map[string]struct{ got, want any }{
		"conv": {
			nn.NewConv2d(4, 4, both, nn.Stride(2), nn.Padding(1, 2), nn.Dilation(3), nn.Groups(2)).Options,
			tensor.ConvOptions{Stride: two, Padding: []int{1, 2}, Dilation: three, Groups: 2},
		},
		"conv, same":  {nn.NewConv1d(1, 1, 3, nn.SamePadding()).Options, tensor.ConvOptions{Same: true}},
		"conv, plain": {nn.NewConv3d(1, 1, 3).Options, tensor.ConvOptions{}},
		"transposed": {
			nn.NewConvTranspose2d(4, 4, 3, nn.Stride(2), nn.Padding(1), nn.OutputPadding(1), nn.Dilation(3), nn.Groups(2)).Options,
			tensor.ConvTransposeOptions{Stride: two, Padding: one, OutputPadding: one, Dilation: three, Groups: 2},
		},
		"max": {
			nn.NewMaxPool2d(3, nn.Stride(2), nn.Padding(1), nn.Dilation(2), nn.CeilMode()).Options,
			tensor.MaxPoolOptions{Kernel: three, Stride: two, Padding: one, Dilation: two, CeilMode: true},
		},
		"average": {
			nn.NewAvgPool2d(both, nn.Stride(2), nn.Padding(1), nn.CeilMode(), nn.ExcludePadding(), nn.Divisor(-3)).Options,
			tensor.AvgPoolOptions{Kernel: both, Stride: two, Padding: one, CeilMode: true, ExcludePadding: true, Divisor: -3},
		},
		"power": {
			nn.NewLPPool2d(2, 3, nn.Stride(2), nn.CeilMode()).Options,
			tensor.AvgPoolOptions{Kernel: three, Stride: two, CeilMode: true},
		},
		"unfold": {
			nn.NewUnfold(both, nn.Stride(2), nn.Padding(1), nn.Dilation(3)).Options,
			tensor.FoldOptions{Kernel: both, Stride: two, Padding: one, Dilation: three},
		},
		"the last counts": {nn.NewMaxPool1d(3, nn.Stride(1), nn.Stride(2)).Options, tensor.MaxPoolOptions{Kernel: three, Stride: two}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, c.got, c.want)
		}
	}
	if dims := nn.NewConv2d(4, 6, both, nn.Groups(2)).Weight.Shape().Slice(); !slices.Equal(dims, []int{6, 2, 3, 5}) {
		t.Error(dims)
	}
	both[0] = 7 // the layer has its own copy of the slice both
	tensor.Do(func(s *tensor.Scope) {
		y := nn.NewConv2d(3, 64, 3, nn.Stride(2), nn.Padding(1)).Forward(s.Ones(1, 3, 8, 8))
		if dims := nn.NewMaxPool2d(2, nn.Stride(2), nn.CeilMode()).Forward(y).Shape().Slice(); !slices.Equal(dims, []int{1, 64, 2, 2}) {
			t.Error(dims)
		}
	})
}

// Every layer is made with every option. If the layer does not accept the option, the error names
// the layer and the option.
func TestOptionThatALayerDoesNotTake(t *testing.T) {
	all := map[string]nn.Option{
		"NoBias": nn.NoBias(), "In": nn.In(tensor.Root()), "Typed": nn.Typed(dtype.F32), "NoAffine": nn.NoAffine(), "Affine": nn.Affine(),
		"NoStats": nn.NoStats(), "Stats": nn.Stats(), "PaddingIndex": nn.PaddingIndex(1), "Stride": nn.Stride(1), "Padding": nn.Padding(0),
		"SamePadding": nn.SamePadding(), "OutputPadding": nn.OutputPadding(0), "Dilation": nn.Dilation(1), "Groups": nn.Groups(1),
		"CeilMode": nn.CeilMode(), "ExcludePadding": nn.ExcludePadding(), "Divisor": nn.Divisor(2),
		"OutputSize": nn.OutputSize(1), "OutputRatio": nn.OutputRatio(0.5), "DivValue": nn.DivValue(2), "HeadBias": nn.HeadBias(), "PaddingMode": nn.PaddingMode("reflect"),
	}
	const (
		conv       = "NoBias In Typed Stride Padding SamePadding PaddingMode Dilation Groups"
		transposed = "NoBias In Typed Stride Padding OutputPadding Dilation Groups"
		channels   = "NoBias In Typed NoAffine Affine NoStats Stats"
		maximum    = "Stride Padding Dilation CeilMode"
		average    = "Stride Padding CeilMode ExcludePadding Divisor"
	)
	table := tensor.Ones(3, 2)
	for layer, c := range map[string]struct {
		takes string
		make  func(o nn.Option)
	}{
		"Linear":                     {"NoBias In Typed", func(o nn.Option) { nn.NewLinear(1, 1, o) }},
		"Bilinear":                   {"NoBias In Typed", func(o nn.Option) { nn.NewBilinear(1, 1, 1, o) }},
		"Conv1d":                     {conv, func(o nn.Option) { nn.NewConv1d(1, 1, 1, o) }},
		"Conv2d":                     {conv, func(o nn.Option) { nn.NewConv2d(1, 1, 1, o) }},
		"Conv3d":                     {conv, func(o nn.Option) { nn.NewConv3d(1, 1, 1, o) }},
		"ConvTranspose1d":            {transposed, func(o nn.Option) { nn.NewConvTranspose1d(1, 1, 1, o) }},
		"ConvTranspose2d":            {transposed, func(o nn.Option) { nn.NewConvTranspose2d(1, 1, 1, o) }},
		"ConvTranspose3d":            {transposed, func(o nn.Option) { nn.NewConvTranspose3d(1, 1, 1, o) }},
		"MaxPool1d":                  {maximum, func(o nn.Option) { nn.NewMaxPool1d(1, o) }},
		"MaxPool2d":                  {maximum, func(o nn.Option) { nn.NewMaxPool2d(1, o) }},
		"MaxPool3d":                  {maximum, func(o nn.Option) { nn.NewMaxPool3d(1, o) }},
		"AvgPool1d":                  {average, func(o nn.Option) { nn.NewAvgPool1d(1, o) }},
		"AvgPool2d":                  {average, func(o nn.Option) { nn.NewAvgPool2d(1, o) }},
		"AvgPool3d":                  {average, func(o nn.Option) { nn.NewAvgPool3d(1, o) }},
		"LPPool1d":                   {"Stride CeilMode", func(o nn.Option) { nn.NewLPPool1d(2, 1, o) }},
		"LPPool3d":                   {"Stride CeilMode", func(o nn.Option) { nn.NewLPPool3d(2, 1, o) }},
		"MaxUnpool1d":                {maximum, func(o nn.Option) { nn.NewMaxUnpool1d(1, o) }},
		"MaxUnpool2d":                {maximum, func(o nn.Option) { nn.NewMaxUnpool2d(1, o) }},
		"MaxUnpool3d":                {maximum, func(o nn.Option) { nn.NewMaxUnpool3d(1, o) }},
		"FractionalMaxPool2d":        {"OutputSize OutputRatio", func(o nn.Option) { nn.NewFractionalMaxPool2d(1, o) }},
		"FractionalMaxPool3d":        {"OutputSize OutputRatio", func(o nn.Option) { nn.NewFractionalMaxPool3d(1, o) }},
		"LazyLinear":                 {"NoBias In Typed", func(o nn.Option) { nn.NewLazyLinear(1, o) }},
		"LazyConv1d":                 {conv, func(o nn.Option) { nn.NewLazyConv1d(1, 1, o) }},
		"LazyConvTranspose1d":        {transposed, func(o nn.Option) { nn.NewLazyConvTranspose1d(1, 1, o) }},
		"LazyBatchNorm1d":            {channels, func(o nn.Option) { nn.NewLazyBatchNorm1d(o) }},
		"LazyInstanceNorm1d":         {channels, func(o nn.Option) { nn.NewLazyInstanceNorm1d(o) }},
		"LazyConv2d":                 {conv, func(o nn.Option) { nn.NewLazyConv2d(1, 1, o) }},
		"LazyConvTranspose2d":        {transposed, func(o nn.Option) { nn.NewLazyConvTranspose2d(1, 1, o) }},
		"LazyBatchNorm2d":            {channels, func(o nn.Option) { nn.NewLazyBatchNorm2d(o) }},
		"LazyInstanceNorm2d":         {channels, func(o nn.Option) { nn.NewLazyInstanceNorm2d(o) }},
		"LazyConv3d":                 {conv, func(o nn.Option) { nn.NewLazyConv3d(1, 1, o) }},
		"LazyConvTranspose3d":        {transposed, func(o nn.Option) { nn.NewLazyConvTranspose3d(1, 1, o) }},
		"LazyBatchNorm3d":            {channels, func(o nn.Option) { nn.NewLazyBatchNorm3d(o) }},
		"LazyInstanceNorm3d":         {channels, func(o nn.Option) { nn.NewLazyInstanceNorm3d(o) }},
		"LinearCrossEntropyLoss":     {"In Typed", func(o nn.Option) { nn.NewLinearCrossEntropyLoss(1, 2, o) }},
		"AdaptiveLogSoftmaxWithLoss": {"In Typed DivValue HeadBias", func(o nn.Option) { nn.NewAdaptiveLogSoftmaxWithLoss(4, 4, []int{2}, o) }},
		"LPPool2d":                   {"Stride CeilMode", func(o nn.Option) { nn.NewLPPool2d(2, 1, o) }},
		"Unfold":                     {"Stride Padding Dilation", func(o nn.Option) { nn.NewUnfold(1, o) }},
		"Fold":                       {"Stride Padding Dilation", func(o nn.Option) { nn.NewFold(1, 1, 1, o) }},
		"LayerNorm":                  {"NoBias In Typed NoAffine", func(o nn.Option) { nn.NewLayerNorm([]int{1}, o) }},
		"RMSNorm":                    {"In Typed NoAffine", func(o nn.Option) { nn.NewRMSNorm([]int{1}, o) }},
		"GroupNorm":                  {"NoBias In Typed NoAffine", func(o nn.Option) { nn.NewGroupNorm(1, 1, o) }},
		"BatchNorm1d":                {channels, func(o nn.Option) { nn.NewBatchNorm1d(1, o) }},
		"BatchNorm2d":                {channels, func(o nn.Option) { nn.NewBatchNorm2d(1, o) }},
		"BatchNorm3d":                {channels, func(o nn.Option) { nn.NewBatchNorm3d(1, o) }},
		"InstanceNorm1d":             {channels, func(o nn.Option) { nn.NewInstanceNorm1d(1, o) }},
		"InstanceNorm2d":             {channels, func(o nn.Option) { nn.NewInstanceNorm2d(1, o) }},
		"InstanceNorm3d":             {channels, func(o nn.Option) { nn.NewInstanceNorm3d(1, o) }},
		"PReLU":                      {"In Typed", func(o nn.Option) { nn.NewPReLU(1, 0, o) }},
		"Embedding":                  {"In Typed PaddingIndex", func(o nn.Option) { nn.NewEmbedding(3, 2, o) }},
		"EmbeddingBag":               {"In Typed PaddingIndex", func(o nn.Option) { nn.NewEmbeddingBag(3, 2, nn.BagSum, o) }},
		"Embedding of":               {"PaddingIndex", func(o nn.Option) { nn.EmbeddingFromPretrained(table, o) }},
		"RNN":                        {"NoBias In Typed", func(o nn.Option) { nn.NewRNN(1, 1, nn.RecurrentOptions{}, o) }},
		"GRU":                        {"NoBias In Typed", func(o nn.Option) { nn.NewGRU(1, 1, nn.RecurrentOptions{}, o) }},
		"LSTM":                       {"NoBias In Typed", func(o nn.Option) { nn.NewLSTM(1, 1, nn.RecurrentOptions{}, o) }},
		"RNNCell":                    {"NoBias In Typed", func(o nn.Option) { nn.NewRNNCell(1, 1, o) }},
		"GRUCell":                    {"NoBias In Typed", func(o nn.Option) { nn.NewGRUCell(1, 1, o) }},
		"LSTMCell":                   {"NoBias In Typed", func(o nn.Option) { nn.NewLSTMCell(1, 1, o) }},
		"MultiheadAttention":         {"NoBias In Typed", func(o nn.Option) { nn.NewMultiheadAttention(2, 1, nn.MultiheadOptions{}, o) }},
	} {
		for name, o := range all {
			says := ""
			func() {
				defer func() {
					if v := recover(); v != nil {
						e, ok := v.(*nn.Error)
						if !ok || e.Path != strings.Fields(layer)[0] {
							t.Errorf("%s of %s: %v", name, layer, v)
							return
						}
						says = e.Msg
					}
				}()
				c.make(o)
			}()
			takes := slices.Contains(strings.Fields(c.takes), name)
			if takes == strings.HasPrefix(says, "the option "+name+" means nothing to this layer") {
				t.Errorf("%s of %s, which takes %s: %q", name, layer, c.takes, says)
			}
		}
	}
	for says, f := range map[string]func(){
		"Conv1d: the number of Groups is not positive":                                            func() { nn.NewConv1d(1, 1, 1, nn.Groups(0)) },
		`Conv3d: there is no PaddingMode "mirror"; there are zeros, reflect, replicate, circular`: func() { nn.NewConv3d(1, 1, 1, nn.PaddingMode("mirror")) },
		"AvgPool1d: the Divisor is 0":                                                             func() { nn.NewAvgPool1d(1, nn.Divisor(0)) },
		"Conv2d: the scope of In is nil":                                                          func() { nn.NewConv2d(1, 1, 1, nn.In(nil)) },
		"Linear: an Option{} says nothing":                                                        func() { nn.NewLinear(1, 1, nn.Option{}) },
	} {
		func() {
			defer func() {
				if e, ok := recover().(*nn.Error); !ok || !strings.Contains(e.Error(), says) {
					t.Errorf("%s: got %v", says, e)
				}
			}()
			f()
		}()
	}
}
