package autograd_test

import (
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestAccumulate divides a batch into micro-batches in several ways. The parts together must have
// the loss and the gradients of the whole batch, also if some targets are ignored.
func TestAccumulate(t *testing.T) {
	onDevices(t, func(t *testing.T, s *tensor.Scope) {
		r := rand.New(rand.NewPCG(3, 4))
		m := s.Typed(dtype.F64)
		w, b := m.Randn(5, 4).RequiresGrad(), m.Randn(4).RequiresGrad()
		for range 12 {
			n := 1 + r.IntN(13)
			x, labels := m.Randn(n, 5), make([]int64, n)
			counts := 0
			for i := range labels {
				if labels[i] = int64(r.IntN(4)); i > 0 && r.IntN(3) == 0 {
					labels[i] = -100
				} else {
					counts++
				}
			}
			target := s.On(s.Device()).From(labels)
			logits := func(s *tensor.Scope, from, to int) *tt {
				return x.In(s).Narrow(0, from, to-from).MatMul(w).Add(b).Tanh()
			}
			squares := func(s *tensor.Scope, from, to int) *tt { return logits(s, from, to).Square().Sum(1).Mean() }
			losses := func(s *tensor.Scope, from, to int) *tt {
				return logits(s, from, to).CrossEntropy(target.In(s).Narrow(0, from, to-from), tensor.CrossEntropyOptions{}).Sum()
			}
			check := func(what string, whole func(s *tensor.Scope) *tt, parts func(s *tensor.Scope) *tt) {
				t.Helper()
				var want [][]float64
				s.Do(func(s *tensor.Scope) {
					loss := whole(s)
					loss.Backward()
					want = [][]float64{loss.Floats(), w.Grad().Floats(), b.Grad().Floats()}
				})
				w.ZeroGrad()
				b.ZeroGrad()
				s.Do(func(s *tensor.Scope) {
					loss := parts(s)
					if loss.NeedsGrad() {
						t.Errorf("%s: the loss has a graph", what)
					}
					near(t, what, loss, want[0]...)
				})
				near(t, what+", weight", w.Grad(), want[1]...)
				near(t, what+", bias", b.Grad(), want[2]...)
				w.ZeroGrad()
				b.ZeroGrad()
			}
			size := 1 + r.IntN(n+2)
			check("means", func(s *tensor.Scope) *tt { return squares(s, 0, n) }, func(s *tensor.Scope) *tt { return autograd.Accumulate(s, n, size, squares) })
			check("means over targets that count", func(s *tensor.Scope) *tt { return losses(s, 0, n).DivScalar(float64(counts)) }, func(s *tensor.Scope) *tt {
				total := s.On(s.Device()).Typed(dtype.F64).Zeros()
				for from := 0; from < n; { // the micro-batches may have any size
					to := min(n, from+1+r.IntN(4))
					k := 0
					for _, l := range labels[from:to] {
						if l >= 0 {
							k++
						}
					}
					s.Do(func(c *tensor.Scope) {
						// the mean loss is NaN if all targets are ignored
						loss := losses(c, from, to).DivScalar(float64(k))
						autograd.BackwardShare(loss, k, counts)
						if k > 0 {
							c.Do(func(c *tensor.Scope) { total.AddInPlace(loss.In(c).MulScalar(float64(k) / float64(counts))) }, tensor.NoGrad())
						}
					})
					from = to
				}
				return total
			})
		}
		for name, f := range map[string]func(){
			"part": func() { autograd.BackwardShare(w.Sum(), 3, 2) },
			"mean": func() { autograd.BackwardShare(w, 1, 2) },
			"nil":  func() { autograd.BackwardShare(nil, 1, 2) },
			"size": func() { autograd.Accumulate(s, 3, 0, func(*tensor.Scope, int, int) *tt { return nil }) },
			"none": func() { autograd.Accumulate(s, 3, 1, func(*tensor.Scope, int, int) *tt { return nil }) },
		} {
			if tensor.Try(f) == nil {
				t.Errorf("%s: no error", name)
			}
		}
	})
}
