package expr

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

var f32, f64 = []dtype.Type{dtype.F32}, []dtype.Type{dtype.F64}

func square(x *Expr) *Expr { return x.Mul(x) }

func TestDiffAgreesWithDifferences(t *testing.T) {
	x, y := X(0), X(1)
	for name, e := range map[string]*Expr{
		"polynomial": square(x).Mul(x).Add(x.Scale(3)).Sub(C(2)),
		"quotient":   x.Add(C(1)).Div(square(y).Add(C(1))),
		"root":       square(x).Add(square(y)).Sqrt(),
		"fma":        x.FMA(y, square(x)),
		"select":     x.Gt(y).Select(square(x), y.Neg()),
		"max":        x.Max(y).Mul(x.Min(y)).Add(x.Abs()),
		"cvt":        x.Cvt(dtype.F64).Mul(y),
	} {
		r := rand.New(rand.NewPCG(1, 2))
		for i := range 2 {
			d := Diff(e, i)
			if d == nil {
				if xs, _ := Uses(e); xs[i] {
					t.Fatalf("%s: no derivative with respect to X(%d)", name, i)
				}
				continue
			}
			for range 50 {
				a := []float64{r.Float64()*4 - 2, r.Float64()*4 - 2}
				v := Eval64(e, a...)
				got := Eval64(Substitute(d, func(int) *Expr { return nil }, F64Const(v)), a...)
				const h = 1e-6
				up, down := append([]float64(nil), a...), append([]float64(nil), a...)
				up[i] += h
				down[i] -= h
				want := (Eval64(e, up...) - Eval64(e, down...)) / (2 * h)
				if math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
					t.Fatalf("%s d%d at %v: %v want %v", name, i, a, got, want)
				}
			}
		}
	}
}

func TestDiffStructure(t *testing.T) {
	if Diff(X(0), 1) != nil || Diff(X(0).Floor(), 0) != nil {
		t.Fatal("no dependence must be nil")
	}
	// The derivative must use Y, the value of the root, so that a gradient needs only the saved
	// result.
	d := Diff(X(0).Sqrt(), 0)
	xs, y := Uses(d)
	if !y || len(xs) != 0 {
		t.Fatalf("sqrt' uses %v, %v", xs, y)
	}
	// The program must keep the product 0·x, which may be NaN.
	p := MustLower([]*Expr{X(0).Mul(C(0))}, f32, f32, -1)
	if got := p.Eval(nil, []uint64{Encode(dtype.F32, math.NaN())}, nil, 0)[0]; Decode(dtype.F32, got) == 0 {
		t.Fatal("0·NaN must stay NaN")
	}
}

func TestLowerIsCanonical(t *testing.T) {
	a := MustLower([]*Expr{X(0).Mul(X(1)).Add(X(0).Mul(X(1)))}, f32, []dtype.Type{dtype.F32, dtype.F32}, -1)
	m := X(1).Mul(X(0))
	b := MustLower([]*Expr{m.Add(m)}, f32, []dtype.Type{dtype.F32, dtype.F32}, -1)
	if len(a.Code) != 4 || a.Key() != b.Key() && a.String() == b.String() {
		t.Fatalf("%v\n%v", a, b)
	}
	if c := MustLower([]*Expr{m.Add(m)}, f64, []dtype.Type{dtype.F64, dtype.F64}, -1); c.Key() == a.Key() {
		t.Fatal("other types, other key")
	}
	// The program's key must not depend on run-time values, and operations on constants must be
	// computed in advance.
	p := MustLower([]*Expr{X(0).Mul(Param(0)).Add(C(1).Div(C(4)))}, f32, f32, -1)
	if strings.Contains(p.String(), "div") || len(p.Params) != 1 || p.Params[0] != dtype.F32 {
		t.Fatalf("%v", p)
	}
}

func TestLowerTypes(t *testing.T) {
	for _, c := range []struct {
		e    *Expr
		in   []dtype.Type
		want dtype.Type
	}{
		{X(0).Add(X(1)), []dtype.Type{dtype.I32, dtype.F32}, dtype.F32},
		{X(0).Add(X(1)), []dtype.Type{dtype.F16, dtype.BF16}, dtype.F32},
		{X(0).Add(X(1)), []dtype.Type{dtype.I32, dtype.I64}, dtype.I64},
		{X(0).Add(C(1)), []dtype.Type{dtype.U8}, dtype.I32},
		{X(0).Div(X(1)), []dtype.Type{dtype.I64, dtype.I64}, dtype.F32},
		{X(0).Lt(X(1)), []dtype.Type{dtype.F64, dtype.F32}, dtype.Bool},
		{X(0).Add(X(1)), []dtype.Type{dtype.Bool, dtype.Bool}, dtype.Bool},
		{Index(dtype.I64).Add(C(3)), nil, dtype.I64},
	} {
		p, err := Lower([]*Expr{c.e}, []dtype.Type{dtype.Invalid}, c.in, -1)
		if err != nil || p.Out[0] != c.want {
			t.Errorf("%v: %v %v want %v", c.in, p, err, c.want)
		}
	}
	for want, e := range map[string]*Expr{
		"constant 0.5 is not of type int32": X(0).Add(C(0.5)),
		"x(3) of 2 operands":                X(3),
		"sub is not defined for bool":       X(1).Sub(X(1)),
		"no bitcast from int32 to float64":  X(0).Bitcast(dtype.F64),
		"float16 is a storage type":         X(0).Cvt(dtype.F16),
		"uint32 and int32 do not mix":       X(0).Cvt(dtype.U32).Add(X(0)),
	} {
		_, err := Lower([]*Expr{e}, []dtype.Type{dtype.Invalid}, []dtype.Type{dtype.I32, dtype.Bool}, -1)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

func TestConversions(t *testing.T) {
	for _, c := range []struct {
		from, to dtype.Type
		v, want  float64
	}{
		{dtype.F32, dtype.I32, 3e9, math.MaxInt32}, {dtype.F32, dtype.I32, -3e9, math.MinInt32}, {dtype.F32, dtype.I32, math.NaN(), 0},
		{dtype.F64, dtype.I64, 1e30, math.MaxInt64}, {dtype.F64, dtype.I32, -2.9, -2}, {dtype.F32, dtype.U8, 300, 300 - 256},
		{dtype.I32, dtype.U8, 257, 1}, {dtype.I32, dtype.I8, 200, -56}, {dtype.F32, dtype.Bool, -0.5, 1}, {dtype.F32, dtype.Bool, 0, 0},
		{dtype.F64, dtype.F16, 65520, math.Inf(1)}, {dtype.I64, dtype.F32, 16777217, 16777216}, {dtype.U8, dtype.F32, 255, 255},
		{dtype.I16, dtype.I64, -5, -5}, {dtype.Bool, dtype.F32, 1, 1}, {dtype.F32, dtype.U32, 4294967040, 4294967040}, {dtype.F64, dtype.U64, 1 << 63, 1 << 63},
	} {
		p := MustLower([]*Expr{X(0)}, []dtype.Type{c.to}, []dtype.Type{c.from}, -1)
		got := Decode(c.to, p.Eval(nil, []uint64{Encode(c.from, c.v)}, nil, 0)[0])
		if got != c.want {
			t.Errorf("%v %v -> %v: %v want %v", c.from, c.v, c.to, got, c.want)
		}
	}
}

func TestFMA32IsCorrectlyRounded(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	prec := func(x float32) *big.Float { return new(big.Float).SetPrec(2000).SetFloat64(float64(x)) }
	check := func(a, b, c float32) {
		z := prec(a)
		z.Mul(z, prec(b)).Add(z, prec(c))
		want, _ := z.Float32()
		if got := FMA32(a, b, c); got != want {
			t.Fatalf("FMA32(%v, %v, %v) = %v want %v", a, b, c, got, want)
		}
	}
	random := func(spread int) float32 {
		return float32(math.Ldexp(1+r.Float64(), r.IntN(spread)-spread/2)) * float32(1-2*r.IntN(2))
	}
	for range 100000 {
		s := []int{2, 30, 250}[r.IntN(3)]
		a, b := random(s), random(s)
		if p := float64(a) * float64(b); math.Abs(p) < 1e38 {
			check(a, b, random(s))
			check(a, b, float32(-p))
		}
	}
	// Each product lies halfway between two float32 numbers. Each addend is so small that the exact
	// sum needs more bits than a float64 has.
	for k := range 4096 {
		a := float32(1 + 0x1p-12)
		b := a + float32(k)*0x1p-11
		for _, e := range []int{-54, -60, -80, -120} {
			check(a, b, float32(math.Ldexp(1, e)))
			check(a, b, -float32(math.Ldexp(1, e)))
		}
	}
}
