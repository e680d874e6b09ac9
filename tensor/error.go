package tensor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/callsite"
	"github.com/flambeau-go/flambeau/shape"
)

// These are the kinds of misuse. errors.Is finds them in an [Error].
var (
	ErrShape = errors.New("shapes do not fit")
	// ErrOneValue is an [ErrShape]: the batch has one value per channel, which is too few for a
	// variance.
	ErrOneValue = fmt.Errorf("%w: one value per channel", ErrShape)
	ErrType     = errors.New("element types do not fit")
	ErrDevice   = errors.New("tensors are on different devices")
	ErrFreed    = errors.New("tensor has been freed")
	ErrScope    = errors.New("scope misused")
	ErrIndex    = errors.New("index out of range")
	ErrInPlace  = errors.New("modified by an in-place operation")
	ErrGrad     = errors.New("no gradient")
	ErrValue    = errors.New("invalid argument")
	// ErrLinAlg says that the matrix is singular or not positive definite, or that the algorithm
	// did not converge.
	ErrLinAlg = errors.New("the matrix cannot be treated")
)

// An Error is the value that a tensor expression panics with. It reports misuse, out of memory,
// faults of a device, and index errors that a GPU finds later. The cause is wrapped, so that
// errors.Is finds it. [Try] turns the panic into an ordinary error.
type Error struct {
	Op       string    // the library's name of the operation, such as "matmul"
	Operands []Operand // the tensors that the operation was applied to
	Msg      string    // what is wrong
	Hint     string    // how to fix it, if that is obvious
	Site     string    // file:line of the caller outside the library
	// the layer in whose Forward the error occurred, if package nn knows it, such as
	// "encoder.layers.3.attention.query (nn.Linear)"
	Layer string
	Err   error // the kind (ErrShape, …) or the cause (device.ErrOutOfMemory, …)
}

// An Operand describes a tensor in an [Error].
type Operand struct {
	Shape  shape.Dims
	Type   dtype.Type
	Device string
	Origin string // where the tensor was made
}

// String returns a text such as "[64, 784] float32 on cpu".
func (o Operand) String() string {
	return fmt.Sprintf("%v %v on %s", o.Shape, o.Type, o.Device)
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("tensor: ")
	b.WriteString(e.Op)
	b.WriteString(": ")
	b.WriteString(e.Msg)
	if e.Hint != "" {
		b.WriteString(" (")
		b.WriteString(e.Hint)
		b.WriteString(")")
	}
	if e.Layer != "" {
		b.WriteString("\n  in ")
		b.WriteString(e.Layer)
	}
	if e.Site != "" {
		b.WriteString("\n  at ")
		b.WriteString(e.Site)
	}
	for i, o := range e.Operands {
		fmt.Fprintf(&b, "\n  operand %d: %v", i, o)
		if o.Origin != "" {
			b.WriteString(", ")
			b.WriteString(o.Origin)
		}
	}
	return b.String()
}

// Unwrap returns the kind or the cause.
func (e *Error) Unwrap() error { return e.Err }

// Raised marks the error as one that [Try] returns: see [device.Raised].
func (e *Error) Raised() {}

// Try runs f and returns the library's error that f panicked with, or nil. The error is an
// *[Error], or an error of another package. Errors of other packages are *nn.Error for the
// structure of a model, *optim.Error for the settings of an optimizer, and the
// *[device.UnavailableError] of cuda.Get. All these errors implement [device.Raised]. Other panics,
// such as runtime errors of Go and panics of the program, continue.
func Try(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(device.Raised)
			if !ok {
				panic(r)
			}
			err = e
		}
	}()
	f()
	return nil
}

// fail panics with an *Error of the given kind, which names the operands and the caller.
func fail(op string, kind error, operands []*Tensor, format string, a ...any) {
	panic(newError(op, kind, operands, fmt.Sprintf(format, a...)))
}

// NewError makes an error of a kind (ErrShape, …) that names the operation, its operands and the
// caller's line. A program's own operations can panic with it.
func NewError(op string, kind error, msg string, operands ...*Tensor) *Error {
	return newError(op, kind, operands, msg)
}

func newError(op string, kind error, operands []*Tensor, msg string) *Error {
	e := &Error{Op: op, Err: kind, Msg: msg, Site: deepSite().String()}
	for _, t := range operands {
		if t != nil {
			e.Operands = append(e.Operands, t.describe())
		}
	}
	return e
}

func (x *Tensor) describe() Operand {
	k := x.sketch()
	return k.operand()
}

// A sketch holds the facts that an [Operand] is made from. The Operand is made only if there is an
// error.
type sketch struct {
	shape  shape.Dims
	dtype  dtype.Type
	dev    device.Device
	op     string
	made   *site
	opened *scopeSite // where the tensor's scope was opened
}

func (x *Tensor) sketch() sketch {
	k := sketch{shape: x.layout.Shape, dtype: x.dtype, op: x.op, made: x.made}
	if x.st != nil {
		k.dev = x.st.dev
	}
	if x.scope != nil {
		k.opened = x.scope.opened
	}
	return k
}

func (k *sketch) operand() Operand {
	o := Operand{Shape: k.shape, Type: k.dtype, Origin: k.origin()}
	if k.dev != nil {
		o.Device = k.dev.Name()
	}
	return o
}

// origin describes in words where the tensor was made.
func (k *sketch) origin() string {
	if s := k.made.String(); s != "" {
		return k.op + " at " + s
	}
	if k.op == "" {
		return ""
	}
	if k.opened != nil {
		return "result of " + k.op + " " + k.opened.String()
	}
	return "result of " + k.op
}

func (e *Error) hint(format string, a ...any) *Error {
	e.Hint = fmt.Sprintf(format, a...)
	return e
}

// check panics if err, the error of a driver, is not nil.
func check(op string, err error, operands ...*Tensor) {
	if err != nil {
		panic(deviceError(op, err, operands))
	}
}

// deviceError wraps an error of a driver. An index error that a GPU reports late, and an error of a
// replay on the CPU, get the call site of the op that caused them.
func deviceError(op string, err error, operands []*Tensor) *Error {
	if r, ok := err.(*device.ReplayError); ok {
		e := deviceError(op, r.Err, operands)
		e.Site, e.Err = callsite.First(r.Callers), &device.ReplayError{Callers: r.Callers, Err: e.Err}
		return e
	}
	var ix *device.IndexError
	if errors.As(err, &ix) {
		told, site := *ix, ""
		var late []sketch
		if l, ok := lateSite(ix.Tag); ok {
			op, site = l.op, l.site.String()
			told.Position = positionIn(l.index, ix.Position)
			operands, late = nil, l.operands[:]
		}
		e := newError(op, ErrIndex, operands, told.Error())
		for i := range late {
			e.Operands = append(e.Operands, late[i].operand())
		}
		e.Err = errors.Join(ErrIndex, err)
		// the index would be valid if negative indices counted from the end
		if told.Index < 0 && told.Index >= -told.Bound {
			e.hint("a negative index does not count from the end")
		}
		if site != "" {
			e.Site = site
		}
		return e
	}
	return noted(newError(op, err, operands, err.Error()))
}
