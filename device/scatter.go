package device

import "fmt"

// ScatterKind says what a scatter does with an element that its target already has.
type ScatterKind uint8

// The ways to scatter. Set lets the last position in row-major order win; the others combine with
// what is there. Max and Min propagate NaN. The sum of truth values is "or", their product "and".
const (
	ScatterSet ScatterKind = iota
	ScatterAdd
	ScatterProd
	ScatterMax
	ScatterMin
)

// String returns the kind in lower case.
func (k ScatterKind) String() string {
	return [...]string{"set", "add", "prod", "max", "min"}[k]
}

// A Scatter combines Src[i…] into Dst[i… with Index[i…] along Axis], in the order of the positions.
// Of many that meet in one element, a device may combine parts first, of a fixed number of
// positions, and then the parts in order. 16-bit floats are added and multiplied in float32.
// Positions whose index is outside the axis are left out; index errors as for [Gather]. Every
// device has it.
type Scatter struct {
	Kind            ScatterKind
	Dst, Src, Index View
	Axis            int
	Tag             uint32
	// Distinct promises that no two positions meet in one element, so that there is no order to
	// keep. What does not keep the promise leaves such an element undefined.
	Distinct bool
}

// Name returns "scatter-" and the kind.
func (s *Scatter) Name() string {
	if s.Kind > ScatterMin {
		return "scatter"
	}
	return [...]string{"scatter-set", "scatter-add", "scatter-prod", "scatter-max", "scatter-min"}[s.Kind]
}

// Operand returns the target, then the operands.
func (s *Scatter) Operand(i int) Operand {
	return nth(i, Operand{"dst", &s.Dst, true}, Operand{"src", &s.Src, false},
		Operand{"index", &s.Index, false})
}

// Check compares the shapes.
func (s *Scatter) Check() (arg, reason string) {
	if s.Kind > ScatterMin {
		return "kind", fmt.Sprintf("there is no kind %d", s.Kind)
	}
	return checkIndexed("src", &s.Src, "dst", &s.Dst, &s.Index, s.Axis)
}

// Work counts of Dst as much as Src has: it is written, and read where values are combined.
func (s *Scatter) Work() Work {
	if s.Index.Size() == 0 {
		return Work{}
	}
	at := s.Src.Size() * s.Dst.Type.Size()
	if s.Kind == ScatterSet {
		return Work{0, bytesOf(s.Src, s.Index) + at}
	}
	return Work{s.Src.Size(), bytesOf(s.Src, s.Index) + 2*at}
}

// Clone copies the op.
func (s *Scatter) Clone() Op { c := *s; return &c }
