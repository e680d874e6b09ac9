package ptxvm

import (
	"math/big"
	"math/rand/v2"
	"testing"
)

// This file computes the expected results of floats.cu, convert.cu and halves.cu exactly. Values
// become rational numbers, and operations are done on rational numbers. The result is rounded by
// comparing it with its two neighbours in the format. The emulator uses none of this code.

// ieee is a binary format.
type ieee struct {
	name      string
	prec      uint // significand bits, including the hidden one
	exp       uint // exponent bits
	canonical bool // whether every NaN that arithmetic produces is all ones except for the sign
}

var (
	binary16 = ieee{"f16", 11, 5, true}
	bfloat16 = ieee{"bf16", 8, 8, true}
	binary32 = ieee{"f32", 24, 8, true}
	binary64 = ieee{"f64", 53, 11, false}
)

func (f ieee) width() uint         { return f.prec + f.exp }
func (f ieee) sign() uint64        { return 1 << (f.width() - 1) }
func (f ieee) inf() uint64         { return (1<<f.exp - 1) << (f.prec - 1) }
func (f ieee) abs(v uint64) uint64 { return v &^ f.sign() }
func (f ieee) isNaN(v uint64) bool { return f.abs(v) > f.inf() }
func (f ieee) isInf(v uint64) bool { return f.abs(v) == f.inf() }
func (f ieee) neg(v uint64) bool   { return v&f.sign() != 0 }
func (f ieee) nan() uint64         { return f.sign() - 1 }
func (f ieee) subnormal(v uint64) bool {
	return f.abs(v) != 0 && f.abs(v) < 1<<(f.prec-1)
}
func (f ieee) flush(v uint64) uint64 {
	if f.subnormal(v) {
		return v & f.sign()
	}
	return v
}

// rat returns the rational value of the bits of a finite number.
func (f ieee) rat(v uint64) *big.Rat {
	m := f.abs(v)
	e := int(m >> (f.prec - 1))
	m &= 1<<(f.prec-1) - 1
	if e == 0 {
		e = 1
	} else {
		m |= 1 << (f.prec - 1)
	}
	e -= 1<<(f.exp-1) - 1 + int(f.prec) - 1
	r := new(big.Rat).SetInt(new(big.Int).SetUint64(m))
	if e > 0 {
		r.Mul(r, new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(e))))
	} else {
		r.Quo(r, new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(-e))))
	}
	if f.neg(v) {
		r.Neg(r)
	}
	return r
}

// bits returns the bits of a non-zero number in the format. It divides the number by the unit of
// its last place, and rounds by the remainder and the mode.
func (f ieee) bits(r *big.Rat, mode string) uint64 {
	neg := r.Sign() < 0
	num, den := new(big.Int).Abs(r.Num()), r.Denom()
	least := 2 - 1<<(f.exp-1) - int(f.prec) + 1 // exponent of the smallest positive number
	e := max(least, num.BitLen()-den.BitLen()-int(f.prec))
	q, rest, unit := new(big.Int), new(big.Int), new(big.Int)
	for ; ; e++ {
		n := num
		if unit.Set(den); e > 0 {
			unit.Lsh(den, uint(e))
		} else {
			n = new(big.Int).Lsh(num, uint(-e))
		}
		if q.QuoRem(n, unit, rest); q.BitLen() <= int(f.prec) {
			break
		}
	}
	v := q.Uint64()
	if v>>(f.prec-1) != 0 {
		v += uint64(e-least) << (f.prec - 1)
	}
	half := rest.Lsh(rest, 1).Cmp(unit)
	up := rest.Sign() != 0 && (mode == "rp" && !neg || mode == "rm" && neg || mode == "rn" && (half > 0 || half == 0 && v&1 == 1))
	if up {
		v++
	}
	if v >= f.inf() {
		v = f.inf()
		if mode == "rz" || mode == "rp" && neg || mode == "rm" && !neg {
			v--
		}
	}
	if neg {
		v |= f.sign()
	}
	return v
}

var modes = []string{"rn", "rz", "rm", "rp"}

// sum returns a+b. ra and rb are the rational values of a and b. If the sum is exactly zero, negA
// and negB (the signs of a and b) decide the sign of the zero.
func (f ieee) sum(ra, rb *big.Rat, negA, negB bool, mode string) uint64 {
	s := new(big.Rat).Add(ra, rb)
	if s.Sign() != 0 {
		return f.bits(s, mode)
	}
	if ra.Sign() == 0 && negA && negB || (ra.Sign() != 0 || negA != negB) && mode == "rm" {
		return f.sign()
	}
	return 0
}

func (f ieee) add(a, b uint64, mode string) uint64 {
	switch {
	case f.isNaN(a) || f.isNaN(b) || f.isInf(a) && f.isInf(b) && a != b:
		return f.nan()
	case f.isInf(a):
		return a
	case f.isInf(b):
		return b
	}
	return f.sum(f.rat(a), f.rat(b), f.neg(a), f.neg(b), mode)
}

func (f ieee) mul(a, b uint64, mode string) uint64 {
	s := (a ^ b) & f.sign()
	switch {
	case f.isNaN(a) || f.isNaN(b) || f.isInf(a) && f.abs(b) == 0 || f.isInf(b) && f.abs(a) == 0:
		return f.nan()
	case f.isInf(a) || f.isInf(b):
		return s | f.inf()
	case f.abs(a) == 0 || f.abs(b) == 0:
		return s
	}
	return f.bits(new(big.Rat).Mul(f.rat(a), f.rat(b)), mode)
}

func (f ieee) fma(a, b, c uint64, mode string) uint64 {
	s := (a ^ b) & f.sign()
	switch {
	case f.isNaN(a) || f.isNaN(b) || f.isNaN(c) || f.isInf(a) && f.abs(b) == 0 || f.isInf(b) && f.abs(a) == 0:
		return f.nan()
	case f.isInf(a) || f.isInf(b):
		if f.isInf(c) && s != c&f.sign() {
			return f.nan()
		}
		return s | f.inf()
	case f.isInf(c):
		return c
	}
	return f.sum(new(big.Rat).Mul(f.rat(a), f.rat(b)), f.rat(c), s != 0, f.neg(c), mode)
}

func (f ieee) div(a, b uint64, mode string) uint64 {
	s := (a ^ b) & f.sign()
	switch {
	case f.isNaN(a) || f.isNaN(b) || f.isInf(a) && f.isInf(b) || f.abs(a) == 0 && f.abs(b) == 0:
		return f.nan()
	case f.isInf(a) || f.abs(b) == 0:
		return s | f.inf()
	case f.isInf(b) || f.abs(a) == 0:
		return s
	}
	return f.bits(new(big.Rat).Quo(f.rat(a), f.rat(b)), mode)
}

// sqrt finds the root by bisection: it compares squares with the operand.
func (f ieee) sqrt(a uint64, mode string) uint64 {
	switch {
	case f.isNaN(a) || f.neg(a) && f.abs(a) != 0:
		return f.nan()
	case f.isInf(a) || f.abs(a) == 0:
		return a
	}
	x := f.rat(a)
	square := func(v uint64) *big.Rat { r := f.rat(v); return r.Mul(r, r) }
	lo, hi := uint64(0), f.inf()
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; square(mid).Cmp(x) <= 0 {
			lo = mid
		} else {
			hi = mid
		}
	}
	if square(lo).Cmp(x) == 0 || mode == "rz" || mode == "rm" {
		return lo
	}
	if mode == "rp" {
		return hi
	}
	half := new(big.Rat).Add(f.rat(lo), f.rat(hi))
	half.Quo(half, big.NewRat(2, 1))
	if half.Mul(half, half).Cmp(x) < 0 {
		return hi
	}
	return lo
}

// order compares a with b. It returns -1, 0 or 1, or 2 if one of them is a NaN.
func (f ieee) order(a, b uint64) int {
	if f.isNaN(a) || f.isNaN(b) {
		return 2
	}
	key := func(v uint64) int64 {
		if f.neg(v) {
			return -int64(f.abs(v))
		}
		return int64(v)
	}
	switch x, y := key(a), key(b); {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// extreme returns the least or the greatest operand, as minNum and maxNum of IEEE 754 define it,
// with -0 below +0.
func (f ieee) extreme(a, b uint64, want int) uint64 {
	switch o := f.order(a, b); {
	case f.isNaN(a) && f.isNaN(b):
		return f.nan()
	case f.isNaN(a):
		return b
	case f.isNaN(b):
		return a
	case o == want || o == 0 && f.neg(a) == (want < 0):
		return a
	}
	return b
}

func (f ieee) one() uint64 { return (1<<(f.exp-1) - 1) << (f.prec - 1) }

// saturate clamps to [0, 1]. A NaN becomes 0.
func (f ieee) saturate(v uint64) uint64 {
	switch {
	case f.isNaN(v) || f.neg(v):
		return 0
	case v > f.one():
		return f.one()
	}
	return v
}

// equal compares results. It compares the payloads of NaNs only where they are defined.
func (f ieee) equal(got, want uint64) bool {
	return got == want || f.isNaN(want) && f.isNaN(got) && got>>f.width() == 0 && !f.canonical
}

// values returns the format's corner cases, and numbers of every magnitude.
func (f ieee) values(n int) []uint64 {
	r := rand.New(rand.NewPCG(5, uint64(f.width())))
	min := uint64(1) << (f.prec - 1) // bits of the smallest normal number
	v := []uint64{0, f.sign(), 1, f.sign() | 3, min - 1, min, f.sign() | (min + 1), f.one(), f.sign() | f.one(), f.one() + 1, f.one() - 1, f.inf() - 1, f.inf(), f.sign() | f.inf(), f.inf() | 1<<(f.prec-2)}
	for range n {
		v = append(v, r.Uint64()&(f.sign()<<1-1))
		// magnitudes near one, so that sums cancel and round
		near := f.one() + r.Uint64()%(6*min) - 3*min
		v = append(v, near|r.Uint64()&f.sign())
	}
	return v
}

// floatRow returns a function that computes the expected results of floats.cu for one row.
func (f ieee) floatRow(flush bool) func(row []uint64) []uint64 {
	fl := func(v uint64) uint64 {
		if flush {
			return f.flush(v)
		}
		return v
	}
	return func(row []uint64) (out []uint64) {
		ra, rb := row[0], row[1]
		a, b, c := fl(row[0]), fl(row[1]), fl(row[2])
		add := func(v uint64) { out = append(out, fl(v)) }
		each := func(op func(mode string) uint64) {
			for _, m := range modes {
				add(op(m))
			}
		}
		each(func(m string) uint64 { return f.add(a, b, m) })
		each(func(m string) uint64 { return f.add(a, b^f.sign(), m) })
		each(func(m string) uint64 { return f.mul(a, b, m) })
		each(func(m string) uint64 { return f.fma(a, b, c, m) })
		each(func(m string) uint64 { return f.div(a, b, m) })
		each(func(m string) uint64 { return f.sqrt(a, m) })
		each(func(m string) uint64 { return f.div(f.one(), a, m) })
		// the assembler may fuse a mul.f32 with an add.f32 if neither has a rounding modifier; the
		// emulator does not
		if f == binary32 {
			add(f.add(fl(f.mul(a, b, "rn")), c, "rn"))
			add(f.add(a, fl(f.mul(b, c, "rn"))^f.sign(), "rn"))
		} else {
			add(f.fma(a, b, c, "rn"))
		}
		add(f.extreme(a, b, -1))
		add(f.extreme(a, b, 1))
		add(f.abs(ra))
		add(ra ^ f.sign())
		out = append(out, f.abs(ra)|rb&f.sign())
		add(f.div(a, b, "rn"))
		add(f.sqrt(a, "rn"))
		if f == binary32 {
			out = append(out, unchecked) // maths.cu tests fmodf of the library
			add(f.saturate(f.mul(a, b, "rn")))
		}
		o := f.order(a, b)
		yes := func(p bool) { out = append(out, uint64(bit(p))) }
		yes(o == -1)
		yes(o == -1 || o == 0)
		yes(o == 1)
		yes(o == 1 || o == 0)
		yes(o == 0)
		yes(o != 0)
		yes(o != -1)
		yes(o != -1 && o != 0)
		yes(o != 1)
		yes(o != 1 && o != 0)
		yes(o != 2)
		yes(o == -1 || o == 1)
		yes(f.isNaN(a))
		yes(f.isInf(a))
		yes(f.neg(ra))
		pick := func(p bool) {
			if p {
				out = append(out, ra)
			} else {
				out = append(out, rb)
			}
		}
		pick(o == -1)
		pick(f.abs(a) > f.one() && !f.isNaN(a))
		return out
	}
}

// unchecked marks a result that another test compares.
const unchecked = 0xdead_beef_0bad_cafe

func (f ieee) compare(j int, got, want uint64) bool { return want == unchecked || f.equal(got, want) }

func pairsOf(v []uint64, k int) (rows [][]uint64) {
	for i, a := range v {
		for j := range 5 {
			rows = append(rows, []uint64{a, v[(i*3+j*7)%len(v)], v[(i+j*5+1)%len(v)]}[:k])
		}
	}
	for _, a := range v[:15] {
		for _, b := range v[:15] {
			rows = append(rows, []uint64{a, b, v[(len(rows)*11)%15]}[:k])
		}
	}
	return rows
}

func TestForeignFloats(t *testing.T) {
	n := 28
	if testing.Short() {
		n = 8
	}
	for i, sm := range nvidiaTargets {
		m := n >> i
		table(t, "floats."+sm, "f32", 4, pairsOf(binary32.values(m), 3), binary32.compare, binary32.floatRow(false))
		table(t, "floats-ftz."+sm, "f32", 4, pairsOf(binary32.values(m), 3), binary32.compare, binary32.floatRow(true))
		table(t, "floats."+sm, "f64", 8, pairsOf(binary64.values(m/4), 3), binary64.compare, binary64.floatRow(false))
	}
}
