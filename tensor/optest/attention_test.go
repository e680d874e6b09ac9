package optest

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestAttentionDropout finds the weights that Dropout set to 0. The values are the unit matrix, so
// the result shows the weights. Gradients and second gradients must equal those of a product with
// the same weights.
func TestAttentionDropout(t *testing.T) {
	const p = 0.4
	tensor.Do(func(s *tensor.Scope) {
		m := s.Typed(dtype.F64)
		q, k, v := m.Randn(2, 20, 4), m.Randn(2, 30, 4), m.Randn(2, 30, 3)
		o := tensor.AttentionOptions{Dropout: p}
		seeded := func(c *tensor.Scope, q, k, v *tt) *tt {
			return tensor.ScaledDotProductAttention(q.In(c), k.In(c), v.In(c), o)
		}
		again := func(f func(c *tensor.Scope) []*tt) []*tt {
			c := s.New(tensor.Seed(9))
			y := f(c)
			c.Close(y...)
			return y
		}
		weights := q.MatMul(k.T()).MulScalar(0.5).Softmax(-1)
		kept := again(func(c *tensor.Scope) []*tt {
			return []*tt{seeded(c, q, k, m.Eye(30).Expand(2, 30, 30))}
		})[0]
		mask, n := make([]float64, kept.Size()), 0.0
		w := weights.Floats()
		for i, v := range kept.Floats() {
			if v != 0 {
				mask[i] = 1 / (1 - p)
				n++
			}
			if math.Abs(v-w[i]*mask[i]) > 1e-12 {
				t.Fatalf("weight %d of %v becomes %v", i, w[i], v)
			}
		}
		if off := n/float64(kept.Size()) - (1 - p); math.Abs(off) > 0.06 {
			t.Errorf("%v too many weights stay", off)
		}
		factor := m.From(mask).Reshape(2, 20, 30)
		grads := func(f func(q, k, v *tt) *tt, c *tensor.Scope) []*tt {
			in := []*tt{q.Clone().In(c).RequiresGrad(), k.Clone().In(c).RequiresGrad(), v.Clone().In(c).RequiresGrad()}
			y := f(in[0], in[1], in[2])
			first := tensor.Gradients(y.Square().Sum(), in, tensor.CreateGraph())
			total := first[0].Square().Sum().Add(first[1].Square().Sum()).Add(first[2].Square().Sum())
			return append(append(first, y), tensor.Gradients(total, in)...)
		}
		got := again(func(c *tensor.Scope) []*tt {
			return grads(func(q, k, v *tt) *tt { return tensor.ScaledDotProductAttention(q, k, v, o) }, c)
		})
		want := again(func(c *tensor.Scope) []*tt {
			return grads(func(q, k, v *tt) *tt {
				return q.MatMul(k.T()).MulScalar(0.5).Softmax(-1).Mul(factor.In(c)).MatMul(v)
			}, c)
		})
		for i := range got {
			if !got[i].AllClose(want[i], 1e-9, 1e-9) {
				t.Errorf("result %d differs", i)
			}
		}
		if z := tensor.ScaledDotProductAttention(q, k, v, tensor.AttentionOptions{Dropout: 1}); slices.ContainsFunc(z.Floats(), func(v float64) bool { return v != 0 }) {
			t.Error("everything is dropped, but something comes out")
		}
	}, tensor.Seed(4))
}

// TestAttentionMasks expresses the same attention by a bool mask, a mask of numbers, causality and
// grouped heads. The results must be equal.
func TestAttentionMasks(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := s.Typed(dtype.F64)
		q, k, v := m.Randn(4, 5, 3), m.Randn(4, 7, 3), m.Randn(4, 7, 2)
		attend := func(o tensor.AttentionOptions) *tt { return tensor.ScaledDotProductAttention(q, k, v, o) }
		below := s.Typed(dtype.Bool).Ones(5, 7).Tril(0)
		causal := attend(tensor.AttentionOptions{Causal: true})
		if causal.Eq(attend(tensor.AttentionOptions{Mask: below})).All().Item() != 1 {
			t.Error("causal attention is not that below the diagonal")
		}
		if causal.Eq(attend(tensor.AttentionOptions{Mask: below.Cast(dtype.F64).Log()})).All().Item() != 1 {
			t.Error("adding -Inf is not masking")
		}
		k, v = k.Narrow(0, 0, 2), v.Narrow(0, 0, 2)
		grouped := attend(tensor.AttentionOptions{GroupedHeads: true})
		k, v = k.RepeatInterleave(2, 0), v.RepeatInterleave(2, 0)
		if !grouped.AllClose(attend(tensor.AttentionOptions{}), 1e-12, 1e-12) {
			t.Error("grouped heads are not repeated ones")
		}
	}, tensor.Seed(6))
}

// TestAttentionMemory measures the memory of attention. The kernels of a GPU must need memory that
// is linear in the length. For float64 there is no kernel, so a pass may keep the scores of all
// queries and keys. The forward pass may then need about twice the memory of the scores, and the
// backward pass about four times, but no more. Between the passes no memory may hold scores.
func TestAttentionMemory(t *testing.T) {
	devices, err := cuda.Emulate("emulate,mem=256MiB,mode=meta")
	if err != nil {
		t.Fatal(err)
	}
	d := devices[0]
	const heads, n, features = 4, 256, 4
	tensor.Do(func(s *tensor.Scope) {
		mask := s.On(d).Typed(dtype.Bool).Empty(1, n)
		for _, c := range []struct {
			t dtype.Type
			// limits of the peak memory and of the memory of the gradients, as multiples of the
			// size of the weights
			peak, gradients float64
		}{{dtype.F32, 0, 0}, {dtype.BF16, 0, 0}, {dtype.F64, 2, 4}} {
			m := s.On(d).Typed(c.t)
			weights, small := float64(heads*n*n*c.t.Size()), float64(heads*n*features*c.t.Size())
			q, k, v := m.Empty(heads, n, features).RequiresGrad(), m.Empty(heads, n, features).RequiresGrad(), m.Empty(heads, n, features).RequiresGrad()
			for name, o := range map[string]tensor.AttentionOptions{"plain": {}, "causal": {Causal: true}, "masked": {Mask: mask}, "dropped": {Dropout: 0.5}} {
				base := d.Stats().Allocated
				d.ResetPeak()
				y := tensor.ScaledDotProductAttention(q, k, v, o)
				peak, between := float64(d.Stats().AllocatedPeak-base), float64(d.Stats().Allocated-base)
				most := c.peak*weights + 8*small
				if name == "dropped" && c.peak > 0 { // the mask of the kept weights is float32
					most += weights / 2
				}
				if peak > most {
					t.Errorf("%v, %s: %v bytes at the peak, want at most %v", c.t, name, peak, most)
				}
				if between > 4*small {
					t.Errorf("%v, %s: %v bytes between the passes, want at most %v", c.t, name, between, 4*small)
				}
				d.ResetPeak()
				y.Sum().Backward()
				if peak, most := float64(d.Stats().AllocatedPeak-base), c.gradients*weights+16*small; peak > most {
					t.Errorf("%v, %s: %v bytes at the peak of the gradient, want at most %v", c.t, name, peak, most)
				}
				y.Free()
				for _, x := range []*tt{q, k, v} {
					x.ZeroGrad()
				}
			}
		}
	})
}

func TestAttentionMisuse(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		q, k, v := s.Ones(2, 4, 3, 5), s.Ones(2, 4, 6, 5), s.Ones(2, 4, 6, 2)
		type o = tensor.AttentionOptions
		attend := tensor.ScaledDotProductAttention
		for _, c := range []struct {
			kind error
			want string
			f    func()
		}{
			{tensor.ErrShape, "are [..., length, features]; shapes are [5]", func() { attend(s.Ones(5), k, v, o{}) }},
			{tensor.ErrShape, "queries have 5 features (dimension -1), keys 4", func() { attend(q, k.Narrow(-1, 0, 4), v, o{}) }},
			{tensor.ErrShape, "there are 6 keys (dimension -2) and 3 values", func() { attend(q, k, v.Narrow(-2, 0, 3), o{}) }},
			{tensor.ErrShape, "do not broadcast; shapes are [2, 4, 3, 5], [2, 2, 6, 5] and [2, 2, 6, 2] (GroupedHeads lets", func() { attend(q, k.Narrow(1, 0, 2), v.Narrow(1, 0, 2), o{}) }},
			{tensor.ErrShape, "do not broadcast", func() { attend(q, k, v.Narrow(1, 0, 3), o{}) }},
			{tensor.ErrShape, "4 heads of queries (dimension -3) cannot share 3 of keys and 3 of values", func() { attend(q, k.Narrow(1, 0, 3), v.Narrow(1, 0, 3), o{GroupedHeads: true}) }},
			{tensor.ErrShape, "cannot share 2 of keys and 4 of values", func() { attend(q, k.Narrow(1, 0, 2), v, o{GroupedHeads: true}) }},
			{tensor.ErrShape, "grouped heads are dimension -3", func() { attend(s.Ones(3, 5), s.Ones(6, 5), s.Ones(6, 2), o{GroupedHeads: true}) }},
			{tensor.ErrType, "queries are float32, keys float64 and values float32", func() { attend(q, k.Double(), v, o{}) }},
			{tensor.ErrType, "use Float", func() { attend(q.Long(), k.Long(), v.Long(), o{}) }},
			{tensor.ErrShape, "[3, 5] does not broadcast to [2, 4, 3, 6]", func() { attend(q, k, v, o{Mask: s.Ones(3, 5)}) }},
			{tensor.ErrShape, "does not broadcast", func() { attend(q, k, v, o{Mask: s.Ones(1, 1, 1, 3, 6)}) }},
			{tensor.ErrType, "not int64", func() { attend(q, k, v, o{Mask: s.Ones(3, 6).Long()}) }},
			{tensor.ErrType, "lengths are int64, not float32 (use Long)", func() { attend(q, k, v, o{Lengths: s.Ones(2)}) }},
			{tensor.ErrShape, "lengths are [batch] of [batch, heads, queries, keys], not [4] of [2, 4, 3, 6]", func() { attend(q, k, v, o{Lengths: s.Ones(4).Long()}) }},
			{tensor.ErrShape, "not [4] of [4, 3, 6]", func() { attend(q.Select(0, 0), k.Select(0, 0), v.Select(0, 0), o{Lengths: s.Ones(4).Long()}) }},
			{tensor.ErrValue, "1.5 is not a probability", func() { attend(q, k, v, o{Dropout: 1.5}) }},
			{tensor.ErrValue, "the scale is NaN", func() { attend(q, k, v, o{Scale: math.NaN()}) }},
			{tensor.ErrValue, "nil", func() { attend(q, nil, v, o{}) }},
			{tensor.ErrShape, "[..., length, features]", func() { s.Ones(4).RoPE(tensor.RoPEOptions{}) }},
			{tensor.ErrShape, "5 of 5 features", func() { q.RoPE(tensor.RoPEOptions{}) }},
			{tensor.ErrShape, "6 of 5 features", func() { q.RoPE(tensor.RoPEOptions{Dims: 6}) }},
			{tensor.ErrType, "use Float", func() { q.Long().RoPE(tensor.RoPEOptions{Dims: 2}) }},
			{tensor.ErrValue, "the base is -1", func() { q.RoPE(tensor.RoPEOptions{Dims: 2, Base: -1}) }},
			{tensor.ErrValue, "both Cos and Sin", func() { q.RoPE(tensor.RoPEOptions{Cos: s.Ones(3, 1)}) }},
			{tensor.ErrValue, "a base, an offset or positions", func() { q.RoPE(tensor.RoPEOptions{Cos: s.Ones(3, 1), Sin: s.Ones(3, 1), Offset: 1}) }},
			{tensor.ErrType, "are float64, the input is computed in float32 (use Cast", func() { q.RoPE(tensor.RoPEOptions{Cos: s.Ones(3, 1).Double(), Sin: s.Ones(3, 1)}) }},
			{tensor.ErrShape, "of shape [2, 1] do not broadcast", func() { q.RoPE(tensor.RoPEOptions{Cos: s.Ones(3, 1), Sin: s.Ones(2, 1)}) }},
			{tensor.ErrShape, "6 of 5 features", func() { q.RoPE(tensor.RoPEOptions{Cos: s.Ones(3, 3), Sin: s.Ones(3, 3)}) }},
			{tensor.ErrGrad, "require a gradient", func() { q.RoPE(tensor.RoPEOptions{Cos: s.Ones(3, 1).RequiresGrad(), Sin: s.Ones(3, 1)}) }},
			{tensor.ErrValue, "given already", func() { q.RoPEAngles(tensor.RoPEOptions{Cos: s.Ones(3, 1), Sin: s.Ones(3, 1)}) }},
			{tensor.ErrValue, "both positions and an offset", func() { q.RoPE(tensor.RoPEOptions{Dims: 2, Offset: 1, Positions: s.Arange(3)}) }},
			{tensor.ErrType, "positions must be int64 or int32, they are float32", func() { q.RoPE(tensor.RoPEOptions{Dims: 2, Positions: s.Ones(3)}) }},
			{tensor.ErrShape, "[2, 3] do not broadcast to [2, 4, 3], the input's shape without the features (for heads in dimension 1", func() { q.RoPE(tensor.RoPEOptions{Dims: 2, Positions: s.Ones(2, 3).Long()}) }},
		} {
			if err := tensor.Try(c.f); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v is not %v with %q", err, c.kind, c.want)
			}
		}
	})
}
