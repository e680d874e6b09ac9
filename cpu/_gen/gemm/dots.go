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
	// The table has a vector of ones followed by a vector of zeros. A mask is a load from the table
	// at an offset between them.
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
	add := func(x, y reg.Register) {
		if c.t.size() == 4 {
			c.VADDPS(x, y, y)
		} else {
			c.VADDPD(x, y, y)
		}
	}
	if v.Size() == 64 {
		h := c.YMM()
		c.VEXTRACTF64X4(operand.U8(1), v, h)
		v = v.AsY().(reg.VecVirtual)
		add(h, v)
	}
	h := c.XMM()
	if c.t.bytes == 64 { // the VEX form cannot address the upper 16 registers
		c.VEXTRACTF32X4(operand.U8(1), v, h)
	} else {
		c.VEXTRACTF128(operand.U8(1), v, h)
	}
	v = v.AsX().(reg.VecVirtual)
	add(h, v)
	h = c.XMM()
	c.VPERMILPD(operand.U8(1), v, h)
	add(h, v)
	if c.t.size() == 8 {
		c.VMOVSD(v, m)
		return
	}
	h = c.XMM()
	c.VMOVSHDUP(v, h)
	add(h, v)
	c.VMOVSS(v, m)
}
