package expr

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

// TestAtan2 checks the special values of C99's annex F.9.1.4, with math.Atan2 as the reference, and
// the accuracy of random samples.
func TestAtan2(t *testing.T) {
	v := []float64{0, negZero, 1, -1, 0x1p-149, -0x1p-149, 0x1.fffffep127, -0x1.fffffep127, inf, -inf, nan}
	r := rand.New(rand.NewPCG(21, 22))
	for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
		atan2 := evalBinary("atan2", ty)
		worst := 0.0
		check := func(y, x float64) {
			y, x = Decode(ty, Encode(ty, y)), Decode(ty, Encode(ty, x))
			got, want := atan2(y, x), math.Atan2(y, x)
			var u float64
			switch {
			case ty == dtype.F32 || want != want || want == 0:
				u = ulps32(float32(got), want)
			default:
				u = ulps64(got, bigAtan2(y, x))
			}
			if u > worst {
				worst = u
				if u > 1.7 {
					t.Errorf("%v: atan2(%v, %v) = %v want %v: %.3f ulp", ty, y, x, got, want, u)
				}
			}
		}
		for _, y := range v {
			for _, x := range v {
				check(y, x)
			}
		}
		n := 40000
		if ty == dtype.F64 {
			n = 400
		}
		for range n {
			y, x := r.Float64()*2-1, r.Float64()*2-1
			check(y, x)
			check(math.Ldexp(y, r.IntN(100)-50), x)
		}
		t.Logf("atan2 %v: largest error %.3f ulp", ty, worst)
	}
	checkDerivatives(t, "atan2", Funcs()["atan2"], [][2]float64{{-3, 3}, {0.2, 3}})
}

func bigAtan2(y, x float64) *big.Float {
	if math.IsInf(x, 0) || math.IsInf(y, 0) || x == 0 || y == 0 {
		switch w := math.Atan2(y, x); {
		case w == math.Pi || w == -math.Pi:
			return bigMul(bigPi, bf(math.Copysign(1, w)))
		default:
			return bigMul(bigPi, bf(math.Round(w*4/math.Pi)/4))
		}
	}
	a := bigAtan(bigDiv(bf(math.Abs(y)), bf(math.Abs(x))))
	if x < 0 {
		a = bigSub(bigPi, a)
	}
	return bigMul(a, bf(math.Copysign(1, y)))
}

func TestLogAddExp(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
		f := evalBinary("logaddexp", ty)
		eps := 0x1p-23
		if ty == dtype.F64 {
			eps = 0x1p-52
		}
		ref := Funcs()["logaddexp"].Ref
		for range 20000 {
			a, b := Decode(ty, Encode(ty, r.NormFloat64()*20)), Decode(ty, Encode(ty, r.NormFloat64()*20))
			got, want := f(a, b), ref([]float64{a, b})
			if math.Abs(got-want) > 1.5*eps*math.Max(math.Abs(want), math.Max(math.Abs(a), math.Abs(b))) {
				t.Fatalf("%v: logaddexp(%v, %v) = %v want %v", ty, a, b, got, want)
			}
		}
		for _, c := range [][3]float64{{inf, inf, inf}, {-inf, -inf, -inf}, {inf, -inf, inf}, {-inf, 3, 3}, {5, inf, inf}, {nan, 1, nan}, {1, nan, nan}, {inf, nan, nan}, {0, 0, math.Ln2}} {
			want := Decode(ty, Encode(ty, c[2]))
			if got := f(c[0], c[1]); got != want && (got == got || want == want) {
				t.Errorf("%v: logaddexp(%v, %v) = %v want %v", ty, c[0], c[1], got, c[2])
			}
		}
	}
	checkDerivatives(t, "logaddexp", Funcs()["logaddexp"], [][2]float64{{-4, 4}, {-4, 4}})
}
