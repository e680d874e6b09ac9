// Package exact computes the few functions that schedules and bias corrections use. The results are
// correctly rounded, except in about one of 2⁴⁰ cases. C libraries, and with them Python and
// PyTorch, nearly always return the correctly rounded result too. The results are therefore bitwise
// equal to PyTorch's, while those of package math may differ in the last bits.
//
// The method is arithmetic with numbers that are sums of two float64. Such a sum has about 104 bits
// (T. Dekker, "A Floating-Point Technique for Extending the Available Precision", 1971). The
// functions use power series and argument reduction.
package exact

import "math"

// A pair represents the number hi + lo, where |lo| ≤ ulp(hi)/2.
type pair struct{ hi, lo float64 }

// quick returns a + b as a pair. It requires |a| ≥ |b|.
func quick(a, b float64) pair {
	s := a + b
	return pair{s, b - (s - a)}
}

func sum(a, b float64) pair {
	s := a + b
	t := s - a
	return pair{s, (a - (s - t)) + (b - t)}
}

func product(a, b float64) pair {
	p := a * b
	return pair{p, math.FMA(a, b, -p)}
}

func (a pair) add(b pair) pair {
	s, t := sum(a.hi, b.hi), sum(a.lo, b.lo)
	s = quick(s.hi, s.lo+t.hi)
	return quick(s.hi, s.lo+t.lo)
}

func (a pair) neg() pair { return pair{-a.hi, -a.lo} }

func (a pair) mul(b pair) pair {
	p := product(a.hi, b.hi)
	return quick(p.hi, p.lo+(a.hi*b.lo+a.lo*b.hi))
}

func (a pair) div(b pair) pair {
	q := a.hi / b.hi
	r := a.add(b.mul(pair{q, 0}).neg())
	p := r.hi / b.hi
	r = r.add(b.mul(pair{p, 0}).neg())
	return quick(q, p).add(pair{r.hi / b.hi, 0})
}

// scale returns a·f, which is exact because f must be a power of two.
func (a pair) scale(f float64) pair { return pair{a.hi * f, a.lo * f} }

func (a pair) value() float64 { return a.hi + a.lo }

// These constants have a precision of 106 bits.
var (
	ln2    = pair{math.Ln2, 2.319046813846299558e-17}
	halfPi = pair{math.Pi / 2, 6.123233995736766036e-17}
)

// exp returns eˣ for |x| < 700.
func exp(x pair) pair {
	k := math.RoundToEven(x.hi / math.Ln2)
	r := x.add(ln2.mul(pair{k, 0}).neg()).scale(1.0 / 256)
	// The loop adds up the series of eʳ - 1, where |r| < 0.0014.
	s, t := pair{}, pair{1, 0}
	for n := 1.0; n <= 10; n++ {
		t = t.mul(r).div(pair{n, 0})
		s = s.add(t)
	}
	for range 8 { // (1+s)² - 1 = 2s + s²
		s = s.scale(2).add(s.mul(s))
	}
	s = s.add(pair{1, 0})
	return pair{math.Ldexp(s.hi, int(k)), math.Ldexp(s.lo, int(k))}
}

// log returns the natural logarithm of x > 0. It makes two steps of Newton's method, which start
// from math.Log.
func log(x pair) pair {
	y := pair{math.Log(x.hi), 0}
	for range 2 {
		y = y.add(x.mul(exp(y.neg()))).add(pair{-1, 0})
	}
	return y
}

// Pow returns xʸ. It is correctly rounded if x > 0 and the result is between 1e-290 and 1e290;
// otherwise it returns math.Pow(x, y).
func Pow(x, y float64) float64 {
	r := math.Pow(x, y)
	if !(x > 0) || x == 1 || y == 0 || !(r > 1e-290 && r < 1e290) {
		return r
	}
	if y == math.Trunc(y) && math.Abs(y) < 1<<20 {
		return powInt(x, int(y)).value()
	}
	return exp(log(pair{x, 0}).mul(pair{y, 0})).value()
}

// powInt returns xⁿ for an integer n.
func powInt(x float64, n int) pair {
	if n < 0 {
		return pair{1, 0}.div(powInt(x, -n))
	}
	y, b := pair{1, 0}, pair{x, 0}
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			y = y.mul(b)
		}
		if n > 1 {
			b = b.mul(b)
		}
	}
	return y
}

// Cos returns the cosine of x. It is correctly rounded for |x| < 1e6.
func Cos(x float64) float64 {
	if !(math.Abs(x) < 1e6) {
		return math.Cos(x)
	}
	k := math.RoundToEven(x / (math.Pi / 2))
	// π/2 is halfPi - 1.497…e-33. The products with the two parts of halfPi are exact, so a result
	// near 0 keeps its precision.
	r := pair{x, 0}.add(product(-k, halfPi.hi)).add(product(-k, halfPi.lo)).add(pair{1.497384904859169777e-33 * k, 0})
	switch int64(k) & 3 {
	case 0:
		return series(r, 0).value()
	case 1:
		return -series(r, 1).value()
	case 2:
		return -series(r, 0).value()
	}
	return series(r, 1).value()
}

// series returns the cosine of r (degree = 0) or the sine of r (degree = 1), where |r| ≤ π/4.
// degree is the degree of the first term.
func series(r pair, degree int) pair {
	t := pair{1, 0}
	if degree == 1 {
		t = r
	}
	s, square := t, r.mul(r).neg()
	for n := degree + 2; n <= 30; n += 2 {
		t = t.mul(square).div(pair{float64(n * (n - 1)), 0})
		s = s.add(t)
	}
	return s
}
