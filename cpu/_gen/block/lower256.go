package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

var avx2 = &isa{"AVX2", 32, join(common(), lower256())}

func greatest256(maxi inst, cmp func(c *bc, p, b, a, o operand.Op)) lowering {
	return lowering{f: func(c *ctx, v, _ vecs) reg.VecVirtual {
		x, y, nan := c.YMM(), c.YMM(), c.YMM()
		maxi(c.Context, v[1], v[0], x)
		maxi(c.Context, v[0], v[1], y)
		cmp(c.Context, operand.U8(unord), v[1], v[0], nan)
		return c.bitwise('|', c.bitwise('&', x, y), nan) // a lane with all bits set is a NaN
	}}
}

func round256(mode uint64, i func(c *bc, p, a, o operand.Op)) lowering {
	return lowering{f: func(c *ctx, v, _ vecs) reg.VecVirtual {
		o := c.YMM()
		i(c.Context, operand.U8(mode|8), v[0], o)
		return o
	}}
}

// truth converts a vector of truth values to numbers. Lanes of all ones become 1, and lanes of all
// zeros become 0. If invert is true, lanes of all ones become 0, and lanes of all zeros become 1.
// If the lanes of m have 64 bits, the result is a register of four 32-bit lanes.
func (c *ctx) truth(m reg.VecVirtual, invert bool, one reg.VecVirtual) reg.VecVirtual {
	o := m
	if c.lanes == 4 {
		o = c.narrow(m)
	}
	if invert {
		if c.lanes == 4 {
			one = one.AsX().(reg.VecVirtual)
		}
		c.VPADDD(one, o, o)
	} else {
		c.VPSRLD(operand.U8(31), o, o)
	}
	return o
}

// narrow returns the lower halves of the four 64-bit lanes of v.
func (c *ctx) narrow(v reg.VecVirtual) reg.VecVirtual {
	o := c.XMM()
	c.VEXTRACTI128(operand.U8(1), v, o)
	c.VSHUFPS(operand.U8(0x88), o, v.AsX(), o)
	return o
}

// compareF returns the lowering of a float comparison.
func compareF(predicate uint64, cmp func(c *bc, p, b, a, o operand.Op)) lowering {
	return lowering{f: func(c *ctx, v, _ vecs) reg.VecVirtual {
		o := c.YMM()
		cmp(c.Context, operand.U8(predicate), v[1], v[0], o)
		return c.truth(o, false, nil)
	}}
}

// compareI returns the lowering of an integer comparison. It uses the instruction i(x, y), which
// computes y > x or x == y. If swapped is true, the operands are exchanged. If invert is true, the
// result is inverted. If flip is not zero, it is the sign bit. The kernel then compares unsigned
// integers: it inverts the sign bits of both operands and compares them as signed integers.
func compareI(i inst, swapped, invert bool, flip constant) lowering {
	ks := []constant{c32(1)}
	if flip.width != 0 {
		ks = append(ks, flip)
	}
	return lowering{consts: ks, f: func(c *ctx, v, k vecs) reg.VecVirtual {
		a, b := v[0], v[1]
		if flip.width != 0 {
			a, b = c.bitwise('^', a, k[1]), c.bitwise('^', b, k[1])
		}
		if swapped {
			a, b = b, a
		}
		o := c.YMM()
		i(c.Context, a, b, o)
		return c.truth(o, invert, k[0])
	}}
}

// pack returns the lower 16 bits of eight 32-bit lanes. The values must fit into 16 bits.
func (c *ctx) pack(v reg.VecVirtual) reg.VecVirtual {
	o := c.XMM()
	c.VEXTRACTI128(operand.U8(1), v, o)
	c.VPACKUSDW(o, v.AsX(), o)
	return o
}

func lower256() map[string]lowering {
	m := map[string]lowering{
		"MaxF32": greatest256((*bc).VMAXPS, func(c *bc, p, b, a, o operand.Op) { c.VCMPPS(p, b, a, o) }),
		"MaxF64": greatest256((*bc).VMAXPD, func(c *bc, p, b, a, o operand.Op) { c.VCMPPD(p, b, a, o) }),
		"EqU32":  compareI((*bc).VPCMPEQD, false, false, constant{}),
		"NeU32":  compareI((*bc).VPCMPEQD, false, true, constant{}),
		"LtI32":  compareI((*bc).VPCMPGTD, false, false, constant{}),
		"LeI32":  compareI((*bc).VPCMPGTD, true, true, constant{}),
		"LtU32":  compareI((*bc).VPCMPGTD, false, false, c32(1<<31)),
		"LeU32":  compareI((*bc).VPCMPGTD, true, true, c32(1<<31)),
		"EqU64":  compareI((*bc).VPCMPEQQ, false, false, constant{}),
		"NeU64":  compareI((*bc).VPCMPEQQ, false, true, constant{}),
		"LtI64":  compareI((*bc).VPCMPGTQ, false, false, constant{}),
		"LeI64":  compareI((*bc).VPCMPGTQ, true, true, constant{}),
		"LtU64":  compareI((*bc).VPCMPGTQ, false, false, c64(1<<63)),
		"LeU64":  compareI((*bc).VPCMPGTQ, true, true, c64(1<<63)),
		"SelectU32": {consts: []constant{c32(0)}, f: func(c *ctx, v, k vecs) reg.VecVirtual {
			c.VPCMPEQD(k[0], v[0], v[0])
			c.VBLENDVPS(v[0], v[2], v[1], v[1])
			return v[1]
		}},
		"SelectU64": {consts: []constant{c64(0)}, f: func(c *ctx, v, k vecs) reg.VecVirtual {
			m := c.YMM()
			c.VPMOVZXDQ(v[0], m)
			c.VPCMPEQQ(k[0], m, m)
			c.VBLENDVPD(m, v[2], v[1], v[1])
			return v[1]
		}},
		"CvtF64ToF32": one(4, func(c *bc, ops ...operand.Op) { c.VCVTPD2PSY(ops[0], ops[1]) }),
		// Convert the two 16-bit halves exactly, and subtract the bias from the upper half exactly.
		// Only the final addition rounds.
		"CvtU32ToF32": {consts: []constant{c32(0xffff), f32(1 << 23), f32(1 << 39), f32(1<<39 + 1<<23)}, f: func(c *ctx, v, k vecs) reg.VecVirtual {
			lo, hi := c.bitwise('|', c.bitwise('&', v[0], k[0]), k[1]), c.YMM()
			c.VPSRLD(operand.U8(16), v[0], hi)
			hi = c.bitwise('|', hi, k[2])
			c.VSUBPS(k[3], hi, hi)
			c.VADDPS(lo, hi, hi)
			return hi
		}},
		// The instruction returns the least integer for a number that it cannot convert. The
		// complement of the least integer is the greatest integer.
		"CvtF32ToI32": {consts: []constant{f32(1 << 31)}, f: func(c *ctx, v, k vecs) reg.VecVirtual {
			over, num, o := c.YMM(), c.YMM(), c.YMM()
			c.VCMPPS(operand.U8(geOQ), k[0], v[0], over)
			c.VCMPPS(operand.U8(ord), v[0], v[0], num)
			c.VCVTTPS2DQ(v[0], o)
			return c.bitwise('&', c.bitwise('^', o, over), num)
		}},
		"CvtF64ToI32": {consts: []constant{f64(math.MaxInt32)}, f: func(c *ctx, v, k vecs) reg.VecVirtual {
			num, o := c.YMM(), c.XMM()
			c.VCMPPD(operand.U8(ord), v[0], v[0], num)
			x := c.bitwise('&', v[0], num)
			c.VMINPD(k[0], x, x)
			c.VCVTTPD2DQY(x, o)
			return o
		}},
		"CvtU64ToU32": {f: func(c *ctx, v, _ vecs) reg.VecVirtual { return c.narrow(v[0]) }},
		"CvtU32ToU8": {consts: []constant{c32(0xff)}, f: func(c *ctx, v, k vecs) reg.VecVirtual {
			o := c.pack(c.bitwise('&', v[0], k[0]))
			c.VPACKUSWB(o, o, o)
			return o
		}},
		"CvtU32ToU16": {consts: []constant{c32(0xffff)}, f: func(c *ctx, v, k vecs) reg.VecVirtual {
			return c.pack(c.bitwise('&', v[0], k[0]))
		}},
		"CvtF32ToF16": {f: func(c *ctx, v, _ vecs) reg.VecVirtual {
			o := c.XMM()
			c.VCVTPS2PH(operand.U8(0), v[0], o)
			return o
		}},
		"CvtF32ToBF16": {consts: []constant{c32(0x7fff), c32(1), c32(0x40)}, f: func(c *ctx, v, k vecs) reg.VecVirtual {
			nan, top := c.YMM(), c.YMM()
			c.VCMPPS(operand.U8(unord), v[0], v[0], nan)
			c.VPSRLD(operand.U8(16), v[0], top)
			r := c.bitwise('&', top, k[1])
			c.VPADDD(v[0], r, r)
			c.VPADDD(k[0], r, r)
			c.VPSRLD(operand.U8(16), r, r)
			q := c.bitwise('|', top, k[2])
			c.VBLENDVPS(nan, q, r, r)
			return c.pack(r)
		}},
	}
	for i, n := range []string{"RoundEven", "Floor", "Ceil", "Trunc"} {
		m[n+"F32"] = round256(uint64(i), (*bc).VROUNDPS)
		m[n+"F64"] = round256(uint64(i), (*bc).VROUNDPD)
	}
	for n, p := range map[string]uint64{"Eq": eqOQ, "Lt": ltOQ, "Le": leOQ, "Ne": neUQ} {
		m[n+"F32"] = compareF(p, func(c *bc, p, b, a, o operand.Op) { c.VCMPPS(p, b, a, o) })
		m[n+"F64"] = compareF(p, func(c *bc, p, b, a, o operand.Op) { c.VCMPPD(p, b, a, o) })
	}
	return m
}
