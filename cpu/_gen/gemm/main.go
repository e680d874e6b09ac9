// Command gemm writes the kernels of package gemm. A kernel computes a tile of the product C: its
// loop over k keeps the tile in registers. There is one kernel for each height of a tile. Other
// kernels pack operands and transpose them.
//
//	go run ./gemm -dir ../internal/gemm
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

// tile describes the kernels of one element type on one instruction set.
type tile struct {
	isa    string // AVX2, AVX512, AVX512BF16
	typ    string // float32, float64, uint16 (bfloat16, summed in float32)
	bytes  int    // size of a vector in bytes
	rows   int    // greatest height of a tile in rows
	packed int    // distance, in a packed panel of A, between neighbours along k, in elements
}

var tiles = []tile{
	{"AVX2", "float32", 32, 6, 8}, {"AVX2", "float64", 32, 6, 8},
	{"AVX512", "float32", 64, 14, 16}, {"AVX512", "float64", 64, 14, 16},
	{"AVX512BF16", "uint16", 64, 14, 16},
}

// size returns the size in bytes of a vector's lane. A lane of the result holds one sum. A lane of
// an operand holds the elements whose products one step adds to a sum.
func (t tile) size() int { return map[string]int{"float32": 4, "float64": 8, "uint16": 4}[t.typ] }

// pairs reports whether a lane holds two elements that are neighbours along k.
func (t tile) pairs() bool { return t.typ == "uint16" }

// sum returns the type of the sums.
func (t tile) sum() string {
	if t.pairs() {
		return "float32"
	}
	return t.typ
}

// ahead returns how many lines of 64 bytes the kernel prefetches in four steps. The first line is
// at the address in the kernel's parameter next. In float64 a panel of A has twice as many bytes
// for each step.
func (t tile) ahead() int { return t.size() / 4 }

func (t tile) suffix() string {
	return map[string]string{"float32": "F32", "float64": "F64"}[t.typ] + t.isa
}

func main() {
	dir := flag.String("dir", "../internal/gemm", "folder of package gemm")
	flag.Parse()
	directs(*dir)
	for _, isa := range []string{"AVX2", "AVX512", "AVX512BF16"} {
		b := build.NewContext()
		b.ConstraintExpr("!noasm")
		var window *operand.Mem
		for _, t := range tiles {
			if t.isa != isa {
				continue
			}
			for h := 1; h <= t.rows; h++ {
				micro(&ctx{Context: b, t: t}, h)
			}
			for h := 1; h <= 4; h++ {
				for _, n := range []int{1, dotColumns[isa]} {
					c := &ctx{Context: b, t: t, window: window}
					dots(c, h, n)
					window = c.window
				}
			}
			if isa == "AVX2" {
				c := &ctx{Context: b, t: t, window: window}
				rowDots(c)
				window = c.window
			}
		}
		if bytes := map[string]int{"AVX2": 32, "AVX512": 64}[isa]; bytes > 0 {
			for _, stream := range []bool{false, true} {
				copyRows(b, fmt.Sprintf("%sRows%d%s", verb("copy", stream), 2*bytes, isa), bytes, 2*bytes, stream)
				if stream && bytes < 64 {
					break // a column of a transposed block is shorter than a line of the cache
				}
				transposeF32(b, fmt.Sprintf("%s%dF32%s", verb("transpose", stream), bytes/4, isa), "float32", bytes, stream)
				transposeF64(b, fmt.Sprintf("%s%dF64%s", verb("transpose", stream), bytes/8, isa), bytes, stream)
			}
			copyRows(b, fmt.Sprintf("copyRows%d%s", bytes, isa), bytes, bytes, false)
			windows(b, isa, bytes)
			if isa == "AVX2" {
				halves(b)
				winograd256(b)
			} else {
				winograd(b)
			}
			for h := 1; h <= map[string]int{"AVX2": 6, "AVX512": 14}[isa]; h++ {
				spans(&ctx{Context: b, t: tile{isa: isa, typ: "float32", bytes: bytes}}, h)
			}
		} else {
			interleave(b, "interleave16AVX512BF16", 1, false)
			for _, stream := range []bool{false, true} {
				transposeF32(b, verb("transpose", stream)+"16AVX512BF16", "uint16", 64, stream)
				interleave(b, verb("interleave", stream)+"32AVX512BF16", 2, stream)
			}
		}
		f, err := b.Result()
		if err == nil {
			err = pass.Compile.Execute(f)
		}
		check(err)
		cfg := printer.Config{Name: "cpu/_gen/gemm", Pkg: "gemm"}
		for name, p := range map[string]printer.Printer{"_amd64.s": printer.NewGoAsm(cfg), "_amd64.go": printer.NewStubs(cfg)} {
			text, err := p.Print(f)
			check(err)
			check(os.WriteFile(filepath.Join(*dir, strings.ToLower(isa)+name), wrapped(dotInstructions(text)), 0o644))
		}
	}
}

// verb returns the beginning of a kernel's name: v, or "stream" and v if the kernel's stores
// bypass the caches.
func verb(v string, stream bool) string {
	if stream {
		return "stream" + strings.ToUpper(v[:1]) + v[1:]
	}
	return v
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "gemm:", err)
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

type ctx struct {
	*build.Context
	t      tile
	window *operand.Mem // the table from which masks of AVX2 are loaded; nil until it is emitted
}

func (c *ctx) vec() reg.VecVirtual {
	if c.t.bytes == 64 {
		return c.ZMM()
	}
	return c.YMM()
}

func (c *ctx) broadcast(m operand.Mem, v reg.Register) {
	if c.t.size() == 4 {
		c.VBROADCASTSS(m, v)
	} else {
		c.VBROADCASTSD(m, v)
	}
}

func (c *ctx) fma(x, y, acc reg.Register) {
	switch c.t.typ {
	case "uint16":
		c.VPDPWSSD(x, y, acc) // a placeholder that dotInstructions replaces by VDPBF16PS
	case "float32":
		c.VFMADD231PS(x, y, acc)
	default:
		c.VFMADD231PD(x, y, acc)
	}
}

func (c *ctx) pointer(name string) reg.GPVirtual {
	return c.Load(c.Param(name), c.GP64()).(reg.GPVirtual)
}

// elements loads a parameter that is a number of elements of the given type, and converts it to
// bytes.
func (c *ctx) elements(name, typ string) reg.GPVirtual {
	r := c.pointer(name)
	c.SHLQ(operand.U8(map[string]int{"uint16": 1, "float32": 2, "float64": 3}[typ]), r)
	return r
}

const (
	prefetchSteps = 16  // B is prefetched this many steps before its use, and A half as many
	prefetchFrom  = 192 // a panel of fewer steps is not prefetched
)

// micro emits the kernel for tiles of height h. A tile is 2 vectors wide: each broadcast element of
// A is multiplied by two vectors of B.
func micro(c *ctx, h int) {
	t := c.t
	width := 2 * t.bytes / t.size()
	c.Function(fmt.Sprintf("micro%d%s", h, t.suffix()))
	c.Attributes(build.NOSPLIT)
	doc := []string{fmt.Sprintf("micro%d%s computes, for r < %d and j < %d, the sum over p < k of a[p*%d+r] * b[p*ldb+j], fused and in the order of p,", h, t.suffix(), h, width, t.packed)}
	if t.bytes == 64 {
		doc = append(doc, fmt.Sprintf("and for j < w puts it into c[r*ldc+j], or adds it there if accumulate is not 0. It prefetches %d bytes for each p from next on.", 16*t.ahead()))
	} else {
		doc = append(doc, fmt.Sprintf("and puts it into c[r*ldc+j], or adds it there if accumulate is not 0; w must be %d.", width))
	}
	if t.pairs() {
		doc[0] = fmt.Sprintf("micro%d%s computes, for r < %d and j < %d, the sum over p < k and i < 2 of a[(p*%d+r)*2+i] * b[(p*ldb+j)*2+i], by VDPBF16PS in the order of p,", h, t.suffix(), h, width, t.packed)
	}
	c.Doc(doc...)
	c.Pragma("noescape")
	c.SignatureExpr(fmt.Sprintf("func(k int, a, b *%s, ldb int, c *%s, ldc, w, accumulate int, next *%s)", t.typ, t.sum(), t.typ))
	k, a, b, ldb := c.pointer("k"), c.pointer("a"), c.pointer("b"), c.elements("ldb", t.sum())
	dst, ldc := c.pointer("c"), c.elements("ldc", t.sum())
	// Prefetching from the address next on was measured only with AVX-512, so the kernels of AVX2
	// ignore the parameter next.
	next := reg.GPVirtual(nil)
	if t.bytes == 64 {
		next = c.pointer("next")
	}
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
	const unroll = 4
	ldb3 := c.GP64()
	c.LEAQ(operand.Mem{Base: ldb, Index: ldb, Scale: 2}, ldb3)
	// Long panels come from the second-level cache or from memory, so the loop prefetches what
	// later steps read. Prefetches past the end of a short panel would cost more than they save.
	// For a short panel, the loop therefore prefetches what it reads anyway.
	bFar, aAhead, row, last := c.GP64(), c.GP64(), c.GP64(), c.GP64()
	prefetchRow := func(to func(operand.Op)) {
		to(operand.Mem{Base: row})
		to(operand.Mem{Base: row, Disp: 2*t.bytes - 1})
	}
	c.MOVQ(b, bFar)
	c.XORQ(aAhead, aAhead)
	c.MOVQ(dst, row)
	c.IMUL3Q(operand.I8(h-1), ldc, last)
	c.ADDQ(dst, last)
	c.CMPQ(k, operand.I32(prefetchFrom))
	c.JL(operand.LabelRef("short"))
	for range prefetchSteps / 8 {
		c.LEAQ(operand.Mem{Base: bFar, Index: ldb, Scale: 8}, bFar)
	}
	c.MOVQ(operand.I32(prefetchSteps/2*t.packed*t.size()), aAhead)
	c.JMP(operand.LabelRef("ready"))
	c.Label("short") // the loop has too few rounds, so the tile of C is prefetched at once
	for range h - 1 {
		prefetchRow(c.PREFETCHT0)
		c.ADDQ(ldc, row)
	}
	prefetchRow(c.PREFETCHT0)
	c.Label("ready")
	step := func(u int, prefetch bool) {
		m := operand.Mem{Base: b}
		switch u {
		case 1:
			m.Index, m.Scale = ldb, 1
		case 2:
			m.Index, m.Scale = ldb, 2
		case 3:
			m.Index, m.Scale = ldb3, 1
		}
		b0, b1 := c.vec(), c.vec()
		c.VMOVUPS(m, b0)
		m.Disp = t.bytes
		c.VMOVUPS(m, b1)
		if prefetch {
			for m.Base, m.Disp = bFar, 0; m.Disp < 2*t.bytes; m.Disp += 64 {
				c.PREFETCHT0(m)
			}
			if at := u * t.packed * t.size(); at%64 == 0 {
				c.PREFETCHT0(operand.Mem{Base: a, Index: aAhead, Scale: 1, Disp: at})
			}
		}
		for r := range h {
			x := c.vec()
			c.broadcast(operand.Mem{Base: a, Disp: (u*t.packed + r) * t.size()}, x)
			c.fma(b0, x, acc[r][0])
			c.fma(b1, x, acc[r][1])
		}
	}
	c.SUBQ(operand.I32(unroll), k)
	c.JL(operand.LabelRef("rest"))
	c.Label("loop")
	for u := range unroll {
		step(u, true)
		if every := 4 / t.ahead(); next != nil && u%every == every-1 {
			c.PREFETCHT1(operand.Mem{Base: next, Disp: u / every * 64})
		}
	}
	prefetchRow(c.PREFETCHT1)
	c.ADDQ(ldc, row)
	c.CMPQ(row, last)
	c.CMOVQHI(last, row)
	if next != nil {
		c.SUBQ(operand.I8(-64*t.ahead()), next) // for 128 bytes, shorter than ADDQ
	}
	c.LEAQ(operand.Mem{Base: bFar, Index: ldb, Scale: 4}, bFar)
	c.ADDQ(operand.I32(unroll*t.packed*t.size()), a)
	c.LEAQ(operand.Mem{Base: b, Index: ldb, Scale: 4}, b)
	c.SUBQ(operand.I32(unroll), k)
	c.JGE(operand.LabelRef("loop"))
	c.Label("rest")
	c.ADDQ(operand.I32(unroll), k)
	c.JLE(operand.LabelRef("store"))
	c.Label("single")
	step(0, false)
	c.ADDQ(operand.I32(t.packed*t.size()), a)
	c.ADDQ(ldb, b)
	c.DECQ(k)
	c.JG(operand.LabelRef("single"))
	c.Label("store")
	var mask [2]reg.Register
	if t.bytes == 64 {
		w, bits, ones := c.pointer("w"), c.GP64(), c.GP64()
		c.MOVQ(operand.I32(-1), ones)
		c.BZHIQ(w, ones, bits)
		for v := range mask {
			mask[v] = c.K()
			c.KMOVQ(bits, mask[v])
			c.SHRQ(operand.U8(t.bytes/t.size()), bits)
		}
	}
	how := c.pointer("accumulate")
	c.TESTQ(how, how)
	c.JEQ(operand.LabelRef("put"))
	c.rows(acc, dst, ldc, mask, true)
	c.VZEROUPPER()
	c.RET()
	c.Label("put")
	c.rows(acc, dst, ldc, mask, false)
	c.VZEROUPPER()
	c.RET()
}

// rows stores the tile acc in C, or adds it to C if add is true. It adds all of C before it stores
// anything: a load waits for earlier stores if their addresses differ by a multiple of 4096 bytes.
func (c *ctx) rows(acc [][]reg.VecVirtual, dst, ldc reg.GPVirtual, mask [2]reg.Register, add bool) {
	if add {
		c.each(acc, dst, ldc, func(v int, m operand.Mem, x reg.Register) {
			switch {
			case mask[v] != nil && c.t.size() == 4:
				c.VADDPS(m, x, mask[v], x)
			case mask[v] != nil:
				c.VADDPD(m, x, mask[v], x)
			case c.t.size() == 4:
				c.VADDPS(m, x, x)
			default:
				c.VADDPD(m, x, x)
			}
		})
	}
	c.each(acc, dst, ldc, func(v int, m operand.Mem, x reg.Register) {
		switch {
		case mask[v] != nil && c.t.size() == 4:
			c.VMOVUPS(x, mask[v], m)
		case mask[v] != nil:
			c.VMOVUPD(x, mask[v], m)
		case c.t.size() == 4:
			c.VMOVUPS(x, m)
		default:
			c.VMOVUPD(x, m)
		}
	})
}

// each calls f for each vector of a tile: with its number in the row, its address in C, and its
// register.
func (c *ctx) each(acc [][]reg.VecVirtual, dst, ldc reg.GPVirtual, f func(v int, m operand.Mem, x reg.Register)) {
	row := c.GP64()
	c.MOVQ(dst, row)
	for r := range acc {
		for v, x := range acc[r] {
			f(v, operand.Mem{Base: row, Disp: v * c.t.bytes}, x)
		}
		if r < len(acc)-1 {
			c.ADDQ(ldc, row)
		}
	}
}
