// Package models is known networks as structs, with the names and layouts of weights that their PyTorch originals have, so that weights go
// both ways.
//
// Language models: [GPT], OpenAI's GPT-2 in any size, with [GPT.Generate] and [GPT.Stream]; [BERT] with its heads [MaskedLM] and
// [SequenceClassifier]. Their names are Hugging Face's. Tokens are int64 tensors [batch, length]; package data/text makes tokens of text.
//
// Vision: [MLP], [LeNet] and [CNN] for small images, [ResNet] and [ViT] with torchvision's names. Images are floating point tensors
// [batch, channels, height, width].
//
// [Pretrained] fetches published weights of both kinds.
//
// What a constructor is given wrongly (a width that the heads do not divide) is a mistake in the program and panics with an *[Error];
// methods that load or generate return errors.
package models

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// An Error says what is wrong with a model's configuration, its weights or what it was asked to do.
type Error struct {
	Model string // such as "gpt"
	Msg   string
}

func (e *Error) Error() string { return "models: " + e.Model + ": " + e.Msg }

// Raised makes the error one that tensor.Try returns: see device.Raised.
func (e *Error) Raised() {}

// wrong returns an *[Error].
func wrong(model, format string, a ...any) error {
	return &Error{model, fmt.Sprintf(format, a...)}
}

// misuse panics with the library's error for a tensor expression.
func misuse(op string, kind error, msg string, operands ...*tensor.Tensor) {
	panic(tensor.NewError(op, kind, msg, operands...))
}

// given refuses operands that are nil.
func given(op string, operands ...*tensor.Tensor) {
	for _, x := range operands {
		if x == nil {
			misuse(op, tensor.ErrValue, "an operand is nil")
		}
	}
}

// within runs f with x in a child of its scope and keeps what f returns: what no gradient needs is freed with the child.
func within(x *tensor.Tensor, f func(x *tensor.Tensor) *tensor.Tensor) (y *tensor.Tensor) {
	given("forward", x)
	x.Scope().Do(func(c *tensor.Scope) {
		y = f(x.In(c))
		c.Close(y)
	})
	return y
}
