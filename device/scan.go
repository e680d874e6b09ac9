package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
)

// ScanKind says how a scan combines each element with the elements before it.
type ScanKind uint8

// The ways to combine. Sums of floats start with +0.
const (
	ScanSum ScanKind = iota
	ScanProd
	ScanLogSumExp // the elements combine to log Σ exp
	// the position, as I64, of the maximum so far, the last of equal ones; NaN is the greatest
	ScanMax
	// the position, as I64, of the minimum so far, the last of equal ones; NaN is the least
	ScanMin
	// linear recurrence of factors a and terms b, in this order: yᵢ = bᵢ + aᵢ·yᵢ₋₁, and y₀ = b₀
	ScanLinear
)

// String returns the kind in lower case.
func (k ScanKind) String() string {
	return [...]string{"sum", "prod", "logsumexp", "max", "min", "linear"}[k]
}

// Scan combines elements along dimension 1 of views of rank 3 and of one shape. If Reverse is set,
// it starts at the end. For floats the result has their type; they are combined in float64, and
// 16-bit floats at least in float32. Integers and Bool give I64, and positions are I64. The order
// of operations depends only on the shape.
type Scan struct {
	Kind    ScanKind
	Out     View
	Ins     []View
	Reverse bool
}

// Name returns "scan-" and the kind.
func (o *Scan) Name() string {
	if o.Kind > ScanLinear {
		return "scan"
	}
	return [...]string{"scan-sum", "scan-prod", "scan-logsumexp", "scan-max", "scan-min", "scan-linear"}[o.Kind]
}

// Operand returns the result, then the operands.
func (o *Scan) Operand(i int) Operand {
	if i == 0 {
		return Operand{"out", &o.Out, true}
	}
	if i <= len(o.Ins) {
		return Operand{"in", &o.Ins[i-1], false}
	}
	return Operand{}
}

// Check compares the number, shapes and types of the operands.
func (o *Scan) Check() (arg, reason string) {
	if o.Kind > ScanLinear {
		return "kind", fmt.Sprintf("there is no kind %d", o.Kind)
	}
	want := 1
	if o.Kind == ScanLinear {
		want = 2
	}
	if len(o.Ins) != want {
		return "in", fmt.Sprintf("%d views, want %d", len(o.Ins), want)
	}
	if o.Out.Shape.Rank() != 3 {
		return "out", fmt.Sprintf("shape %v, want rank 3", o.Out.Shape)
	}
	from := o.Ins[0].Type
	for i := range o.Ins {
		if in := &o.Ins[i]; in.Shape != o.Out.Shape || in.Type != from {
			return numbered("in", i, want), wrong(in, from, o.Out.Shape)
		}
	}
	t := dtype.I64
	if from.IsFloat() && o.Kind != ScanMax && o.Kind != ScanMin {
		t = from
	}
	if o.Out.Type != t || (o.Kind == ScanLogSumExp || o.Kind == ScanLinear) && !t.IsFloat() {
		return "out", fmt.Sprintf("of %v for operands of %v", o.Out.Type, from)
	}
	return "", ""
}

// Work counts one operation for each element. It adds an exponential and a logarithm for
// ScanLogSumExp, and counts two operations for a linear recurrence.
func (o *Scan) Work() Work {
	each := 1
	switch o.Kind {
	case ScanLogSumExp:
		each += 2 * expCost
	case ScanLinear:
		each = 2
	}
	return Work{each * o.Out.Size(), bytesOf(o.Out) + bytesOf(o.Ins...)}
}

// Clone copies the op.
func (o *Scan) Clone() Op { return &Scan{o.Kind, o.Out, clone(o.Ins), o.Reverse} }
