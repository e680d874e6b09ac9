package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// winograd256 emits the transforms of [winograd] for AVX2. They handle 16 tiles, too, as two halves
// of 8. The 16 registers do not hold all rows of a tile. The transforms therefore first combine
// rows, and then the columns of each combined row.
func winograd256(b *build.Context) {
	table := func(name string, value func(i int) uint32) operand.Mem {
		m := b.StaticGlobal("winograd256" + name)
		b.DataAttributes(build.RODATA | build.NOPTR)
		for i := range 8 {
			b.AddDatum(4*i, operand.U32(value(i)))
		}
		return m
	}
	lanes := table("Lanes", func(i int) uint32 { return 1 << i })
	positive := table("Positive", func(int) uint32 { return 0x7fffffff }) // all bits but the sign
	half := table("Half", func(int) uint32 { return 0x3f000000 })
	winogradSource256(b, lanes, positive)
	winogradWeights256(b, half)
	winogradResult256(b, lanes)
}

// op256 emits a three-operand instruction and returns its result.
func op256(b *build.Context, emit func(ops ...operand.Op), ops ...operand.Op) reg.VecVirtual {
	v := b.YMM()
	emit(append(ops, v)...)
	return v
}

func minus256(b *build.Context, x reg.VecVirtual, y operand.Op) reg.VecVirtual {
	return op256(b, b.VSUBPS, y, x)
}

func plus256(b *build.Context, x reg.VecVirtual, y operand.Op) reg.VecVirtual {
	return op256(b, b.VADDPS, y, x)
}

// laneMask returns a mask for the lanes of a vector. If the bit of a lane is set in the byte at m,
// all bits of the lane are set.
func laneMask(b *build.Context, m, lanes operand.Mem) reg.VecVirtual {
	v := op256(b, func(ops ...operand.Op) { b.VPBROADCASTB(ops[0], ops[1]) }, m)
	b.VPAND(lanes, v, v)
	b.VPCMPEQD(lanes, v, v)
	return v
}

// inOrder exchanges the second and third quarter of v. This orders the results of instructions that
// work on halves of vectors.
func inOrder(b *build.Context, v reg.VecVirtual) { b.VPERMPD(operand.U8(0b11011000), v, v) }

func winogradSource256(b *build.Context, lanes, positive operand.Mem) {
	b.Function("winogradSourceAVX2")
	b.Attributes(build.NOSPLIT)
	b.Doc("winogradSourceAVX2 transforms 16 tiles of 4×4 elements, which overlap by two columns, in each of k channels. rows holds the addresses of the four rows of the first channel, and steps the distances to the next channel's.",
		"Element i of a transformed tile goes to dst[i*apart+c*ldd+tile]. The masks select the elements 0 … 15, 16 … 31, 2 … 17 and 18 … 33 of a row.",
		"The fifth mask selects the tiles. If none of the last 8 is selected, they are not written. The others are.",
		"An element that is not selected counts as zero and is not read. Elements of the last two rows plus ahead are prefetched.",
		"The absolute values of the elements 0 … 31 are added to the first half of seen. The maxima of all go into the second half.")
	b.Pragma("noescape")
	b.SignatureExpr("func(dst *float32, apart, ldd int, rows *[4]uintptr, steps *[4]int, masks *[5]uint16, ahead, k int, seen *[32]float32)")
	for h := range 2 {
		masks, seen := load(b, "masks"), load(b, "seen")
		if h == 1 {
			b.CMPB(operand.Mem{Base: masks, Disp: 9}, operand.U8(0))
			b.JE(operand.LabelRef("done"))
		}
		var mask [4]reg.VecVirtual
		for j, at := range []int{2 * h, 2*h + 1, 4 + 2*h, 4 + 2*h + 1} {
			mask[j] = laneMask(b, operand.Mem{Base: masks, Disp: at}, lanes)
		}
		dst, apart, ldd := load(b, "dst"), load(b, "apart"), load(b, "ldd")
		b.SHLQ(operand.U8(2), apart)
		b.SHLQ(operand.U8(2), ldd)
		list, steps := load(b, "rows"), load(b, "steps")
		var rows [4]reg.GPVirtual
		for i := range rows {
			rows[i] = b.GP64()
			b.MOVQ(operand.Mem{Base: list, Disp: 8 * i}, rows[i])
		}
		ahead, k := load(b, "ahead"), load(b, "k")
		var sums [2]reg.VecVirtual
		for i := range sums {
			sums[i] = b.YMM()
			b.VMOVUPS(operand.Mem{Base: seen, Disp: 32 * i}, sums[i])
		}
		most := b.YMM()
		b.VMOVUPS(operand.Mem{Base: seen, Disp: 64}, most)
		if h == 1 {
			b.ADDQ(operand.U8(32), dst)
		}
		again := fmt.Sprintf("channel%d", h)
		b.Label(again)
		for _, row := range rows[2:] {
			b.PREFETCHT0(operand.Mem{Base: row, Index: ahead, Scale: 4, Disp: 64 * h})
		}
		element := func(row, j int) reg.VecVirtual {
			v := b.YMM()
			b.VMASKMOVPS(operand.Mem{Base: rows[row], Disp: 64*h + []int{0, 32, 8, 40}[j]}, mask[j], v)
			return v
		}
		note := func(v reg.VecVirtual, j int) {
			size := b.YMM()
			switch j {
			case 0, 1:
				b.VPAND(positive, v, size)
				b.VADDPS(size, sums[j], sums[j])
			case 2: // the other vectors have the same elements
				return
			case 3:
				b.VPAND(positive, v, size)
			}
			b.VMAXPS(size, most, most)
		}
		at, apart3 := b.GP64(), b.GP64()
		b.MOVQ(dst, at)
		b.LEAQ(operand.Mem{Base: apart, Index: apart, Scale: 2}, apart3)
		for i, pair := range [][2]int{{0, 2}, {1, 2}, {2, 1}, {1, 3}} {
			var t [4]reg.VecVirtual
			for j := range t {
				x, y := element(pair[0], j), element(pair[1], j)
				if i == 0 || i == 3 { // these pairs cover each row once
					note(x, j)
					note(y, j)
				}
				if i == 1 {
					t[j] = plus256(b, x, y)
				} else {
					t[j] = minus256(b, x, y)
				}
			}
			var d [4]reg.VecVirtual
			for j := range d { // the even elements, and the odd
				d[j] = b.YMM()
				b.VSHUFPS(operand.U8([]int{0b10001000, 0b11011101}[j%2]), t[j/2*2+1], t[j/2*2], d[j])
				inOrder(b, d[j])
			}
			stored := [4]reg.VecVirtual{minus256(b, d[0], d[2]), plus256(b, d[1], d[2]), minus256(b, d[2], d[1]), minus256(b, d[1], d[3])}
			for j, v := range stored {
				b.VMOVUPS(v, offset(at, apart, apart3, j))
			}
			if i < 3 {
				b.LEAQ(operand.Mem{Base: at, Index: apart, Scale: 4}, at)
			}
		}
		for i, row := range rows {
			step := b.GP64()
			b.MOVQ(operand.Mem{Base: steps, Disp: 8 * i}, step)
			b.LEAQ(operand.Mem{Base: row, Index: step, Scale: 4}, row)
		}
		b.ADDQ(ldd, dst)
		b.DECQ(k)
		b.JG(operand.LabelRef(again))
		for i, v := range sums {
			b.VMOVUPS(v, operand.Mem{Base: seen, Disp: 32 * i})
		}
		b.VMOVUPS(most, operand.Mem{Base: seen, Disp: 64})
	}
	b.Label("done")
	b.VZEROUPPER()
	b.RET()
}

// offset returns the address at + j·apart, for j < 4. apart3 holds 3·apart.
func offset(at, apart, apart3 reg.GPVirtual, j int) operand.Mem {
	m := operand.Mem{Base: at}
	switch j {
	case 1, 2:
		m.Index, m.Scale = apart, uint8(j)
	case 3:
		m.Index, m.Scale = apart3, 1
	}
	return m
}

func winogradWeights256(b *build.Context, half operand.Mem) {
	b.Function("winogradWeightsAVX2")
	b.Attributes(build.NOSPLIT)
	b.Doc("winogradWeightsAVX2 transforms the 3×3 weights of 8 output channels, for each of k input channels c. Weight t is at src[c*72+t*tap].",
		"Element i of the transformed weights goes to dst[i*apart+c*8].")
	b.Pragma("noescape")
	b.SignatureExpr("func(dst *float32, apart int, src *float32, tap, k int)")
	dst, apart, src, tap, k := load(b, "dst"), load(b, "apart"), load(b, "src"), load(b, "tap"), load(b, "k")
	b.SHLQ(operand.U8(2), apart)
	b.SHLQ(operand.U8(2), tap)
	apart3 := b.GP64()
	b.LEAQ(operand.Mem{Base: apart, Index: apart, Scale: 2}, apart3)
	spread := func(g0, g1, g2 reg.VecVirtual) [4]reg.VecVirtual {
		sum := plus256(b, g0, g2)
		a, c := plus256(b, sum, g1), minus256(b, sum, g1)
		b.VMULPS(half, a, a)
		b.VMULPS(half, c, c)
		return [4]reg.VecVirtual{g0, a, c, g2}
	}
	b.Label("channel")
	at := b.GP64()
	b.MOVQ(src, at)
	var s [3][4]reg.VecVirtual
	for i := range s {
		var g [3]reg.VecVirtual
		for j := range g {
			g[j] = b.YMM()
			b.VMOVUPS(operand.Mem{Base: at}, g[j])
			if i < 2 || j < 2 {
				b.ADDQ(tap, at)
			}
		}
		s[i] = spread(g[0], g[1], g[2])
	}
	for j := range 4 {
		column := b.GP64()
		b.LEAQ(offset(dst, apart, apart3, j), column)
		for i, v := range spread(s[0][j], s[1][j], s[2][j]) {
			b.VMOVUPS(v, operand.Mem{Base: column})
			if i < 3 {
				b.LEAQ(operand.Mem{Base: column, Index: apart, Scale: 4}, column)
			}
		}
	}
	b.ADDQ(operand.I32(9*32), src)
	b.ADDQ(operand.I32(32), dst)
	b.DECQ(k)
	b.JG(operand.LabelRef("channel"))
	b.VZEROUPPER()
	b.RET()
}

func winogradResult256(b *build.Context, lanes operand.Mem) {
	b.Function("winogradResultAVX2")
	b.Attributes(build.NOSPLIT)
	b.Doc("winogradResultAVX2 transforms products back to 16 tiles of 2×2 results, in each of k channels. Element i of a tile is at src[i*apart+c*lds+tile].",
		"Row r of the results begins at dst[c*distance+r*pitch]. The masks select the columns 0 … 15 and 16 … 31 of the first row and of the second. Others are not written.")
	b.Pragma("noescape")
	b.SignatureExpr("func(dst *float32, pitch, distance int, src *float32, apart, lds int, masks *[4]uint16, k int)")
	for h := range 2 {
		masks := load(b, "masks")
		if h == 1 {
			b.CMPW(operand.Mem{Base: masks, Disp: 2}, operand.U8(0))
			b.JE(operand.LabelRef("done"))
		}
		dst, pitch, distance := load(b, "dst"), load(b, "pitch"), load(b, "distance")
		src, apart, lds := load(b, "src"), load(b, "apart"), load(b, "lds")
		for _, r := range []reg.GPVirtual{pitch, distance, apart, lds} {
			b.SHLQ(operand.U8(2), r)
		}
		if h == 1 {
			b.ADDQ(operand.U8(64), dst)
			b.ADDQ(operand.U8(32), src)
		}
		k, apart3 := load(b, "k"), b.GP64()
		b.LEAQ(operand.Mem{Base: apart, Index: apart, Scale: 2}, apart3)
		again := fmt.Sprintf("channel%d", h)
		b.Label(again)
		var s [2][4]reg.VecVirtual
		for j := range 4 {
			column := b.GP64()
			b.LEAQ(offset(src, apart, apart3, j), column)
			var x [4]reg.VecVirtual
			for i := range x {
				x[i] = b.YMM()
				b.VMOVUPS(operand.Mem{Base: column}, x[i])
				if i < 3 {
					b.LEAQ(operand.Mem{Base: column, Index: apart, Scale: 4}, column)
				}
			}
			sum, difference := plus256(b, x[1], x[2]), minus256(b, x[1], x[2])
			s[0][j], s[1][j] = plus256(b, x[0], sum), minus256(b, difference, x[3])
		}
		for r := range s {
			sum, difference := plus256(b, s[r][1], s[r][2]), minus256(b, s[r][1], s[r][2])
			left, right := plus256(b, s[r][0], sum), minus256(b, difference, s[r][3])
			inOrder(b, left)
			inOrder(b, right)
			low, high := op256(b, b.VUNPCKLPS, right, left), op256(b, b.VUNPCKHPS, right, left)
			for half, v := range []reg.VecVirtual{low, high} {
				m := operand.Mem{Base: dst, Disp: 32 * half}
				if r == 1 {
					m.Index, m.Scale = pitch, 1
				}
				selected := operand.Mem{Base: masks, Disp: 4*r + 2*h + half}
				partial, next := fmt.Sprintf("partial%d%d%d", h, r, half), fmt.Sprintf("next%d%d%d", h, r, half)
				b.CMPB(selected, operand.I8(-1))
				b.JNE(operand.LabelRef(partial))
				b.VMOVUPS(v, m)
				b.JMP(operand.LabelRef(next))
				b.Label(partial)
				b.VMASKMOVPS(v, laneMask(b, selected, lanes), m)
				b.Label(next)
			}
		}
		b.ADDQ(lds, src)
		b.ADDQ(distance, dst)
		b.DECQ(k)
		b.JG(operand.LabelRef(again))
	}
	b.Label("done")
	b.VZEROUPPER()
	b.RET()
}
