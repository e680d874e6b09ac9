package exact

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

const prec = 200

// reference computes xⁿ with 200 bits.
func reference(x float64, n int) float64 {
	y, b := big.NewFloat(1).SetPrec(prec), new(big.Float).SetPrec(prec).SetFloat64(x)
	for range n {
		y.Mul(y, b)
	}
	f, _ := y.Float64()
	return f
}

// cosine adds up the series of cos x with at least 200 bits, and more if its terms are large.
func cosine(x float64) float64 {
	p := uint(prec + int(3*math.Abs(x)))
	square := new(big.Float).SetPrec(p).SetFloat64(x)
	square.Mul(square, square).Neg(square)
	s, t := big.NewFloat(1).SetPrec(p), big.NewFloat(1).SetPrec(p)
	for n := int64(2); n < 1000; n += 2 {
		t.Mul(t, square).Quo(t, new(big.Float).SetPrec(p).SetInt64(n*(n-1)))
		s.Add(s, t)
	}
	f, _ := s.Float64()
	return f
}

func TestPowOfWholeNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		x, n := 0.5+r.Float64(), r.IntN(300)
		if got, want := Pow(x, float64(n)), reference(x, n); got != want {
			t.Fatalf("%v to the %d is %v, want %v", x, n, got, want)
		}
	}
}

// The exponent is n/4, so the fourth power of a result must be near xⁿ.
func TestPowOfFractions(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		x, n := 0.1+2*r.Float64(), 1+r.IntN(40)
		y := float64(n) / 4
		got := Pow(x, y)
		// got is correctly rounded if the fourth powers of got±ulp/2 enclose xⁿ.
		want := new(big.Float).SetPrec(2000).SetFloat64(1)
		for range n {
			want.Mul(want, new(big.Float).SetFloat64(x))
		}
		for _, side := range []float64{-1, 1} {
			next := math.Nextafter(got, math.Inf(int(side)))
			mid := new(big.Float).SetPrec(2000).SetFloat64(got)
			mid.Add(mid, new(big.Float).SetFloat64(next))
			mid.Quo(mid, big.NewFloat(2))
			mid.Mul(mid, mid).Mul(mid, mid)
			if c := mid.Cmp(want); float64(c) == -side {
				t.Fatalf("%v to the %v is not %v, but nearer to %v", x, y, got, next)
			}
		}
	}
}

func TestCos(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 3000 {
		x := 40 * (r.Float64() - 0.5)
		if i%3 == 0 {
			x = math.Pi * float64(i) / 100
		}
		if got, want := Cos(x), cosine(x); got != want {
			t.Fatalf("the cosine of %v is %v, want %v", x, got, want)
		}
	}
}

// Outside of the supported range the results are those of package math.
func TestEdges(t *testing.T) {
	for _, c := range [][3]float64{{0, 2, 0}, {2, 0, 1}, {1, math.Inf(1), 1}, {-2, 3, -8}, {2, 5000, math.Inf(1)}, {0.5, 5000, 0}, {4, -0.5, 0.5}, {2, -3, 0.125}} {
		if got := Pow(c[0], c[1]); got != c[2] {
			t.Errorf("%v to the %v is %v", c[0], c[1], got)
		}
	}
	if !math.IsNaN(Pow(math.NaN(), 1)) || !math.IsNaN(Cos(math.Inf(1))) || Cos(0) != 1 {
		t.Error("edges")
	}
}
