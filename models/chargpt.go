package models

import (
	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/nn"
)

// NewCharGPT returns a [GPT] whose tokens are the characters of a text, and its tokenizer. It
// overwrites c.Vocab. The error is a *text.Error if the text is empty or not UTF-8. An invalid
// configuration panics as in [NewGPT].
func NewCharGPT(corpus string, c GPTConfig, opts ...nn.Option) (*GPT, *text.Chars, error) {
	chars, err := text.NewChars(corpus)
	if err != nil {
		return nil, nil, err
	}
	c.Vocab = chars.Vocab()
	return NewGPT(c, opts...), chars, nil
}

// A CharGPTRecipe is a recipe for training a [GPT] on characters. It has the size of the model, and
// the settings for optim.NewAdamW, optim.ClipGradNorm, and sched.NewWarmUp followed by
// sched.NewCosineAnnealing.
type CharGPTRecipe struct {
	Config GPTConfig // size of the model; Vocab is 0, because the text determines it
	Batch  int       // number of blocks of Context tokens in a step
	Steps  int
	Warmup int // number of steps of the warm-up
	// LR is the learning rate after the warm-up, and MinLR the rate at the end of the cosine decay.
	LR, MinLR   float64
	Beta1       float64 // settings of AdamW
	Beta2       float64
	WeightDecay float64
	Clip        float64 // upper bound of the norm of all gradients
	HeldOut     float64 // fraction of the text, at its end, that is held out for validation
}

// CharGPTDefaults returns a recipe for training on a CPU with a text of a few hundred thousand
// characters. The model has 0.8 million parameters, and training takes about two minutes on two
// cores. Afterwards it predicts unseen characters far better than their frequencies do.
func CharGPTDefaults() CharGPTRecipe {
	return CharGPTRecipe{
		Config: GPTConfig{Context: 64, Layers: 4, Heads: 4, Width: 128},
		Batch:  32, Steps: 500, Warmup: 25, LR: 2e-3, MinLR: 2e-4, Beta1: 0.9, Beta2: 0.99, WeightDecay: 0.1, Clip: 1, HeldOut: 0.1,
	}
}
