package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
	"github.com/mmcloughlin/avo/reg"
)

// directs writes the kernels that read both factors in place. Products that are too small or too
// narrow for packing use them.
func directs(dir string) {
	b := build.NewContext()
	b.ConstraintExpr("!noasm")
	for _, t := range tiles {
		if t.isa != "AVX512" {
			continue
		}
		for h := 1; h <= 14; h++ {
			if h <= 8 {
				direct(&ctx{Context: b, t: t}, h, 1)
			}
			direct(&ctx{Context: b, t: t}, h, 2)
		}
		direct(&ctx{Context: b, t: t}, 1, 16)
	}
	f, err := b.Result()
	if err == nil {
		err = pass.Compile.Execute(f)
	}
	check(err)
	cfg := printer.Config{Name: "cpu/_gen/gemm", Pkg: "gemm"}
	for name, p := range map[string]printer.Printer{".s": printer.NewGoAsm(cfg), ".go": printer.NewStubs(cfg)} {
		text, err := p.Print(f)
		check(err)
		check(os.WriteFile(filepath.Join(dir, "direct512_amd64"+name), wrapped(text), 0o644))
	}
}

// rowsAhead is a number of rows of B. If A has one row, the kernel prefetches the row that it will
// read rowsAhead rows later.
const rowsAhead = 4

// direct emits the kernel for h rows of A and n vectors of columns of B. If n is at most 2, it
// neither reads nor writes columns beyond w.
func direct(c *ctx, h, n int) {
	t := c.t
	width := n * t.bytes / t.size()
	name := fmt.Sprintf("direct%dx%d%s", h, n, t.suffix())
	c.Function(name)
	c.Attributes(build.NOSPLIT)
	doc := []string{fmt.Sprintf("%s computes, for r < %d and j < w, the sum over p < k of a[r*ars+p*acs] * b[p*ldb+j], fused and in the order of p,", name, h),
		fmt.Sprintf("and puts it into c[r*ldc+j], or adds it there if accumulate is not 0; w is at most %d.", width)}
	if n > 2 {
		doc = []string{fmt.Sprintf("%s computes, for j < %d, the sum over p < k of a[p*acs] * b[p*ldb+j], fused and in the order of p,", name, width),
			fmt.Sprintf("and puts it into c[j], or adds it there if accumulate is not 0; w must be %d.", width)}
	}
	c.Doc(doc...)
	c.Pragma("noescape")
	c.SignatureExpr(fmt.Sprintf("func(k int, a *%[1]s, ars, acs int, b *%[1]s, ldb int, c *%[1]s, ldc, w, accumulate int)", t.typ))
	k, a, b, dst := c.pointer("k"), c.pointer("a"), c.pointer("b"), c.pointer("c")
	acs, ldb, ldc := c.elements("acs", t.typ), c.elements("ldb", t.typ), c.elements("ldc", t.typ)
	ars := c.elements("ars", t.typ)
	// multiples of ars, the distance between rows of A, by odd factors
	odd := map[int]reg.GPVirtual{1: ars, 3: c.GP64(), 5: c.GP64(), 7: c.GP64()}
	if h > 3 {
		c.LEAQ(operand.Mem{Base: ars, Index: ars, Scale: 2}, odd[3])
	}
	if h > 5 {
		c.LEAQ(operand.Mem{Base: ars, Index: ars, Scale: 4}, odd[5])
	}
	if h > 7 {
		c.LEAQ(operand.Mem{Base: odd[3], Index: ars, Scale: 4}, odd[7])
	}
	ninth := c.GP64() // the address of row 8
	if h > 8 {
		c.LEAQ(operand.Mem{Base: a, Index: ars, Scale: 8}, ninth)
	}
	row := func(r int) operand.Mem {
		scale, a := 1, a
		if r >= 8 {
			r, a = r-8, ninth
		}
		for r > 0 && r%2 == 0 {
			r, scale = r/2, scale*2
		}
		if r == 0 {
			return operand.Mem{Base: a}
		}
		return operand.Mem{Base: a, Index: odd[r], Scale: uint8(scale)}
	}
	mask := make([]reg.Register, n)
	if n <= 2 {
		w, bits, ones := c.pointer("w"), c.GP64(), c.GP64()
		c.MOVQ(operand.I32(-1), ones)
		c.BZHIQ(w, ones, bits)
		for v := range mask {
			mask[v] = c.K()
			c.KMOVQ(bits, mask[v])
			c.SHRQ(operand.U8(t.bytes/t.size()), bits)
		}
	}
	acc := make([][]reg.VecVirtual, h)
	for r := range acc {
		for range n {
			x := c.vec()
			c.VPXORD(x, x, x)
			acc[r] = append(acc[r], x)
		}
	}
	c.Label("loop")
	var x []reg.VecVirtual
	if n <= 2 {
		for v := range n {
			y := c.vec()
			m := operand.Mem{Base: b, Disp: v * t.bytes}
			if t.size() == 4 {
				c.VMOVUPS_Z(m, mask[v], y)
			} else {
				c.VMOVUPD_Z(m, mask[v], y)
			}
			x = append(x, y)
		}
	}
	for r := range h {
		e := c.vec()
		c.broadcast(row(r), e)
		for v := range n {
			if n <= 2 {
				c.fma(x[v], e, acc[r][v])
			} else if m := (operand.Mem{Base: b, Disp: v * t.bytes}); t.size() == 4 {
				c.VFMADD231PS(m, e, acc[r][v])
			} else {
				c.VFMADD231PD(m, e, acc[r][v])
			}
		}
	}
	if n > 2 { // the processor's own prefetching ends with each row of B, so prefetch explicitly
		for v := range n {
			c.PREFETCHT0(operand.Mem{Base: b, Index: ldb, Scale: rowsAhead, Disp: v * t.bytes})
		}
	}
	if h > 8 {
		for v := range n {
			c.PREFETCHT0(operand.Mem{Base: b, Index: ldb, Scale: 8, Disp: v * t.bytes})
		}
		c.ADDQ(acs, ninth)
	}
	c.ADDQ(acs, a)
	c.ADDQ(ldb, b)
	c.DECQ(k)
	c.JNE(operand.LabelRef("loop"))
	how := c.pointer("accumulate")
	c.TESTQ(how, how)
	c.JEQ(operand.LabelRef("put"))
	c.directRows(acc, dst, ldc, mask, true)
	c.VZEROUPPER()
	c.RET()
	c.Label("put")
	c.directRows(acc, dst, ldc, mask, false)
	c.VZEROUPPER()
	c.RET()
}

// directRows stores the sums acc in C, or adds them to C if add is true.
func (c *ctx) directRows(acc [][]reg.VecVirtual, dst, ldc reg.GPVirtual, mask []reg.Register, add bool) {
	at := c.GP64()
	c.MOVQ(dst, at)
	for r := range acc {
		for v, x := range acc[r] {
			m := operand.Mem{Base: at, Disp: v * c.t.bytes}
			var ops []operand.Op
			if mask[v] != nil {
				ops = append(ops, mask[v])
			}
			switch {
			case add && c.t.size() == 4:
				c.VADDPS(append([]operand.Op{m, x}, append(ops, x)...)...)
			case add:
				c.VADDPD(append([]operand.Op{m, x}, append(ops, x)...)...)
			}
			if c.t.size() == 4 {
				c.VMOVUPS(append([]operand.Op{x}, append(ops, m)...)...)
			} else {
				c.VMOVUPD(append([]operand.Op{x}, append(ops, m)...)...)
			}
		}
		if r < len(acc)-1 {
			c.ADDQ(ldc, at)
		}
	}
}
