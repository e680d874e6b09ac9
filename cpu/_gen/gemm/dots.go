package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// dotColumns is the number of columns of B that a kernel of dot products handles at a time. With 4
// rows of A, the sums fill half of the registers, and each loaded element is used several times.
var dotColumns = map[string]int{"AVX2": 2, "AVX512": 4, "AVX512BF16": 4}

// dots emits the kernel of the dot products of h rows of A with n columns of B. Rows and columns
// are contiguous along k.
func dots(c *ctx, h, n int) {
	t := c.t
	c.Function(fmt.Sprintf("dots%dx%d%s", h, n, t.suffix()))
	c.Attributes(build.NOSPLIT)
	sums := t.bytes / t.size()
	how, lanes, by := "fused", sums, "p"
	if t.pairs() {
		how, lanes, by = "by VDPBF16PS", 2*sums, "p/2"
	}
	c.Doc(fmt.Sprintf("dots%dx%d%s computes, for r < %d and j < %d, out[r*%d+j] = Σ a[r*lda+p] * b[j*ldb+p] over p < k, %s, in %d sums", h, n, t.suffix(), h, n, n, how, sums),
		fmt.Sprintf("by %s mod %d that are added in halves. It prefetches %d columns at next.", by, sums, n))
	c.Pragma("noescape")
	c.SignatureExpr(fmt.Sprintf("func(k int, a *%[1]s, lda int, b *%[1]s, ldb int, next *%[1]s, out *%[2]s)", t.typ, t.sum()))
	k, a, lda, b, ldb, next, out := c.pointer("k"), c.pointer("a"), c.elements("lda", t.typ), c.pointer("b"), c.elements("ldb", t.typ), c.pointer("next"), c.pointer("out")
	triple := func(d reg.GPVirtual, rows int) reg.GPVirtual {
		r := c.GP64()
		if rows > 3 {
			c.LEAQ(operand.Mem{Base: d, Index: d, Scale: 2}, r)
		}
		return r
	}
	lda3, ldb3 := triple(lda, h), triple(ldb, n)
	row := func(base, d, d3 reg.GPVirtual, i int) operand.Mem {
		switch i {
		case 0:
			return operand.Mem{Base: base}
		case 3:
			return operand.Mem{Base: base, Index: d3, Scale: 1}
		}
		return operand.Mem{Base: base, Index: d, Scale: uint8(i)}
	}
	acc := make([][]reg.VecVirtual, h)
	for r := range acc {
		for range n {
			v := c.vec()
			if t.bytes == 64 {
				c.VPXORD(v, v, v)
			} else {
				c.VXORPS(v, v, v)
			}
			acc[r] = append(acc[r], v)
		}
	}
	step := func(load func(m operand.Mem, v reg.VecVirtual)) {
		x := make([]reg.VecVirtual, h)
		for r := range x {
			x[r] = c.vec()
			load(row(a, lda, lda3, r), x[r])
		}
		for j := range n {
			y := c.vec()
			load(row(b, ldb, ldb3, j), y)
			for r := range h {
				c.fma(y, x[r], acc[r][j])
			}
		}
	}
	c.SUBQ(operand.I32(lanes), k)
	c.JL(operand.LabelRef("rest"))
	c.Label("loop")
	step(func(m operand.Mem, v reg.VecVirtual) { c.VMOVUPS(m, v) })
	for j := range n {
		c.PREFETCHT0(row(next, ldb, ldb3, j))
	}
	c.ADDQ(operand.I32(t.bytes), a)
	c.ADDQ(operand.I32(t.bytes), b)
	c.ADDQ(operand.I32(t.bytes), next)
	c.SUBQ(operand.I32(lanes), k)
	c.JGE(operand.LabelRef("loop"))
	c.Label("rest")
	c.ADDQ(operand.I32(lanes), k)
	c.JLE(operand.LabelRef("sum"))
	step(c.partial(k))
	c.Label("sum")
	for r := range h {
		for j := range n {
			c.sum(acc[r][j], operand.Mem{Base: out, Disp: (r*n + j) * t.size()})
		}
	}
	c.VZEROUPPER()
	c.RET()
}

// partial returns a function that emits a load of the first k elements of a vector. It sets the
// other lanes to zero.
func (c *ctx) partial(k reg.GPVirtual) func(m operand.Mem, v reg.VecVirtual) {
	if c.t.bytes == 64 {
		ones, bits, mask := c.GP64(), c.GP64(), c.K()
		c.MOVQ(operand.I32(-1), ones)
		c.BZHIQ(k, ones, bits)
		c.KMOVQ(bits, mask)
		return func(m operand.Mem, v reg.VecVirtual) {
			switch c.t.typ {
			case "uint16":
				c.VMOVDQU16_Z(m, mask, v)
			case "float32":
				c.VMOVUPS_Z(m, mask, v)
			default:
				c.VMOVUPD_Z(m, mask, v)
			}
		}
	}
	mask := c.lanes(k)
	return func(m operand.Mem, v reg.VecVirtual) { c.VMASKMOVPS(m, mask, v) }
}

// lanes returns a mask of AVX2 for the first k elements of a vector. It changes k.
func (c *ctx) lanes(k reg.GPVirtual) reg.VecVirtual {
	// The table has a vector of ones followed by a vector of zeros. A mask is a vector loaded from
	// the table, from an address k elements before the zeros.
	if c.window == nil {
		g := c.StaticGlobal("window")
		c.DataAttributes(build.RODATA | build.NOPTR)
		for i := range 8 {
			word := uint64(math.MaxUint64)
			if i >= 4 {
				word = 0
			}
			c.AddDatum(8*i, operand.U64(word))
		}
		c.window = &g
	}
	at, mask := c.GP64(), c.YMM()
	c.LEAQ(c.window.Offset(32), at)
	c.SHLQ(operand.U8(map[int]int{4: 2, 8: 3}[c.t.size()]), k)
	c.SUBQ(k, at)
	c.VMOVUPS(operand.Mem{Base: at}, mask)
	return mask
}

// sum adds the lanes of v and stores the result. It adds the upper half to the lower half until one
// lane is left.
func (c *ctx) sum(v reg.VecVirtual, m operand.Mem) {
	if v.Size() == 64 {
		h := c.YMM()
		c.VEXTRACTF64X4(operand.U8(1), v, h)
		v = v.AsY().(reg.VecVirtual)
		c.addTo(h, v)
	}
	h := c.XMM()
	if c.t.bytes == 64 { // the VEX form cannot address the upper 16 registers
		c.VEXTRACTF32X4(operand.U8(1), v, h)
	} else {
		c.VEXTRACTF128(operand.U8(1), v, h)
	}
	v = v.AsX().(reg.VecVirtual)
	c.addTo(h, v)
	h = c.XMM()
	c.VPERMILPD(operand.U8(1), v, h)
	c.addTo(h, v)
	if c.t.size() == 8 {
		c.VMOVSD(v, m)
		return
	}
	h = c.XMM()
	c.VMOVSHDUP(v, h)
	c.addTo(h, v)
	c.VMOVSS(v, m)
}

// rowDots emits the kernel of the dot products of one row of A with many columns of B, four at a
// time. One call handles all columns, because a call takes as long as the products of a few
// columns. The kernel adds up the lanes in the same order as the kernels of dots.
func rowDots(c *ctx) {
	t := c.t
	name := "rowDots" + t.suffix()
	c.Function(name)
	c.Attributes(build.NOSPLIT)
	sums := t.bytes / t.size()
	c.Doc(fmt.Sprintf("%s computes, for j < n, a multiple of 4, out[j] = Σ a[p] * b[j*ldb+p] over p < k, fused, in %d sums", name, sums),
		fmt.Sprintf("by p mod %d that are added in halves.", sums))
	c.Pragma("noescape")
	c.SignatureExpr(fmt.Sprintf("func(k int, a, b *%[1]s, ldb, n int, out *%[1]s)", t.typ))
	k, a, ldb, n, out := c.pointer("k"), c.pointer("a"), c.elements("ldb", t.typ), c.pointer("n"), c.pointer("out")
	var b [4]reg.GPVirtual
	for j := range b {
		if b[j] = c.GP64(); j == 0 {
			c.Load(c.Param("b"), b[j])
		} else {
			c.LEAQ(operand.Mem{Base: b[j-1], Index: ldb, Scale: 1}, b[j])
		}
	}
	c.SHLQ(operand.U8(2), ldb) // the distance between groups of columns
	rest, whole := c.GP64(), c.GP64()
	c.MOVQ(k, rest)
	c.ANDQ(operand.I32(sums-1), rest)
	c.MOVQ(k, whole)
	c.SUBQ(rest, whole)
	c.SHLQ(operand.U8(map[int]int{4: 2, 8: 3}[t.size()]), whole)
	lanes := c.GP64()
	c.MOVQ(rest, lanes)
	mask := c.lanes(lanes)
	at, ahead := c.GP64(), c.GP64()
	var acc [4]reg.VecVirtual
	step := func(disp int, load func(m operand.Mem, v reg.VecVirtual)) {
		x := c.vec()
		load(operand.Mem{Base: a, Index: at, Scale: 1, Disp: disp}, x)
		for j := range acc {
			y := c.vec()
			load(operand.Mem{Base: b[j], Index: at, Scale: 1, Disp: disp}, y)
			c.fma(y, x, acc[j])
		}
	}
	c.Label("columns")
	for j := range acc {
		acc[j] = c.YMM()
		c.VXORPS(acc[j], acc[j], acc[j])
	}
	c.XORQ(at, at)
	c.MOVQ(ldb, ahead)
	plain := func(m operand.Mem, v reg.VecVirtual) { c.VMOVUPS(m, v) }
	c.Label("loop")
	c.LEAQ(operand.Mem{Base: at, Disp: 2 * t.bytes}, lanes)
	c.CMPQ(lanes, whole)
	c.JG(operand.LabelRef("last"))
	for j := range b { // each column may be too short for the processor's own prefetching
		c.PREFETCHT0(operand.Mem{Base: b[j], Index: ahead, Scale: 1})
	}
	step(0, plain)
	step(t.bytes, plain)
	c.ADDQ(operand.I32(2*t.bytes), ahead)
	c.ADDQ(operand.I32(2*t.bytes), at)
	c.JMP(operand.LabelRef("loop"))
	c.Label("last")
	c.CMPQ(at, whole)
	c.JGE(operand.LabelRef("rest"))
	step(0, plain)
	c.ADDQ(operand.I32(t.bytes), at)
	c.Label("rest")
	c.TESTQ(rest, rest)
	c.JEQ(operand.LabelRef("sum"))
	step(0, func(m operand.Mem, v reg.VecVirtual) { c.VMASKMOVPS(m, mask, v) })
	c.Label("sum")
	var half [4]reg.VecVirtual
	for j, v := range acc {
		h := c.XMM()
		c.VEXTRACTF128(operand.U8(1), v, h)
		half[j] = v.AsX().(reg.VecVirtual)
		c.addTo(h, half[j])
	}
	for j := 0; j < 4; j += 2 { // the lower halves of two columns, and the upper halves
		h := c.XMM()
		c.VUNPCKHPD(half[j+1], half[j], h)
		c.VUNPCKLPD(half[j+1], half[j], half[j])
		c.addTo(h, half[j])
	}
	if t.size() == 4 {
		h := c.XMM()
		c.VSHUFPS(operand.U8(0xdd), half[2], half[0], h)
		c.VSHUFPS(operand.U8(0x88), half[2], half[0], half[0])
		c.addTo(h, half[0])
		c.VMOVUPS(half[0], operand.Mem{Base: out})
	} else {
		c.VMOVUPS(half[0], operand.Mem{Base: out})
		c.VMOVUPS(half[2], operand.Mem{Base: out, Disp: 16})
	}
	c.ADDQ(operand.I32(4*t.size()), out)
	for j := range b {
		c.ADDQ(ldb, b[j])
	}
	c.SUBQ(operand.I32(4), n)
	c.JNE(operand.LabelRef("columns"))
	c.VZEROUPPER()
	c.RET()
}

// addTo adds the vector x to y.
func (c *ctx) addTo(x, y reg.Register) {
	if c.t.size() == 4 {
		c.VADDPS(x, y, y)
	} else {
		c.VADDPD(x, y, y)
	}
}
