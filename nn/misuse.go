package nn

import (
	"fmt"
	"runtime"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/callsite"
	"github.com/flambeau-go/flambeau/tensor"
)

// An Error describes a mistake in the structure of a model.
type Error struct {
	// Path is the path of the field in the model, such as "encoder.fc1", or the type of the layer
	// that a constructor makes.
	Path string
	Msg  string
	Type string // type of the model that contains Path, such as "*main.Net", or ""
	Site string // file:line of the innermost caller outside the library
}

func (e *Error) Error() string {
	text := "nn: "
	if e.Path != "" {
		text += e.Path + ": "
	}
	text += e.Msg
	if e.Type != "" {
		text += "\n  in a " + e.Type
	}
	if e.Site != "" {
		text += "\n  at " + e.Site
	}
	return text
}

// wrong returns an error about the field at path. It records the line of the caller outside the
// library.
func wrong(path, msg string) *Error {
	var pc [64]uintptr
	return &Error{Path: path, Msg: msg, Site: callsite.First(pc[:runtime.Callers(2, pc[:])])}
}

// wrong returns an error about a field of the model that w visits, with the model's type.
func (w *visitor) wrong(path, msg string) *Error {
	e := wrong(path, msg)
	e.Type = w.model
	return e
}

// Raised marks *Error as a type of error that a panic raises and tensor.Try returns. The interface
// device.Raised requires it.
func (e *Error) Raised() {}

// misuse panics with a *tensor.Error of the given kind.
func misuse(op string, kind error, msg string, operands ...*tensor.Tensor) {
	panic(tensor.NewError(op, kind, msg, operands...))
}

func requireUsable(op string, operands ...*tensor.Tensor) {
	for _, x := range operands {
		if x == nil {
			hinted(op, tensor.ErrValue, "an operand is nil", "a batch of several inputs has no X: batch.Tensor gives them by name")
		}
		if err := tensor.Try(func() { tensor.Youngest(x) }); err != nil {
			err.(*tensor.Error).Op = op
			panic(err)
		}
	}
}

const scalarInput = "the input is a scalar, it needs a last dimension of features"

// features raises an error if x does not fit a weight. Their last dimensions must have the same
// size, and their devices must be equal. Their types must be equal too, unless autocast converts
// them or the layer is quantised.
func features(op string, x, weight *tensor.Tensor, quantised bool) {
	requireUsable(op, x)
	if weight == nil {
		hinted(op, tensor.ErrValue, "the layer has no weight", "its New function makes one", x)
	}
	if x.Rank() == 0 {
		misuse(op, tensor.ErrShape, scalarInput, x, weight)
	}
	if n, want := x.Dim(-1), weight.Dim(-1); n != want {
		hint := fmt.Sprintf("make the layer for %d, or check the one before it", n)
		if x.Rank() > 2 && x.Size() == x.Dim(0)*want {
			hint = "did you mean x.Flatten(1, -1)?"
		}
		hinted(op, tensor.ErrShape, fmt.Sprintf("the input has %d features in its last dimension, the layer was made for %d", n, want), hint, x, weight)
	}
	// If only the weight lacks memory, raise no error here: the error of the matrix product
	// mentions SkipInit.
	if x.Device() != weight.Device() && x.Device().Info().Meta == weight.Device().Info().Meta {
		hinted(op, tensor.ErrDevice, fmt.Sprintf("the input is on %s and the layer on %s", x.Device().Name(), weight.Device().Name()),
			"x.To(dev) or nn.Follow(model, x) moves the input, nn.To(model, dev) the model", x, weight)
	}
	if !quantised && x.Type() != weight.Type() && tensor.Youngest(x, weight).Autocast() == dtype.Invalid {
		hint := "Cast the input, or the model with nn.Cast"
		switch {
		case x.Type() == dtype.F64:
			hint += "; Go's []float64 makes float64 tensors, []float32 float32"
		case !x.Type().IsFloat():
			hint = "Cast the input; indices are for nn.Embedding or OneHot"
		}
		hinted(op, tensor.ErrType, fmt.Sprintf("the input is %v and the layer %v", x.Type(), weight.Type()), hint, x, weight)
	}
}

// hinted panics like misuse. Its error has a hint that says how to fix the mistake.
func hinted(op string, kind error, msg, hint string, operands ...*tensor.Tensor) {
	e := tensor.NewError(op, kind, msg, operands...)
	e.Hint = hint
	panic(e)
}
