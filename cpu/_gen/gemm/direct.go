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
	// The field one is the greatest number of rows in a kernel of one vector, and the field two in
	// a kernel of two vectors. The field many is the number of vectors in the kernel of one row.
	for isa, f := range map[string]struct {
		name           string
		one, two, many int // sizes of kernels
	}{"AVX2": {"direct256_amd64", 8, 6, 8}, "AVX512": {"direct512_amd64", 8, 14, 16}} {
		b := build.NewContext()
		b.ConstraintExpr("!noasm")
		var window *operand.Mem
		for _, t := range tiles {
			if t.isa != isa {
				continue
			}
			emit := func(h, n int) {
				c := &ctx{Context: b, t: t, window: window}
				direct(c, h, n)
				window = c.window
			}
			for h := 1; h <= max(f.one, f.two); h++ {
				if h <= f.one {
					emit(h, 1)
				}
				if h <= f.two {
					emit(h, 2)
				}
			}
			emit(1, f.many)
		}
		file, err := b.Result()
		if err == nil {
			err = pass.Compile.Execute(file)
		}
		check(err)
		cfg := printer.Config{Name: "cpu/_gen/gemm", Pkg: "gemm"}
		for name, p := range map[string]printer.Printer{".s": printer.NewGoAsm(cfg), ".go": printer.NewStubs(cfg)} {
			text, err := p.Print(file)
			check(err)
			check(os.WriteFile(filepath.Join(dir, f.name+name), wrapped(text), 0o644))
		}
	}
}

// rowsAhead is how many rows of B the kernel prefetches ahead if A has one row.
const rowsAhead = 4

// direct emits the kernel for h rows of A and n vectors of columns of B. If n is at most 2, the
// kernel neither reads nor writes columns beyond w.
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
	load := func(m operand.Mem, v int, y reg.VecVirtual) {
		if t.size() == 4 {
			c.VMOVUPS_Z(m, mask[v], y)
		} else {
			c.VMOVUPD_Z(m, mask[v], y)
		}
	}
	switch {
	case n > 2:
	case t.bytes == 32: // only the last vector can be incomplete, so only it has a mask
		w := c.pointer("w")
		if n == 2 {
			c.SUBQ(operand.I32(t.bytes/t.size()), w)
		}
		mask[n-1] = c.lanes(w)
		load = c.maskedLoad(mask)
	default:
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
			if t.bytes == 64 {
				c.VPXORD(x, x, x)
			} else {
				c.VXORPS(x, x, x)
			}
			acc[r] = append(acc[r], x)
		}
	}
	c.Label("loop")
	var x []reg.VecVirtual
	if n <= 2 {
		for v := range n {
			y := c.vec()
			load(operand.Mem{Base: b, Disp: v * t.bytes}, v, y)
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
		for at := 0; at < n*t.bytes; at += 64 {
			c.PREFETCHT0(operand.Mem{Base: b, Index: ldb, Scale: rowsAhead, Disp: at})
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
	if n <= 2 && t.bytes == 32 { // stores with a mask are slow
		w := c.pointer("w")
		c.CMPQ(w, operand.I32(width))
		c.JL(operand.LabelRef("partial"))
		c.TESTQ(how, how)
		c.JEQ(operand.LabelRef("putAll"))
		c.directRows(acc, dst, ldc, make([]reg.Register, n), true)
		c.VZEROUPPER()
		c.RET()
		c.Label("putAll")
		c.directRows(acc, dst, ldc, make([]reg.Register, n), false)
		c.VZEROUPPER()
		c.RET()
		c.Label("partial")
	}
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
			if mask[v] != nil && c.t.bytes == 32 {
				if add {
					y := c.vec()
					c.VMASKMOVPS(m, mask[v], y)
					if c.t.size() == 4 {
						c.VADDPS(y, x, x)
					} else {
						c.VADDPD(y, x, x)
					}
				}
				c.VMASKMOVPS(x, mask[v], m)
				continue
			}
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

// maskedLoad returns a function that emits a load with AVX2, under the mask of vector v if it has
// one.
func (c *ctx) maskedLoad(mask []reg.Register) func(m operand.Mem, v int, y reg.VecVirtual) {
	return func(m operand.Mem, v int, y reg.VecVirtual) {
		if mask[v] == nil {
			c.VMOVUPS(m, y)
		} else {
			c.VMASKMOVPS(m, mask[v], y)
		}
	}
}
