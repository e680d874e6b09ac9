package nn_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

func TestLossMisuse(t *testing.T) {
	for _, c := range []struct {
		kind error
		want string
		f    func(x, y *tt, target *tt)
	}{
		{tensor.ErrValue, "beta is -1", func(x, y, _ *tt) { nn.SmoothL1(x, y, -1) }},
		{tensor.ErrValue, "beta is NaN", func(x, y, _ *tt) { nn.SmoothL1(x, y, math.NaN()) }},
		{tensor.ErrValue, "delta is 0", func(x, y, _ *tt) { nn.Huber(x, y, 0) }},
		{tensor.ErrValue, "2 reductions", func(x, y, _ *tt) { nn.L1(x, y, nn.Sum, nn.Mean) }},
		{tensor.ErrValue, "there is no reduction 9", func(x, y, _ *tt) { nn.MSE(x, y, nn.Reduction(9)) }},
		{tensor.ErrShape, "must have one shape", func(x, y, _ *tt) { nn.BCE(x, y.Reshape(6, 2)) }},
		{tensor.ErrType, "floating point", func(x, y, _ *tt) { nn.BCEWithLogits(x.Long(), y.Long(), nil) }},
		{tensor.ErrShape, "without the classes", func(x, y, _ *tt) { nn.NLL(x, y) }},
		{tensor.ErrIndex, "4", func(x, _, target *tt) { nn.NLL(x, target.AddScalar(4)) }},
		{tensor.ErrShape, "dimensions of shape [3]", func(x, _, _ *tt) { nn.NewLayerNorm([]int{3}).Forward(x) }},
		{tensor.ErrShape, "dimensions of shape [3 3 4]", func(x, _, _ *tt) { nn.NewRMSNorm([]int{3, 3, 4}).Forward(x) }},
		{tensor.ErrShape, "dimensions of shape []", func(x, _, _ *tt) { nn.NewRMSNorm(nil).Forward(x) }},
		{tensor.ErrType, "needs a floating point", func(x, _, _ *tt) { nn.NewLayerNorm([]int{4}).Forward(x.Long()) }},
	} {
		tensor.Do(func(s *tensor.Scope) {
			err := tensor.Try(func() { c.f(s.Ones(3, 4), s.Zeros(3, 4), s.Typed(dtype.I64).Zeros(3)) })
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v is not %v with %q", err, c.kind, c.want)
			}
		})
	}
}

// The normalisations compute 16-bit floats in float32, have torch's names of parameters, and train.
func TestNorms(t *testing.T) {
	l, r := nn.NewLayerNorm([]int{2, 3}), nn.NewRMSNorm([]int{3}, nn.Typed(dtype.BF16))
	if p := nn.Named(l); len(p) != 2 || p[0].Name != "weight" || p[1].Name != "bias" || p[0].Tensor.Size() != 6 {
		t.Errorf("parameters %v", p)
	}
	if p := nn.Named(r); len(p) != 1 || p[0].Name != "weight" {
		t.Errorf("parameters %v", p)
	}
	if n := len(nn.Parameters(nn.NewLayerNorm([]int{3}, nn.NoAffine()))) + len(nn.Parameters(nn.NewLayerNorm([]int{3}, nn.NoBias()))); n != 1 {
		t.Errorf("%d parameters without a bias, and without any", n)
	}
	tensor.Do(func(s *tensor.Scope) {
		in := s.Rand(4, 2, 3)
		y := l.Forward(in)
		if !slices.Equal(y.Floats(), in.LayerNorm([]int{2, 3}, l.Weight, l.Bias, 1e-5).Floats()) {
			t.Error("the layer is not the op with its parameters")
		}
		y.Square().Sum().Backward()
		if l.Weight.Grad() == nil || l.Bias.Grad() == nil {
			t.Error("no gradient")
		}
		x := s.Typed(dtype.BF16).From([]float32{1000, 1001, 1002})
		if y := r.Forward(x); y.Type() != dtype.BF16 || y.Select(0, 0).Item() != 1 {
			t.Errorf("root mean square in bfloat16: %v", y)
		}
		tiny := s.From([]float32{0x1p-12, 0, 0}) // mean square 2⁻²⁴/3, of the size of the default eps 2⁻²³
		n := nn.NewRMSNorm([]int{3})
		if got, want := n.Forward(tiny).Floats()[0], 0x1p-12/math.Sqrt(0x1p-24/3+0x1p-23); math.Abs(got-want) > 1e-6 {
			t.Errorf("the default eps gives %v, want %v", got, want)
		}
	})
}
