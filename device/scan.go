package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
)

// ScanKind says how a scan combines each element with the elements before it.
type ScanKind uint8

// These are the ways to combine elements. Sums of floats start with +0.
const (
	ScanSum ScanKind = iota
	ScanProd
	ScanLogSumExp // logarithm of the sum of the exponentials so far
	// position of the maximum so far, as I64; at a tie, the last position. NaN is the greatest
	// value
	ScanMax
	// position of the minimum so far, as I64; at a tie, the last position. NaN is the least value
	ScanMin
	// linear recurrence y₀ = b₀, yᵢ = bᵢ + aᵢ·yᵢ₋₁; the operands are a, then b
	ScanLinear
)

// String returns the name of the kind in lower case.
func (k ScanKind) String() string {
	return [...]string{"sum", "prod", "logsumexp", "max", "min", "linear"}[k]
}

// Scan combines elements along dimension 1. All views have the same shape, of rank 3. If Reverse is
// set, the scan starts at the last element. The result of a scan of floats has the type of the
// operand. Floats are combined in float64, but 16-bit floats may be combined in float32. A scan of
// integers or Bool has I64 results. The positions that ScanMax and ScanMin return are I64 too. The
// order of operations depends only on the shape.
type Scan struct {
	Kind    ScanKind
	Out     View
	Ins     []View
	Reverse bool
}

// Name returns "scan-" followed by the kind.
func (o *Scan) Name() string {
	if o.Kind > ScanLinear {
		return "scan"
	}
	return [...]string{"scan-sum", "scan-prod", "scan-logsumexp", "scan-max", "scan-min", "scan-linear"}[o.Kind]
}

// Operand returns operand i: the result comes first, then the inputs.
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

// Work counts one operation for each element, or two for ScanLinear. For ScanLogSumExp it also
// counts an exponential and a logarithm for each element.
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
