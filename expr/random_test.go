package expr

import (
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

// TestPhiloxKnownAnswers compares Philox with the test vectors of Random123 (kat_vectors,
// philox4x32 10).
func TestPhiloxKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32}, [2]uint32{math.MaxUint32, math.MaxUint32},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := Philox(c.counter, c.key); got != c.want {
			t.Errorf("counter %#x, key %#x: %#x want %#x", c.counter, c.key, got, c.want)
		}
	}
}

// block returns the four words of the Philox block for a seed and an offset.
func block(seed, offset uint64) []uint32 {
	w := Philox([4]uint32{uint32(offset), uint32(offset >> 32)}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return w[:]
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
		per := int64(16 / ty.Size()) // number of elements in a block
		for i := range int64(50) {
			a := wide(42, 1<<32-20, i)
			if b := wide(42, 1<<32-20+i/per, i%per); a != b {
				t.Fatalf("%v: the offset counts blocks of %d: %v, %v", ty, per, a, b)
			}
			if b := narrow(42, 1<<32-20, i); a != b {
				t.Fatalf("%v: a U32 index gives %v, an I64 %v", ty, b, a)
			}
		}
	}
	// Compute the words by their definition: the seed is the key, and the offset plus the number of
	// previous blocks is the lower half of the counter.
	single, double := random(RandomUniform, dtype.F32, dtype.I64), random(RandomUniform, dtype.F64, dtype.I64)
	bits := MustLower([]*Expr{RandomBits(Param(0, dtype.I64), Param(1, dtype.I64), Index(dtype.I64))}, []dtype.Type{dtype.U32}, nil, -1)
	const seed, offset = 0x123456789a, 0xfffffffd
	for i := range uint64(40) {
		w := block(seed, offset+i/4)[i%4]
		if got := bits.Eval(nil, nil, []uint64{seed, offset}, int64(i))[0]; got != uint64(w) {
			t.Errorf("word %d is %#x, want %#x", i, got, w)
		}
		if u := single(seed, offset, int64(i)); u != float64(w>>8)*0x1p-24 {
			t.Errorf("element %d is %v in float32", i, u)
		}
		pair := block(seed, offset+i/2)[i%2*2:]
		if u := double(seed, offset, int64(i)); u != float64((uint64(pair[1])<<32|uint64(pair[0]))>>11)*0x1p-53 {
			t.Errorf("element %d is %v in float64", i, u)
		}
	}
}

func TestDropLimit(t *testing.T) {
	for _, c := range []struct {
		p     float64
		limit uint32
	}{{1, math.MaxUint32}, {0.5, 1<<31 - 1}, {0x1p-32, 0}, {0x1p-60, 0}, {0x1.8p-32, 1}, {1 - 0x1p-40, math.MaxUint32}} {
		if got := DropLimit(c.p); got != c.limit {
			t.Errorf("limit of %v: %d, want %d", c.p, got, c.limit)
		}
	}
	p := MustLower([]*Expr{RandomKeeps(Param(0, dtype.I64), C(0), Index(dtype.I64), Param(1, dtype.U32))}, []dtype.Type{dtype.Bool}, nil, -1)
	for _, rate := range []float64{0.1, 0.5, 1} {
		const n = 30000
		kept := 0
		for i := range n {
			kept += int(p.Eval(nil, nil, []uint64{7, uint64(DropLimit(rate))}, int64(i))[0])
		}
		if d := math.Abs(float64(kept)/n - (1 - rate)); d > 5*math.Sqrt(rate*(1-rate)/n) {
			t.Errorf("%d of %d stay where %v are dropped", kept, n, rate)
		}
	}
}

// TestRandomDistributions compares moments, correlations of neighbouring elements and χ² of 256
// cells with their expectations. Each must be within five standard deviations. The
// Kolmogorov–Smirnov statistic must not have a probability below 10⁻⁶. The random numbers are
// always the same, so the test cannot fail by chance.
func TestRandomDistributions(t *testing.T) {
	const n = 30000
	phi := func(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }
	for _, c := range []struct {
		name               string
		gen                func(t dtype.Type, seed, offset, index *Expr) *Expr
		cdf                func(float64) float64
		moments, deviation [4]float64 // expectations of xᵏ, and the standard deviations of xᵏ
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
			// correlations with each neighbour in a block, and with the previous block
			var serial [4]float64
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
				for lag := range min(i, len(serial)) {
					serial[lag] += (c.cdf(v[i-1-lag]) - 0.5) * (u - 0.5)
				}
			}
			for k := range sum {
				if d := math.Abs(sum[k]/n - c.moments[k]); d > 5*c.deviation[k]/math.Sqrt(n) {
					t.Errorf("%s %v: moment %d is off by %v", c.name, ty, k+1, d)
				}
			}
			for lag, sum := range serial {
				if r := 12 * sum / n; math.Abs(r) > 5/math.Sqrt(n) {
					t.Errorf("%s %v: neighbours %d apart correlate by %v", c.name, ty, lag+1, r)
				}
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

// TestRandomNormalFormula compares RandomNormal with its formula, computed with package math from
// the same random words.
func TestRandomNormalFormula(t *testing.T) {
	f, d := random(RandomNormal, dtype.F32, dtype.I64), random(RandomNormal, dtype.F64, dtype.I64)
	turn := [2]func(float64) float64{math.Cos, math.Sin}
	for i := range uint64(20000) {
		w := block(5, 6+i/4)[i%4&^1:]
		u := float64(float32(float32(w[0])*0x1p-32 + 0x1p-33))
		want := math.Sqrt(-2*math.Log(u)) * turn[i%2](2*math.Pi*float64(w[1])*0x1p-32)
		if got := f(5, 6, int64(i)); math.Abs(got-want) > 4e-7*math.Abs(want)+1e-12 {
			t.Fatalf("element %d: %v want %v", i, got, want)
		}
		w = block(5, 6+i/2)
		u = float64(w[1])*0x1p-32 + float64(w[0])*0x1p-64
		want = math.Sqrt(-2*math.Log(u)) * turn[i%2](2*math.Pi*(float64(w[3])*0x1p-32+float64(w[2])*0x1p-64))
		if got := d(5, 6, int64(i)); math.Abs(got-want) > 1e-14*math.Abs(want)+1e-14 {
			t.Fatalf("element %d in float64: %v want %v", i, got, want)
		}
	}
	for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
		p := MustLower([]*Expr{RandomNormal(ty, Param(0, dtype.I64), Param(1, dtype.I64), Index(dtype.I64))}, []dtype.Type{ty}, nil, -1)
		t.Logf("normal %v: %d operations", ty, p.Cost())
	}
}
