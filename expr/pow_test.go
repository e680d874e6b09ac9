package expr

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

func evalBinary(name string, t dtype.Type) func(a, b float64) float64 {
	p := MustLower([]*Expr{Call(name, X(0), X(1))}, []dtype.Type{t}, []dtype.Type{t, t}, -1)
	return func(a, b float64) float64 {
		return Decode(t, p.Eval(nil, []uint64{Encode(t, a), Encode(t, b)}, nil, 0)[0])
	}
}

// TestPowSpecialValues checks all pairs of values that C99's annex F.9.4.4 distinguishes. Go's
// math.Pow documents the same results.
func TestPowSpecialValues(t *testing.T) {
	v := []float64{0, 0.25, 0.5, 1, 1.5, 2, 3, 4, 5, 1e9 + 1, 1 << 24, 1<<24 - 1, 1 << 25, 1 << 53, 1 << 60, 1e30, 0x1p-149, 0x1p-1074, 0x1.fffffep127, inf}
	for _, x := range v {
		v = append(v, -x)
	}
	v = append(v, nan)
	for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
		pow := evalBinary("pow", ty)
		for _, x := range v {
			for _, y := range v {
				a, b := Decode(ty, Encode(ty, x)), Decode(ty, Encode(ty, y))
				got, want := pow(a, b), Decode(ty, Encode(ty, powRef([]float64{a, b})))
				// math.Pow is not exact, so allow an error here; another test checks the accuracy
				tol := math.Abs(want) * 0x1p-45
				if ty == dtype.F32 {
					tol = math.Max(math.Abs(want)*0x1p-23, 0x1p-149)
				}
				switch {
				case got == want && math.Signbit(got) == math.Signbit(want), got != got && want != want:
				case !math.IsInf(want, 0) && want != 0 && math.Abs(got-want) <= tol:
				default:
					t.Errorf("%v: pow(%v, %v) = %v want %v", ty, a, b, got, want)
				}
			}
		}
	}
}

// powSamples calls f with bases x of every binary exponent. It chooses powers y for which the
// result is between 2^-maxExp and 2^maxExp, or slightly outside of this interval.
func powSamples(n int, maxExp float64, f func(x, y float64)) {
	r := rand.New(rand.NewPCG(11, 12))
	for i := range n {
		x := math.Ldexp(1+r.Float64(), r.IntN(int(2*maxExp))-int(maxExp))
		switch i % 4 {
		case 1:
			x = 1 + math.Ldexp(r.Float64()-0.5, -r.IntN(20))
		case 2:
			x = 0.5 + r.Float64()*1.5
		}
		l := math.Log2(x)
		if l == 0 || math.IsInf(l, 0) {
			continue
		}
		y := (r.Float64()*2.1 - 1.05) * maxExp / l
		if i%8 == 7 {
			y = math.Round(y)
		}
		f(x, y)
	}
}

func TestPowFloat32Accuracy(t *testing.T) {
	pow := evalBinary("pow", dtype.F32)
	worst := 0.0
	powSamples(70000, 140, func(x, y float64) {
		x, y = float64(float32(x)), float64(float32(y))
		if u := ulps32(float32(pow(x, y)), math.Pow(x, y)); u > worst {
			worst = u
			if u > 1 {
				t.Errorf("pow(%v, %v) = %v want %v: %.3f ulp", x, y, pow(x, y), math.Pow(x, y), u)
			}
		}
	})
	p := MustLower([]*Expr{X(0).Pow(X(1))}, f32, []dtype.Type{dtype.F32, dtype.F32}, -1)
	t.Logf("pow: largest error %.3f ulp; %d operations", worst, p.Cost())
}

func TestPowFloat64Accuracy(t *testing.T) {
	pow := evalBinary("pow", dtype.F64)
	worst := 0.0
	powSamples(800, 1070, func(x, y float64) {
		e := bigMul(bf(y), bigLog(bf(x)))
		if v, _ := e.Float64(); v > 709.78 || v < -745 {
			return
		}
		want := bigExp(e)
		if u := ulps64(pow(x, y), want); u > worst {
			worst = u
			if u > 1 {
				t.Errorf("pow(%v, %v) = %v want %v: %.3f ulp", x, y, pow(x, y), want, u)
			}
		}
	})
	p := MustLower([]*Expr{X(0).Pow(X(1))}, f64, []dtype.Type{dtype.F64, dtype.F64}, -1)
	t.Logf("pow: largest error %.3f ulp; %d operations", worst, p.Cost())
}

func TestPowDerivatives(t *testing.T) {
	checkDerivatives(t, "pow", Funcs()["pow"], [][2]float64{{0.1, 4}, {-3, 3}})
	d := func(i int, x, y float64) float64 {
		g := Diff(X(0).Pow(X(1)), i)
		v := Eval64(X(0).Pow(X(1)), x, y)
		return Eval64(Substitute(g, func(int) *Expr { return nil }, F64Const(v)), x, y)
	}
	for _, c := range []struct {
		i          int
		x, y, want float64
	}{
		{0, 0, 0, 0}, {0, 0, 1, 1}, {0, 0, 2, 0}, {0, -2, 3, 12}, {0, 0, 0.5, inf},
		{1, 0, 0, 0}, {1, 0, 2, 0}, {1, 1, 5, 0}, {1, 0, -1, -inf}, {1, -2, 2, nan},
	} {
		if got := d(c.i, c.x, c.y); got != c.want && (got == got || c.want == c.want) {
			t.Errorf("∂%d pow at (%v, %v) = %v want %v", c.i, c.x, c.y, got, c.want)
		}
	}
}
