package device

import "fmt"

// ScatterKind says how a scatter combines a value with the target's element.
type ScatterKind uint8

// The ways to scatter. With Set, the last position in row-major order wins; the other kinds combine
// with the target's element. Max and Min propagate NaN. The sum of truth values is "or", their
// product is "and".
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

// Scatter combines Src[i…] into Dst[i… with Index[i…] along Axis], in the order of the positions.
// If many positions have the same target, a device may first combine groups of a fixed number of
// positions, and then the groups in order. 16-bit floats are added and multiplied in float32.
// Positions with an index outside the axis are left out. The error for them is as for [Gather].
// Every device supports it.
type Scatter struct {
	Kind            ScatterKind
	Dst, Src, Index View
	Axis            int
	Tag             uint32
	// Distinct promises that no two positions have the same target, so that the order does not
	// matter. If the promise is broken, such a target is undefined.
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

// Work counts as many elements of Dst as Src has. They are written, and also read if values are
// combined.
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
