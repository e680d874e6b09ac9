package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

var avx512 = &isa{"AVX512", 64, join(common(), lower512())}

// compare512 emits a comparison. It compares into a mask register, and then sets each lane to 1 or
// 0.
func compare512(predicate uint64, i inst) lowering {
	return lowering{consts: []constant{c32(1)}, f: func(c *ctx, v, k vecs) reg.VecVirtual {
		m := c.K()
		i(c.Context, operand.U8(predicate), v[1], v[0], m)
		if c.lanes == 8 {
			o := c.YMM()
			c.VMOVDQA32_Z(k[0].AsY(), m, o)
			return o
		}
		o := c.ZMM()
		c.VMOVDQA32_Z(k[0], m, o)
		return o
	}}
}

// greatest512 emits the maximum. x86's instruction loses NaN and the sign of zero. The kernel
// therefore computes the maximum in both orders of the operands, and combines the two results with
// a bitwise and. In lanes with a NaN, the sum of the operands replaces the result.
func greatest512(maxi, add, cmp inst) lowering {
	return lowering{f: func(c *ctx, v, _ vecs) reg.VecVirtual {
		x, y, m := c.full(), c.full(), c.K()
		maxi(c.Context, v[1], v[0], x)
		maxi(c.Context, v[0], v[1], y)
		cmp(c.Context, operand.U8(unord), v[1], v[0], m)
		o := c.bitwise('&', x, y)
		add(c.Context, v[1], v[0], m, o)
		return o
	}}
}

func round512(mode uint64, i inst) lowering {
	return lowering{f: func(c *ctx, v, _ vecs) reg.VecVirtual {
		o := c.full()
		i(c.Context, operand.U8(mode|8), v[0], o)
		return o
	}}
}

// toSigned converts floats to integers towards zero. If the instruction cannot convert a value, it
// returns the least integer. The kernel then corrects the results of values that are too large, and
// of NaN. Its constants are the limit and the greatest integer.
func toSigned(size int, cvt, cmp inst, limit, greatest constant) lowering {
	return lowering{consts: []constant{limit, greatest}, f: func(c *ctx, v, k vecs) reg.VecVirtual {
		o, over, num := c.vec(c.lanes*size), c.K(), c.K()
		lim, top := k[0], k[1]
		if v[0].Size() == 32 {
			lim = c.asY(lim)
		}
		if o.Size() == 32 {
			top = c.asY(top)
		}
		cmp(c.Context, operand.U8(geOQ), lim, v[0], over)
		cmp(c.Context, operand.U8(ord), v[0], v[0], num)
		cvt(c.Context, v[0], o)
		if size == 4 {
			c.VMOVDQA32(top, over, o)
			c.VMOVDQA32_Z(o, num, o)
		} else {
			c.VMOVDQA64(top, over, o)
			c.VMOVDQA64_Z(o, num, o)
		}
		return o
	}}
}

// asY returns the lower half of a register.
func (c *ctx) asY(v reg.VecVirtual) reg.VecVirtual { return v.AsY().(reg.VecVirtual) }

// toUnsigned converts floats to unsigned integers towards zero. The kernel first takes the maximum
// of each value and 0. This replaces negative values by 0, and also NaN, because the instruction
// returns its second operand for NaN. Then another instruction converts the values. For values that
// are too large, it returns the greatest integer.
func toUnsigned(size int, maxi, cvt inst) lowering {
	return lowering{consts: []constant{c64(0)}, f: func(c *ctx, v, k vecs) reg.VecVirtual {
		maxi(c.Context, k[0], v[0], v[0])
		o := c.vec(c.lanes * size)
		cvt(c.Context, v[0], o)
		return o
	}}
}

func lower512() map[string]lowering {
	m := map[string]lowering{
		"MaxF32": greatest512((*bc).VMAXPS, (*bc).VADDPS, (*bc).VCMPPS),
		"MaxF64": greatest512((*bc).VMAXPD, (*bc).VADDPD, (*bc).VCMPPD),
		"MulU64": plain((*bc).VPMULLQ), "ShrI64": plain((*bc).VPSRAVQ), "AbsI64": one(8, (*bc).VPABSQ),
		"MinI64": plain((*bc).VPMINSQ), "MaxI64": plain((*bc).VPMAXSQ), "MinU64": plain((*bc).VPMINUQ), "MaxU64": plain((*bc).VPMAXUQ),
		"SelectU32": {f: func(c *ctx, v, _ vecs) reg.VecVirtual {
			m := c.K()
			c.VPTESTMD(v[0], v[0], m)
			c.VMOVDQA32(v[1], m, v[2])
			return v[2]
		}},
		"SelectU64": {f: func(c *ctx, v, _ vecs) reg.VecVirtual {
			m := c.K()
			c.VPTESTMD(v[0], v[0], m)
			c.VMOVDQA64(v[1], m, v[2])
			return v[2]
		}},
		"CvtF64ToF32": one(4, (*bc).VCVTPD2PS), "CvtU32ToF32": one(4, (*bc).VCVTUDQ2PS),
		"CvtI64ToF32": one(4, (*bc).VCVTQQ2PS), "CvtU64ToF32": one(4, (*bc).VCVTUQQ2PS),
		"CvtU32ToF64": one(8, (*bc).VCVTUDQ2PD), "CvtI64ToF64": one(8, (*bc).VCVTQQ2PD), "CvtU64ToF64": one(8, (*bc).VCVTUQQ2PD),
		"CvtF32ToI32": toSigned(4, (*bc).VCVTTPS2DQ, (*bc).VCMPPS, f32(1<<31), c32(math.MaxInt32)),
		"CvtF32ToI64": toSigned(8, (*bc).VCVTTPS2QQ, (*bc).VCMPPS, f32(1<<63), c64(math.MaxInt64)),
		"CvtF64ToI32": toSigned(4, (*bc).VCVTTPD2DQ, (*bc).VCMPPD, f64(1<<31), c32(math.MaxInt32)),
		"CvtF64ToI64": toSigned(8, (*bc).VCVTTPD2QQ, (*bc).VCMPPD, f64(1<<63), c64(math.MaxInt64)),
		"CvtF32ToU32": toUnsigned(4, (*bc).VMAXPS, (*bc).VCVTTPS2UDQ),
		"CvtF64ToU32": toUnsigned(4, (*bc).VMAXPD, (*bc).VCVTTPD2UDQ),
		"CvtF64ToU64": toUnsigned(8, (*bc).VMAXPD, (*bc).VCVTTPD2UQQ),
		"CvtU64ToU32": one(4, (*bc).VPMOVQD), "CvtU32ToU8": one(1, (*bc).VPMOVDB), "CvtU32ToU16": one(2, (*bc).VPMOVDW),
		"CvtF32ToF16": {f: func(c *ctx, v, _ vecs) reg.VecVirtual {
			o := c.YMM()
			c.VCVTPS2PH(operand.U8(0), v[0], o)
			return o
		}},
		// Round to nearest even: add 0x7fff, plus the lowest bit of the upper half. A NaN becomes a
		// quiet NaN.
		"CvtF32ToBF16": {consts: []constant{c32(0x7fff), c32(1), c32(0x40)}, f: func(c *ctx, v, k vecs) reg.VecVirtual {
			nan, r, top, o := c.K(), c.ZMM(), c.ZMM(), c.YMM()
			c.VCMPPS(operand.U8(unord), v[0], v[0], nan)
			c.VPSRLD(operand.U8(16), v[0], top)
			c.VPANDD(k[1], top, r)
			c.VPADDD(v[0], r, r)
			c.VPADDD(k[0], r, r)
			c.VPSRLD(operand.U8(16), r, r)
			c.VPORD(k[2], top, nan, r)
			c.VPMOVDW(r, o)
			return o
		}},
	}
	// the index of a name is the number of its rounding mode
	for i, n := range []string{"RoundEven", "Floor", "Ceil", "Trunc"} {
		m[n+"F32"] = round512(uint64(i), (*bc).VRNDSCALEPS)
		m[n+"F64"] = round512(uint64(i), (*bc).VRNDSCALEPD)
	}
	for n, p := range map[string][2]uint64{"Eq": {0, eqOQ}, "Lt": {1, ltOQ}, "Le": {2, leOQ}, "Ne": {4, neUQ}} {
		m[n+"F32"], m[n+"F64"] = compare512(p[1], (*bc).VCMPPS), compare512(p[1], (*bc).VCMPPD)
		m[n+"U32"], m[n+"U64"] = compare512(p[0], (*bc).VPCMPUD), compare512(p[0], (*bc).VPCMPUQ)
		if n == "Lt" || n == "Le" {
			m[n+"I32"], m[n+"I64"] = compare512(p[0], (*bc).VPCMPD), compare512(p[0], (*bc).VPCMPQ)
		}
	}
	return m
}
