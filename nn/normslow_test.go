package nn_test

import (
	"bytes"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Under autocast ForwardLow returns Forward's result cast to 16 bits. Without autocast it equals
// Forward.
func TestNormForwardLow(t *testing.T) {
	type layer interface {
		Forward(x *tensor.Tensor) *tensor.Tensor
		ForwardLow(x *tensor.Tensor) *tensor.Tensor
	}
	for _, low := range []dtype.Type{dtype.Invalid, dtype.BF16, dtype.F16} {
		tensor.Do(func(s *tensor.Scope) {
			for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
				as := nn.Typed(typ.Compute())
				for _, l := range []layer{nn.NewLayerNorm([]int{6}, as), nn.NewRMSNorm([]int{6}, as)} {
					x := s.Randn(4, 6).Cast(typ)
					want := l.Forward(x)
					if low != dtype.Invalid && typ != dtype.F64 {
						want = want.Cast(low)
					}
					if y := l.ForwardLow(x); y.Type() != want.Type() || !y.AllClose(want, 0, 0) {
						t.Errorf("%T of %v under autocast to %v is %v, want %v", l, typ, low, y, want)
					}
				}
			}
		}, tensor.Autocast(low), tensor.Seed(1))
	}
}

// Under autocast, the norms of a transformer layer with NormFirst pass 16-bit results to the linear
// layers. Results and gradients equal those with float32 norms whose results are cast to 16 bits.
func TestTransformerNormsLow(t *testing.T) {
	type tt = tensor.Tensor
	tensor.Do(func(s *tensor.Scope) {
		l := nn.NewTransformerEncoderLayer(8, 2, nn.TransformerOptions{FeedForward: 16, NormFirst: true, Activation: (*tt).Gelu}, nn.In(s))
		x, g := s.Randn(5, 3, 8).RequiresGrad(), s.Randn(5, 3, 8)
		leaves := append(nn.Parameters(l), x)
		norms := map[dtype.Type]int{}
		l.Norm1.RegisterForwardHook(func(_, y *tt) *tt { norms[y.Type()]++; return nil })
		l.Norm2.RegisterForwardHook(func(_, y *tt) *tt { norms[y.Type()]++; return nil })
		run := func(f func(x *tt) *tt) (all [][]byte) {
			s.Do(func(c *tensor.Scope) {
				y := f(x.In(c))
				all = append(all, y.Bytes())
				for _, g := range tensor.Gradients(y, leaves, tensor.GradOutput(g)) {
					all = append(all, g.Bytes())
				}
			}, tensor.Autocast(dtype.BF16))
			return all
		}
		got := run(l.Forward)
		if norms[dtype.BF16] != 2 || len(norms) != 1 {
			t.Errorf("norms return %v", norms)
		}
		want := run(func(x *tt) *tt {
			h := l.Norm1.Forward(x)
			h, _ = l.SelfAttn.Forward(h, h, h, nn.AttendOptions{})
			x = x.Add(h)
			return x.Add(l.Linear2.Forward(l.Linear1.Forward(l.Norm2.Forward(x)).Gelu()))
		})
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("number %d differs", i)
			}
		}
	}, tensor.Seed(2))
}

// As in torch, a single number can be the shape of a norm: it is the size of the last dimension.
func TestNormOfOneDimension(t *testing.T) {
	x := tensor.Randn(3, 4)
	if a, b := nn.NewLayerNorm(4), nn.NewLayerNorm([]int{4}); !a.Forward(x).AllClose(b.Forward(x), 0, 0) || a.Weight.Size() != 4 {
		t.Error(a.Shape, b.Shape)
	}
	if a, b := nn.NewRMSNorm(4), nn.NewRMSNorm([]int{4}); !a.Forward(x).AllClose(b.Forward(x), 0, 0) || a.Weight.Size() != 4 {
		t.Error(a.Shape, b.Shape)
	}
}
