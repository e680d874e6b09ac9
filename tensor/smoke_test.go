package tensor

import "testing"

func TestSmoke(t *testing.T) {
	Do(func(s *Scope) {
		x := s.From([][]float32{{1, 2}, {3, 4}}).RequiresGrad()
		w := s.From([][]float32{{1, -1}, {0.5, 2}}).RequiresGrad()
		y := x.MatMul(w.T()).Relu().Sum()
		y.Backward()
		t.Log(y.Item(), x.Grad().Floats(), w.Grad().Floats())
		z := x.Softmax(-1).Mul(s.From([]float32{1, 2})).Sum()
		t.Log(z.Item())
	})
}
