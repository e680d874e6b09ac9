package tensor_test

import (
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestPairwiseDistanceInOnePass computes distances of order 2 in one pass. It compares them with
// the separate ops that the pass replaces. Values, gradients, and gradients of gradients must have
// the same bits.
func TestPairwiseDistanceInOnePass(t *testing.T) {
	for _, dev := range hostAndGPU(t) {
		for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
			for i, dims := range [][]int{{3}, {5, 1}, {4, 7}, {64, 257}, {2, 3, 1024}, {2, 1500}, {4, 0}} {
				tensor.Do(func(s *tensor.Scope) {
					x, y, eps := s.Randn(dims...).Cast(typ), s.Randn(dims...).Cast(typ), 1e-6
					if i == 2 { // distances of 0
						y, eps = x.Clone(), 0
					}
					var bits [2][][]byte
					for k := range 2 {
						x, y := x.Detach().RequiresGrad(), y.Detach().RequiresGrad()
						in := []*tensor.Tensor{x, y}
						var z *tensor.Tensor
						if k == 0 {
							z = x.PairwiseDistance(y, 2, eps)
						} else {
							z = x.Sub(y).AddScalar(eps).Norm(2, -1)
						}
						plain := z.Detach()
						if k == 0 { // one pass, because no gradient is wanted
							plain = x.Detach().PairwiseDistance(y.Detach(), 2, eps)
						}
						list := append([]*tensor.Tensor{z, plain}, tensor.Gradients(z.Mul(z).Sum(), in, tensor.RetainGraph())...)
						first := tensor.Gradients(z.Mul(z).Sum(), in, tensor.CreateGraph())
						list = append(append(list, first...), tensor.Gradients(first[0].Mul(first[1]).Sum(), in)...)
						for _, v := range list {
							bits[k] = append(bits[k], v.Detach().Bytes())
						}
					}
					if !slices.EqualFunc(bits[0], bits[1], slices.Equal) {
						t.Errorf("%v, %v, shape %v: the bits differ", dev.Name(), typ, dims)
					}
				}, tensor.On(dev), tensor.Seed(4))
			}
		}
	}
}

// TestPairwiseDistanceOfChangedRows changes both operands between a distance and its gradient. The
// gradient needs only their differences.
func TestPairwiseDistanceOfChangedRows(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, y := s.Randn(4, 6).RequiresGrad(), s.Randn(4, 6)
		in := []*tensor.Tensor{x}
		want := tensor.Gradients(x.PairwiseDistance(y, 2, 0).Sum(), in)[0]
		z := x.MulScalar(1)
		d := z.PairwiseDistance(y, 2, 0)
		z.AddScalarInPlace(1)
		y.MulScalarInPlace(0)
		if got := tensor.Gradients(d.Sum(), in)[0]; !slices.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("the gradient is %v, want %v", got, want)
		}
	}, tensor.Seed(4))
}

// TestCosineSimilarityInOnePass compares cosines that need no gradient with those that do. Both
// must have the same bits.
func TestCosineSimilarityInOnePass(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
		for _, dims := range [][]int{{3}, {5, 1}, {64, 257}, {2, 3, 1024}, {700, 30}, {2, 9000}, {2, 70000}, {4, 0}} {
			tensor.Do(func(s *tensor.Scope) {
				x, y := s.Randn(dims...).Cast(typ), s.Randn(dims...).Cast(typ)
				for dim := range dims {
					want := x.Detach().RequiresGrad().CosineSimilarity(y, dim, 1e-8).Detach()
					if !slices.Equal(x.CosineSimilarity(y, dim, 1e-8).Bytes(), want.Bytes()) {
						t.Errorf("%v, shape %v, dimension %d: the bits differ", typ, dims, dim)
					}
				}
			}, tensor.On(opened(t, "cpu")), tensor.Seed(4))
		}
	}
}
