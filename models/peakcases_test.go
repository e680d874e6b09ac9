package models_test

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// A lossStep makes a batch in scope s and returns its loss.
type lossStep func(s *tensor.Scope) *tt

// A peakCase is a training step whose memory is compared with PyTorch's.
type peakCase struct {
	name string
	make func(in nn.Option) (any, lossStep)
}

// ofClasses returns the loss of a classifier for inputs with the given dimensions. The first
// dimension is the batch.
func ofClasses(m nn.Module, dims ...int) lossStep {
	return func(s *tensor.Scope) *tt {
		logits := m.Forward(s.Zeros(dims...))
		defer logits.Free() // PyTorch also frees the logits once the loss is computed
		return nn.CrossEntropy(logits, s.Typed(dtype.I64).Zeros(dims[0]))
	}
}

func deepMLP(in nn.Option, layers int, dropout float64) (any, lossStep) {
	sizes := make([]int, layers+1)
	for i := range sizes {
		sizes[i] = 256
	}
	m := models.NewMLP(sizes, dropout, in)
	return m, ofClasses(m, 1024, 256)
}

func gptStep(in nn.Option, c models.GPTConfig, batch, length int) (any, lossStep) {
	m := models.NewGPT(c, in)
	return m, func(s *tensor.Scope) *tt {
		ids := s.Typed(dtype.I64).Zeros(batch, length)
		return m.Loss(ids, s.Typed(dtype.I64).Zeros(batch, length))
	}
}

func charStep(in nn.Option, dropout float64) (any, lossStep) {
	return gptStep(in, models.GPTConfig{Vocab: 65, Context: 64, Layers: 4, Heads: 4, Width: 128, Dropout: dropout}, 32, 64)
}

func bertStep(in nn.Option, batch, length int) (any, lossStep) {
	m := models.NewSequenceClassifier(models.BERTBase(), 2, in)
	return m, func(s *tensor.Scope) *tt {
		return nn.CrossEntropy(m.Forward(s.Typed(dtype.I64).Zeros(batch, length)), s.Typed(dtype.I64).Zeros(batch))
	}
}

// peakCases are the cases of the script _golden/peak.py. Flambeau's peak may be 1.05 times
// PyTorch's.
var peakCases = []peakCase{
	{name: "mlp", make: func(in nn.Option) (any, lossStep) {
		m := models.NewMLP([]int{784, 512, 256, 10}, 0.2, in)
		return m, ofClasses(m, 128, 784)
	}},
	{name: "mlp, wide batch", make: func(in nn.Option) (any, lossStep) {
		m := models.NewMLP([]int{784, 512, 256, 10}, 0.2, in)
		return m, ofClasses(m, 2048, 784)
	}},
	{name: "mlp, 24 layers", make: func(in nn.Option) (any, lossStep) { return deepMLP(in, 24, 0.1) }},
	{name: "mlp, without dropout", make: func(in nn.Option) (any, lossStep) { return deepMLP(in, 24, 0) }},
	{name: "lenet", make: func(in nn.Option) (any, lossStep) {
		m := models.NewLeNet(28, 1, 10, in)
		return m, ofClasses(m, 256, 1, 28, 28)
	}},
	{name: "cnn", make: func(in nn.Option) (any, lossStep) {
		m := models.NewCNN(1, 10, in)
		return m, ofClasses(m, 256, 1, 28, 28)
	}},
	{name: "chargpt", make: func(in nn.Option) (any, lossStep) { return charStep(in, 0) }},
	{name: "chargpt, dropout", make: func(in nn.Option) (any, lossStep) { return charStep(in, 0.1) }},
	{name: "gpt, 12 layers", make: func(in nn.Option) (any, lossStep) {
		return gptStep(in, models.GPTConfig{Vocab: 1000, Context: 256, Layers: 12, Heads: 4, Width: 256, Dropout: 0.1}, 2, 256)
	}},
}

// largeCases are the cases of the script _golden/cudapeak.py that are not in peakCases. In the
// cases with long sequences, the attention weights of all heads would need much memory. PyTorch's
// kernels store only a few rows of them at a time.
var largeCases = []peakCase{
	{name: "resnet18, 32 of 224", make: func(in nn.Option) (any, lossStep) {
		m := models.ResNet18(1000, 3, in)
		return m, ofClasses(m, 32, 3, 224, 224)
	}},
	{name: "resnet50, 16 of 224", make: func(in nn.Option) (any, lossStep) {
		m := models.ResNet50(1000, 3, in)
		return m, ofClasses(m, 16, 3, 224, 224)
	}},
	{name: "bert-base, 8 of 128", make: func(in nn.Option) (any, lossStep) { return bertStep(in, 8, 128) }},
	{name: "bert-base, 16 of 512", make: func(in nn.Option) (any, lossStep) { return bertStep(in, 16, 512) }},
	{name: "gpt, 2 of 2048", make: func(in nn.Option) (any, lossStep) {
		return gptStep(in, models.GPTConfig{Vocab: 1000, Context: 2048, Layers: 4, Heads: 8, Width: 256, Dropout: 0.1}, 2, 2048)
	}},
	{name: "gpt2, 4 of 512", make: func(in nn.Option) (any, lossStep) { return gptStep(in, models.GPT2(), 4, 512) }},
	{name: "gpt2, 8 of 1024", make: gptLayers(12)},
	{name: "gpt2, 2 of 2048", make: func(in nn.Option) (any, lossStep) { return longGPT2(in, 2, 2048) }},
	{name: "gpt2, 1 of 4096", make: func(in nn.Option) (any, lossStep) { return longGPT2(in, 1, 4096) }},
	{name: "gpt2, 1 of 8192", make: func(in nn.Option) (any, lossStep) { return longGPT2(in, 1, 8192) }},
	{name: "lstm, 32 of 128", make: func(in nn.Option) (any, lossStep) {
		const vocab, width, batch, length = 1000, 256, 32, 128
		m := &lstmTagger{Embedding: nn.NewEmbedding(vocab, width, in), LSTM: nn.NewLSTM(width, width, nn.RecurrentOptions{Layers: 2, BatchFirst: true}, in), Out: nn.NewLinear(width, vocab, in)}
		return m, func(s *tensor.Scope) *tt {
			logits := m.Forward(s.Typed(dtype.I64).Zeros(batch, length))
			defer logits.Free()
			return nn.CrossEntropy(logits.Flatten(0, 1), s.Typed(dtype.I64).Zeros(batch*length))
		}
	}},
	{name: "unet, 4 of 128", make: func(in nn.Option) (any, lossStep) {
		m := newUNet(3, 4, 32, in)
		return m, func(s *tensor.Scope) *tt {
			logits := m.Forward(s.Zeros(4, 3, 128, 128))
			defer logits.Free()
			return nn.CrossEntropy(logits, s.Typed(dtype.I64).Zeros(4, 128, 128))
		}
	}},
}

// longGPT2 returns GPT-2 124M whose context has the given length, with a loss for sequences of that
// length.
func longGPT2(in nn.Option, batch, length int) (any, lossStep) {
	c := models.GPT2()
	c.Context = length
	return gptStep(in, c, batch, length)
}

// lstmTagger is a language model of two LSTM layers.
type lstmTagger struct {
	nn.Base
	Embedding *nn.Embedding
	LSTM      *nn.LSTM
	Out       *nn.Linear
}

func (m *lstmTagger) Forward(ids *tt) (y *tt) {
	defer m.Enter(&ids, &y)()
	ids.Scope().Do(func(c *tensor.Scope) {
		h, _, _ := m.LSTM.Forward(m.Embedding.Forward(ids.In(c)), nil, nil)
		y = m.Out.Forward(h)
		c.Close(y)
	})
	return y
}

// unet is the network of O. Ronneberger et al., arXiv:1505.04597, with padded convolutions and four
// levels.
type unet struct {
	nn.Base
	Down, Merge []*nn.Sequential
	Ups         []*nn.ConvTranspose2d
	Pool        *nn.MaxPool2d
	Out         *nn.Conv2d
}

func newUNet(channels, classes, width int, in nn.Option) *unet {
	double := func(a, b int) *nn.Sequential {
		conv := func(a int) *nn.Conv2d {
			return nn.NewConv2d(a, b, 3, nn.Padding(1), nn.NoBias(), in)
		}
		return nn.NewSequential(conv(a), nn.NewBatchNorm2d(b, in), &nn.ReLU{}, conv(b), nn.NewBatchNorm2d(b, in), &nn.ReLU{})
	}
	pool := nn.NewMaxPool2d(2)
	m := &unet{Pool: &pool, Out: nn.NewConv2d(width, classes, 1, in)}
	before := channels
	for i := range 4 {
		w := width << i
		m.Down = append(m.Down, double(before, w))
		if before = w; i > 0 {
			m.Ups = append(m.Ups, nn.NewConvTranspose2d(w, w/2, 2, nn.Stride(2), in))
			m.Merge = append(m.Merge, double(w, w/2))
		}
	}
	return m
}

func (m *unet) Forward(x *tt) (y *tt) {
	defer m.Enter(&x, &y)()
	x.Scope().Do(func(c *tensor.Scope) {
		x, seen := x.In(c), []*tt{}
		for i, block := range m.Down {
			if i > 0 {
				x = m.Pool.Forward(x)
			}
			x = block.Forward(x)
			seen = append(seen, x)
		}
		for i := len(m.Ups) - 1; i >= 0; i-- {
			up := m.Ups[i].Forward(x)
			both := tensor.Cat(1, seen[i], up)
			up.Free()
			x = m.Merge[i].Forward(both)
			both.Free()
		}
		y = m.Out.Forward(x)
		c.Close(y)
	})
	return y
}
