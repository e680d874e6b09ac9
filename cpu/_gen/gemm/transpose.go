package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// transposeF32 emits the packing of 16 rows that are contiguous along k: 128-bit pieces of rows j, 4+j, 8+j, 12+j are
// gathered into one register by insertions, which do not use the shuffle port, and then 4x4 blocks are transposed within
// the 128-bit lanes.
func transposeF32(b *build.Context) {
	b.Function("transpose16F32AVX512")
	b.Attributes(build.NOSPLIT)
	b.Doc("transpose16F32AVX512 computes dst[p*ldd+r] = src[rows[r]+p] for r < 16 and p < k, where k is a multiple of 4.")
	b.Pragma("noescape")
	b.SignatureExpr("func(dst *float32, ldd int, src *float32, rows *[16]int, k int)")
	dst, ldd, src, rows, k := load(b, "dst"), load(b, "ldd"), load(b, "src"), load(b, "rows"), load(b, "k")
	b.SHLQ(operand.U8(2), ldd)
	ldd3 := b.GP64()
	b.LEAQ(operand.Mem{Base: ldd, Index: ldd, Scale: 2}, ldd3)
	piece := func(chunks int) {
		z := make([][4]reg.VecVirtual, chunks)
		for ch := range z {
			for j := range 4 {
				z[ch][j] = b.ZMM()
			}
		}
		for r := range 16 {
			off := b.GP64()
			b.MOVQ(operand.Mem{Base: rows, Disp: 8 * r}, off)
			for ch := range z {
				v, m := z[ch][r%4], operand.Mem{Base: src, Index: off, Scale: 4, Disp: 16 * ch}
				if r < 4 {
					b.VMOVUPS(m, v.AsX())
				} else {
					b.VINSERTF32X4(operand.U8(r/4), m, v, v)
				}
			}
		}
		for ch := range z {
			v := z[ch]
			lo0, lo1, hi0, hi1 := b.ZMM(), b.ZMM(), b.ZMM(), b.ZMM()
			b.VUNPCKLPS(v[1], v[0], lo0)
			b.VUNPCKLPS(v[3], v[2], lo1)
			b.VUNPCKHPS(v[1], v[0], hi0)
			b.VUNPCKHPS(v[3], v[2], hi1)
			b.VUNPCKLPD(lo1, lo0, v[0])
			b.VUNPCKHPD(lo1, lo0, v[1])
			b.VUNPCKLPD(hi1, hi0, v[2])
			b.VUNPCKHPD(hi1, hi0, v[3])
			b.VMOVUPS(v[0], operand.Mem{Base: dst})
			b.VMOVUPS(v[1], operand.Mem{Base: dst, Index: ldd, Scale: 1})
			b.VMOVUPS(v[2], operand.Mem{Base: dst, Index: ldd, Scale: 2})
			b.VMOVUPS(v[3], operand.Mem{Base: dst, Index: ldd3, Scale: 1})
			b.LEAQ(operand.Mem{Base: dst, Index: ldd, Scale: 4}, dst)
		}
		b.ADDQ(operand.I32(16*chunks), src)
	}
	loops(b, k, 16, func() { piece(4) }, 4, func() { piece(1) })
}

// transposeF64 is the same for float64, with 8 rows to a register and 2x2 blocks.
func transposeF64(b *build.Context) {
	b.Function("transpose8F64AVX512")
	b.Attributes(build.NOSPLIT)
	b.Doc("transpose8F64AVX512 computes dst[p*ldd+r] = src[rows[r]+p] for r < 8 and p < k, where k is a multiple of 2.")
	b.Pragma("noescape")
	b.SignatureExpr("func(dst *float64, ldd int, src *float64, rows *[16]int, k int)")
	dst, ldd, src, rows, k := load(b, "dst"), load(b, "ldd"), load(b, "src"), load(b, "rows"), load(b, "k")
	b.SHLQ(operand.U8(3), ldd)
	piece := func(chunks int) {
		z := make([][2]reg.VecVirtual, chunks)
		for ch := range z {
			z[ch] = [2]reg.VecVirtual{b.ZMM(), b.ZMM()}
		}
		for r := range 8 {
			off := b.GP64()
			b.MOVQ(operand.Mem{Base: rows, Disp: 8 * r}, off)
			for ch := range z {
				v, m := z[ch][r%2], operand.Mem{Base: src, Index: off, Scale: 8, Disp: 16 * ch}
				if r < 2 {
					b.VMOVUPD(m, v.AsX())
				} else {
					b.VINSERTF64X2(operand.U8(r/2), m, v, v)
				}
			}
		}
		for ch := range z {
			lo, hi := b.ZMM(), b.ZMM()
			b.VUNPCKLPD(z[ch][1], z[ch][0], lo)
			b.VUNPCKHPD(z[ch][1], z[ch][0], hi)
			b.VMOVUPD(lo, operand.Mem{Base: dst})
			b.VMOVUPD(hi, operand.Mem{Base: dst, Index: ldd, Scale: 1})
			b.LEAQ(operand.Mem{Base: dst, Index: ldd, Scale: 2}, dst)
		}
		b.ADDQ(operand.I32(16*chunks), src)
	}
	loops(b, k, 8, func() { piece(4) }, 2, func() { piece(1) })
}

func load(b *build.Context, name string) reg.GPVirtual {
	return b.Load(b.Param(name), b.GP64()).(reg.GPVirtual)
}

// loops runs many for each whole n of k, then few for each whole m of the rest.
func loops(b *build.Context, k reg.GPVirtual, n int, many func(), m int, few func()) {
	b.SUBQ(operand.I32(n), k)
	b.JL(operand.LabelRef("rest"))
	b.Label("many")
	many()
	b.SUBQ(operand.I32(n), k)
	b.JGE(operand.LabelRef("many"))
	b.Label("rest")
	b.ADDQ(operand.I32(n-m), k)
	b.JL(operand.LabelRef("done"))
	b.Label("few")
	few()
	b.SUBQ(operand.I32(m), k)
	b.JGE(operand.LabelRef("few"))
	b.Label("done")
	b.VZEROUPPER()
	b.RET()
}
