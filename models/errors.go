package models

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// An Error describes an invalid configuration of a model, weights that do not fit, or an invalid
// request to a model.
type Error struct {
	Model string // kind of model, such as "gpt"
	Msg   string
}

func (e *Error) Error() string { return "models: " + e.Model + ": " + e.Msg }

// Raised marks *Error as a type of error that a panic raises and tensor.Try returns. The interface
// device.Raised requires it.
func (e *Error) Raised() {}

func wrong(model, format string, a ...any) error {
	return &Error{model, fmt.Sprintf(format, a...)}
}

// misuse panics with a *tensor.Error of the given kind.
func misuse(op string, kind error, msg string, operands ...*tensor.Tensor) {
	panic(tensor.NewError(op, kind, msg, operands...))
}

func requireNonNil(op string, operands ...*tensor.Tensor) {
	for _, x := range operands {
		if x == nil {
			misuse(op, tensor.ErrValue, "an operand is nil")
		}
	}
}

// inChild runs f with x in a child of x's scope, and moves f's result out of the child. Closing the
// child frees the other tensors that f allocates, unless a gradient needs them.
func inChild(x *tensor.Tensor, f func(x *tensor.Tensor) *tensor.Tensor) (y *tensor.Tensor) {
	requireNonNil("forward", x)
	x.Scope().Do(func(c *tensor.Scope) {
		y = f(x.In(c))
		c.Close(y)
	})
	return y
}
