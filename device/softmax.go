package device

import "fmt"

// Softmax sets Out to softmax(X), or to its logarithm, row by row. X and Out have the same shape,
// of rank 2, and the same floating-point type.
type Softmax struct {
	Out, X View
	Log    bool
}

// Name returns "softmax".
func (*Softmax) Name() string { return "softmax" }

// Operand returns operand i: the result comes first, then the input.
func (o *Softmax) Operand(i int) Operand {
	switch i {
	case 0:
		return Operand{"out", &o.Out, true}
	case 1:
		return Operand{"x", &o.X, false}
	}
	return Operand{}
}

// Check checks the shapes and types of the operands.
func (o *Softmax) Check() (arg, reason string) { return checkRows(o, 2) }

// Work counts a maximum, a difference, an exponential and a sum for each element. It also counts a
// division for each element, or a difference if Log is set.
func (o *Softmax) Work() Work { return Work{(4 + expCost) * o.X.Size(), bytesOf(o.Out, o.X)} }

// Clone copies the op.
func (o *Softmax) Clone() Op { c := *o; return &c }

// SoftmaxGrad computes DX from the result Y of a [Softmax] and from the gradient G of Y. All three
// have the same shape, of rank 2, and the same floating-point type.
type SoftmaxGrad struct {
	DX, Y, G View
	Log      bool
}

// Name returns "softmax gradient".
func (*SoftmaxGrad) Name() string { return "softmax gradient" }

// Operand returns operand i: the result comes first, then the inputs.
func (o *SoftmaxGrad) Operand(i int) Operand {
	switch i {
	case 0:
		return Operand{"dx", &o.DX, true}
	case 1:
		return Operand{"y", &o.Y, false}
	case 2:
		return Operand{"g", &o.G, false}
	}
	return Operand{}
}

// Check checks the shapes and types of the operands.
func (o *SoftmaxGrad) Check() (arg, reason string) { return checkRows(o, 3) }

// Work counts two products, a sum and a difference for each element. If Log is set, an exponential
// replaces one of the products.
func (o *SoftmaxGrad) Work() Work {
	each := 4
	if o.Log {
		each += expCost - 1
	}
	return Work{each * o.Y.Size(), bytesOf(o.DX, o.Y, o.G)}
}

// Clone copies the op.
func (o *SoftmaxGrad) Clone() Op { c := *o; return &c }

// checkRows checks that the first n operands have the same shape, of rank 2, and the same
// floating-point type.
func checkRows(op Op, n int) (arg, reason string) {
	first := op.Operand(0).View
	for i := range n {
		o := op.Operand(i)
		switch v := o.View; {
		case v.Shape.Rank() != 2 || v.Shape != first.Shape:
			return o.Name, fmt.Sprintf("shape %v, want [rows, columns] as all", v.Shape)
		case v.Type != first.Type || !v.Type.IsFloat():
			return o.Name, fmt.Sprintf("of %v, want one float type for all", v.Type)
		}
	}
	return "", ""
}
