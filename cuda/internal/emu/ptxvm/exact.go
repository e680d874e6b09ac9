package ptxvm

import (
	"math"
	"math/big"
)

// This file has operations with directed roundings: operations on float64, and square roots and
// reciprocals of float32. They round the exact result once. If it has too many bits, they round its
// first few hundred bits, and take into account whether bits were cut off. They are slow, but
// rarely used.

// fromBig rounds x, which is not zero, once to format f and returns the bits. If inexact is true,
// the exact magnitude is slightly larger than that of x.
func (f *format) fromBig(x *big.Float, inexact bool, mode rounding) uint64 {
	m := new(big.Float).SetPrec(64).SetMode(big.ToZero).Set(x)
	inexact = inexact || m.Acc() != big.Exact
	exp := m.MantExp(m)
	m.Abs(m).SetMantExp(m, 64)
	v, _ := m.Uint64()
	return f.round(x.Signbit(), v, exp-64, inexact, mode)
}

func finite(x float64) bool { return !math.IsInf(x, 0) && x == x }

// directed64 returns the operation add, sub, mul or fma with the given rounding.
func directed64(name string, mode rounding) f64Op {
	return func(a, b, c float64) float64 {
		switch name {
		case "sub":
			b = -b
			fallthrough
		case "add":
			if !finite(a) || !finite(b) {
				return a + b
			}
			return sumExact(exactly(a), exactly(b), math.Signbit(a), math.Signbit(b), mode)
		case "mul":
			if !finite(a) || !finite(b) || a == 0 || b == 0 {
				return a * b
			}
			return f64(formats[F64].fromBig(productExact(a, b), false, mode))
		}
		if !finite(a) || !finite(b) || !finite(c) {
			return math.FMA(a, b, c)
		}
		return sumExact(productExact(a, b), exactly(c), math.Signbit(a) != math.Signbit(b), math.Signbit(c), mode)
	}
}

func exactly(x float64) *big.Float { return new(big.Float).SetPrec(64).SetFloat64(x) }

func productExact(a, b float64) *big.Float {
	return new(big.Float).SetPrec(128).Mul(exactly(a), exactly(b))
}

func sumExact(a, b *big.Float, negA, negB bool, mode rounding) float64 {
	s := new(big.Float).SetPrec(8192).Add(a, b)
	if s.Sign() == 0 {
		if a.Sign() == 0 && negA == negB {
			return math.Copysign(0, -float64(bit(negA))-0.5+float64(bit(!negA)))
		}
		if mode == rm {
			return math.Copysign(0, -1)
		}
		return 0
	}
	return f64(formats[F64].fromBig(s, false, mode))
}

// quotient returns the correctly rounded a/b in format f. If an operand is zero, infinite or NaN,
// ok is false.
func (f *format) quotient(a, b float64, mode rounding) (v uint64, ok bool) {
	if !finite(a) || !finite(b) || a == 0 || b == 0 {
		return 0, false
	}
	q := new(big.Float).SetPrec(400).SetMode(big.ToZero).Quo(exactly(a), exactly(b))
	return f.fromBig(q, q.Acc() != big.Exact, mode), true
}

// root returns the correctly rounded square root of a in format f. The result ok is false unless a
// is positive and finite.
func (f *format) root(a float64, mode rounding) (v uint64, ok bool) {
	if !finite(a) || a <= 0 {
		return 0, false
	}
	x := exactly(a)
	r := new(big.Float).SetPrec(300).Sqrt(x)
	// these 250 bits are the leading bits of the true root
	r.SetMode(big.ToZero).SetPrec(250)
	q := new(big.Float).SetPrec(600).Mul(r, r)
	// If q were greater than x, r would be greater than the true root. That is impossible: the root
	// of a float64 has at most 53 bits, or infinitely many.
	if q.Cmp(x) > 0 {
		panic("ptxvm: square root")
	}
	return f.fromBig(r, q.Cmp(x) != 0, mode), true
}

func divide64(mode rounding) f64Op {
	return func(a, b, _ float64) float64 {
		if v, ok := formats[F64].quotient(a, b, mode); ok {
			return f64(v)
		}
		return a / b
	}
}

func root64(mode rounding) f64Op {
	return func(a, _, _ float64) float64 {
		if v, ok := formats[F64].root(a, mode); ok {
			return f64(v)
		}
		return math.Sqrt(a)
	}
}

func root32(mode rounding) f32Op {
	return func(a, _, _ float32) float32 {
		if v, ok := fmtF32.root(float64(a), mode); ok {
			return f32(v)
		}
		return float32(math.Sqrt(float64(a)))
	}
}

func reciprocal32(mode rounding) f32Op {
	return func(a, _, _ float32) float32 {
		if v, ok := fmtF32.quotient(1, float64(a), mode); ok {
			return f32(v)
		}
		return 1 / a
	}
}

// upperHalf64 returns f as the approximations of .f64 with .ftz compute it: subnormal operands and
// results become 0, and results are rounded to their upper 32 bits.
func upperHalf64(f func(float64) float64) f64Op {
	return func(a, _, _ float64) float64 {
		flush := func(x float64) float64 {
			if math.Abs(x) < 0x1p-1022 {
				return math.Copysign(0, x)
			}
			return x
		}
		return flush(f64((u64(f(flush(a))) + 1<<31) &^ (1<<32 - 1)))
	}
}
