package models

import (
	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/nn"
)

// NewCharGPT returns a [GPT] whose tokens are the characters of a text, and their tokenizer;
// c.Vocab is overwritten. The error is a *text.Error: the text is empty or not UTF-8. A wrong
// configuration panics as it does in [NewGPT].
func NewCharGPT(corpus string, c GPTConfig, opts ...nn.Option) (*GPT, *text.Chars, error) {
	chars, err := text.NewChars(corpus)
	if err != nil {
		return nil, nil, err
	}
	c.Vocab = chars.Vocab()
	return NewGPT(c, opts...), chars, nil
}

// A CharGPTRecipe is how to train a [GPT] of characters: its size, and what AdamW, clipping and a
// schedule are given (optim.NewAdamW, optim.ClipGradNorm, sched.NewWarmUp before
// sched.NewCosineAnnealing).
type CharGPTRecipe struct {
	Config GPTConfig // Vocab is 0: it comes from the text
	Batch  int       // blocks of Context tokens a step
	Steps  int
	Warmup int // steps in which the learning rate rises from 0
	// the learning rate after that, and at the end of the cosine along which it falls
	LR, MinLR   float64
	Beta1       float64 // of AdamW
	Beta2       float64
	WeightDecay float64
	Clip        float64 // the greatest norm of all gradients
	HeldOut     float64 // the part of the text, its end, that is kept for validation
}

// CharGPTDefaults returns a recipe for a text of some hundred thousand characters and a CPU. Its
// 0.8 million parameters learn for two minutes or so on two cores. They then predict characters
// they have not seen far better than how often each occurs would.
func CharGPTDefaults() CharGPTRecipe {
	return CharGPTRecipe{
		Config: GPTConfig{Context: 64, Layers: 4, Heads: 4, Width: 128},
		Batch:  32, Steps: 500, Warmup: 25, LR: 2e-3, MinLR: 2e-4, Beta1: 0.9, Beta2: 0.99, WeightDecay: 0.1, Clip: 1, HeldOut: 0.1,
	}
}
