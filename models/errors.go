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

// within runs f with x in a child of its scope and keeps what f returns: what no gradient needs is
// freed with the child.
func within(x *tensor.Tensor, f func(x *tensor.Tensor) *tensor.Tensor) (y *tensor.Tensor) {
	given("forward", x)
	x.Scope().Do(func(c *tensor.Scope) {
		y = f(x.In(c))
		c.Close(y)
	})
	return y
}
