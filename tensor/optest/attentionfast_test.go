package optest

import (
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// attentionInputs holds queries, keys and values as parts of one projection [batch, length, 3,
// heads, features], and all other operands that a call can have.
type attentionInputs struct {
	all               *tt
	mask, add, length *tt
}

const attBatch, attHeads, attLength, attFeatures = 2, 3, 9, 4

func newAttentionInputs(s *tensor.Scope, t dtype.Type) *attentionInputs {
	m := s.Typed(t)
	return &attentionInputs{m.Randn(attBatch, attLength, 3, attHeads, attFeatures),
		s.Rand(attBatch, 1, attLength, attLength).GeScalar(0.3), m.Randn(1, attHeads, 1, attLength), s.From([]int64{5, 0})}
}

func (a *attentionInputs) options() map[string]tensor.AttentionOptions {
	return map[string]tensor.AttentionOptions{
		"plain": {}, "causal": {Causal: true}, "masked": {Mask: a.mask}, "added": {Mask: a.add}, "lengths": {Lengths: a.length},
		"dropped": {Dropout: 0.4, Scale: 0.3}, "all": {Mask: a.mask, Lengths: a.length, Dropout: 0.3}, "causal masked": {Causal: true, Mask: a.mask}, "causal added": {Causal: true, Mask: a.add},
		"causal lengths": {Causal: true, Lengths: a.length, Dropout: 0.1},
	}
}

// TestAttentionKernelsAndComposition checks that the kernels and the composition return the same
// values, gradients and second gradients. This also holds for keys and values that are broadcast.
// The kernels and the composition must drop the same weights.
func TestAttentionKernelsAndComposition(t *testing.T) {
	for _, c := range []struct {
		t   dtype.Type
		tol float64
	}{{dtype.F32, 2e-5}, {dtype.F16, 1e-2}, {dtype.BF16, 6e-2}} {
		tensor.Do(func(s *tensor.Scope) {
			in := newAttentionInputs(s, c.t)
			for name, o := range in.options() {
				for _, wide := range []bool{true, false} {
					results := func(opts ...tensor.Option) []*tt {
						k := s.New(append(opts, tensor.Seed(5))...)
						x := in.all.Clone().In(k).RequiresGrad()
						p := func(i int) *tt { return x.Select(2, i).Transpose(1, 2) }
						q, key, value := p(0), p(1), p(2)
						if !wide {
							key, value = key.Narrow(1, 0, 1), value.Narrow(0, 1, 1)
						}
						y := tensor.ScaledDotProductAttention(q, key, value, o)
						loss := y.Square().Sum()
						first := tensor.Gradients(loss, []*tt{x})[0]
						var again *tt
						if c.t == dtype.F32 {
							y := tensor.ScaledDotProductAttention(q, key, value, o)
							g := tensor.Gradients(y.Square().Sum(), []*tt{x}, tensor.CreateGraph())[0]
							again = tensor.Gradients(g.Square().Sum(), []*tt{x})[0]
						} else {
							again = first.Clone()
						}
						k.Close(y, first, again)
						return []*tt{y, first, again}
					}
					got, want := results(), results(tensor.Composed())
					for i, what := range []string{"values", "gradient", "second gradient"} {
						size := 1 + want[i].Abs().Amax().Item()
						if !got[i].AllClose(want[i], 0, c.tol*size) {
							t.Errorf("%v %s, all heads %v: the %s differ by %v", c.t, name, wide, what, got[i].Sub(want[i]).Abs().Amax().Item())
						}
					}
				}
			}
		}, tensor.Seed(3))
	}
}

// TestAttentionDropsTheSame checks that the kernels and the composition of ops drop the same
// weights. If the values are 0 and 1, the results show which weights were dropped.
func TestAttentionDropsTheSame(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		q, k, v := s.Randn(2, 3, 50, 4), s.Randn(2, 3, 40, 4), s.Typed(dtype.F32).Eye(40).Expand(2, 3, 40, 40)
		zeros := func(opts ...tensor.Option) *tt {
			c := s.New(append(opts, tensor.Seed(8))...)
			y := tensor.ScaledDotProductAttention(q.In(c), k.In(c), v.In(c), tensor.AttentionOptions{Dropout: 0.5}).EqScalar(0)
			c.Close(y)
			return y
		}
		got, want := zeros(), zeros(tensor.Composed())
		if n := got.Cast(dtype.F32).Mean().Item(); got.Ne(want).Any().Item() != 0 || n < 0.4 || n > 0.6 {
			t.Errorf("other weights are dropped, %v of them", n)
		}
	}, tensor.Seed(6))
}

// TestAttentionCopiesNothing checks that the kernel reads parts of a projection in place. Each of
// the two passes is one primitive. The heads of the result can be joined without a copy. Only the
// returned tensors stay in memory.
func TestAttentionCopiesNothing(t *testing.T) {
	d, err := device.OpenMeta("cpu", device.MetaConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c := &foreignWork{dev: d, ops: map[string]int{}}
	if !device.SetTracer(c) {
		t.Fatal("there is another tracer")
	}
	defer device.SetTracer(nil)
	const batch, heads, features = 2, 40, 16
	tensor.Do(func(s *tensor.Scope) {
		var perToken [2]float64
		for i, n := range []int{512, 1024} {
			all := s.On(d).Empty(batch, n, 3, heads, features)
			part := func(i int) *tt { return all.Select(2, i).Transpose(1, 2).RequiresGrad() }
			q, k, v := part(0), part(1), part(2)
			mask := s.On(d).Typed(dtype.Bool).Empty(batch, 1, 1, n)
			lengths := s.On(d).Typed(dtype.I64).Empty(batch)
			g := s.On(d).Empty(1).Expand(batch, heads, n, features)
			base := d.Stats().Allocated
			d.ResetPeak()
			clear(c.ops)
			y := tensor.ScaledDotProductAttention(q, k, v, tensor.AttentionOptions{Mask: mask, Lengths: lengths, Dropout: 0.1})
			if !y.Transpose(1, 2).IsContiguous() {
				t.Error("joining the heads of the result is a copy")
			}
			grads := tensor.Gradients(y, []*tt{q, k, v}, tensor.GradOutput(g))
			if !grads[1].Transpose(1, 2).IsContiguous() {
				t.Error("the gradient lies in another order than its operand")
			}
			for op, n := range c.ops {
				if op != "attention" && op != "attention gradient" && op != "scaled_dot_product_attention" && op != "scaled_dot_product_attention.grad" || n > 3 {
					t.Errorf("%s: %d times", op, n)
				}
			}
			if c.ops["attention"] != 1 || c.ops["attention gradient"] != 1 {
				t.Errorf("%v, want one primitive for each pass", c.ops)
			}
			perToken[i] = float64(d.Stats().AllocatedPeak-base) / float64(n)
			if most := 4 * batch * heads * (4*features + 1); perToken[i] > float64(most) {
				t.Errorf("%v bytes a token at the peak, want result, logarithms and gradients: %d", perToken[i], most)
			}
		}
		if perToken[0] != perToken[1] {
			t.Errorf("%v and %v bytes a token: memory is not linear in the length", perToken[0], perToken[1])
		}
	})
}
