package expr

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

// TestRemainderFunctions compares the functions of two operands with those of package math, at
// special values and for all exponents. fmod and copysign are exact.
func TestRemainderFunctions(t *testing.T) {
	for _, c := range []struct {
		name string
		ref  func(x, y float64) float64
		ulp  float64
	}{{"fmod", math.Mod, 0}, {"copysign", math.Copysign, 0}, {"hypot", exactHypot, 1}} {
		for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
			p := MustLower([]*Expr{Call(c.name, X(0), X(1))}, []dtype.Type{ty}, []dtype.Type{ty, ty}, -1)
			r := rand.New(rand.NewPCG(7, 8))
			number := func() float64 {
				for {
					v := math.Float64frombits(r.Uint64())
					if ty == dtype.F32 {
						v = float64(math.Float32frombits(r.Uint32()))
					}
					if v == v {
						return v
					}
				}
			}
			check := func(x, y float64) {
				t.Helper()
				want := c.ref(x, y)
				got := Decode(ty, p.Eval(nil, []uint64{Encode(ty, x), Encode(ty, y)}, nil, 0)[0])
				tol := 0.0
				if c.ulp > 0 && !math.IsInf(want, 0) {
					w := Decode(ty, Encode(ty, want))
					next := math.Nextafter(w, inf)
					if ty == dtype.F32 {
						next = float64(math.Nextafter32(float32(w), float32(inf)))
					}
					if tol = c.ulp * (next - w); math.IsInf(w, 0) || math.IsInf(next, 0) {
						want, tol = w, 0
					}
				}
				if got == got != (want == want) || got == got && got != want && !(math.Abs(got-want) <= tol) || want == 0 && math.Signbit(got) != math.Signbit(want) {
					t.Errorf("%s(%v, %v) in %v is %v, want %v", c.name, x, y, ty, got, want)
				}
			}
			odd := []float64{0, negZero, 1, -1, 3, 0.1, 0x1p-149, -0x1p-149, 0x1p-126, 0x1.fffffep127, -0x1.8p100, inf, -inf}
			if ty == dtype.F64 {
				odd = append(odd, 0x1p-1074, 0x1.fffffffffffffp1023, 0x1.8p-1022, 0x1.23456789abcdp299, 0x1.23456789abcdp-401)
			}
			for _, x := range odd {
				for _, y := range odd {
					check(Decode(ty, Encode(ty, x)), Decode(ty, Encode(ty, y)))
				}
				if c.name == "fmod" {
					check(x, nan)
					check(nan, x)
				}
			}
			for range 3000 {
				check(number(), number())
				y := number()
				// test a dividend near a multiple of y
				if n := y * float64(r.IntN(9000)-4500); !math.IsInf(n, 0) {
					check(Decode(ty, Encode(ty, n)), y)
				}
			}
		}
	}
}

// exactHypot corrects math.Hypot, whose error is up to two units in the last place.
func exactHypot(x, y float64) float64 {
	h := math.Hypot(x, y)
	if math.IsInf(x, 0) || math.IsInf(y, 0) || h != h || h == 0 {
		return h
	}
	sq := func(v float64) *big.Float { f := new(big.Float).SetPrec(300).SetFloat64(v); return f.Mul(f, f) }
	v, _ := new(big.Float).SetPrec(300).Sqrt(new(big.Float).SetPrec(300).Add(sq(x), sq(y))).Float64()
	return v
}
