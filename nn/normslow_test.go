package nn_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Under autocast ForwardLow is Forward, cast; elsewhere it is Forward.
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
