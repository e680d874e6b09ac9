package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
	"github.com/mmcloughlin/avo/reg"
)

// isa is an instruction set for which kernels are generated.
type isa struct {
	name   string // name of the instruction set: "AVX2" or "AVX512"
	bytes  int    // size of a vector register
	lowers map[string]lowering
}

// lowering says how a kernel computes one vector of results. The function f emits the code. It may
// overwrite the operands v. The registers k hold the constants, which are loaded before the loop.
type lowering struct {
	consts []constant
	unroll int // number of vectors in one round of the loop; 0 means 4
	f      func(c *ctx, v, k []reg.VecVirtual) reg.VecVirtual
}

// constant is a value that is broadcast to all lanes of a register. width is the size of a lane in
// bytes.
type constant struct {
	width int
	bits  uint64
}

func c32(v uint32) constant { return constant{4, uint64(v)} }
func c64(v uint64) constant { return constant{8, v} }

// ctx is avo's context, with helpers that depend on the instruction set.
type ctx struct {
	*build.Context
	isa   *isa
	lanes int
}

// vec returns a new register of the given number of bytes.
func (c *ctx) vec(bytes int) reg.VecVirtual {
	switch {
	case bytes > 32:
		return c.ZMM()
	case bytes > 16:
		return c.YMM()
	}
	return c.XMM()
}

// full returns a new register that holds a whole vector.
func (c *ctx) full() reg.VecVirtual { return c.vec(c.isa.bytes) }

func (c *ctx) wide() bool { return c.isa.bytes == 64 }

var elemSize = map[string]int{"float32": 4, "int32": 4, "uint32": 4, "float64": 8, "int64": 8, "uint64": 8, "int16": 2, "uint16": 2, "int8": 1, "uint8": 1}

// load loads c.lanes elements of the given size into a register. If mask is not nil, it loads only
// the elements that the mask selects.
func (c *ctx) load(m operand.Mem, size int, mask reg.Register) reg.VecVirtual {
	n := c.lanes * size
	v := c.vec(n)
	switch {
	case mask != nil:
		switch size {
		case 1:
			c.VMOVDQU8_Z(m, mask, v)
		case 2:
			c.VMOVDQU16_Z(m, mask, v)
		case 4:
			c.VMOVDQU32_Z(m, mask, v)
		case 8:
			c.VMOVDQU64_Z(m, mask, v)
		}
	case n == 4:
		c.VMOVD(m, v)
	case n == 8:
		c.VMOVQ(m, v)
	case n == 64:
		c.VMOVDQU32(m, v)
	default:
		c.VMOVDQU(m, v)
	}
	return v
}

func (c *ctx) store(v reg.VecVirtual, m operand.Mem, size int, mask reg.Register) {
	n := c.lanes * size
	switch {
	case mask != nil:
		switch size {
		case 1:
			c.VMOVDQU8(v, mask, m)
		case 2:
			c.VMOVDQU16(v, mask, m)
		case 4:
			c.VMOVDQU32(v, mask, m)
		case 8:
			c.VMOVDQU64(v, mask, m)
		}
	case n == 4:
		c.VMOVD(v, m)
	case n == 8:
		c.VMOVQ(v, m)
	case n == 64:
		c.VMOVDQU32(v, m)
	default:
		c.VMOVDQU(v, m)
	}
}

// broadcast copies a constant to all lanes of a full register.
func (c *ctx) broadcast(k constant) reg.VecVirtual {
	x, v := c.XMM(), c.full()
	if k.width == 4 {
		r := c.GP32()
		c.MOVL(operand.U32(k.bits), r)
		c.VMOVD(r, x)
		c.VPBROADCASTD(x, v)
	} else {
		r := c.GP64()
		c.MOVQ(operand.U64(k.bits), r)
		c.VMOVQ(r, x)
		c.VPBROADCASTQ(x, v)
	}
	return v
}

// base loads the address of the first element of the slice parameter called name.
func (c *ctx) base(name string) reg.GPVirtual {
	return c.Load(c.Param(name).Base(), c.GP64()).(reg.GPVirtual)
}

// elementwise emits one kernel. It has a loop over groups of four vectors, and then a loop over
// single vectors. With AVX-512 the last vector is masked. With AVX2 the caller has to handle the
// elements after the last whole vector.
func elementwise(c *ctx, k kernel, l lowering) {
	c.Function(lower(k.name) + c.isa.name)
	c.Attributes(build.NOSPLIT)
	d := fmt.Sprintf("%s%s computes %s", lower(k.name), c.isa.name, k.loop)
	if c.wide() {
		d += "."
	} else {
		d += " for all whole vectors of dst."
	}
	c.Doc(d)
	c.Pragma("noescape")
	c.SignatureExpr("func(" + k.params() + ")")
	widest := elemSize[k.dst]
	for _, s := range k.src {
		widest = max(widest, elemSize[s])
	}
	c.lanes = c.isa.bytes / widest
	dst := c.base("dst")
	var src []reg.GPVirtual
	for _, a := range k.args {
		src = append(src, c.base(a))
	}
	n := c.Load(c.Param("dst").Len(), c.GP64()).(reg.GPVirtual)
	var ks []reg.VecVirtual
	for _, x := range l.consts {
		ks = append(ks, c.broadcast(x))
	}
	step := func(i int, mask reg.Register) {
		var v []reg.VecVirtual
		for j, s := range k.src {
			size := elemSize[s]
			v = append(v, c.load(operand.Mem{Base: src[j], Disp: i * c.lanes * size}, size, mask))
		}
		size := elemSize[k.dst]
		c.store(l.f(c, v, ks), operand.Mem{Base: dst, Disp: i * c.lanes * size}, size, mask)
	}
	advance := func(vectors int) {
		for j, s := range k.src {
			c.ADDQ(operand.I32(vectors*c.lanes*elemSize[s]), src[j])
		}
		c.ADDQ(operand.I32(vectors*c.lanes*elemSize[k.dst]), dst)
	}
	unroll := 4
	if l.unroll != 0 {
		unroll = l.unroll
	}
	c.SUBQ(operand.I32(unroll*c.lanes), n)
	c.JL(operand.LabelRef("few"))
	c.Label("many")
	for i := range unroll {
		step(i, nil)
	}
	advance(unroll)
	c.SUBQ(operand.I32(unroll*c.lanes), n)
	c.JGE(operand.LabelRef("many"))
	c.Label("few")
	if c.wide() {
		c.ADDQ(operand.I32(unroll*c.lanes), n)
		c.JLE(operand.LabelRef("done"))
		mask, ones := c.K(), c.GP32()
		c.MOVL(operand.U32(0xffffffff), ones)
		c.Label("masked")
		bits := c.GP32()
		c.BZHIL(n.As32(), ones, bits)
		c.KMOVD(bits, mask)
		step(0, mask)
		advance(1)
		c.SUBQ(operand.I32(c.lanes), n)
		c.JG(operand.LabelRef("masked"))
	} else if unroll > 1 {
		c.ADDQ(operand.I32((unroll-1)*c.lanes), n)
		c.JL(operand.LabelRef("done"))
		c.Label("one")
		step(0, nil)
		advance(1)
		c.SUBQ(operand.I32(c.lanes), n)
		c.JGE(operand.LabelRef("one"))
	}
	c.Label("done")
	c.VZEROUPPER()
	c.RET()
}

// writeISA writes the assembly of one instruction set, its declarations and its table. It leaves
// out the kernels in excluded.
func writeISA(dir string, s *isa, excluded map[string]bool) {
	b := build.NewContext()
	b.ConstraintExpr("!noasm")
	c := &ctx{Context: b, isa: s}
	file := strings.ToLower(s.name)
	var table bytes.Buffer
	fmt.Fprintf(&table, "%s//go:build !noasm\n\npackage asm\n\n// %s is the %s implementation; what has no kernel of its own is generic Go.\nvar %s = func() kernels {\nk := generic\n", header, file, s.name, file)
	for _, k := range kernels {
		l, ok := s.lowers[k.name]
		if !ok {
			continue
		}
		elementwise(c, k, l)
		name := lower(k.name)
		if c.wide() {
			fmt.Fprintf(&table, "k.%s = %s%s\n", name, name, s.name)
			continue
		}
		var rest []string
		for _, a := range k.args {
			rest = append(rest, a+"[n:]")
		}
		fmt.Fprintf(&table, "k.%s = func(%s) {\n%s%s(dst, %s)\nif n := len(dst) &^ %d; n < len(dst) {\ngeneric.%s(dst[n:], %s)\n}\n}\n",
			name, k.params(), name, s.name, strings.Join(k.args, ", "), c.lanes-1, name, strings.Join(rest, ", "))
	}
	for _, r := range reductions {
		reduce(c, r)
		fmt.Fprintf(&table, "k.%s = %s%s\n", lower(r.name), lower(r.name), s.name)
	}
	philox(c)
	table.WriteString("return k\n}()\n")
	table.WriteString(writeFunctions(c, excluded))
	for name := range s.lowers {
		known := false
		for _, k := range kernels {
			known = known || k.name == name
		}
		if !known {
			fatal(fmt.Errorf("%s: lowering of unknown kernel %s", s.name, name))
		}
	}
	if !c.wide() {
		hasF16C(c)
		madeByAMD(c)
	}
	f, err := b.Result()
	if err != nil {
		fatal(err)
	}
	if err := pass.Compile.Execute(f); err != nil {
		fatal(err)
	}
	cfg := printer.Config{Name: "cpu/_gen/block", Pkg: "asm"}
	for _, out := range []struct {
		p    printer.Printer
		name string
	}{{printer.NewGoAsm(cfg), file + "_amd64.s"}, {printer.NewStubs(cfg), file + "_amd64.go"}} {
		text, err := out.p.Print(f)
		if err != nil {
			fatal(err)
		}
		if large := tooLarge(text); !c.wide() && len(large) > 0 {
			if excluded != nil {
				fatal(fmt.Errorf("%s: still too large: %q", s.name, large))
			}
			excluded = map[string]bool{}
			for _, name := range large {
				excluded[name] = true
			}
			writeISA(dir, s, excluded)
			return
		}
		write(filepath.Join(dir, out.name), text)
	}
	write(filepath.Join(dir, file+"table_amd64.go"), table.Bytes())
}

// hasF16C emits the test for F16C, which golang.org/x/sys/cpu lacks.
func hasF16C(c *ctx) {
	c.Function("hasF16C")
	c.Attributes(build.NOSPLIT)
	c.Doc("hasF16C reports whether the processor converts between float32 and binary16 (CPUID leaf 1, ECX bit 29).")
	c.SignatureExpr("func() bool")
	c.MOVL(operand.U32(1), reg.EAX)
	c.XORL(reg.ECX, reg.ECX)
	c.CPUID()
	c.SHRL(operand.U8(29), reg.ECX)
	c.ANDL(operand.U8(1), reg.ECX)
	r := c.GP8()
	c.MOVB(reg.CL, r)
	c.Store(r, c.ReturnIndex(0))
	c.RET()
}

// madeByAMD emits the test for the vendor, which golang.org/x/sys/cpu lacks.
func madeByAMD(c *ctx) {
	c.Function("madeByAMD")
	c.Attributes(build.NOSPLIT)
	c.Doc("madeByAMD reports whether the vendor's name begins with \"Auth\", as in AuthenticAMD (CPUID leaf",
		"0, EBX).")
	c.SignatureExpr("func() bool")
	c.XORL(reg.EAX, reg.EAX)
	c.CPUID()
	r := c.GP8()
	c.CMPL(reg.EBX, operand.U32(0x68747541))
	c.SETEQ(r)
	c.Store(r, c.ReturnIndex(0))
	c.RET()
}
