package expr

import (
	"math"
	"math/big"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

// TestTrigNearMultiples tests the arguments that are hardest to reduce. These are the floats next
// to multiples of π/2 of every size, and 6381956970095103·2⁷⁹⁷. No float64 is closer to a multiple
// than this number (J.-M. Muller: Elementary Functions, table 11.1).
func TestTrigNearMultiples(t *testing.T) {
	half := new(big.Float).SetPrec(1500).Quo(trigPi, big.NewFloat(2))
	worst := map[string]float64{}
	check := func(name string, ty dtype.Type, x float64) {
		b := Encode(ty, x)
		x = Decode(ty, b)
		ref := bigSin
		if name == "cos" {
			ref = bigCos
		}
		want := ref(bf(x))
		got := Decode(ty, unary(name, ty)(b))
		u := ulps64(got, want)
		if ty == dtype.F32 {
			w, _ := want.Float64()
			u = ulps32(float32(got), w)
		}
		if k := name + " " + ty.String(); u > worst[k] {
			worst[k] = u
			if u > 1 {
				t.Errorf("%s(%v) = %v want %v: %.3f ulp", k, x, got, want, u)
			}
		}
	}
	for e := 0; e < 1021; e += 1 + e/126*4 {
		for _, n := range []float64{1, 1.25, 1.5, 1.75, 1.9375} {
			k := new(big.Float).SetPrec(1500).SetMantExp(big.NewFloat(n), e)
			x, _ := k.Mul(k, half).Float64()
			for _, name := range []string{"sin", "cos"} {
				check(name, dtype.F64, x)
				if e < 126 {
					check(name, dtype.F32, x)
					check(name, dtype.F32, float64(math.Nextafter32(float32(x), 0)))
				}
			}
		}
	}
	for _, name := range []string{"sin", "cos"} {
		check(name, dtype.F64, math.Ldexp(6381956970095103, 797))
		for _, edge := range []float64{0x1p16, 0x1p30, math.Pi / 4, math.MaxFloat32, math.MaxFloat64} {
			for _, x := range []float64{math.Nextafter(edge, 0), edge} {
				check(name, dtype.F64, x)
				if x <= math.MaxFloat32 {
					check(name, dtype.F32, x)
				}
			}
		}
	}
	t.Log(worst)
}
