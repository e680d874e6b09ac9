package models

import (
	"math"

	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/nn"
)

// NewCharGPT returns a [GPT] whose tokens are the characters of a text, and their tokenizer; c.Vocab is overwritten. The error is a
// *text.Error: the text is empty or not UTF-8. A wrong configuration panics as it does in [NewGPT].
func NewCharGPT(corpus string, c GPTConfig, opts ...nn.Option) (*GPT, *text.Chars, error) {
	chars, err := text.NewChars(corpus)
	if err != nil {
		return nil, nil, err
	}
	c.Vocab = chars.Vocab()
	return NewGPT(c, opts...), chars, nil
}

// A CharGPTRecipe is how to train a [GPT] of characters: its size and the numbers of the training loop.
type CharGPTRecipe struct {
	Config      GPTConfig // Vocab is 0: it comes from the text
	Batch       int       // blocks of Context tokens a step
	Steps       int
	Warmup      int     // steps in which the learning rate rises from 0
	LR, MinLR   float64 // the learning rate after that, and at the end of the cosine along which it falls
	Beta1       float64 // of AdamW
	Beta2       float64
	WeightDecay float64
	Clip        float64 // the greatest norm of all gradients
	HeldOut     float64 // the part of the text, its end, that is kept for validation
}

// CharGPTDefaults returns a recipe for a text of some hundred thousand characters and a CPU: 0.8 million parameters that after two minutes or so
// on two cores predict characters they have not seen far better than how often each occurs would.
func CharGPTDefaults() CharGPTRecipe {
	return CharGPTRecipe{
		Config: GPTConfig{Context: 64, Layers: 4, Heads: 4, Width: 128},
		Batch:  32, Steps: 500, Warmup: 25, LR: 2e-3, MinLR: 2e-4, Beta1: 0.9, Beta2: 0.99, WeightDecay: 0.1, Clip: 1, HeldOut: 0.1,
	}
}

// LRAt returns the learning rate of a step, counted from 0: a line up to LR, then a cosine down to MinLR.
func (r CharGPTRecipe) LRAt(step int) float64 {
	if step < r.Warmup {
		return r.LR * float64(step+1) / float64(r.Warmup)
	}
	part := float64(step-r.Warmup) / float64(max(r.Steps-r.Warmup, 1))
	return r.MinLR + (r.LR-r.MinLR)*(1+math.Cos(math.Pi*min(part, 1)))/2
}
