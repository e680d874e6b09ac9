package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// A MatMul computes Out[b] = A[b]·B[b] for views of rank 3, [batch, m, k]·[batch, k, n], any
// strides, 0 in a broadcast batch. 16-bit floats accumulate in float32; integers wrap; Bool is the
// product over "or" and "and". Every device has it without what follows, which a device may lack:
//
//   - Out of F32 for factors of 16-bit floats takes the sums as they are.
//   - Bias, [n] of the factors' type or F32, is added to each row before a result is rounded. It is
//     for floating point factors, and may be absent.
//   - Act, a program of one operand of Out's type and one result of that type, is applied to what
//     has been rounded to it: the bits are those of a [Map] behind the product. It is for floating
//     point factors, without scalars or positions; nil is none.
//   - Pre, of Out's shape and type, gets the results before Act. It may be absent.
//   - Sums, [m] of F32, gets the sum of each row of A, which is of F32 or 16-bit floats and of a
//     batch of one: where A is a gradient's transpose, they are the gradient of a bias. It may be
//     absent.
type MatMul struct {
	Out, Pre, Sums, A, B, Bias View
	Act                        *expr.Program
}

// Plain reports whether the op is one that every device has.
func (m *MatMul) Plain() bool {
	return m.Bias.Absent() && m.Out.Type == m.A.Type && m.Act == nil && m.Sums.Absent()
}

// Name returns "matmul".
func (*MatMul) Name() string { return "matmul" }

// Operand returns the results, then the factors and the bias.
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
	}
	return Operand{}
}

// Check compares the shapes.
func (m *MatMul) Check() (arg, reason string) {
	for i, v := range [...]*View{&m.Out, &m.A, &m.B} {
		name := [...]string{"out", "a", "b"}[i]
		if v.Shape.Rank() != 3 {
			return name, fmt.Sprintf("shape %v, want [batch, rows, columns]", v.Shape)
		}
		if v.Type != m.A.Type && (i > 0 || v.Type != dtype.F32 || !m.A.Type.IsFloat() || m.A.Type.Size() != 2) {
			return name, fmt.Sprintf("%v, but a is %v", v.Type, m.A.Type)
		}
	}
	s, a, b := &m.Out.Shape, &m.A.Shape, &m.B.Shape
	if a.At(0) != s.At(0) || a.At(1) != s.At(1) || b.At(0) != s.At(0) || b.At(2) != s.At(2) ||
		a.At(2) != b.At(1) {
		return "out", fmt.Sprintf("shapes %v·%v do not give %v", *a, *b, *s)
	}
	if t := m.Bias.Type; !m.Bias.Absent() {
		switch {
		case !m.A.Type.IsFloat() || t != m.A.Type && t != dtype.F32:
			return "bias", fmt.Sprintf("%v, but a is %v", t, m.A.Type)
		case m.Bias.Shape != shape.Of(s.At(2)):
			return "bias", fmt.Sprintf("shape %v, want [%d]", m.Bias.Shape, s.At(2))
		}
	}
	if t := m.Sums.Type; !m.Sums.Absent() {
		switch {
		case t != dtype.F32 || !m.A.Type.IsFloat() || m.A.Type == dtype.F64:
			return "sums", fmt.Sprintf("%v of rows of %v, want float32 of float32 or 16-bit floats", t, m.A.Type)
		case m.Sums.Shape != shape.Of(s.At(1)):
			return "sums", fmt.Sprintf("shape %v, want [%d]", m.Sums.Shape, s.At(1))
		case s.At(0) != 1:
			return "sums", fmt.Sprintf("a batch of %d, want 1", s.At(0))
		}
	}
	return m.checkAct()
}

// checkAct holds the activation and what it is applied to to the result.
func (m *MatMul) checkAct() (arg, reason string) {
	f, t := m.Act, m.Out.Type
	switch {
	case f != nil && (!t.IsFloat() || len(f.In) != 1 || len(f.Out) != 1 || f.In[0] != t || f.Out[0] != t):
		return "act", fmt.Sprintf("takes %v and gives %v, want one %v and one float", f.In, f.Out, t)
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

// Work is 2·batch·m·n·k, batch·m·n with a bias, the activation of each result, and m·k with
// sums.
func (m *MatMul) Work() Work {
	if m.Out.Size() == 0 && m.Sums.Size() == 0 {
		return Work{}
	}
	each := 2 * m.A.Shape.At(2)
	if !m.Bias.Absent() {
		each++
	}
	if m.Act != nil {
		each += m.Act.Cost()
	}
	w := Work{each * m.Out.Size(), bytesOf(m.Out, m.Pre, m.Sums, m.A, m.B, m.Bias)}
	if !m.Sums.Absent() {
		w.FLOPs += m.A.Size()
	}
	return w
}

// Clone copies the op.
func (m *MatMul) Clone() Op { c := *m; return &c }
