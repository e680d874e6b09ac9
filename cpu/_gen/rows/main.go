// Command rows writes the kernels of package rows: sums, updates, rotations and substitutions of
// rows of matrices.
//
//	go run ./rows -dir ../internal/rows
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
	"github.com/mmcloughlin/avo/reg"
)

// ctx emits kernels of one element type on one instruction set.
type ctx struct {
	*build.Context
	isa   string
	bytes int // size of a vector in bytes
	size  int // size of an element in bytes
}

func main() {
	dir := flag.String("dir", "../internal/rows", "folder of package rows")
	flag.Parse()
	for isa, bytes := range map[string]int{"AVX2": 32, "AVX512": 64} {
		b := build.NewContext()
		b.ConstraintExpr("!noasm")
		for _, size := range []int{4, 8} {
			c := &ctx{b, isa, bytes, size}
			c.four("update", "a[i*lda+j] += p[i]*y[j] + q[i]*x[j], and then sum[j] += r[i]*a[i*lda+j]", []string{"p", "q", "r"}, []string{"y", "x"})
			c.four("add", "a[i*lda+j] += p[i]*y[j]", []string{"p"}, []string{"y"})
			c.four("combine", "sum[j] += r[i]*a[i*lda+j]", []string{"r"}, nil)
			c.dots()
			c.rotate()
			c.substitute()
		}
		f, err := b.Result()
		if err == nil {
			err = pass.Compile.Execute(f)
		}
		check(err)
		cfg := printer.Config{Name: "cpu/_gen/rows", Pkg: "rows"}
		for name, p := range map[string]printer.Printer{"_amd64.s": printer.NewGoAsm(cfg), "_amd64.go": printer.NewStubs(cfg)} {
			text, err := p.Print(f)
			check(err)
			check(os.WriteFile(filepath.Join(*dir, strings.ToLower(isa)+name), wrapped(text), 0o644))
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "rows:", err)
		os.Exit(1)
	}
}

// wrapped breaks comment lines at 100 columns.
func wrapped(text []byte) []byte {
	var out []string
	for line := range strings.SplitSeq(string(text), "\n") {
		for strings.HasPrefix(line, "// ") && utf8.RuneCountInString(line) > 100 {
			at := strings.LastIndexByte(string([]rune(line)[:101]), ' ')
			if at < len("// ")+1 {
				break
			}
			out, line = append(out, line[:at]), "// "+line[at+1:]
		}
		out = append(out, line)
	}
	return []byte(strings.Join(out, "\n"))
}

func (c *ctx) typ() string { return fmt.Sprintf("float%d", 8*c.size) }

// function begins the assembly of a kernel with the given name and documentation.
func (c *ctx) function(name, doc, parameters string) {
	full := fmt.Sprintf("%sF%d%s", name, 8*c.size, c.isa)
	c.Function(full)
	c.Attributes(build.NOSPLIT)
	c.Doc(full + " " + doc)
	c.Pragma("noescape")
	c.SignatureExpr("func(" + strings.ReplaceAll(parameters, "*T", "*"+c.typ()) + ")")
}

func (c *ctx) vec() reg.VecVirtual {
	if c.bytes == 64 {
		return c.ZMM()
	}
	return c.YMM()
}

func (c *ctx) zero() reg.VecVirtual {
	v := c.vec()
	if c.bytes == 64 {
		c.VPXORD(v, v, v)
	} else {
		c.VXORPS(v, v, v)
	}
	return v
}

func (c *ctx) broadcast(m operand.Mem) reg.VecVirtual {
	v := c.vec()
	if c.size == 4 {
		c.VBROADCASTSS(m, v)
	} else {
		c.VBROADCASTSD(m, v)
	}
	return v
}

// fma adds x·y to sum.
func (c *ctx) fma(x operand.Op, y, sum reg.Register) {
	if c.size == 4 {
		c.VFMADD231PS(x, y, sum)
	} else {
		c.VFMADD231PD(x, y, sum)
	}
}

func (c *ctx) parameter(name string) reg.GPVirtual {
	return c.Load(c.Param(name), c.GP64()).(reg.GPVirtual)
}

// elements loads a parameter that is a number of elements, and converts it to bytes.
func (c *ctx) elements(name string) reg.GPVirtual {
	r := c.parameter(name)
	c.SHLQ(operand.U8(map[int]int{4: 2, 8: 3}[c.size]), r)
	return r
}

// four emits a kernel that handles four rows at a time. To each row it adds vectors, each
// multiplied by a coefficient. A coefficient is a slice with a number for each row. A vector is a
// slice with a number for each column.
func (c *ctx) four(name, formula string, coefficients, vectors []string) {
	sums := coefficients[len(coefficients)-1] == "r"
	params := []string{}
	for i, p := range coefficients {
		params = append(params, p)
		if i < len(vectors) {
			params = append(params, vectors[i])
		}
	}
	if sums {
		params = append(params, "sum")
	}
	c.function(name, "computes, for i < rows and j < n, "+formula+". rows is a positive multiple of 4, and n of 16.",
		"rows, n int, a *T, lda int, "+strings.Join(params, ", ")+" *T")
	rows, n, lda, i := c.elements("rows"), c.elements("n"), c.elements("lda"), c.GP64()
	a := [4]reg.GPVirtual{c.parameter("a")}
	y := map[string]reg.GPVirtual{}
	for _, v := range vectors {
		y[v] = c.parameter(v)
	}
	sum := reg.GPVirtual(nil)
	if sums {
		sum = c.parameter("sum")
	}
	for r := 1; r < 4; r++ {
		a[r] = c.GP64()
	}
	c.XORQ(i, i)
	c.Label("rows")
	factor := map[string][4]reg.VecVirtual{}
	for _, p := range coefficients {
		at := c.parameter(p)
		var f [4]reg.VecVirtual
		for r := range f {
			f[r] = c.broadcast(operand.Mem{Base: at, Index: i, Scale: 1, Disp: r * c.size})
		}
		factor[p] = f
	}
	for r := 1; r < 4; r++ {
		c.LEAQ(operand.Mem{Base: a[r-1], Index: lda, Scale: 1}, a[r])
	}
	j := c.GP64()
	c.XORQ(j, j)
	c.Label("columns")
	loaded := map[string]reg.VecVirtual{}
	for _, v := range vectors {
		loaded[v] = c.vec()
		c.VMOVUPS(operand.Mem{Base: y[v], Index: j, Scale: 1}, loaded[v])
	}
	total := reg.VecVirtual(nil)
	if sums {
		total = c.vec()
		c.VMOVUPS(operand.Mem{Base: sum, Index: j, Scale: 1}, total)
	}
	for r := range 4 {
		m := operand.Mem{Base: a[r], Index: j, Scale: 1}
		if len(vectors) == 0 {
			c.fma(m, factor["r"][r], total)
			continue
		}
		x := c.vec()
		c.VMOVUPS(m, x)
		for k, v := range vectors {
			c.fma(loaded[v], factor[coefficients[k]][r], x)
		}
		c.VMOVUPS(x, m)
		if sums {
			c.fma(x, factor["r"][r], total)
		}
	}
	if sums {
		c.VMOVUPS(total, operand.Mem{Base: sum, Index: j, Scale: 1})
	}
	c.ADDQ(operand.I32(c.bytes), j)
	c.CMPQ(j, n)
	c.JL(operand.LabelRef("columns"))
	c.LEAQ(operand.Mem{Base: a[3], Index: lda, Scale: 1}, a[0])
	c.ADDQ(operand.I32(4*c.size), i)
	c.CMPQ(i, rows)
	c.JL(operand.LabelRef("rows"))
	c.VZEROUPPER()
	c.RET()
}

// dots emits the kernel of the dot products of rows with a vector. It keeps two vectors of partial
// sums for each row.
func (c *ctx) dots() {
	c.function("dots", "computes, for i < rows, out[i] = Σ a[i*lda+j]*x[j] over j < n. rows is a positive multiple of 4, and n of 16.",
		"rows, n int, a *T, lda int, x, out *T")
	rows, n, lda, i := c.elements("rows"), c.elements("n"), c.elements("lda"), c.GP64()
	x, out := c.parameter("x"), c.parameter("out")
	a := [4]reg.GPVirtual{c.parameter("a")}
	for r := 1; r < 4; r++ {
		a[r] = c.GP64()
	}
	c.XORQ(i, i)
	c.Label("rows")
	for r := 1; r < 4; r++ {
		c.LEAQ(operand.Mem{Base: a[r-1], Index: lda, Scale: 1}, a[r])
	}
	var sum [4]reg.VecVirtual
	for r := range sum {
		sum[r] = c.zero()
	}
	j := c.GP64()
	c.XORQ(j, j)
	c.Label("columns")
	v := c.vec()
	c.VMOVUPS(operand.Mem{Base: x, Index: j, Scale: 1}, v)
	for r := range sum {
		c.fma(operand.Mem{Base: a[r], Index: j, Scale: 1}, v, sum[r])
	}
	c.ADDQ(operand.I32(c.bytes), j)
	c.CMPQ(j, n)
	c.JL(operand.LabelRef("columns"))
	for r := range sum {
		c.total(sum[r], operand.Mem{Base: out, Index: i, Scale: 1, Disp: r * c.size})
	}
	c.LEAQ(operand.Mem{Base: a[3], Index: lda, Scale: 1}, a[0])
	c.ADDQ(operand.I32(4*c.size), i)
	c.CMPQ(i, rows)
	c.JL(operand.LabelRef("rows"))
	c.VZEROUPPER()
	c.RET()
}

// total adds the lanes of v and stores the result. It repeatedly adds the upper half to the lower
// half.
func (c *ctx) total(v reg.VecVirtual, m operand.Mem) {
	add := func(x, y reg.Register) {
		if c.size == 4 {
			c.VADDPS(x, y, y)
		} else {
			c.VADDPD(x, y, y)
		}
	}
	h := c.XMM()
	if c.bytes == 64 { // the VEX form cannot address the upper 16 registers
		half := c.YMM()
		c.VEXTRACTF64X4(operand.U8(1), v, half)
		v = v.AsY().(reg.VecVirtual)
		add(half, v)
		c.VEXTRACTF32X4(operand.U8(1), v, h)
	} else {
		c.VEXTRACTF128(operand.U8(1), v, h)
	}
	v = v.AsX().(reg.VecVirtual)
	add(h, v)
	c.VPERMILPD(operand.U8(1), v, h)
	add(h, v)
	if c.size == 8 {
		c.VMOVSD(v, m)
		return
	}
	c.VPSHUFD(operand.U8(1), v, h)
	add(h, v)
	c.VMOVSS(v, m)
}

// rotate emits the kernel of a sequence of plane rotations, each of two neighbouring rows. The row
// that two successive rotations share stays in registers. The kernel handles four vectors of
// columns at a time, and then single vectors.
func (c *ctx) rotate() {
	c.function("rotate", "applies count rotations to rows of n columns. Rotation i replaces the rows x = i*lda and y = (i+1)*lda by "+
		"cos[i]*x + sin[i]*y and cos[i]*y - sin[i]*x. count is positive, n is a positive multiple of 16, and lda may be negative.",
		"count, n int, a *T, lda int, cos, sin *T")
	count, n, lda := c.parameter("count"), c.elements("n"), c.elements("lda")
	a, cos, sin := c.parameter("a"), c.parameter("cos"), c.parameter("sin")
	pass := func(label string, vectors int) {
		width := vectors * c.bytes
		c.Label(label)
		c.SUBQ(operand.I32(width), n)
		c.JL(operand.LabelRef(label + "end"))
		row, i := c.GP64(), c.GP64()
		c.MOVQ(a, row)
		c.XORQ(i, i)
		x := make([]reg.VecVirtual, vectors)
		for v := range x {
			x[v] = c.vec()
			c.VMOVUPS(operand.Mem{Base: row, Disp: v * c.bytes}, x[v])
		}
		c.Label(label + "rotation")
		co, si := c.broadcast(operand.Mem{Base: cos, Index: i, Scale: uint8(c.size)}), c.broadcast(operand.Mem{Base: sin, Index: i, Scale: uint8(c.size)})
		for v := range x {
			y, z := c.vec(), c.vec()
			c.VMOVUPS(operand.Mem{Base: row, Index: lda, Scale: 1, Disp: v * c.bytes}, y)
			if c.size == 4 {
				c.VMULPS(y, si, z)
				c.VFMADD231PS(x[v], co, z)
				c.VMULPS(x[v], si, x[v])
				c.VFMSUB231PS(y, co, x[v])
			} else {
				c.VMULPD(y, si, z)
				c.VFMADD231PD(x[v], co, z)
				c.VMULPD(x[v], si, x[v])
				c.VFMSUB231PD(y, co, x[v])
			}
			c.VMOVUPS(z, operand.Mem{Base: row, Disp: v * c.bytes})
		}
		c.ADDQ(lda, row)
		c.INCQ(i)
		c.CMPQ(i, count)
		c.JL(operand.LabelRef(label + "rotation"))
		for v := range x {
			c.VMOVUPS(x[v], operand.Mem{Base: row, Disp: v * c.bytes})
		}
		c.ADDQ(operand.I32(width), a)
		c.JMP(operand.LabelRef(label))
		c.Label(label + "end")
		c.ADDQ(operand.I32(width), n)
	}
	pass("wide", 4)
	pass("narrow", 1)
	c.VZEROUPPER()
	c.RET()
}

// substitute emits the kernel of forward substitution. The row that is computed stays in registers.
// The kernel handles four vectors of columns at a time, then two, then one.
func (c *ctx) substitute() {
	c.function("substitute", "computes, for first <= i < rows, x[i*ldx+j] = ±(x[i*ldx+j] + Σ a[i*ars+k*acs]*x[k*ldx+j]) / a[i*(ars+acs)] "+
		"over k < i, for j < n. If unit is not 0, it does not divide. sign is 0 for plus and -0 for minus. first is less than rows, n is a "+
		"positive multiple of 16, and all distances may be negative.",
		"first, rows, n int, a *T, ars, acs int, x *T, ldx, unit int, sign "+c.typ())
	first, n := c.parameter("first"), c.elements("n")
	ars, acs, ldx := c.elements("ars"), c.elements("acs"), c.elements("ldx")
	a, x := c.parameter("a"), c.parameter("x")
	sign := c.Param("sign")
	m, err := sign.Resolve()
	check(err)
	flip := c.broadcast(m.Addr)
	// a and y begin at the row whose number is the parameter first
	at, y := c.GP64(), c.GP64()
	c.MOVQ(ars, at)
	c.IMULQ(first, at)
	c.ADDQ(at, a)
	skip := c.GP64()
	c.MOVQ(ldx, skip)
	c.IMULQ(first, skip)
	pass := func(label string, vectors int) {
		width := vectors * c.bytes
		c.Label(label)
		c.SUBQ(operand.I32(width), n)
		c.JL(operand.LabelRef(label + "end"))
		row, i := c.GP64(), c.GP64()
		c.MOVQ(a, row)
		c.MOVQ(first, i)
		c.LEAQ(operand.Mem{Base: x, Index: skip, Scale: 1}, y)
		c.Label(label + "row")
		sum := make([]reg.VecVirtual, vectors)
		for v := range sum {
			sum[v] = c.vec()
			c.VMOVUPS(operand.Mem{Base: y, Disp: v * c.bytes}, sum[v])
		}
		from, k := c.GP64(), c.GP64()
		c.MOVQ(row, at)
		c.MOVQ(x, from)
		c.MOVQ(i, k)
		c.TESTQ(k, k)
		c.JE(operand.LabelRef(label + "summed"))
		c.Label(label + "term")
		f := c.broadcast(operand.Mem{Base: at})
		for v := range sum {
			c.fma(operand.Mem{Base: from, Disp: v * c.bytes}, f, sum[v])
		}
		c.ADDQ(acs, at)
		c.ADDQ(ldx, from)
		c.DECQ(k)
		c.JNE(operand.LabelRef(label + "term"))
		c.Label(label + "summed")
		for v := range sum {
			if c.bytes == 64 {
				c.VPXORD(flip, sum[v], sum[v])
			} else {
				c.VXORPS(flip, sum[v], sum[v])
			}
		}
		unit := c.parameter("unit")
		c.TESTQ(unit, unit)
		c.JNE(operand.LabelRef(label + "store"))
		d := c.broadcast(operand.Mem{Base: at})
		for v := range sum {
			if c.size == 4 {
				c.VDIVPS(d, sum[v], sum[v])
			} else {
				c.VDIVPD(d, sum[v], sum[v])
			}
		}
		c.Label(label + "store")
		for v := range sum {
			c.VMOVUPS(sum[v], operand.Mem{Base: y, Disp: v * c.bytes})
		}
		c.ADDQ(ars, row)
		c.ADDQ(ldx, y)
		c.INCQ(i)
		rows := c.parameter("rows")
		c.CMPQ(i, rows)
		c.JL(operand.LabelRef(label + "row"))
		c.ADDQ(operand.I32(width), x)
		c.JMP(operand.LabelRef(label))
		c.Label(label + "end")
		c.ADDQ(operand.I32(width), n)
	}
	pass("four", 4)
	pass("two", 2)
	pass("one", 1)
	c.VZEROUPPER()
	c.RET()
}
