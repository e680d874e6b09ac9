package optest

import (
	"fmt"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// differs compares a result with the expected numbers, element by element. An element may differ by
// at most its tolerance; NaN and infinities must be equal. differs returns "", or a sentence that
// names the worst element.
func differs(got *tensor.Tensor, t dtype.Type, want array, tolerance func(i int) float64) string {
	if got.Type() != t {
		return fmt.Sprintf("type is %v, want %v", got.Type(), t)
	}
	if !slices.Equal(got.Shape().Slice(), want.dims) && len(got.Shape().Slice())+len(want.dims) > 0 {
		return fmt.Sprintf("shape is %v, want %v", got.Shape(), want.dims)
	}
	return differ(got.Floats(), want, tolerance)
}

func differ(got []float64, want array, tolerance func(i int) float64) string {
	worst, at := 0.0, -1
	for i, w := range want.v {
		g := got[i]
		switch {
		case g == w || g != g && w != w:
			continue
		case math.IsNaN(g-w) || math.IsInf(g-w, 0):
			return fmt.Sprintf("element %d of %v is %v, want %v", i, want.dims, g, w)
		}
		if over := math.Abs(g-w) / tolerance(i); !(over <= 1) && over > worst {
			worst, at = over, i
		}
	}
	if at < 0 {
		return ""
	}
	return fmt.Sprintf("element %d of %v is %v, want %v: off by %.3g, %.3g is allowed", at, want.dims, got[at], want.v[at],
		math.Abs(got[at]-want.v[at]), tolerance(at))
}
