package expr

import (
	"math"
	"math/big"
)

// This file has reference functions for float64. They compute in arbitrary precision with math/big,
// from textbook series and identities.

const bigPrec = 300

func bf(v float64) *big.Float { return new(big.Float).SetPrec(bigPrec).SetFloat64(v) }

func bigAdd(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(bigPrec).Add(a, b) }
func bigSub(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(bigPrec).Sub(a, b) }
func bigMul(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(bigPrec).Mul(a, b) }
func bigDiv(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(bigPrec).Quo(a, b) }
func bigNeg(a *big.Float) *big.Float    { return new(big.Float).SetPrec(bigPrec).Neg(a) }

// ulps64 returns |got-want| in units in the last place of the float64 numbers near want.
func ulps64(got float64, want *big.Float) float64 {
	if got != got || math.IsInf(got, 0) {
		if w, _ := want.Float64(); w == got {
			return 0
		}
		return math.Inf(1)
	}
	if want.Sign() == 0 {
		if got == 0 {
			return 0
		}
		return math.Inf(1)
	}
	e := max(want.MantExp(nil)-53, -1074)
	d, _ := new(big.Float).SetMantExp(bigSub(bf(got), want), -e).Float64()
	return math.Abs(d)
}

// tiny reports whether t is so small that s + t is s in the precision used here.
func tiny(t, s *big.Float) bool {
	return t.Sign() == 0 || s.Sign() != 0 && t.MantExp(nil) < s.MantExp(nil)-bigPrec-8
}

// bigExp halves the argument until a short Taylor series suffices, and squares the result the same
// number of times.
func bigExp(x *big.Float) *big.Float {
	k := max(0, x.MantExp(nil)+12)
	if x.Sign() == 0 {
		k = 0
	}
	r := new(big.Float).SetPrec(bigPrec+64).SetMantExp(x, -k)
	sum := new(big.Float).SetPrec(bigPrec + 64).SetInt64(1)
	term := new(big.Float).SetPrec(bigPrec + 64).SetInt64(1)
	for n := int64(1); ; n++ {
		term.Mul(term, r)
		term.Quo(term, new(big.Float).SetInt64(n))
		if tiny(term, sum) {
			break
		}
		sum.Add(sum, term)
	}
	for range k {
		sum.Mul(sum, sum)
	}
	return new(big.Float).SetPrec(bigPrec).Set(sum)
}

// bigAtanhSeries returns Σ sign^k·s^(2k+1)/(2k+1): atanh(s) for sign 1, and atan(s) for sign -1.
func bigAtanhSeries(s *big.Float, sign float64) *big.Float {
	z := bigMul(bigMul(s, s), bf(sign))
	sum, pow := bf(0), new(big.Float).Copy(s)
	for n := 1.0; ; n += 2 {
		t := bigDiv(pow, bf(n))
		sum = bigAdd(sum, t)
		if tiny(t, sum) {
			return sum
		}
		pow = bigMul(pow, z)
	}
}

var bigLn2 = bigMul(bf(2), bigAtanhSeries(bigDiv(bf(1), bf(3)), 1))

// bigLog returns log(x), computed as 2·atanh((m-1)/(m+1)) + e·ln2 for x = m·2ᵉ. x may have more
// than 53 bits.
func bigLog(x *big.Float) *big.Float {
	m := new(big.Float)
	e := x.MantExp(m)
	m.SetPrec(bigPrec)
	if m.Cmp(bf(0.7)) < 0 {
		m.SetMantExp(m, 1)
		e--
	}
	s := bigDiv(bigSub(m, bf(1)), bigAdd(m, bf(1)))
	return bigAdd(bigMul(bf(2), bigAtanhSeries(s, 1)), bigMul(bf(float64(e)), bigLn2))
}

// bigExpm1 computes eˣ-1, with full relative precision near 0.
func bigExpm1(x *big.Float) *big.Float {
	if x.Sign() == 0 || x.MantExp(nil) > -2 {
		return bigSub(bigExp(x), bf(1))
	}
	sum, term := bf(0), bf(1)
	for n := 1.0; ; n++ {
		term = bigDiv(bigMul(term, x), bf(n))
		sum = bigAdd(sum, term)
		if tiny(term, sum) {
			return sum
		}
	}
}

func bigTanh(x *big.Float) *big.Float {
	e := bigExpm1(bigMul(bf(2), x))
	return bigDiv(e, bigAdd(e, bf(2)))
}

func bigSigmoid(x *big.Float) *big.Float {
	return bigDiv(bf(1), bigAdd(bf(1), bigExp(bigNeg(x))))
}

var bigPi = func() *big.Float { // computed by Machin's formula
	a := bigAtanhSeries(bigDiv(bf(1), bf(5)), -1)
	b := bigAtanhSeries(bigDiv(bf(1), bf(239)), -1)
	return bigMul(bf(4), bigSub(bigMul(bf(4), a), b))
}()

// bigErf computes 2/√π·e^(-x²)·Σ 2ⁿx^(2n+1)/(2n+1)!!, a series whose terms all have the same sign.
func bigErf(x *big.Float) *big.Float {
	z := bigMul(bf(2), bigMul(x, x))
	sum, term := bf(0), new(big.Float).Copy(x)
	for n := 1.0; ; n += 2 {
		sum = bigAdd(sum, term)
		if tiny(term, sum) {
			break
		}
		term = bigDiv(bigMul(term, z), bf(n+2))
	}
	c := bigDiv(bf(2), new(big.Float).SetPrec(bigPrec).Sqrt(bigPi))
	return bigMul(bigMul(c, bigExp(bigNeg(bigMul(x, x)))), sum)
}

func bigExp2(x *big.Float) *big.Float { return bigExp(bigMul(x, bigLn2)) }
func bigLog2(x *big.Float) *big.Float { return bigDiv(bigLog(x), bigLn2) }

func bigLog10(x *big.Float) *big.Float { return bigDiv(bigLog(x), bigLog(bf(10))) }

// bigLog1p computes log(1+x), precisely for any float64 x.
func bigLog1p(x *big.Float) *big.Float {
	if x.MantExp(nil) > -200 {
		return bigLog(bigAdd(x, bf(1)))
	}
	return bigSub(x, bigMul(bf(0.5), bigMul(x, x)))
}

func bigRsqrt(x *big.Float) *big.Float {
	return bigDiv(bf(1), new(big.Float).SetPrec(bigPrec).Sqrt(x))
}

// trigPi is π with enough bits for the reduction of any float64.
var trigPi = func() *big.Float {
	series := func(d int64) *big.Float { // sums the series of atan(1/d)
		x := new(big.Float).SetPrec(1500).Quo(new(big.Float).SetPrec(1500).SetInt64(1), new(big.Float).SetInt64(d))
		z := new(big.Float).SetPrec(1500).Mul(x, x)
		sum, t := new(big.Float).SetPrec(1500), new(big.Float).SetPrec(1500).Set(x)
		for n := int64(1); t.MantExp(nil) > -1500; n += 2 {
			sum.Add(sum, new(big.Float).SetPrec(1500).Quo(t, new(big.Float).SetInt64(n)))
			t.Mul(t, z).Neg(t)
		}
		return sum
	}
	a := new(big.Float).SetPrec(1500).Mul(big.NewFloat(4), series(5))
	a.Sub(a, series(239))
	return a.Mul(a, big.NewFloat(4))
}()

// bigSinCos subtracts a multiple of π/2 from x, and sums the Taylor series of e^(ir) for the
// remainder r.
func bigSinCos(x *big.Float) (sin, cos *big.Float) {
	half := new(big.Float).SetPrec(1500).Quo(trigPi, big.NewFloat(2))
	q := new(big.Float).SetPrec(1500).Quo(x, half)
	q.Add(q, big.NewFloat(0.5))
	k, _ := q.Int(nil)
	if q.Sign() < 0 {
		k.Sub(k, big.NewInt(1))
	}
	r := new(big.Float).SetPrec(1500).SetInt(k)
	r.Mul(r, half).Sub(x, r)
	r.SetPrec(bigPrec)
	var part [4]*big.Float
	for i := range part {
		part[i] = bf(0)
	}
	term := bf(1)
	for n := 0; n < 4 || !tiny(term, part[0]) || !tiny(term, part[1]); n++ {
		part[n%4] = bigAdd(part[n%4], term)
		term = bigDiv(bigMul(term, r), bf(float64(n+1)))
	}
	s, c := bigSub(part[1], part[3]), bigSub(part[0], part[2])
	switch new(big.Int).And(k, big.NewInt(3)).Int64() {
	case 1:
		s, c = c, bigNeg(s)
	case 2:
		s, c = bigNeg(s), bigNeg(c)
	case 3:
		s, c = bigNeg(c), s
	}
	return s, c
}

func bigSin(x *big.Float) *big.Float { s, _ := bigSinCos(x); return s }
func bigCos(x *big.Float) *big.Float { _, c := bigSinCos(x); return c }

func bigTan(x *big.Float) *big.Float { s, c := bigSinCos(x); return bigDiv(s, c) }

// bigAtan halves the angle by atan x = 2·atan(x/(1+√(1+x²))) until a short series suffices.
func bigAtan(x *big.Float) *big.Float {
	if x.Sign() == 0 {
		return x
	}
	k := 0
	for ; x.MantExp(nil) > -8; k++ {
		x = bigDiv(x, bigAdd(bf(1), bigSqrt(bigAdd(bf(1), bigMul(x, x)))))
	}
	return new(big.Float).SetMantExp(bigAtanhSeries(x, -1), k)
}

func bigSqrt(x *big.Float) *big.Float { return new(big.Float).SetPrec(bigPrec).Sqrt(x) }

// bigAsin returns asin(x), computed as 2·atan(x/(1+√(1-x²))).
func bigAsin(x *big.Float) *big.Float {
	c := bigSqrt(bigMul(bigSub(bf(1), x), bigAdd(bf(1), x)))
	return bigMul(bf(2), bigAtan(bigDiv(x, bigAdd(bf(1), c))))
}

// bigAcos returns acos(x), computed as 2·atan(√((1-x)/(1+x))).
func bigAcos(x *big.Float) *big.Float {
	if x.Cmp(bf(-1)) == 0 {
		return bigPi
	}
	return bigMul(bf(2), bigAtan(bigSqrt(bigDiv(bigSub(bf(1), x), bigAdd(bf(1), x)))))
}

func bigSinh(x *big.Float) *big.Float { // sinh x = (m + m/(m+1))/2 with m = expm1(x)
	if x.MantExp(nil) > 0 {
		return bigMul(bf(0.5), bigSub(bigExp(x), bigExp(bigNeg(x))))
	}
	m := bigExpm1(x)
	return bigMul(bf(0.5), bigAdd(m, bigDiv(m, bigAdd(m, bf(1)))))
}

func bigCosh(x *big.Float) *big.Float {
	e := bigExp(x)
	return bigMul(bf(0.5), bigAdd(e, bigDiv(bf(1), e)))
}

func bigAsinh(x *big.Float) *big.Float { // asinh is odd, and asinh a = log1p(a + a²/(1+√(1+a²)))
	a := new(big.Float).SetPrec(bigPrec).Abs(x)
	z := bigMul(a, a)
	y := bigLog1p(bigAdd(a, bigDiv(z, bigAdd(bf(1), bigSqrt(bigAdd(bf(1), z))))))
	if x.Sign() < 0 {
		return bigNeg(y)
	}
	return y
}

func bigAcosh(x *big.Float) *big.Float {
	t := bigSub(x, bf(1))
	if t.Sign() == 0 {
		return t
	}
	return bigLog1p(bigAdd(t, bigSqrt(bigMul(t, bigAdd(t, bf(2))))))
}

func bigAtanh(x *big.Float) *big.Float {
	return bigMul(bf(0.5), bigLog1p(bigDiv(bigMul(bf(2), x), bigSub(bf(1), x))))
}

func bigSoftplus(x *big.Float) *big.Float {
	if x.MantExp(nil) > 12 && x.Sign() > 0 {
		return x
	}
	return bigLog1p(bigExp(x))
}

// bigErfc computes 1 - erf(x). For x above 6 it uses the continued fraction e^(-x²)/√π · 1/(x +
// (1/2)/(x + (2/2)/(x + (3/2)/(x + …)))).
func bigErfc(x *big.Float) *big.Float {
	if x.Cmp(bf(6)) < 0 {
		return bigSub(bf(1), bigErf(x))
	}
	c := new(big.Float).Copy(x)
	for n := 250.0; n > 0; n-- {
		c = bigAdd(x, bigDiv(bf(n/2), c))
	}
	return bigDiv(bigExp(bigNeg(bigMul(x, x))), bigMul(c, bigSqrt(bigPi)))
}

// bigErfinv returns the inverse of erf. It improves the result of math.Erfinv by Newton's method.
func bigErfinv(x *big.Float) *big.Float {
	v, _ := x.Float64()
	y := bf(math.Erfinv(v))
	for range 3 {
		slope := bigMul(bigDiv(bf(2), bigSqrt(bigPi)), bigExp(bigNeg(bigMul(y, y))))
		y = bigSub(y, bigDiv(bigSub(bigErf(y), x), slope))
	}
	return y
}
