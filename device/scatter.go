package device

import "fmt"

// ScatterKind says how a scatter combines a value with the target's element.
type ScatterKind uint8

// These are the ways to scatter. ScatterSet overwrites the target's element; if several positions
// have the same target, the last one in row-major order wins. The other kinds combine the value
// with the target's element. Max and Min propagate NaN. For Bool, the sum is "or" and the product
// is "and".
const (
	ScatterSet ScatterKind = iota
	ScatterAdd
	ScatterProd
	ScatterMax
	ScatterMin
)

// String returns the name of the kind in lower case.
func (k ScatterKind) String() string {
	return [...]string{"set", "add", "prod", "max", "min"}[k]
}

// Scatter combines each element of Src with an element of Dst, its target, like torch's
// scatter_reduce. With Axis 1, the target of Src[i][j][k] is Dst[i][Index[i][j][k]][k]. The
// positions in Src are handled in order. If many positions have the same target, a device may first
// combine groups of a fixed number of positions, and then the groups in order. 16-bit floats are
// added and multiplied in float32. Positions with an index outside the axis are left out. Then Run
// or the next wait returns an [IndexError] with Tag. Every device supports Scatter without Wrap.
type Scatter struct {
	Kind            ScatterKind
	Dst, Src, Index View
	Axis            int
	Tag             uint32
	Wrap            bool // as in [Gather]
	// Distinct promises that no two positions have the same target, so that the order does not
	// matter. If two positions do have the same target, the target's element is undefined.
	Distinct bool
}

// Name returns "scatter-" followed by the kind.
func (s *Scatter) Name() string {
	if s.Kind > ScatterMin {
		return "scatter"
	}
	return [...]string{"scatter-set", "scatter-add", "scatter-prod", "scatter-max", "scatter-min"}[s.Kind]
}

// Operand returns operand i: the target comes first, then the inputs.
func (s *Scatter) Operand(i int) Operand {
	return nth(i, Operand{"dst", &s.Dst, true}, Operand{"src", &s.Src, false},
		Operand{"index", &s.Index, false})
}

// Check checks the shapes of the operands.
func (s *Scatter) Check() (arg, reason string) {
	if s.Kind > ScatterMin {
		return "kind", fmt.Sprintf("there is no kind %d", s.Kind)
	}
	return checkIndexed("src", &s.Src, "dst", &s.Dst, &s.Index, s.Axis)
}

// Work counts one written element of Dst for each element of Src. If the scatter combines values,
// it also counts one read element of Dst.
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
