package expr

import (
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

// TestPhiloxKnownAnswers compares with the vectors of Random123 (kat_vectors, philox4x32 10).
func TestPhiloxKnownAnswers(t *testing.T) {
	var ctr [4]*Expr
	for i := range ctr {
		ctr[i] = Param(i, dtype.U32)
	}
	out := Philox(ctr, [2]*Expr{Param(4, dtype.U32), Param(5, dtype.U32)})
	u32 := []dtype.Type{dtype.U32, dtype.U32, dtype.U32, dtype.U32}
	p := MustLower(out[:], u32, nil, -1)
	for _, c := range []struct{ in, want []uint64 }{
		{[]uint64{0, 0, 0, 0, 0, 0}, []uint64{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[]uint64{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, []uint64{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[]uint64{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0}, []uint64{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		got := p.Eval(nil, nil, c.in, 0)
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("counter and key %#x: %#x want %#x", c.in, got, c.want)
				break
			}
		}
	}
}

func random(gen func(t dtype.Type, seed, offset, index *Expr) *Expr, t, index dtype.Type) func(seed, offset, i int64) float64 {
	p := MustLower([]*Expr{gen(t, Param(0, dtype.I64), Param(1, dtype.I64), Index(index))}, []dtype.Type{t}, nil, -1)
	return func(seed, offset, i int64) float64 {
		return Decode(t, p.Eval(nil, nil, []uint64{uint64(seed), uint64(offset)}, i)[0])
	}
}

func TestRandomCounter(t *testing.T) {
	for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
		wide, narrow := random(RandomUniform, ty, dtype.I64), random(RandomUniform, ty, dtype.U32)
		base := wide(42, 7, 0)
		for name, v := range map[string]float64{"the next element": wide(42, 7, 1), "another seed": wide(43, 7, 0), "the seed's upper half": wide(42+1<<32, 7, 0),
			"the offset's upper half": wide(42, 7+1<<32, 0), "a negative seed": wide(-42, 7, 0)} {
			if v == base {
				t.Errorf("%v: %s repeats", ty, name)
			}
		}
		for i := range int64(50) {
			a := wide(42, 1<<32-20, i)
			if b := wide(42, 1<<32-20+i, 0); a != b {
				t.Fatalf("%v: offset and index must add: %v, %v", ty, a, b)
			}
			if b := narrow(42, 1<<32-20, i); a != b {
				t.Fatalf("%v: a U32 index gives %v, an I64 %v", ty, b, a)
			}
		}
	}
	// The words of the definition: seed is the key, offset + index the counter's lower half.
	w := RandomBits(Param(0, dtype.I64), Param(1, dtype.I64), Index(dtype.I64))
	p := MustLower(w[:1], []dtype.Type{dtype.U32}, nil, -1)
	if got := p.Eval(nil, nil, []uint64{0, 0}, 0)[0]; got != 0x6627e8d5 {
		t.Errorf("%#x", got)
	}
	if u := random(RandomUniform, dtype.F32, dtype.I64)(0, 0, 0); u != float64(0x6627e8)*0x1p-24 {
		t.Errorf("%v", u)
	}
	if u := random(RandomUniform, dtype.F64, dtype.I64)(0, 0, 0); u != float64(uint64(0x6627e8d5e169c58d)>>11)*0x1p-53 &&
		u != float64(uint64(0x6627e8d5)>>5<<26|uint64(0xe169c58d)>>6)*0x1p-53 {
		t.Errorf("%v", u)
	}
}

// TestRandomDistributions bounds moments at five standard errors, the Kolmogorov–Smirnov statistic and χ² of 256 cells at
// probabilities below 10⁻⁶; the numbers are fixed, so it cannot fail by chance.
func TestRandomDistributions(t *testing.T) {
	const n = 30000
	phi := func(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }
	for _, c := range []struct {
		name               string
		gen                func(t dtype.Type, seed, offset, index *Expr) *Expr
		cdf                func(float64) float64
		moments, deviation [4]float64 // E xᵏ, and the standard deviations of xᵏ
	}{
		{"uniform", RandomUniform, func(x float64) float64 { return x }, [4]float64{1. / 2, 1. / 3, 1. / 4, 1. / 5},
			[4]float64{math.Sqrt(1. / 12), math.Sqrt(1./5 - 1./9), math.Sqrt(1./7 - 1./16), math.Sqrt(1./9 - 1./25)}},
		{"normal", RandomNormal, phi, [4]float64{0, 1, 0, 3}, [4]float64{1, math.Sqrt2, math.Sqrt(15), math.Sqrt(96)}},
	} {
		for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
			f := random(c.gen, ty, dtype.I64)
			v := make([]float64, n)
			var sum [4]float64
			var cells [256]float64
			serial := 0.0
			for i := range v {
				x := f(1234567890123, 99, int64(i))
				v[i] = x
				u := c.cdf(x)
				if !(u >= 0 && u < 1) {
					t.Fatalf("%s %v: %v", c.name, ty, x)
				}
				cells[int(u*256)]++
				for k := range sum {
					sum[k] += math.Pow(x, float64(k+1))
				}
				if i > 0 {
					serial += (c.cdf(v[i-1]) - 0.5) * (u - 0.5)
				}
			}
			for k := range sum {
				if d := math.Abs(sum[k]/n - c.moments[k]); d > 5*c.deviation[k]/math.Sqrt(n) {
					t.Errorf("%s %v: moment %d is off by %v", c.name, ty, k+1, d)
				}
			}
			if r := 12 * serial / n; math.Abs(r) > 5/math.Sqrt(n) {
				t.Errorf("%s %v: neighbours correlate by %v", c.name, ty, r)
			}
			chi := 0.0
			for _, o := range cells {
				chi += (o - n/256.) * (o - n/256.) / (n / 256.)
			}
			if chi > 255+5*math.Sqrt(2*255) || chi < 255-5*math.Sqrt(2*255) {
				t.Errorf("%s %v: χ² = %v of 255", c.name, ty, chi)
			}
			slices.Sort(v)
			ks := 0.0
			for i, x := range v {
				u := c.cdf(x)
				ks = math.Max(ks, math.Max(u-float64(i)/n, float64(i+1)/n-u))
			}
			if ks > 2.7/math.Sqrt(n) {
				t.Errorf("%s %v: Kolmogorov–Smirnov statistic %v", c.name, ty, ks)
			}
		}
	}
}

// TestRandomNormalFormula compares with the same words through math.
func TestRandomNormalFormula(t *testing.T) {
	w := RandomBits(Param(0, dtype.I64), Param(1, dtype.I64), Index(dtype.I64))
	u32 := []dtype.Type{dtype.U32, dtype.U32, dtype.U32, dtype.U32}
	p := MustLower(w[:], u32, nil, -1)
	f, d := random(RandomNormal, dtype.F32, dtype.I64), random(RandomNormal, dtype.F64, dtype.I64)
	for i := range int64(20000) {
		b := p.Eval(nil, nil, []uint64{5, 6}, i)
		u := float64(float32(float32(b[0])*0x1p-32 + 0x1p-33))
		want := math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*float64(b[1])*0x1p-32)
		if got := f(5, 6, i); math.Abs(got-want) > 4e-7*math.Abs(want)+1e-12 {
			t.Fatalf("element %d: %v want %v", i, got, want)
		}
		u = float64(b[0])*0x1p-32 + float64(b[1])*0x1p-64
		want = math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*(float64(b[2])*0x1p-32+float64(b[3])*0x1p-64))
		if got := d(5, 6, i); math.Abs(got-want) > 1e-14*math.Abs(want)+1e-14 {
			t.Fatalf("element %d in float64: %v want %v", i, got, want)
		}
	}
	for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
		p := MustLower([]*Expr{RandomNormal(ty, Param(0, dtype.I64), Param(1, dtype.I64), Index(dtype.I64))}, []dtype.Type{ty}, nil, -1)
		t.Logf("normal %v: %d operations", ty, p.Cost())
	}
}
