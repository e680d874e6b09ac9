package device

import "fmt"

// A MatMul computes Out[b] = A[b]·B[b] for views of rank 3, [batch, m, k]·[batch, k, n], any
// strides, 0 in a broadcast batch. 16-bit floats accumulate in float32; integers wrap; Bool is the
// product over "or" and "and". Every device has it.
type MatMul struct{ Out, A, B View }

// Name returns "matmul".
func (*MatMul) Name() string { return "matmul" }

// Operand returns the result, then the factors.
func (m *MatMul) Operand(i int) Operand {
	switch i {
	case 0:
		return Operand{"out", &m.Out, true}
	case 1:
		return Operand{"a", &m.A, false}
	case 2:
		return Operand{"b", &m.B, false}
	}
	return Operand{}
}

// Check compares the shapes.
func (m *MatMul) Check() (arg, reason string) {
	for i, v := range [...]*View{&m.Out, &m.A, &m.B} {
		if v.Shape.Rank() != 3 {
			return m.Operand(i).Name, fmt.Sprintf("shape %v, want [batch, rows, columns]", v.Shape)
		}
		if v.Type != m.Out.Type {
			return m.Operand(i).Name, fmt.Sprintf("%v, but out is %v", v.Type, m.Out.Type)
		}
	}
	s, a, b := &m.Out.Shape, &m.A.Shape, &m.B.Shape
	if a.At(0) != s.At(0) || a.At(1) != s.At(1) || b.At(0) != s.At(0) || b.At(2) != s.At(2) ||
		a.At(2) != b.At(1) {
		return "out", fmt.Sprintf("shapes %v·%v do not give %v", *a, *b, *s)
	}
	return "", ""
}

// Work is 2·batch·m·n·k.
func (m *MatMul) Work() Work {
	if m.Out.Size() == 0 {
		return Work{}
	}
	return Work{2 * m.Out.Size() * m.A.Shape.At(2), bytesOf(m.Out, m.A, m.B)}
}

// Clone copies the op.
func (m *MatMul) Clone() Op { c := *m; return &c }
