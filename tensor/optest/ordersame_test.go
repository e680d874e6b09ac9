package optest

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestOrderSameBits checks that a GPU sorts long rows into the same order as the CPU, bit for bit.
// Results that follow from the order are the same too: values, positions, unique elements, and sums
// that are exact in every order.
func TestOrderSameBits(t *testing.T) {
	gpu := emulated(t)
	for k, typ := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F16, dtype.F64, dtype.I64, dtype.I16, dtype.U8, dtype.Bool} {
		n := []int{2049, 5000, 8193}[k%3]
		values := make([]float64, 2*n)
		for i := range values {
			v := float64(int(uint32(i)*2654435761>>20) - 2048)
			switch {
			case typ == dtype.Bool:
				v = float64(i % 2)
			case !typ.IsFloat():
				v = math.Abs(v)
			case i%97 == 3:
				v = math.NaN()
			case i%89 == 4:
				v = math.Inf(1 - i%2*2)
			case i%83 == 5:
				v = math.Copysign(0, -1)
			}
			values[i] = v
		}
		tensor.Do(func(s *tensor.Scope) {
			x := s.Typed(typ).From(values).Reshape(2, n)
			y := x.To(gpu)
			if y.Type() != typ {
				t.Fatalf("it is %v, want %v", y.Type(), typ)
			}
			if typ.Size() == 4 { // in this case the elements of a row are not adjacent in memory
				x, y = x.T().Contiguous().T(), y.T().Contiguous().T()
			}
			for _, descending := range []bool{false, true} {
				a, i := x.Sort(1, descending)
				b, j := y.Sort(1, descending)
				sameBits(t, typ.String()+", sorted", a, b)
				sameBits(t, typ.String()+", order", i, j)
				a, i = x.TopK(37, 1, descending, true)
				b, j = y.TopK(37, 1, descending, true)
				sameBits(t, typ.String()+", first", a, b)
				sameBits(t, typ.String()+", places of the first", i, j)
			}
			if typ.IsFloat() {
				ramp := func(like *tt) *tt { return like.ZerosLike().Add(like.New().Arange(37).Cast(typ)) }
				gradient := func(x *tt) *tt {
					leaf := x.Detach().RequiresGrad()
					best, _ := leaf.TopK(37, 1, true, true)
					return tensor.Gradients(best, []*tt{leaf}, tensor.GradOutput(ramp(best.Detach())))[0]
				}
				sameBits(t, typ.String()+", gradient of the first", gradient(x), gradient(y))
			}
			a, i, m := x.Unique(tensor.UniqueOptions{Inverse: true, Counts: true})
			b, j, l := y.Unique(tensor.UniqueOptions{Inverse: true, Counts: true})
			sameBits(t, typ.String()+", unique", a, b)
			sameBits(t, typ.String()+", where", i, j)
			sameBits(t, typ.String()+", how often", m, l)
		})
	}
}

// TestEmbeddingGradientSameBits compares the gradient of an embedding table on a GPU with that on
// the CPU. The bits must be equal, even if one token occurs in most positions, because both devices
// add the gradients in the order of the positions.
func TestEmbeddingGradientSameBits(t *testing.T) {
	gpu := emulated(t)
	const rows, tokens, width = 300, 3000, 24
	at, factors := make([]int64, tokens), make([]float32, tokens*width)
	for i := range at {
		if at[i] = 7; i%3 == 0 {
			at[i] = int64(i * i % rows)
		}
	}
	for i := range factors {
		factors[i] = float32(i%17 - 8)
	}
	tensor.Do(func(s *tensor.Scope) {
		gradient := func(to func(x *tt) *tt) *tt {
			table := to(s.Zeros(rows, width)).SetRequiresGrad(true)
			y := table.Embedding(to(s.From(at))).Mul(to(s.From(factors).Reshape(tokens, width)))
			y.Sum().Backward()
			return table.Grad()
		}
		here, there := gradient(func(x *tt) *tt { return x }), gradient(func(x *tt) *tt { return x.To(gpu) })
		sameBits(t, "gradient of a table", here, there)
		if here.Abs().Sum().Item() == 0 {
			t.Error("the gradient is zero")
		}
	})
}
