package device

import "fmt"

// ScatterKind says how a scatter combines a value with the element of Dst that the value's index
// selects.
type ScatterKind uint8

// These are the ways to scatter. ScatterSet overwrites the selected element of Dst. If several
// indices select the same element, the last of them in row-major order wins. The other kinds
// combine the value with the selected element. Max and Min propagate NaN. For Bool, the sum is "or"
// and the product is "and".
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
// elements of Src are combined in row-major order. If many elements have the same target, a
// device may first combine groups of a fixed number of elements, and then the results of the
// groups. Both steps keep the order. 16-bit floats are added and multiplied in float32. If an
// index is outside the axis, its element of Src is left out, and Run or the next wait returns an
// [IndexError] with Tag. Every device supports Scatter without Wrap.
type Scatter struct {
	Kind            ScatterKind
	Dst, Src, Index View
	Axis            int
	Tag             uint32
	Wrap            bool // the indices -n to -1 count from the end of the axis, which has size n
	// Distinct promises that no two elements of Src have the same target. The device may then
	// ignore the order. If two elements do have the same target, the target's new value is
	// undefined.
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
