package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// windowRows is the greatest height of a tile in the kernels that compute the gradient of a
// convolution's weight. Each row needs a register for a pointer.
var windowRows = map[string]int{"AVX2": 6, "AVX512": 12}

// windows emits the kernels that only convolutions use.
func windows(b *build.Context, isa string, bytes int) {
	for h := 1; h <= windowRows[isa]; h++ {
		window(&ctx{Context: b, t: tile{isa: isa, typ: "float32", bytes: bytes}}, h, 2)
		window(&ctx{Context: b, t: tile{isa: isa, typ: "float32", bytes: bytes}}, h, 1)
	}
	for _, n := range []int{0, 2, 3, 4} {
		pieces(b, isa, bytes, n)
	}
	taps(&ctx{Context: b, t: tile{isa: isa, typ: "float32", bytes: bytes}})
	padRows(b, isa, bytes)
}

// padRows emits the kernel that copies rows with zeros around them. It may write past the end of a
// row, because the next row overwrites these elements.
func padRows(b *build.Context, isa string, bytes int) {
	lanes := bytes / 4
	b.Function("padRows" + isa)
	b.Attributes(build.NOSPLIT)
	b.Doc(fmt.Sprintf("padRows%s sets, for r < rows, dst[r*width+left+i] = src[r*distance+i] for i < n, and to 0 the elements before, at most %d, and the %d behind", isa, lanes, lanes),
		fmt.Sprintf("those. It reads up to %d elements behind a row of src. rows and n are positive.", lanes-1))
	b.Pragma("noescape")
	b.SignatureExpr("func(dst, src *float32, rows, width, left, n, distance int)")
	dst, src, rows, width, left, n, distance := load(b, "dst"), load(b, "src"), load(b, "rows"), load(b, "width"), load(b, "left"), load(b, "n"), load(b, "distance")
	zero, at, to := vec(b, bytes), b.GP64(), b.GP64()
	if bytes == 64 {
		b.VPXORD(zero, zero, zero)
	} else {
		b.VXORPS(zero, zero, zero)
	}
	b.Label("row")
	b.VMOVUPS(zero, operand.Mem{Base: dst})
	b.LEAQ(operand.Mem{Base: dst, Index: left, Scale: 4}, to)
	b.XORQ(at, at)
	b.Label("vector")
	x := vec(b, bytes)
	b.VMOVUPS(operand.Mem{Base: src, Index: at, Scale: 4}, x)
	b.VMOVUPS(x, operand.Mem{Base: to, Index: at, Scale: 4})
	b.ADDQ(operand.I32(lanes), at)
	b.CMPQ(at, n)
	b.JL(operand.LabelRef("vector"))
	b.VMOVUPS(zero, operand.Mem{Base: to, Index: n, Scale: 4})
	b.LEAQ(operand.Mem{Base: dst, Index: width, Scale: 4}, dst)
	b.LEAQ(operand.Mem{Base: src, Index: distance, Scale: 4}, src)
	b.DECQ(rows)
	b.JG(operand.LabelRef("row"))
	b.VZEROUPPER()
	b.RET()
}

// window emits the kernel for a tile of h rows of a weight's gradient. It reads the convolution's
// input in place, one element at a time, and the gradient of the result as one or two vectors.
func window(c *ctx, h, vectors int) {
	t := c.t
	width := vectors * t.bytes / 4
	name := fmt.Sprintf("window%d%s", h, t.isa)
	if vectors == 1 {
		name = fmt.Sprintf("windowHalf%d%s", h, t.isa)
	}
	c.Function(name)
	c.Attributes(build.NOSPLIT)
	c.Doc(fmt.Sprintf("%s adds to c[r*ldc+j], for r < %d and j < %d, the sum over i < n and q < cols of a[rows[r]+lines[i]+q] * b[(i*cols+q)*%d+j],", name, h, width, width),
		"fused and in the order of i and q. n and cols are positive.")
	c.Pragma("noescape")
	c.SignatureExpr("func(a *float32, rows *[12]int, lines *int, n, cols int, b, c *float32, ldc int)")
	// the four words are: the end of b's current line, the end of all of b, the bytes of a line,
	// the address of the next line
	ends := c.AllocLocal(32)
	lineEnd, end, lineBytes, line := ends, ends.Offset(8), ends.Offset(16), ends.Offset(24)
	b := c.pointer("b")
	{
		n, cols, lines := c.pointer("n"), c.pointer("cols"), c.pointer("lines")
		c.IMUL3Q(operand.I32(vectors*t.bytes), cols, cols)
		c.MOVQ(cols, lineBytes)
		c.MOVQ(b, lineEnd)
		c.IMULQ(cols, n)
		c.ADDQ(b, n)
		c.MOVQ(n, end)
		c.MOVQ(lines, line)
	}
	ptr := make([]reg.GPVirtual, h)
	{
		a, rows := c.pointer("a"), c.pointer("rows")
		// the pointers that are computed last reuse the registers of a and rows
		for r := h - 1; r >= 0; r-- {
			p := c.GP64()
			c.MOVQ(operand.Mem{Base: rows, Disp: 8 * r}, p)
			c.LEAQ(operand.Mem{Base: a, Index: p, Scale: 4}, p)
			ptr[r] = p
		}
	}
	acc := make([][]reg.VecVirtual, h)
	for r := range acc {
		acc[r] = make([]reg.VecVirtual, vectors)
		for v := range vectors {
			acc[r][v] = c.vec()
			if t.bytes == 64 {
				c.VPXORD(acc[r][v], acc[r][v], acc[r][v])
			} else {
				c.VXORPS(acc[r][v], acc[r][v], acc[r][v])
			}
		}
	}
	at := c.GP64()
	c.Label("line")
	c.MOVQ(lineBytes, at)
	c.ADDQ(at, lineEnd)
	c.MOVQ(line, at)
	c.ADDQ(operand.I32(8), line)
	c.MOVQ(operand.Mem{Base: at}, at)
	c.Label("column")
	row := make([]reg.VecVirtual, vectors)
	for v := range row {
		row[v] = c.vec()
		c.VMOVUPS(operand.Mem{Base: b, Disp: v * t.bytes}, row[v])
	}
	for r := range h {
		x := c.vec()
		c.broadcast(operand.Mem{Base: ptr[r], Index: at, Scale: 4}, x)
		for v, y := range row {
			c.fma(y, x, acc[r][v])
		}
	}
	c.INCQ(at)
	c.ADDQ(operand.I32(vectors*t.bytes), b)
	c.CMPQ(b, lineEnd)
	c.JL(operand.LabelRef("column"))
	c.CMPQ(b, end)
	c.JL(operand.LabelRef("line"))
	dst, ldc := c.pointer("c"), c.elements("ldc", "float32")
	c.rows(acc, dst, ldc, [2]reg.Register{}, true)
	c.VZEROUPPER()
	c.RET()
}

// pieces emits the kernel that packs a panel from n pieces of each row. The positions of the pieces
// are in registers. If n is 0, the kernel handles any number of pieces.
func pieces(b *build.Context, isa string, bytes, n int) {
	name, many := fmt.Sprintf("pieces%d%s", n, isa), fmt.Sprint("i < ", n)
	if n == 0 {
		name, many = "pieces"+isa, "i < n"
	}
	lanes := bytes / 4
	b.Function(name)
	b.Attributes(build.NOSPLIT)
	b.Doc(fmt.Sprintf("%s copies, for p < k and %s in their order, %d elements from src[offs[p]+list[2*i]] on to dst[p*%d+list[2*i+1]].", name, many, lanes, 2*lanes))
	b.Pragma("noescape")
	b.SignatureExpr("func(dst, src *float32, offs *int, k int, list *int, n int)")
	dst, src, offs, k := load(b, "dst"), load(b, "src"), load(b, "offs"), load(b, "k")
	row := b.GP64()
	list := load(b, "list")
	if n > 0 {
		var from, to []reg.GPVirtual
		for i := range n {
			f, t := b.GP64(), b.GP64()
			b.MOVQ(operand.Mem{Base: list, Disp: 16 * i}, f)
			b.MOVQ(operand.Mem{Base: list, Disp: 16*i + 8}, t)
			from, to = append(from, f), append(to, t)
		}
		b.Label("row")
		b.MOVQ(operand.Mem{Base: offs}, row)
		b.LEAQ(operand.Mem{Base: src, Index: row, Scale: 4}, row)
		var v []reg.VecVirtual
		for i := range n {
			x := vec(b, bytes)
			b.VMOVUPS(operand.Mem{Base: row, Index: from[i], Scale: 4}, x)
			v = append(v, x)
		}
		for i := range n {
			b.VMOVUPS(v[i], operand.Mem{Base: dst, Index: to[i], Scale: 4})
		}
	} else {
		last, at, f := load(b, "n"), b.GP64(), b.GP64()
		b.SHLQ(operand.U8(4), last)
		b.ADDQ(list, last)
		b.Label("row")
		b.MOVQ(operand.Mem{Base: offs}, row)
		b.LEAQ(operand.Mem{Base: src, Index: row, Scale: 4}, row)
		b.MOVQ(list, at)
		b.Label("piece")
		x := vec(b, bytes)
		b.MOVQ(operand.Mem{Base: at}, f)
		b.VMOVUPS(operand.Mem{Base: row, Index: f, Scale: 4}, x)
		b.MOVQ(operand.Mem{Base: at, Disp: 8}, f)
		b.VMOVUPS(x, operand.Mem{Base: dst, Index: f, Scale: 4})
		b.ADDQ(operand.I32(16), at)
		b.CMPQ(at, last)
		b.JL(operand.LabelRef("piece"))
	}
	b.ADDQ(operand.I32(8), offs)
	b.ADDQ(operand.I32(2*bytes), dst)
	b.DECQ(k)
	b.JG(operand.LabelRef("row"))
	b.VZEROUPPER()
	b.RET()
}

// taps emits the kernel of a depthwise convolution, in which each output channel has one input
// channel. It computes vectors of output positions, each a sum of few products.
func taps(c *ctx) {
	t := c.t
	lanes := t.bytes / 4
	c.Function("taps" + t.isa)
	c.Attributes(build.NOSPLIT)
	c.Doc(fmt.Sprintf("taps%s computes, for i < n, a positive multiple of %d, dst[i] = Σ w[p] * src[offs[p]+i] over p < k, fused and in the order of p.", t.isa, lanes))
	c.Pragma("noescape")
	c.SignatureExpr("func(dst, src *float32, offs *int, w *float32, k, n int)")
	dst, src, offs, w, k, n := c.pointer("dst"), c.pointer("src"), c.pointer("offs"), c.pointer("w"), c.pointer("k"), c.pointer("n")
	p, at := c.GP64(), c.GP64()
	block := func(vectors int) {
		var acc []reg.VecVirtual
		for range vectors {
			v := c.vec()
			if t.bytes == 64 {
				c.VPXORD(v, v, v)
			} else {
				c.VXORPS(v, v, v)
			}
			acc = append(acc, v)
		}
		c.XORQ(p, p)
		c.Label(fmt.Sprint("tap", vectors))
		x := c.vec()
		c.MOVQ(operand.Mem{Base: offs, Index: p, Scale: 8}, at)
		c.broadcast(operand.Mem{Base: w, Index: p, Scale: 4}, x)
		for i, v := range acc {
			c.VFMADD231PS(operand.Mem{Base: src, Index: at, Scale: 4, Disp: i * t.bytes}, x, v)
		}
		c.INCQ(p)
		c.CMPQ(p, k)
		c.JL(operand.LabelRef(fmt.Sprint("tap", vectors)))
		for i, v := range acc {
			c.VMOVUPS(v, operand.Mem{Base: dst, Disp: i * t.bytes})
		}
		c.ADDQ(operand.I32(vectors*t.bytes), src)
		c.ADDQ(operand.I32(vectors*t.bytes), dst)
	}
	c.SUBQ(operand.I32(4*lanes), n)
	c.JL(operand.LabelRef("rest"))
	c.Label("four")
	block(4)
	c.SUBQ(operand.I32(4*lanes), n)
	c.JGE(operand.LabelRef("four"))
	c.Label("rest")
	c.ADDQ(operand.I32(3*lanes), n)
	c.JL(operand.LabelRef("done"))
	c.Label("one")
	block(1)
	c.SUBQ(operand.I32(lanes), n)
	c.JGE(operand.LabelRef("one"))
	c.Label("done")
	c.VZEROUPPER()
	c.RET()
}
