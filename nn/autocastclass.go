package nn

import (
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// The functions of this package have the following autocast classes; see [tensor.AutocastClass].

func (*recurrence) Autocast() tensor.AutocastClass          { return tensor.AutocastLow }
func (*multiMarginFunc) Autocast() tensor.AutocastClass     { return tensor.AutocastHigh }
func (multiLabelMarginFunc) Autocast() tensor.AutocastClass { return tensor.AutocastHigh }
func (*ctcFunc) Autocast() tensor.AutocastClass             { return tensor.AutocastOff }
func (*frequencyFunc) Autocast() tensor.AutocastClass       { return tensor.AutocastOff }
func (*hookOp) Autocast() tensor.AutocastClass              { return tensor.AutocastOff }

// autocastOn reports whether autocast is on for an op with these operands. An operand may be nil.
func autocastOn(operands ...*tensor.Tensor) bool {
	for _, x := range operands {
		if x != nil && x.Scope().Autocast() != dtype.Invalid {
			return tensor.Youngest(slices.DeleteFunc(operands, func(x *tensor.Tensor) bool { return x == nil })...).Autocast() != dtype.Invalid
		}
	}
	return false
}

// refuseUnsafe raises an error if autocast is on, for an op whose gradient overflows in 16 bits.
// torch.autocast("cuda") does so too, whatever the types of the operands are.
func refuseUnsafe(op, instead string, operands ...*tensor.Tensor) {
	if autocastOn(operands...) {
		hinted(op, tensor.ErrType, "is unsafe under autocast: the gradient of a logarithm of a probability overflows in 16 bits", instead, operands...)
	}
}

// fits reports whether an op that autocast runs in 16 bits accepts an operand of type operand, if
// the parameter has type param. Under autocast the two types may differ, since autocast converts
// both tensors.
func fits(operand, param dtype.Type, operands []*tensor.Tensor) bool {
	cast := func(t dtype.Type) bool { return t == dtype.F32 || t.IsHalf() }
	return operand == param || cast(operand) && cast(param) && autocastOn(operands...)
}
