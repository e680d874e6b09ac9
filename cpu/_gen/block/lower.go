package main

import (
	"maps"
	"math"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

type vecs = []reg.VecVirtual
type inst = func(c *build.Context, ops ...operand.Op)

// plain returns the lowering of a kernel that consists of one instruction on a and b.
func plain(i inst) lowering {
	return lowering{f: func(c *ctx, v, _ vecs) reg.VecVirtual {
		o := c.full()
		i(c.Context, v[1], v[0], o)
		return o
	}}
}

// one returns the lowering of a kernel that applies a single instruction to its operand. Each lane
// of the result has size bytes.
func one(size int, i inst) lowering {
	return lowering{f: func(c *ctx, v, _ vecs) reg.VecVirtual {
		o := c.vec(c.lanes * size)
		i(c.Context, v[0], o)
		return o
	}}
}

// withConst returns the lowering of a kernel that applies one bitwise instruction to its operand
// and a constant.
func withConst(op byte, k constant) lowering {
	return lowering{consts: []constant{k}, f: func(c *ctx, v, k vecs) reg.VecVirtual { return c.bitwise(op, v[0], k[0]) }}
}

// bitwise emits the operation op, such as '&' or '|', on two registers of full width.
func (c *ctx) bitwise(op byte, a, b reg.VecVirtual) reg.VecVirtual {
	o := c.full()
	switch {
	case op == '&' && c.wide():
		c.VPANDD(b, a, o)
	case op == '|' && c.wide():
		c.VPORD(b, a, o)
	case op == '^' && c.wide():
		c.VPXORD(b, a, o)
	case op == '&':
		c.VPAND(b, a, o)
	case op == '|':
		c.VPOR(b, a, o)
	case op == '^':
		c.VPXOR(b, a, o)
	}
	return o
}

func bitwise(op byte) lowering {
	return lowering{f: func(c *ctx, v, _ vecs) reg.VecVirtual { return c.bitwise(op, v[0], v[1]) }}
}

// least emits the minimum. x86's instruction returns its second operand for NaN and for two zeros.
// The kernel therefore computes the minimum in both orders of the operands, and combines the two
// results with a bitwise or. The or keeps a -0, because its sign bit is set, and a NaN, because its
// exponent bits are all set.
func least(i inst) lowering {
	return lowering{f: func(c *ctx, v, _ vecs) reg.VecVirtual {
		x, y := c.full(), c.full()
		i(c.Context, v[1], v[0], x)
		i(c.Context, v[0], v[1], y)
		return c.bitwise('|', x, y)
	}}
}

const (
	leOQ  = 0x12 // predicates of VCMPPS and VCMPPD
	ltOQ  = 0x11
	eqOQ  = 0x00
	neUQ  = 0x04
	unord = 0x03
	ord   = 0x07
	geOQ  = 0x1d
)

func f32(x float32) constant { return c32(math.Float32bits(x)) }
func f64(x float64) constant { return c64(math.Float64bits(x)) }

type bc = build.Context

// common returns the lowerings that are the same for both instruction sets.
func common() map[string]lowering {
	m := map[string]lowering{
		"AddF32": plain((*bc).VADDPS), "SubF32": plain((*bc).VSUBPS), "MulF32": plain((*bc).VMULPS), "DivF32": plain((*bc).VDIVPS),
		"AddF64": plain((*bc).VADDPD), "SubF64": plain((*bc).VSUBPD), "MulF64": plain((*bc).VMULPD), "DivF64": plain((*bc).VDIVPD),
		"MinF32": least((*bc).VMINPS), "MinF64": least((*bc).VMINPD),
		"NegF32": withConst('^', c32(1<<31)), "NegF64": withConst('^', c64(1<<63)),
		"AbsF32": withConst('&', c32(1<<31-1)), "AbsF64": withConst('&', c64(1<<63-1)),
		"SqrtF32": one(4, (*bc).VSQRTPS), "SqrtF64": one(8, (*bc).VSQRTPD),
		"AddU32": plain((*bc).VPADDD), "SubU32": plain((*bc).VPSUBD), "MulU32": plain((*bc).VPMULLD),
		"AddU64": plain((*bc).VPADDQ), "SubU64": plain((*bc).VPSUBQ),
		"NotU32": withConst('^', c32(0xffffffff)), "NotU64": withConst('^', c32(0xffffffff)),
		"ShlU32": plain((*bc).VPSLLVD), "ShrU32": plain((*bc).VPSRLVD), "ShrI32": plain((*bc).VPSRAVD),
		"ShlU64": plain((*bc).VPSLLVQ), "ShrU64": plain((*bc).VPSRLVQ),
		"MinI32": plain((*bc).VPMINSD), "MaxI32": plain((*bc).VPMAXSD), "MinU32": plain((*bc).VPMINUD), "MaxU32": plain((*bc).VPMAXUD),
		"AbsI32":      one(4, (*bc).VPABSD),
		"CvtF32ToF64": one(8, (*bc).VCVTPS2PD), "CvtI32ToF32": one(4, (*bc).VCVTDQ2PS), "CvtI32ToF64": one(8, (*bc).VCVTDQ2PD),
		"CvtI32ToI64": one(8, (*bc).VPMOVSXDQ), "CvtU32ToU64": one(8, (*bc).VPMOVZXDQ),
		"CvtU8ToU32": one(4, (*bc).VPMOVZXBD), "CvtI8ToI32": one(4, (*bc).VPMOVSXBD), "CvtI16ToI32": one(4, (*bc).VPMOVSXWD),
		"CvtF16ToF32": one(4, (*bc).VCVTPH2PS),
		"FMAF32": {f: func(c *ctx, v, _ vecs) reg.VecVirtual {
			c.VFMADD231PS(v[1], v[0], v[2])
			return v[2]
		}},
		"FMAF64": {f: func(c *ctx, v, _ vecs) reg.VecVirtual {
			c.VFMADD231PD(v[1], v[0], v[2])
			return v[2]
		}},
		"NegU32": {consts: []constant{c32(0)}, f: func(c *ctx, v, k vecs) reg.VecVirtual {
			c.VPSUBD(v[0], k[0], v[0])
			return v[0]
		}},
		"NegU64": {consts: []constant{c64(0)}, f: func(c *ctx, v, k vecs) reg.VecVirtual {
			c.VPSUBQ(v[0], k[0], v[0])
			return v[0]
		}},
		// Compute the 64-bit products of the even lanes, and then those of the odd lanes.
		// Interleave the upper halves of the products.
		"MulHiU32": {consts: []constant{c64(0xffffffff << 32)}, f: func(c *ctx, v, k vecs) reg.VecVirtual {
			even := c.full()
			c.VPMULUDQ(v[1], v[0], even)
			c.VPSRLQ(operand.U8(32), v[0], v[0])
			c.VPSRLQ(operand.U8(32), v[1], v[1])
			c.VPMULUDQ(v[1], v[0], v[0])
			c.VPSRLQ(operand.U8(32), even, even)
			return c.bitwise('|', c.bitwise('&', v[0], k[0]), even)
		}},
		"CvtU8ToF32": {f: func(c *ctx, v, _ vecs) reg.VecVirtual {
			o := c.full()
			c.VPMOVZXBD(v[0], o)
			c.VCVTDQ2PS(o, o)
			return o
		}},
		"CvtBF16ToF32": {f: func(c *ctx, v, _ vecs) reg.VecVirtual {
			o := c.full()
			c.VPMOVZXWD(v[0], o)
			c.VPSLLD(operand.U8(16), o, o)
			return o
		}},
	}
	for _, w := range []string{"32", "64"} {
		m["AndU"+w], m["OrU"+w], m["XorU"+w] = bitwise('&'), bitwise('|'), bitwise('^')
	}
	return m
}

func join(ms ...map[string]lowering) map[string]lowering {
	all := map[string]lowering{}
	for _, m := range ms {
		maps.Copy(all, m)
	}
	return all
}
