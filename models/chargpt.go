package models

import (
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
