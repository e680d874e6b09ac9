package tensor

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

// TestErfinvGradients checks the first derivative s = ½√π·exp(y²) of y = erfinv(x), and the second
// derivative 2y·s². Near ±1 both must be accurate to the operand's type, although y is rounded
// there.
func TestErfinvGradients(t *testing.T) {
	in := []float64{0, 0.125, -0.5, 0.75, -0.9375, 0.99609375, -1 + 0x1p-20, 1 - 0x1p-23}
	for typ, tolerance := range map[dtype.Type]float64{dtype.F64: 1e-13, dtype.F32: 2e-7, dtype.BF16: 8e-3, dtype.F16: 1e-3} {
		Do(func(s *Scope) {
			x := s.From(in).Cast(typ).Detach()
			at := x.Floats()
			x = x.RequiresGrad()
			first := Gradients(x.Erfinv(), []*Tensor{x}, GradOutput(s.From([]float64{1, 1, 1, 1, 1, 1, 1, 1}).Cast(typ)), CreateGraph())[0]
			second := Gradients(first.Sum(), []*Tensor{x})[0]
			if first.Type() != typ || second.Type() != typ {
				t.Fatalf("the gradients of %v have the types %v and %v", typ, first.Type(), second.Type())
			}
			a, b := first.Floats(), second.Floats()
			for i, v := range at {
				y := math.Erfinv(v)
				slope := math.Sqrt(math.Pi) / 2 * math.Exp(y*y)
				for _, pair := range [][2]float64{{a[i], slope}, {b[i], 2 * y * slope * slope}} {
					if typ.IsHalf() && math.Abs(v) > 0.99 { // y is rounded to a 16-bit type's neighbour of 1
						continue
					}
					if !(math.Abs(pair[0]-pair[1]) <= 4*tolerance*math.Abs(pair[1])) {
						t.Errorf("%v: at %v %v, want %v", typ, v, pair[0], pair[1])
					}
				}
			}
		})
	}
}
