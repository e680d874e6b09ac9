package expr

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

// TestGelu checks the absolute errors, the relative errors for negative x, infinities and the
// derivatives.
func TestGelu(t *testing.T) {
	for _, name := range []string{"gelu", "gelu_tanh"} {
		f, single, double := Funcs()[name], unary(name, dtype.F32), unary(name, dtype.F64)
		at := func(x float64) float64 {
			return float64(math.Float32frombits(uint32(single(uint64(math.Float32bits(float32(x)))))))
		}
		worst, relative := 0.0, [7]float64{}
		for i := range 50001 {
			x := float64(float32(-12 + 24*float64(i)/50000))
			got, want := at(x), f.Ref([]float64{x})
			if math.Abs(x) < 7 { // for larger |x| the references lose accuracy
				worst = max(worst, math.Abs(got-want)/(math.Abs(want)*0x1p-24+0x1p-25))
			} else if math.Abs(got-max(x, 0)) > 2e-10 {
				t.Fatalf("%s(%v) = %v", name, x, got)
			}
			if x < 0 && x > -7 {
				k := int(-x)
				relative[k] = max(relative[k], math.Abs(got/want-1))
			}
			if y := math.Float64frombits(double(math.Float64bits(x))); math.Abs(y-want) > 1e-15*(1+math.Abs(want))*3 {
				t.Fatalf("%s(%v) in float64 = %v, want %v", name, x, y, want)
			}
		}
		t.Logf("%s: largest error %.3f units, relative ones from 0 to -7: %.2g", name, worst, relative)
		if worst > 2.5 {
			t.Errorf("%s: %.3f units", name, worst)
		}
		for k, most := range [...]float64{3e-7, 6e-7, 1.2e-6, 2.5e-6, 1e-5, 6e-5, 1e-3} {
			if relative[k] > most {
				t.Errorf("%s from %d down: a relative error of %.2g", name, -k, relative[k])
			}
		}
		for x, want := range map[float64]float64{0: 0, math.Copysign(0, -1): math.Copysign(0, -1), math.Inf(1): math.Inf(1), 1e30: 1e30, 100: 100} {
			if got := at(x); got != float64(float32(want)) || math.Signbit(got) != math.Signbit(want) {
				t.Errorf("%s(%v) = %v", name, x, got)
			}
		}
		if !math.IsNaN(at(math.NaN())) || math.Abs(at(-1e30)) > 1e-20 {
			t.Errorf("%s of NaN and -1e30: %v, %v", name, at(math.NaN()), at(-1e30))
		}
		grad := MustLower([]*Expr{Diff(Call(name, X(0)), 0)}, f64, []dtype.Type{dtype.F64, dtype.F64}, 1)
		for i := range 121 {
			x, h := -6+float64(i)/10, 1e-4
			got := math.Float64frombits(grad.Eval(nil, []uint64{math.Float64bits(x), 0}, nil, 0)[0])
			if want := (f.Ref([]float64{x + h}) - f.Ref([]float64{x - h})) / (2 * h); math.Abs(got-want) > 1e-7 {
				t.Errorf("%s' at %v: %v, want %v", name, x, got, want)
			}
		}
	}
}
