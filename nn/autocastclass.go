package nn

import (
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// The method Autocast of a function in this package returns the function's autocast class.

func (*recurrence) Autocast() tensor.AutocastClass          { return tensor.AutocastLow }
func (*multiMarginFunc) Autocast() tensor.AutocastClass     { return tensor.AutocastHigh }
func (multiLabelMarginFunc) Autocast() tensor.AutocastClass { return tensor.AutocastHigh }
func (*ctcFunc) Autocast() tensor.AutocastClass             { return tensor.AutocastOff }
func (*frequencyFunc) Autocast() tensor.AutocastClass       { return tensor.AutocastOff }
func (*hookOp) Autocast() tensor.AutocastClass              { return tensor.AutocastOff }

// autocastOn reports whether autocast is on in the operands' innermost scope. An operand may be
// nil.
func autocastOn(operands ...*tensor.Tensor) bool {
	for _, x := range operands {
		if x != nil && x.Scope().Autocast() != dtype.Invalid {
			return tensor.Youngest(slices.DeleteFunc(operands, func(x *tensor.Tensor) bool { return x == nil })...).Autocast() != dtype.Invalid
		}
	}
	return false
}

// refuseUnsafe raises an error if autocast is on. Ops whose gradient overflows in 16 bits call it.
// The argument instead is the error's hint: it says what to use in place of op. As in
// torch.autocast("cuda"), the types of the operands do not matter.
func refuseUnsafe(op, instead string, operands ...*tensor.Tensor) {
	if autocastOn(operands...) {
		hinted(op, tensor.ErrType, "is unsafe under autocast: the gradient of a logarithm of a probability overflows in 16 bits", instead, operands...)
	}
}

// fits reports whether an op accepts an operand and a parameter of the given types. The types must
// be equal unless autocast converts both tensors to 16 bits.
func fits(operand, param dtype.Type, operands []*tensor.Tensor) bool {
	cast := func(t dtype.Type) bool { return t == dtype.F32 || t.IsHalf() }
	return operand == param || cast(operand) && cast(param) && autocastOn(operands...)
}
