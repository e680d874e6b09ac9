package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// smoothness is the parameter a of Keys' kernel in Pillow, and in torch with antialias.
const smoothness = -0.5

// These filters are functions of X(0), the distance from the centre. The unit of X(0) is the
// distance between elements of the input or of the result, whichever is larger.
var (
	gap        = x0.Abs()
	triangleOp = &Elementwise{Name: "interpolate", Arity: 1, NoGrad: true, Expr: unit.Sub(gap).Max(zeroC)}
	keysOp     = &Elementwise{Name: "interpolate", Arity: 1, NoGrad: true, Expr: gap.Lt(unit).Select(
		gap.Mul(expr.C(smoothness+2)).Sub(expr.C(smoothness+3)).Mul(gap).Mul(gap).Add(unit),
		gap.Lt(expr.C(2)).Select(gap.Sub(expr.C(5)).Mul(gap).Add(expr.C(8)).Mul(gap).Sub(expr.C(4)).Mul(expr.C(smoothness)), zeroC))}
)

// The method smooth resizes an axis, as the method sample does, but with a filter that is as wide
// as the area which an element of the result covers (P. Heckbert, Fundamentals of Texture Mapping
// and Image Warping, 1989). It uses the input elements whose centres lie within the filter. It
// rounds the limits of the filter as torch's _upsample_bilinear2d_aa does.
func (a *axisSampler) smooth(x *Tensor, mode InterpolateMode) *Tensor {
	filter, support := triangleOp, 1.0
	if mode == InterpolateCubic {
		filter, support = keysOp, 2
	}
	step := a.step()
	wide := max(step, 1)
	support *= wide
	m := a.c.On(x.st.dev).Typed(dtype.F64)
	centre := m.Arange(a.m).AddScalar(0.5).MulScalar(step)
	first := centre.SubScalar(support).AddScalar(0.5).Trunc().ClampMin(0)
	end := centre.AddScalar(support).AddScalar(0.5).Trunc().ClampMax(float64(a.n))
	taps := min(2*int(math.Ceil(support))+1, a.n)
	weights, total := make([]*Tensor, taps), m.Zeros(a.m)
	for k := range weights {
		at := first.AddScalar(float64(k))
		w := filter.Apply([]*Tensor{at.Sub(centre).AddScalar(0.5).DivScalar(wide)})
		weights[k] = w.MaskedFill(at.Ge(end), 0)
		total = total.Add(weights[k])
	}
	var y *Tensor
	for k, w := range weights {
		at := first.AddScalar(float64(k)).ClampMax(float64(a.n - 1))
		part := a.weighted(x, at.Long(), w.Div(total))
		if y == nil {
			y = part
		} else {
			y = sumAndFree(y, part)
		}
	}
	return y
}
