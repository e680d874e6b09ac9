package tensor_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// twins are n ranks that all have the same part of the batch.
type twins struct{ n, gathers, sums int }

func (r *twins) Gather(x *tensor.Tensor) *tensor.Tensor {
	r.gathers++
	return tensor.Cat(0, slices.Repeat([]*tensor.Tensor{x}, r.n)...)
}

func (r *twins) Sum(x *tensor.Tensor) *tensor.Tensor {
	r.sums++
	return x.MulScalar(float64(r.n))
}

// TestSyncBatchNorm checks that SyncBatchNorm of a batch on one rank, or of the same batch on each
// of two ranks, returns the statistics and gradients of BatchNorm.
func TestSyncBatchNorm(t *testing.T) {
	for ranks := 1; ranks <= 2; ranks++ {
		tensor.Do(func(s *tensor.Scope) {
			m := s.Typed(dtype.F64)
			x := m.Rand(5, 3, 2)
			whole := tensor.Cat(0, slices.Repeat([]*tensor.Tensor{x}, ranks)...)
			group := &twins{n: ranks}
			apply := func(x *tensor.Tensor, f func(x, mean, variance, w, b *tensor.Tensor) *tensor.Tensor) (all [][]float64) {
				x = x.Clone().RequiresGrad()
				w, b := m.From([]float64{2, -1, 0.5}).RequiresGrad(), m.Zeros(3).RequiresGrad()
				mean, variance := m.Zeros(3), m.Ones(3)
				y := f(x, mean, variance, w, b)
				y.Square().Mul(x.Detach().Cos()).Sum().Backward()
				for _, v := range []*tensor.Tensor{y, x.Grad(), w.Grad(), b.Grad(), mean, variance} {
					if v.Rank() == 3 {
						v = v.Narrow(0, 0, 5)
					}
					all = append(all, v.Floats())
				}
				return all
			}
			got := apply(x, func(x, mean, variance, w, b *tensor.Tensor) *tensor.Tensor {
				return x.SyncBatchNorm(group, mean, variance, w, b, 0.2, 1e-5)
			})
			want := apply(whole, func(x, mean, variance, w, b *tensor.Tensor) *tensor.Tensor {
				return x.BatchNorm(mean, variance, w, b, true, 0.2, 1e-5)
			})
			for i, v := range got {
				for k := range v {
					w := want[i][k]
					if i == 2 || i == 3 { // the gradients of weight and bias are this rank's part
						w /= float64(ranks)
					}
					if d := v[k] - w; !(d < 1e-12 && d > -1e-12) {
						t.Errorf("%d ranks: value %d of number %d is %v, want %v", ranks, k, i, v[k], w)
					}
				}
			}
			if group.gathers != 1 || group.sums != 1 {
				t.Errorf("%d collectives forward, %d backward", group.gathers, group.sums)
			}
		})
	}
}

// TestSyncBatchNormOfConstants normalises an x that requires no gradient. The backward pass must
// then call no collective, and compute only the gradients of weight and bias.
func TestSyncBatchNormOfConstants(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, group := s.Rand(4, 2), &twins{n: 2}
		w, b := s.Ones(2).RequiresGrad(), s.Zeros(2).RequiresGrad()
		x.SyncBatchNorm(group, nil, nil, w, b, 0.1, 1e-5).Sum().Backward()
		x.SyncBatchNorm(group, nil, nil, nil, b, 0.1, 1e-5).Sum().Backward()
		if w.Grad() == nil || !slices.Equal(b.Grad().Floats(), []float64{8, 8}) || group.sums != 0 {
			t.Errorf("gradients %v, %v after %d collectives", w.Grad(), b.Grad(), group.sums)
		}
	})
}

// shortRanks are ranks whose Gather returns too few elements.
type shortRanks struct{ twins }

func (r *shortRanks) Gather(x *tensor.Tensor) *tensor.Tensor { return x.Narrow(0, 0, x.Size()-1) }

func TestSyncBatchNormMisuse(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, group := s.Rand(4, 2), &twins{n: 2}
		for name, c := range map[string]struct {
			f    func()
			kind error
		}{
			"no ranks":         {func() { x.SyncBatchNorm(nil, nil, nil, nil, nil, 0.1, 1e-5) }, tensor.ErrValue},
			"no eps":           {func() { x.SyncBatchNorm(group, nil, nil, nil, nil, 0.1, 0) }, tensor.ErrValue},
			"a vector":         {func() { s.Rand(4).SyncBatchNorm(group, nil, nil, nil, nil, 0.1, 1e-5) }, tensor.ErrShape},
			"a long weight":    {func() { x.SyncBatchNorm(group, nil, nil, s.Ones(3), nil, 0.1, 1e-5) }, tensor.ErrShape},
			"one statistic":    {func() { x.SyncBatchNorm(group, s.Ones(2), nil, nil, nil, 0.1, 1e-5) }, tensor.ErrValue},
			"integers":         {func() { s.Arange(4).Reshape(2, 2).SyncBatchNorm(group, nil, nil, nil, nil, 0.1, 1e-5) }, tensor.ErrType},
			"a part of a rank": {func() { x.SyncBatchNorm(&shortRanks{}, nil, nil, nil, nil, 0.1, 1e-5) }, tensor.ErrValue},
		} {
			if err := tensor.Try(c.f); !errors.Is(err, c.kind) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
