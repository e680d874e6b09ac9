package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
)

// ScanKind says how a scan combines each element with those before it.
type ScanKind uint8

// The ways to combine. Sums of floats start with +0.
const (
	ScanSum ScanKind = iota
	ScanProd
	ScanLogSumExp // log Σ exp
	ScanMax       // the position, as I64, of the greatest so far, the last of equal ones; NaN is the greatest
	ScanMin       // the position of the least so far, the last of equal ones; NaN is the least
	ScanLinear    // of factors a and terms b, in this order: yᵢ = bᵢ + aᵢ·yᵢ₋₁, and y₀ = b₀
)

// String returns the kind in lower case.
func (k ScanKind) String() string {
	return [...]string{"sum", "prod", "logsumexp", "max", "min", "linear"}[k]
}

// Scanner is satisfied by devices that combine each element with all before it.
type Scanner interface {
	// Scan combines along dimension 1 of views of one rank-3 shape, if reverse from its end on. Floats give their type and are
	// combined in float64, at least in float32 those of 16 bits; integers and Bool give I64, and so do positions. The order of
	// operations depends on the shape alone.
	Scan(s Stream, kind ScanKind, out View, ins []View, reverse bool) error
}

// CheckScan says what is wrong with the number, shapes and types of a scan's operands: the argument at fault and why. The reason is
// empty where they fit. Drivers share it; that the views lie in their memory they check themselves.
func CheckScan(kind ScanKind, out *View, ins []View) (arg, reason string) {
	want := 1
	if kind == ScanLinear {
		want = 2
	}
	if len(ins) != want || kind > ScanLinear {
		return "in", fmt.Sprintf("%d operands of a scan of kind %d", len(ins), kind)
	}
	if out.Shape.Rank() != 3 {
		return "out", fmt.Sprintf("shape %v, want rank 3", out.Shape)
	}
	for i := range ins {
		if ins[i].Shape != out.Shape || ins[i].Type != ins[0].Type {
			return fmt.Sprintf("in %d", i), fmt.Sprintf("%v of %v, want %v of %v", ins[i].Shape, ins[i].Type, out.Shape, ins[0].Type)
		}
	}
	t := dtype.I64
	if ins[0].Type.IsFloat() && kind != ScanMax && kind != ScanMin {
		t = ins[0].Type
	}
	if out.Type != t || (kind == ScanLogSumExp || kind == ScanLinear) && !t.IsFloat() {
		return "out", fmt.Sprintf("of %v for operands of %v", out.Type, ins[0].Type)
	}
	return "", ""
}
