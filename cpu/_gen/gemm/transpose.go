package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// insert loads 16 bytes from memory into the given 128-bit lane of v.
func insert(b *build.Context, lane int, m operand.Mem, v reg.VecVirtual) {
	switch {
	case lane == 0:
		b.VMOVUPS(m, v.AsX())
	case v.Size() == 64:
		b.VINSERTF32X4(operand.U8(lane), m, v, v)
	default:
		b.VINSERTF128(operand.U8(lane), m, v, v)
	}
}

// store stores a vector. If stream is true, it bypasses the caches. The processor then need not
// read the old cache line, but the address must be a multiple of the vector's size.
func store(b *build.Context, stream bool, v reg.VecVirtual, m operand.Mem) {
	if stream {
		b.VMOVNTPS(v, m)
	} else {
		b.VMOVUPS(v, m)
	}
}

// streamed returns what the comment of a kernel says of its stores.
func streamed(stream bool) string {
	if stream {
		return " Its stores bypass the caches, so dst must be aligned to a vector."
	}
	return ""
}

func vec(b *build.Context, bytes int) reg.VecVirtual {
	if bytes == 64 {
		return b.ZMM()
	}
	return b.YMM()
}

// transposeF32 emits the kernel that packs rows that are contiguous along k. The number of rows is
// the number of elements in a vector. Insertions gather 128-bit pieces of rows j, 4+j, 8+j and 12+j
// into one register; they do not use the shuffle port. Then 4x4 blocks are transposed within the
// 128-bit lanes. For uint16, the elements that move are pairs of neighbours. Rows may begin at any
// element, not only at a pair.
func transposeF32(b *build.Context, name, typ string, bytes int, stream bool) {
	n, scale := bytes/4, uint8(4)
	b.Function(name)
	b.Attributes(build.NOSPLIT)
	what := "dst[p*ldd+r] = src[rows[r]+p]"
	if typ == "uint16" {
		scale, what = 2, "dst[(p*ldd+r)*2+i] = src[rows[r]+2*p+i] for i < 2,"
	}
	b.Doc(fmt.Sprintf("%s computes %s for r < %d and p < k, where k is a multiple of 4.%s", name, what, n, streamed(stream)))
	b.Pragma("noescape")
	b.SignatureExpr(fmt.Sprintf("func(dst *%[1]s, ldd int, src *%[1]s, rows *[16]int, k int)", typ))
	dst, ldd, src, rows, k := load(b, "dst"), load(b, "ldd"), load(b, "src"), load(b, "rows"), load(b, "k")
	b.SHLQ(operand.U8(2), ldd)
	ldd3 := b.GP64()
	b.LEAQ(operand.Mem{Base: ldd, Index: ldd, Scale: 2}, ldd3)
	piece := func(chunks int) {
		z := make([][4]reg.VecVirtual, chunks)
		for ch := range z {
			for j := range 4 {
				z[ch][j] = vec(b, bytes)
			}
		}
		for r := range n {
			off := b.GP64()
			b.MOVQ(operand.Mem{Base: rows, Disp: 8 * r}, off)
			for ch := range z {
				insert(b, r/4, operand.Mem{Base: src, Index: off, Scale: scale, Disp: 16 * ch}, z[ch][r%4])
			}
		}
		for ch := range z {
			v := z[ch]
			lo0, lo1, hi0, hi1 := vec(b, bytes), vec(b, bytes), vec(b, bytes), vec(b, bytes)
			b.VUNPCKLPS(v[1], v[0], lo0)
			b.VUNPCKLPS(v[3], v[2], lo1)
			b.VUNPCKHPS(v[1], v[0], hi0)
			b.VUNPCKHPS(v[3], v[2], hi1)
			b.VUNPCKLPD(lo1, lo0, v[0])
			b.VUNPCKHPD(lo1, lo0, v[1])
			b.VUNPCKLPD(hi1, hi0, v[2])
			b.VUNPCKHPD(hi1, hi0, v[3])
			store(b, stream, v[0], operand.Mem{Base: dst})
			store(b, stream, v[1], operand.Mem{Base: dst, Index: ldd, Scale: 1})
			store(b, stream, v[2], operand.Mem{Base: dst, Index: ldd, Scale: 2})
			store(b, stream, v[3], operand.Mem{Base: dst, Index: ldd3, Scale: 1})
			b.LEAQ(operand.Mem{Base: dst, Index: ldd, Scale: 4}, dst)
		}
		b.ADDQ(operand.I32(16*chunks), src)
	}
	many := bytes / 16 // half as many for AVX2, which has half the registers
	loops(b, stream, k, 4*many, func() { piece(many) }, 4, func() { piece(1) })
}

// transposeF64 emits the kernel that packs rows of float64 that are contiguous along k. It
// transposes blocks of 2x2.
func transposeF64(b *build.Context, name string, bytes int, stream bool) {
	n := bytes / 8
	b.Function(name)
	b.Attributes(build.NOSPLIT)
	b.Doc(fmt.Sprintf("%s computes dst[p*ldd+r] = src[rows[r]+p] for r < %d and p < k, where k is a multiple of 2.%s", name, n, streamed(stream)))
	b.Pragma("noescape")
	b.SignatureExpr("func(dst *float64, ldd int, src *float64, rows *[16]int, k int)")
	dst, ldd, src, rows, k := load(b, "dst"), load(b, "ldd"), load(b, "src"), load(b, "rows"), load(b, "k")
	b.SHLQ(operand.U8(3), ldd)
	piece := func(chunks int) {
		z := make([][2]reg.VecVirtual, chunks)
		for ch := range z {
			z[ch] = [2]reg.VecVirtual{vec(b, bytes), vec(b, bytes)}
		}
		for r := range n {
			off := b.GP64()
			b.MOVQ(operand.Mem{Base: rows, Disp: 8 * r}, off)
			for ch := range z {
				insert(b, r/2, operand.Mem{Base: src, Index: off, Scale: 8, Disp: 16 * ch}, z[ch][r%2])
			}
		}
		for ch := range z {
			lo, hi := vec(b, bytes), vec(b, bytes)
			b.VUNPCKLPD(z[ch][1], z[ch][0], lo)
			b.VUNPCKHPD(z[ch][1], z[ch][0], hi)
			store(b, stream, lo, operand.Mem{Base: dst})
			store(b, stream, hi, operand.Mem{Base: dst, Index: ldd, Scale: 1})
			b.LEAQ(operand.Mem{Base: dst, Index: ldd, Scale: 2}, dst)
		}
		b.ADDQ(operand.I32(16*chunks), src)
	}
	loops(b, stream, k, 8, func() { piece(4) }, 2, func() { piece(1) })
}

func load(b *build.Context, name string) reg.GPVirtual {
	return b.Load(b.Param(name), b.GP64()).(reg.GPVirtual)
}

// loops emits two loops over k. The function many emits the body of the first loop, which handles n
// elements a round. The function few emits the body of the second loop, which handles m of the
// remaining elements a round. If stream is true, the kernel
// ends with a fence: other cores see its stores before any later store.
func loops(b *build.Context, stream bool, k reg.GPVirtual, n int, many func(), m int, few func()) {
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
	if stream {
		b.SFENCE()
	}
	b.VZEROUPPER()
	b.RET()
}
