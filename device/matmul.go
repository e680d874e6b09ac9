package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// MatMul computes Out[b] = A[b]·B[b] for views of rank 3, [batch, m, k]·[batch, k, n]. The views
// may have any strides, and a broadcast batch has stride 0. Products of 16-bit floats are summed in
// float32. Integer sums wrap. For Bool, "or" is the addition and "and" the multiplication. For BF16
// factors, a device may treat subnormal factors and sums (below 2^-126) as zeros. Every device
// supports the products described so far. The following features are optional:
//
//   - If the factors are 16-bit floats and Out is F32, Out gets the sums without rounding.
//   - If the factors are I8 and Out is I32, sums are computed in int32 and wrap on overflow. A sum
//     of up to 2^17 - 1 products cannot overflow.
//   - Bias, of shape [n], is added to each row before the result is rounded. It has the factors'
//     type or F32. The factors must have a floating-point type. Bias may be absent.
//   - Act is a program with one result of Out's type. Its operands are the product, rounded to that
//     type, and the view With, if present. The result has the same bits as a [Map] after the
//     product. The factors must have a floating-point type. Act may use neither scalars nor
//     positions. A nil Act means no activation.
//   - With is the second operand of Act. It has the shape of Out and a floating-point type. If Act
//     is the gradient of an activation, With holds the values to which the activation was applied.
//   - Pre gets the product before Act is applied. It has the shape and type of Out, and may be
//     absent.
//   - Sums, an F32 view of shape [m], gets the sum of each row of A. A must be F32 or a 16-bit
//     float type, and the batch must be 1. If A is the transpose of a gradient, the sums are the
//     gradient of a bias. Sums may be absent.
//   - ColumnSums, an F32 view of shape [n], gets the sum of each column of B. The conditions for
//     Sums and A apply to ColumnSums and B.
//   - If one factor is F32 and the other has 16 bits, the device rounds the F32 factor to the
//     16-bit type as it reads it. Out has the 16-bit type, or F32.
//   - TF32 permits the device to round F32 factors to ten bits of mantissa. The sums stay float32.
//     A device for which TF32 is not faster multiplies in float32.
type MatMul struct {
	Out, Pre, Sums, A, B, Bias, ColumnSums, With View
	Act                                          *expr.Program
	TF32                                         bool
}

// Factor returns the type to which both factors are converted before they are multiplied. It is the
// 16-bit type if one factor is F32 and the other has 16 bits.
func (m *MatMul) Factor() dtype.Type {
	if m.B.Type.IsHalf() {
		return m.B.Type
	}
	return m.A.Type
}

// Plain reports whether the op uses no optional feature, so that every device supports it.
func (m *MatMul) Plain() bool {
	return m.Bias.Absent() && m.Out.Type == m.A.Type && m.A.Type == m.B.Type && m.Act == nil &&
		m.Sums.Absent() && m.ColumnSums.Absent()
}

// Name returns "matmul".
func (*MatMul) Name() string { return "matmul" }

// Operand returns operand i. The order is: Out, Pre, Sums, A, B, Bias, ColumnSums, With.
func (m *MatMul) Operand(i int) Operand {
	switch i {
	case 0:
		return Operand{"out", &m.Out, true}
	case 1:
		return Operand{"pre", &m.Pre, true}
	case 2:
		return Operand{"sums", &m.Sums, true}
	case 3:
		return Operand{"a", &m.A, false}
	case 4:
		return Operand{"b", &m.B, false}
	case 5:
		return Operand{"bias", &m.Bias, false}
	case 6:
		return Operand{"column sums", &m.ColumnSums, true}
	case 7:
		return Operand{"with", &m.With, false}
	}
	return Operand{}
}

// Check checks the shapes of the operands.
func (m *MatMul) Check() (arg, reason string) {
	factor := m.Factor()
	for i, v := range [...]*View{&m.Out, &m.A, &m.B} {
		name := [...]string{"out", "a", "b"}[i]
		if v.Shape.Rank() != 3 {
			return name, fmt.Sprintf("shape %v, want [batch, rows, columns]", v.Shape)
		}
		wide := v.Type == dtype.F32 && factor.IsHalf() || i == 0 && v.Type == dtype.I32 && factor == dtype.I8
		if v.Type != factor && !wide {
			return name, fmt.Sprintf("%v, but the factors are %v", v.Type, factor)
		}
	}
	if m.TF32 && factor != dtype.F32 {
		return "a", fmt.Sprintf("%v, tf32 is for float32", factor)
	}
	s, a, b := &m.Out.Shape, &m.A.Shape, &m.B.Shape
	if a.At(0) != s.At(0) || a.At(1) != s.At(1) || b.At(0) != s.At(0) || b.At(2) != s.At(2) ||
		a.At(2) != b.At(1) {
		return "out", fmt.Sprintf("shapes %v·%v do not give %v", *a, *b, *s)
	}
	if t := m.Bias.Type; !m.Bias.Absent() {
		switch {
		case !factor.IsFloat() || t != factor && t != dtype.F32:
			return "bias", fmt.Sprintf("%v, but the factors are %v", t, factor)
		case m.Bias.Shape != shape.Of(s.At(2)):
			return "bias", fmt.Sprintf("shape %v, want [%d]", m.Bias.Shape, s.At(2))
		}
	}
	if arg, reason = m.checkSums("sums", &m.Sums, &m.A, 1); reason == "" {
		arg, reason = m.checkSums("column sums", &m.ColumnSums, &m.B, 2)
	}
	if reason != "" {
		return arg, reason
	}
	return m.checkAct()
}

// checkSums checks the view of row sums or column sums, called name, which may be absent. Its size
// must be that of dimension d of the factor f.
func (m *MatMul) checkSums(name string, sums, f *View, d int) (arg, reason string) {
	switch t := sums.Type; {
	case sums.Absent():
		return "", ""
	case t != dtype.F32 || !f.Type.IsFloat() || f.Type == dtype.F64:
		return name, fmt.Sprintf("%v of %v, want float32 of float32 or 16-bit floats", t, f.Type)
	case sums.Shape != shape.Of(f.Shape.At(d)):
		return name, fmt.Sprintf("shape %v, want [%d]", sums.Shape, f.Shape.At(d))
	case f.Shape.At(0) != 1:
		return name, fmt.Sprintf("a batch of %d, want 1", f.Shape.At(0))
	}
	return "", ""
}

// checkAct checks the activation and its operand With.
func (m *MatMul) checkAct() (arg, reason string) {
	f, t := m.Act, m.Out.Type
	takes := func() bool {
		if m.With.Absent() {
			return len(f.In) == 1 && f.In[0] == t
		}
		return len(f.In) == 2 && f.In[0] == t && f.In[1] == m.With.Type
	}
	switch {
	case f == nil && !m.With.Absent():
		return "with", "there is no activation that takes it"
	case !m.With.Absent() && (m.With.Shape != m.Out.Shape || !m.With.Type.IsFloat()):
		return "with", fmt.Sprintf("%v %v, but out is %v %v", m.With.Type, m.With.Shape, t, m.Out.Shape)
	case f != nil && (!t.IsFloat() || len(f.Out) != 1 || f.Out[0] != t || !takes()):
		return "act", fmt.Sprintf("takes %v and gives %v, want out's %v, with's %v if it is there, and %v", f.In, f.Out, t, m.With.Type, t)
	case f != nil && (len(f.Params) > 0 || f.UsesIndex()):
		return "act", "takes scalars or the position of an element"
	case m.Pre.Absent():
		return "", ""
	case f == nil:
		return "pre", "there is no activation, so it is the result"
	case m.Pre.Type != t || m.Pre.Shape != m.Out.Shape:
		return "pre", fmt.Sprintf("%v %v, but out is %v %v", m.Pre.Type, m.Pre.Shape, t, m.Out.Shape)
	}
	return "", ""
}

// Work counts 2·batch·m·n·k operations. A bias adds batch·m·n, and an activation adds its own
// operations for each element of the result. Row sums add m·k and column sums add k·n.
func (m *MatMul) Work() Work {
	if m.Out.Size() == 0 && m.Sums.Size() == 0 && m.ColumnSums.Size() == 0 {
		return Work{}
	}
	each := 2 * m.A.Shape.At(2)
	if !m.Bias.Absent() {
		each++
	}
	if m.Act != nil {
		each += m.Act.Cost()
	}
	w := Work{each * m.Out.Size(), bytesOf(m.Out, m.Pre, m.Sums, m.A, m.B, m.Bias, m.ColumnSums, m.With)}
	if !m.Sums.Absent() {
		w.FLOPs += m.A.Size()
	}
	if !m.ColumnSums.Absent() {
		w.FLOPs += m.B.Size()
	}
	return w
}

// Clone copies the op.
func (m *MatMul) Clone() Op { c := *m; return &c }
