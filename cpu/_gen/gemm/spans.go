package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// spans emits the kernel for a tile of h rows. The tile is the sum of the products in a list of
// spans. A span is a part of a panel of A and a part of B. The tile stays in registers from span to
// span.
func spans(c *ctx, h int) {
	t := c.t
	width := 2 * t.bytes / 4
	c.Function(fmt.Sprintf("spans%d%s", h, t.isa))
	c.Attributes(build.NOSPLIT)
	c.Doc(fmt.Sprintf("spans%d%s computes, for r < %d and j < %d, the sum over i < n and p < k of a[list[2*i]+p*lda+r] * b[list[2*i+1]+p*ldb+j],", h, t.isa, h, width),
		"fused and in the order of i and p, and puts it into c[r*ldc+j], or adds it there if accumulate is not 0. n and k are positive.")
	c.Pragma("noescape")
	c.SignatureExpr("func(list *int, n, k int, a *float32, lda int, b *float32, ldb int, c *float32, ldc, accumulate int)")
	list, end, lda, ldb := c.pointer("list"), c.pointer("n"), c.elements("lda", "float32"), c.elements("ldb", "float32")
	c.SHLQ(operand.U8(4), end)
	c.ADDQ(list, end)
	lda3, ldb3 := c.GP64(), c.GP64()
	c.LEAQ(operand.Mem{Base: lda, Index: lda, Scale: 2}, lda3)
	c.LEAQ(operand.Mem{Base: ldb, Index: ldb, Scale: 2}, ldb3)
	acc := make([][]reg.VecVirtual, h)
	for r := range acc {
		acc[r] = make([]reg.VecVirtual, 2)
		for v := range 2 {
			acc[r][v] = c.vec()
			if t.bytes == 64 {
				c.VPXORD(acc[r][v], acc[r][v], acc[r][v])
			} else {
				c.VXORPS(acc[r][v], acc[r][v], acc[r][v])
			}
		}
	}
	at := func(base, ld, ld3 reg.GPVirtual, u, disp int) operand.Mem {
		m := operand.Mem{Base: base, Disp: disp}
		switch u {
		case 1, 2:
			m.Index, m.Scale = ld, uint8(u)
		case 3:
			m.Index, m.Scale = ld3, 1
		}
		return m
	}
	const unroll = 4
	var a, b reg.GPVirtual
	step := func(u int) {
		b0, b1 := c.vec(), c.vec()
		c.VMOVUPS(at(b, ldb, ldb3, u, 0), b0)
		c.VMOVUPS(at(b, ldb, ldb3, u, t.bytes), b1)
		for r := range h {
			x := c.vec()
			c.broadcast(at(a, lda, lda3, u, 4*r), x)
			c.fma(b0, x, acc[r][0])
			c.fma(b1, x, acc[r][1])
		}
	}
	c.Label("span")
	a, b = c.pointer("a"), c.pointer("b")
	k, off := c.pointer("k"), c.GP64()
	c.MOVQ(operand.Mem{Base: list}, off)
	c.LEAQ(operand.Mem{Base: a, Index: off, Scale: 4}, a)
	c.MOVQ(operand.Mem{Base: list, Disp: 8}, off)
	c.LEAQ(operand.Mem{Base: b, Index: off, Scale: 4}, b)
	c.SUBQ(operand.I32(unroll), k)
	c.JL(operand.LabelRef("rest"))
	c.Label("loop")
	for u := range unroll {
		step(u)
	}
	c.LEAQ(operand.Mem{Base: a, Index: lda, Scale: unroll}, a)
	c.LEAQ(operand.Mem{Base: b, Index: ldb, Scale: unroll}, b)
	c.SUBQ(operand.I32(unroll), k)
	c.JGE(operand.LabelRef("loop"))
	c.Label("rest")
	c.ADDQ(operand.I32(unroll), k)
	c.JLE(operand.LabelRef("next"))
	c.Label("single")
	step(0)
	c.ADDQ(lda, a)
	c.ADDQ(ldb, b)
	c.DECQ(k)
	c.JG(operand.LabelRef("single"))
	c.Label("next")
	c.ADDQ(operand.I32(16), list)
	c.CMPQ(list, end)
	c.JL(operand.LabelRef("span"))
	dst, ldc := c.pointer("c"), c.elements("ldc", "float32")
	how := c.pointer("accumulate")
	c.TESTQ(how, how)
	c.JEQ(operand.LabelRef("put"))
	c.rows(acc, dst, ldc, [2]reg.Register{}, true)
	c.VZEROUPPER()
	c.RET()
	c.Label("put")
	c.rows(acc, dst, ldc, [2]reg.Register{}, false)
	c.VZEROUPPER()
	c.RET()
}

// halves emits the kernel that separates even and odd elements. It uses only instructions of AVX2,
// and needs no table of indexes.
func halves(b *build.Context) {
	b.Function("halvesAVX2")
	b.Attributes(build.NOSPLIT)
	b.Doc("halvesAVX2 computes, for i < n, a positive multiple of 8, even[i] = src[2*i] and odd[i] = src[2*i+1].")
	b.Pragma("noescape")
	b.SignatureExpr("func(even, odd, src *float32, n int)")
	even, odd, src, n, i := load(b, "even"), load(b, "odd"), load(b, "src"), load(b, "n"), b.GP64()
	b.XORQ(i, i)
	b.Label("loop")
	x, y, e, o := b.YMM(), b.YMM(), b.YMM(), b.YMM()
	b.VMOVUPS(operand.Mem{Base: src, Index: i, Scale: 8}, x)
	b.VMOVUPS(operand.Mem{Base: src, Index: i, Scale: 8, Disp: 32}, y)
	b.VSHUFPS(operand.U8(0x88), y, x, e)
	b.VSHUFPS(operand.U8(0xdd), y, x, o)
	b.VPERMPD(operand.U8(0xd8), e, e)
	b.VPERMPD(operand.U8(0xd8), o, o)
	b.VMOVUPS(e, operand.Mem{Base: even, Index: i, Scale: 4})
	b.VMOVUPS(o, operand.Mem{Base: odd, Index: i, Scale: 4})
	b.ADDQ(operand.I32(8), i)
	b.CMPQ(i, n)
	b.JL(operand.LabelRef("loop"))
	b.VZEROUPPER()
	b.RET()
}
