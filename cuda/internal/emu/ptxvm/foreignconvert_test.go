package ptxvm

import (
	"math/big"
	"testing"
)

// The expected results of convert.cu and halves.cu. The exact arithmetic is in
// foreignfloats_test.go.

// integral rounds a finite number to an integer.
func integral(r *big.Rat, mode string) *big.Int {
	q, rest := new(big.Int), new(big.Int)
	// DivMod rounds down, so that rest ≥ 0.
	q.DivMod(r.Num(), r.Denom(), rest)
	half := rest.Lsh(rest, 1).Cmp(r.Denom())
	up := false
	switch mode {
	case "rn":
		up = half > 0 || half == 0 && q.Bit(0) == 1
	case "rz":
		up = rest.Sign() != 0 && r.Sign() < 0
	case "rp":
		up = rest.Sign() != 0
	}
	if up {
		q.Add(q, big.NewInt(1))
	}
	return q
}

// toInteger converts to an integer of n bits, with saturation. If neither the source nor the
// destination has 64 bits, a NaN becomes 0. Otherwise a NaN becomes an integer with only the
// highest bit set (PTX ISA, cvt).
func (f ieee) toInteger(v uint64, n uint, signed bool, mode string) uint64 {
	mask := ^uint64(0) >> (64 - n)
	lo, hi := new(big.Int), new(big.Int).SetUint64(mask)
	if signed {
		hi.SetUint64(mask >> 1)
		lo.Neg(hi).Sub(lo, big.NewInt(1))
	}
	if f.isNaN(v) {
		if n == 64 || f == binary64 {
			return 1 << (n - 1)
		}
		return 0
	}
	var x *big.Int
	if f.isInf(v) {
		if x = new(big.Int).Lsh(big.NewInt(1), 80); f.neg(v) {
			x.Neg(x)
		}
	} else {
		x = integral(f.rat(v), mode)
	}
	if x.Cmp(lo) < 0 {
		x = lo
	}
	if x.Cmp(hi) > 0 {
		x = hi
	}
	return new(big.Int).And(x, new(big.Int).SetUint64(mask)).Uint64()
}

func (f ieee) convert(g ieee, v uint64, mode string) uint64 {
	s := uint64(0)
	if f.neg(v) {
		s = g.sign()
	}
	switch {
	case f.isNaN(v):
		return g.nan()
	case f.isInf(v):
		return s | g.inf()
	case f.abs(v) == 0:
		return s
	}
	return g.bits(f.rat(v), mode)
}

// integer rounds v to an integral value of the format.
func (f ieee) integer(v uint64, mode string) uint64 {
	if f.isNaN(v) {
		return f.nan()
	}
	if f.isInf(v) {
		return v
	}
	q := integral(f.rat(v), mode)
	if q.Sign() == 0 {
		return v & f.sign()
	}
	return f.bits(new(big.Rat).SetInt(q), "rz")
}

func (g ieee) fromInteger(x *big.Int, mode string) uint64 {
	if x.Sign() == 0 {
		return 0
	}
	return g.bits(new(big.Rat).SetInt(x), mode)
}

var half = big.NewRat(1, 2)

// away rounds v to an integral value, with halves away from zero.
func (f ieee) away(v uint64) uint64 {
	if f.isNaN(v) {
		return f.nan()
	}
	if f.isInf(v) || f.abs(v) == 0 {
		return v
	}
	r := f.rat(v)
	n := new(big.Rat).Add(new(big.Rat).Abs(r), half)
	q := integral(n, "rz")
	if q.Sign() == 0 {
		return v & f.sign()
	}
	return f.bits(new(big.Rat).SetInt(q), "rz") | v&f.sign()
}

func fromF32Row(row []uint64) (out []uint64) {
	f, v := binary32, row[0]
	for _, n := range []uint{32, 64} {
		for _, signed := range []bool{true, false} {
			for _, m := range []string{"rn", "rz", "rm", "rp"} {
				out = append(out, f.toInteger(v, n, signed, m))
			}
		}
	}
	out = append(out, f.convert(binary64, v, "rn"))
	for _, g := range []ieee{binary16, bfloat16} {
		for _, m := range []string{"rn", "rz", "rm", "rp"} {
			out = append(out, f.convert(g, v, m))
		}
	}
	for _, m := range []string{"rn", "rz", "rm", "rp"} {
		out = append(out, f.integer(v, m))
	}
	return append(out, f.saturate(v), f.away(v), f.toInteger(v, 64, true, "rn"))
}

func fromF64Row(row []uint64) (out []uint64) {
	f, v := binary64, row[0]
	for _, n := range []uint{32, 64} {
		for _, signed := range []bool{true, false} {
			for _, m := range []string{"rn", "rz", "rm", "rp"} {
				out = append(out, f.toInteger(v, n, signed, m))
			}
		}
	}
	for _, m := range []string{"rn", "rz", "rm", "rp"} {
		out = append(out, f.convert(binary32, v, m))
	}
	for _, m := range []string{"rn", "rz", "rm", "rp"} {
		out = append(out, f.integer(v, m))
	}
	return append(out, f.convert(binary16, v, "rn"), f.convert(bfloat16, v, "rn"), f.away(v))
}

func from16Row(f ieee) func(row []uint64) []uint64 {
	return func(row []uint64) (out []uint64) {
		v := row[0]
		out = append(out, f.convert(binary32, v, "rn"))
		if f == binary16 {
			out = append(out, f.convert(binary64, v, "rn"))
		}
		for _, n := range []uint{16, 32, 64} {
			for _, signed := range []bool{true, false} {
				for _, m := range []string{"rn", "rz", "rm", "rp"} {
					out = append(out, f.toInteger(v, n, signed, m))
				}
			}
		}
		if f == binary16 {
			for _, m := range []string{"rn", "rz", "rm", "rp"} {
				out = append(out, f.integer(v, m))
			}
		}
		return out
	}
}

func fromIntegerRow(n uint, signed bool) func(row []uint64) []uint64 {
	return func(row []uint64) (out []uint64) {
		x := new(big.Int).SetUint64(row[0] & (^uint64(0) >> (64 - n)))
		if signed {
			x.SetInt64(signExtend(row[0], int(n)))
		}
		for _, g := range []ieee{binary32, binary16, bfloat16} {
			for _, m := range []string{"rn", "rz", "rm", "rp"} {
				out = append(out, g.fromInteger(x, m))
			}
		}
		two := new(big.Int).And(x, new(big.Int).SetUint64(^uint64(0))).Uint64()
		for _, w := range []uint{8, 8, 16, 16, 32, 32, 64, 64} {
			out = append(out, two&(^uint64(0)>>(64-w)))
		}
		return out
	}
}

func wideIntsRow(row []uint64) (out []uint64) {
	v := row[0]
	s, u := big.NewInt(int64(v)), new(big.Int).SetUint64(v)
	out = append(out, binary64.fromInteger(big.NewInt(int64(int32(v))), "rn"), binary64.fromInteger(big.NewInt(int64(uint32(v))), "rn"))
	for _, x := range []*big.Int{s, u} {
		for _, m := range []string{"rn", "rz", "rm", "rp"} {
			out = append(out, binary64.fromInteger(x, m))
		}
	}
	for _, x := range []int64{int64(int8(v)), int64(uint8(v)), int64(int16(v)), int64(uint16(v))} {
		out = append(out, binary32.fromInteger(big.NewInt(x), "rn"))
	}
	out = append(out, binary64.fromInteger(big.NewInt(int64(int16(v))), "rn"), uint64(int64(int8(v))), uint64(uint32(int32(int8(v>>8)))))
	clamp := func(x int64, lo, hi int64) uint64 { return uint64(uint32(max(lo, min(hi, x)))) }
	x, y := int64(v), int64(int32(v))
	z := int64(int32(int64(v) >> 20))
	out = append(out, clamp(x, -128, 127), clamp(x, 0, 255), clamp(y, -32768, 32767), clamp(y, 0, 65535), clamp(x, -1<<31, 1<<31-1), clamp(x, 0, 1<<32-1), clamp(int64(uint32(v)), -1<<31, 1<<31-1))
	return append(out, clamp(y, 0, 255)<<8|clamp(z, 0, 255), clamp(y, -32768, 32767)<<16&0xffffffff|clamp(z, -32768, 32767)&0xffff)
}

func columns(v []uint64) (rows [][]uint64) {
	for _, x := range v {
		rows = append(rows, []uint64{x})
	}
	return rows
}

func TestForeignConversions(t *testing.T) {
	n := 50
	if testing.Short() {
		n = 15
	}
	integersTo64 := append(corners(64), 1<<24+1, 1<<53+1, 1<<53+3, 1<<63+1<<10, 1<<63+1<<11+1, ^uint64(1<<53+1), 65504, 65519, 65520, ^uint64(65520), 1<<32-1<<7)
	for _, f := range rowsOf(corners(64), 64, 1)[256:] {
		integersTo64 = append(integersTo64, f[0])
	}
	threesAndFives := func(f ieee) (v []uint64) { // powers of two, 3·2ᵉ, 5·2ᵉ, their neighbours, and more
		for e := -3; e < 66; e++ {
			for _, k := range []int64{2, 3, 5} {
				r := new(big.Rat).SetFrac(new(big.Int).Lsh(big.NewInt(k), uint(e+3)), big.NewInt(16))
				b := f.bits(r, "rn")
				v = append(v, b, b|f.sign(), b+1, (b-1)|f.sign())
			}
		}
		return append(v, f.values(n)...)
	}
	for _, sm := range nvidiaTargets {
		m := "convert." + sm
		// Where the compiler may choose among instructions, all NaNs count as equal.
		any := func(g ...ieee) func(j int, got, want uint64) bool {
			return func(j int, got, want uint64) bool {
				if got == want {
					return true
				}
				for _, f := range g {
					if want == f.nan() && f.isNaN(got) && got>>f.width() == 0 {
						return true
					}
				}
				return false
			}
		}
		table(t, m, "from_f32", 4, columns(threesAndFives(binary32)), any(binary64, binary32, bfloat16, binary16), fromF32Row)
		table(t, m, "from_f64", 8, columns(threesAndFives(binary64)), any(binary64, binary32, bfloat16, binary16), fromF64Row)
		table(t, m, "from_f16", 2, columns(threesAndFives(binary16)), any(binary64, binary32, binary16), from16Row(binary16))
		table(t, m, "from_bf16", 2, columns(threesAndFives(bfloat16)), any(binary32), from16Row(bfloat16))
		table(t, m, "from_s32", 4, columns(integersTo64), equal, fromIntegerRow(32, true))
		table(t, m, "from_u32", 4, columns(integersTo64), equal, fromIntegerRow(32, false))
		table(t, m, "from_s64", 8, columns(integersTo64), equal, fromIntegerRow(64, true))
		table(t, m, "from_u64", 8, columns(integersTo64), equal, fromIntegerRow(64, false))
		table(t, m, "wide_ints", 8, columns(integersTo64), equal, wideIntsRow)
	}
}

// halfRow returns the expected results of halves.cu for one row.
func (f ieee) halfRow(row []uint64) (out []uint64) {
	var lo, hi [3]uint64
	for i, v := range row {
		lo[i], hi[i] = v&0xffff, v>>16&0xffff
	}
	relu := func(v uint64) uint64 {
		if f.isNaN(v) || !f.neg(v) {
			return v
		}
		return 0
	}
	nan := func(a, b uint64, want int) uint64 {
		if f.isNaN(a) || f.isNaN(b) {
			return f.nan()
		}
		return f.extreme(a, b, want)
	}
	yes := func(p bool) { out = append(out, uint64(bit(p))) }
	a, b, c := lo[0], lo[1], lo[2]
	minus := f.sign()
	out = append(out, f.add(a, b, "rn"), f.add(a, b^minus, "rn"), f.mul(a, b, "rn"), f.fma(a, b, c, "rn"), relu(f.fma(a, b, c, "rn")),
		f.saturate(f.add(a, b, "rn")), f.saturate(f.mul(a, b, "rn")), unchecked, a^minus, f.abs(a),
		f.extreme(a, b, -1), f.extreme(a, b, 1), nan(a, b, -1), nan(a, b, 1))
	o := f.order(a, b)
	for _, p := range []bool{o == 0, o == 1 || o == -1, o == -1, o == -1 || o == 0, o == 1, o == 1 || o == 0, o == 0 || o == 2, o != 0, o == -1 || o == 2, o != 1, o == 1 || o == 2, o != -1} {
		yes(p)
	}
	yes(f.isNaN(a))
	out = append(out, unchecked, unchecked) // hsqrt and hrcp are approximations
	two := func(op func(a, b, c uint64) uint64) {
		out = append(out, op(lo[0], lo[1], lo[2])|op(hi[0], hi[1], hi[2])<<16)
	}
	two(func(a, b, _ uint64) uint64 { return f.add(a, b, "rn") })
	two(func(a, b, _ uint64) uint64 { return f.add(a, b^minus, "rn") })
	two(func(a, b, _ uint64) uint64 { return f.mul(a, b, "rn") })
	two(func(a, b, c uint64) uint64 { return f.fma(a, b, c, "rn") })
	two(func(a, b, c uint64) uint64 { return relu(f.fma(a, b, c, "rn")) })
	two(func(a, _, _ uint64) uint64 { return a ^ minus })
	two(func(a, _, _ uint64) uint64 { return f.abs(a) })
	two(func(a, b, _ uint64) uint64 { return f.extreme(a, b, -1) })
	two(func(a, b, _ uint64) uint64 { return nan(a, b, 1) })
	truth := func(v uint64, p func(o int) bool) {
		two(func(a, b, _ uint64) uint64 {
			if p(f.order(a, b)) {
				return v
			}
			return 0
		})
	}
	truth(f.one(), func(o int) bool { return o == 0 })
	truth(f.one(), func(o int) bool { return o == -1 || o == 2 })
	truth(f.one(), func(o int) bool { return o == 1 || o == 0 })
	truth(0xffff, func(o int) bool { return o == 1 })
	truth(0xffff, func(o int) bool { return o != 0 })
	p, q := f.order(lo[0], lo[1]), f.order(hi[0], hi[1])
	yes((p == -1 || p == 0) && (q == -1 || q == 0))
	yes(p != 0 && q != 0)
	return append(out, hi[0]|lo[0]<<16)
}

func TestForeignHalves(t *testing.T) {
	n := 36
	if testing.Short() {
		n = 10
	}
	for _, sm := range nvidiaTargets[1:] {
		for _, f := range []ieee{binary16, bfloat16} {
			v := f.values(n)
			var rows [][]uint64
			for i, r := range pairsOf(v, 3) {
				rows = append(rows, []uint64{r[0] | v[i*7%len(v)]<<16, r[1] | v[i*3%len(v)]<<16, r[2] | v[i%len(v)]<<16})
			}
			same := func(j int, got, want uint64) bool {
				if got == want || want == unchecked {
					return true
				}
				// The payloads of NaNs may differ in both halves. For compute capabilities below
				// 9.0, the compiler builds some of these operations from float32 or fma.
				for k := range 2 {
					g, w := got>>(16*k)&0xffff, want>>(16*k)&0xffff
					if g != w && !(f.isNaN(g) && f.isNaN(w)) {
						return false
					}
				}
				return got>>32 == want>>32
			}
			table(t, "halves."+sm, f.name, 4, rows, same, f.halfRow)
		}
	}
}
