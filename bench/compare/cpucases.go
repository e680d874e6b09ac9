package main

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// cpuCases lists the cases that run only on the CPU. They run after the cases that also run on
// GPUs.
var cpuCases = []benchCase{
	{"mlp_digits_b1", "samples/s", false, training(1, dtype.Invalid, mlp(64, 128, 10))},
	{"mlp_digits_b64", "samples/s", false, training(64, dtype.Invalid, mlp(64, 128, 10))},
	{"mlp_digits_b512", "samples/s", false, training(512, dtype.Invalid, mlp(64, 128, 10))},
	{"lenet_b64", "samples/s", false, training(64, dtype.Invalid, lenet)},
	{"resnet18_32_b32", "samples/s", false, training(32, dtype.Invalid, resnet18)},
	{"resnet18_224_infer_b1", "samples/s", false, inferring},
	{"lstm_128_b32", "samples/s", false, training(32, dtype.Invalid, lstm)},
	{"gpt2_decode", "tokens/s", false, decoding},
}

// casesOn returns the cases that a device can run.
func casesOn(dev device.Device) []benchCase {
	if dev.Info().Kind == "cuda" {
		return cases
	}
	list := slices.DeleteFunc(slices.Clone(cases), func(c benchCase) bool { return c.gpu })
	return append(list, cpuCases...)
}

// images returns a training step of m on random square images of ten classes. size is the side in
// pixels.
func images(m nn.Module, to device.Device, batch, channels, size int) *train.PlannedStep {
	return adamW(m, to, func(s *tensor.Scope) *tensor.Tensor {
		return nn.CrossEntropy(m.Forward(s.Randn(batch, channels, size, size)), s.RandInt(0, 10, batch))
	})
}

func lenet(_ *run, home *tensor.Scope, to device.Device, batch int) *train.PlannedStep {
	return images(models.NewLeNet(28, 1, 10, nn.In(home)), to, batch, 1, 28)
}

func resnet18(_ *run, home *tensor.Scope, to device.Device, batch int) *train.PlannedStep {
	return images(models.ResNet18(10, 3, nn.In(home)), to, batch, 3, 32)
}

// classifier is an LSTM and a linear layer on its last output.
type classifier struct {
	LSTM *nn.LSTM
	Head *nn.Linear
}

// lstm builds a classifier of sequences of 32 steps, each with 64 features.
func lstm(r *run, home *tensor.Scope, to device.Device, batch int) *train.PlannedStep {
	length := r.n(32, 4)
	m := &classifier{nn.NewLSTM(64, 128, nn.RecurrentOptions{}, nn.In(home)), nn.NewLinear(128, 10, nn.In(home))}
	return adamW(m, to, func(s *tensor.Scope) *tensor.Tensor {
		y, _, _ := m.LSTM.Forward(s.Randn(length, batch, 64), nil, nil)
		return nn.CrossEntropy(m.Head.Forward(y.Select(0, -1)), s.RandInt(0, 10, batch))
	})
}

// inferring classifies one image of 224 by 224 pixels with ResNet-18.
func inferring(r *run) {
	size := r.n(224, 32)
	tensor.Do(func(home *tensor.Scope) {
		m := models.ResNet18(1000, 3, nn.In(home))
		r.count(m)
		nn.Eval(m)
		x := home.Randn(1, 3, size, size)
		r.measure(1, false, func() { home.Do(func(s *tensor.Scope) { m.Forward(x.In(s)) }) })
	}, tensor.On(r.dev), tensor.NoGrad())
	r.Rate = 1 / r.Median
}

// decoding measures how GPT-2 124M computes the next token after 128 tokens, whose keys and values
// are in a cache.
func decoding(r *run) {
	c, prompt := models.GPT2(), r.n(128, 8)
	if r.trial {
		c = models.GPTConfig{Vocab: 61, Context: 32, Layers: 1, Heads: 2, Width: 64}
	}
	tensor.Do(func(home *tensor.Scope) {
		m := models.NewGPT(c, nn.In(home))
		r.count(m)
		cache := m.NewCache(home, 1)
		home.Do(func(s *tensor.Scope) { m.Decode(s.RandInt(0, c.Vocab, 1, prompt), cache) })
		id := home.RandInt(0, c.Vocab, 1, 1)
		r.measure(1, false, func() {
			home.Do(func(s *tensor.Scope) { m.Decode(id.In(s), cache).Argmax(-1).Item() })
			cache.Truncate(prompt)
		})
	}, tensor.On(r.dev), tensor.NoGrad())
	r.Rate = 1 / r.Median
}

// count adds the number of m's parameters to the row of results. PyTorch's side does the same in
// its own row.
func (r *run) count(m any) {
	for _, p := range nn.Parameters(m) {
		r.Parameters += p.Size()
	}
}
