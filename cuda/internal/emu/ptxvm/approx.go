package ptxvm

import "math"

// Functions for instructions with the modifier .approx. Their error bounds are in section "Floating
// Point Instructions" of the PTX ISA.

// exp2Coef are the Taylor coefficients of 2^f, ln2^k/k!. For |f| <= 1/2 the remainder is below
// 2^-29, far less than the 2 ulp of ex2.approx.
var exp2Coef = func() (c [9]float64) {
	v := 1.0
	for k := range c {
		c[k] = v
		v *= math.Ln2 / float64(k+1)
	}
	return
}()

func ex2Approx(x float32) float32 {
	switch {
	case x != x:
		return nan32()
	case x >= 128:
		return float32(math.Inf(1))
	case x < -150:
		return 0
	}
	y := float64(x)
	n := math.RoundToEven(y)
	f := y - n
	p := exp2Coef[8]
	for k := 7; k >= 0; k-- {
		p = p*f + exp2Coef[k]
	}
	return float32(p * math.Float64frombits(uint64(1023+int64(n))<<52))
}

func lg2Approx(x float32) float32 {
	if x != x || x < 0 {
		return nan32()
	}
	return float32(math.Log2(float64(x)))
}

func rcpApprox(x float32) float32 { return canon(1 / x) }

func rsqrtApprox(x float32) float32 {
	if x == 0 {
		return canon(1 / x) // keeps the sign of zero
	}
	return canon(float32(1 / math.Sqrt(float64(x))))
}

func sqrtApprox(x float32) float32 { return canon(float32(math.Sqrt(float64(x)))) }

// turns returns x modulo 2π for the sine and the cosine. The hardware multiplies x by 1/2π in
// float32 before it looks up the sine. The absolute error of this product grows with |x|, within
// the ISA's 2^-20.5 on [-2π,2π] and 2^-14.7 on [-100π,100π]. The function turns makes the same
// error, so that tests notice kernels without range reduction.
func turns(x float32) float64 {
	y := float64(x * float32(1/(2*math.Pi)))
	return 2 * math.Pi * (y - math.Floor(y))
}

func sinApprox(x float32) float32 {
	if x == 0 {
		return x
	}
	return canon(float32(math.Sin(turns(x))))
}

func cosApprox(x float32) float32 { return canon(float32(math.Cos(turns(x)))) }

// tanhApprox rounds to 12 significant bits, so that tests notice that the result is not accurate.
// The ISA allows a relative error of 2^-11.
func tanhApprox(x float32) float32 {
	if x != x {
		return nan32()
	}
	b := math.Float32bits(float32(math.Tanh(float64(x))))
	return math.Float32frombits((b + 0x7ff + b>>12&1) &^ 0xfff)
}

// divApprox returns a·(1/b). If |b| exceeds 2^126, it returns 0, or NaN for infinite a.
func divApprox(a, b float32) float32 {
	if m := math.Abs(float64(b)); m > 0x1p126 && !math.IsInf(m, 0) {
		if math.IsInf(float64(a), 0) {
			return nan32()
		}
		return float32(math.Copysign(0, float64(a)*float64(b)))
	}
	r := 1 / b
	return canon(a * r)
}

// canon replaces any NaN by the canonical NaN of single precision, 0x7fffffff.
func canon(x float32) float32 {
	if x != x {
		return nan32()
	}
	return x
}
