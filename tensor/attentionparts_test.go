package tensor_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestAttentionGradientOfOneProjection differentiates with respect to a tensor whose parts are
// queries, keys and values. The gradient must equal that of attention composed of other ops. If the
// gradients of the parts can be written into one memory, there must be no launch that joins them.
func TestAttentionGradientOfOneProjection(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	type tt = tensor.Tensor
	const batch, n, heads, features = 2, 5, 3, 8
	split := func(x *tt, h int) *tt { return x.Unflatten(-1, h, features).Transpose(1, 2) }
	for name, c := range map[string]struct {
		dims     []int
		f        func(x *tt) (q, k, v *tt)
		launches int
	}{
		"chunks": {[]int{batch, n, 3 * heads * features}, func(x *tt) (q, k, v *tt) {
			p := x.Chunk(3, -1)
			return split(p[0], heads), split(p[1], heads), split(p[2], heads)
		}, 0},
		"the other way round": {[]int{batch, n, 3 * heads * features}, func(x *tt) (q, k, v *tt) {
			p := x.Chunk(3, -1)
			return split(p[2], heads), split(p[0], heads), split(p[1], heads)
		}, 0},
		"entries": {[]int{batch, n, 3, heads, features}, func(x *tt) (q, k, v *tt) {
			p := x.Permute(0, 3, 1, 2, 4).Unbind(3)
			return p[0], p[1], p[2]
		}, 3}, // here the tensor is not dense
		"entries of a dense tensor": {[]int{batch, n, 3, heads, features}, func(x *tt) (q, k, v *tt) {
			p := x.Unbind(2)
			return p[0].Transpose(1, 2), p[1].Transpose(1, 2), p[2].Transpose(1, 2)
		}, 0},
		"entries in front": {[]int{3, batch, heads, n, features}, func(x *tt) (q, k, v *tt) {
			p := x.Unbind(0)
			return p[0], p[1], p[2]
		}, 0},
		"shared keys": {[]int{batch, n, 6 * features}, func(x *tt) (q, k, v *tt) {
			p := x.SplitSizes([]int{4 * features, features, features}, -1)
			return split(p[0], 4), split(p[1], 1), split(p[2], 1)
		}, 0},
		"an inner part": {[]int{batch, n, 4 * heads * features}, func(x *tt) (q, k, v *tt) {
			p := x.Narrow(2, heads*features, 3*heads*features).Chunk(3, -1)
			return split(p[0], heads), split(p[1], heads), split(p[2], heads)
		}, 5},
		"another part": {[]int{batch, n, 4 * heads * features}, func(x *tt) (q, k, v *tt) {
			p := x.Chunk(4, -1)
			return split(p[0], heads), split(p[1].Add(p[3]), heads), split(p[2], heads)
		}, 4},
		"scaled": {[]int{batch, n, 3 * heads * features}, func(x *tt) (q, k, v *tt) {
			p := x.Chunk(3, -1)
			return split(p[0].MulScalar(2), heads), split(p[1], heads), split(p[2], heads)
		}, 3},
		"twice": {[]int{batch, n, 3 * heads * features}, func(x *tt) (q, k, v *tt) {
			p := x.Chunk(3, -1)
			k = split(p[1], heads)
			return split(p[0], heads), k, k
		}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, low := range []dtype.Type{dtype.F32, dtype.BF16} {
				tensor.Do(func(s *tensor.Scope) {
					if low == dtype.BF16 {
						s = s.New(tensor.On(gpus[0]), tensor.Seed(1))
						defer s.Close()
					}
					x := s.Typed(low).Randn(c.dims...).RequiresGrad()
					g := func(s *tensor.Scope, count *partWrites) *tt {
						q, k, v := c.f(x.In(s).MulScalar(1.5))
						y := tensor.ScaledDotProductAttention(q, k, v, tensor.AttentionOptions{Causal: true, Dropout: 0.2, GroupedHeads: name == "shared keys"})
						if !device.SetTracer(count) {
							t.Fatal("there is another tracer")
						}
						defer device.SetTracer(nil)
						d := tensor.Gradients(y, []*tt{x}, tensor.GradOutput(y.Detach()))[0]
						s.Close(d)
						return d
					}
					var count partWrites
					got, want := g(s.New(tensor.Seed(3)), &count), g(s.New(tensor.Seed(3), tensor.Composed()), &partWrites{})
					tol := 1e-5
					if low == dtype.BF16 {
						tol = 0.05
					}
					if !got.AllClose(want, tol, tol*(1+want.Abs().Amax().Item())) {
						t.Errorf("%v: the gradient is %v, not %v", low, got, want)
					}
					if c.launches >= 0 && count.n != c.launches {
						t.Errorf("%v: %d launches join it, want %d", low, count.n, c.launches)
					}
				}, tensor.Seed(1))
			}
		})
	}
}
