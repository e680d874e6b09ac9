package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// winograd emits the transforms of Winograd's convolution F(2×2, 3×3), whose matrices are in Lavin
// and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016). Each lane of a vector
// handles one tile, or one output channel if weights are transformed.
func winograd(b *build.Context) {
	t := winogradTables(b)
	winogradSource(b, t)
	winogradWeights(b)
	winogradResult(b, t)
}

// winogradTable holds the indexes of four permutations of the elements of two vectors: the even
// elements, the odd elements, and the two halves of the interleaved vectors.
type winogradTable struct{ even, odd, low, high operand.Mem }

func winogradTables(b *build.Context) winogradTable {
	table := func(name string, index func(i int) int) operand.Mem {
		m := b.StaticGlobal("winograd" + name)
		b.DataAttributes(build.RODATA | build.NOPTR)
		for i := range 16 {
			b.AddDatum(4*i, operand.U32(index(i)))
		}
		return m
	}
	return winogradTable{
		even: table("Even", func(i int) int { return 2 * i }),
		odd:  table("Odd", func(i int) int { return 2*i + 1 }),
		low:  table("Low", func(i int) int { return i/2 + i%2*16 }),
		high: table("High", func(i int) int { return 8 + i/2 + i%2*16 }),
	}
}

func vector(b *build.Context, m operand.Mem) reg.VecVirtual {
	v := b.ZMM()
	b.VMOVDQU32(m, v)
	return v
}

// permuted returns the elements of x and y that the vector index selects.
func permuted(b *build.Context, index, x, y reg.VecVirtual) reg.VecVirtual {
	v := b.ZMM()
	b.VMOVAPS(index, v)
	b.VPERMI2PS(y, x, v)
	return v
}

func minus(b *build.Context, x, y reg.VecVirtual) reg.VecVirtual {
	v := b.ZMM()
	b.VSUBPS(y, x, v)
	return v
}

func plus(b *build.Context, x, y reg.VecVirtual) reg.VecVirtual {
	v := b.ZMM()
	b.VADDPS(y, x, v)
	return v
}

// masks loads n masks of 16 lanes.
func masks(b *build.Context, n int) (k []reg.Register) {
	p := load(b, "masks")
	for i := range n {
		m := b.K()
		b.KMOVW(operand.Mem{Base: p, Disp: 2 * i}, m)
		k = append(k, m)
	}
	return k
}

// matrices calls f for i = 0 … 15, with the address of element i, which is base + i·apart.
func matrices(b *build.Context, base, apart reg.GPVirtual, f func(i int, m operand.Mem)) {
	at, apart3 := b.GP64(), b.GP64()
	b.MOVQ(base, at)
	b.LEAQ(operand.Mem{Base: apart, Index: apart, Scale: 2}, apart3)
	for i := range 16 {
		m := operand.Mem{Base: at}
		switch i % 4 {
		case 1:
			m.Index, m.Scale = apart, 1
		case 2:
			m.Index, m.Scale = apart, 2
		case 3:
			m.Index, m.Scale = apart3, 1
		}
		f(i, m)
		if i%4 == 3 && i < 15 {
			b.LEAQ(operand.Mem{Base: at, Index: apart, Scale: 4}, at)
		}
	}
}

func winogradSource(b *build.Context, t winogradTable) {
	b.Function("winogradSourceAVX512")
	b.Attributes(build.NOSPLIT)
	b.Doc("winogradSourceAVX512 transforms 16 tiles of 4×4 elements, which overlap by two columns, in each of k channels. rows holds the addresses of the four rows of the first channel, and steps the distances to the next channel's.",
		"Element i of a transformed tile goes to dst[i*apart+c*ldd+tile]. The masks select the elements 0 … 15, 16 … 31, 2 … 17 and 18 … 33 of a row, and the tiles.",
		"An element that is not selected counts as zero and is not read. Elements of the last two rows plus ahead are prefetched.",
		"The absolute values of the elements 0 … 31 are added to the first half of seen. The maxima of all go into the second half.")
	b.Pragma("noescape")
	b.SignatureExpr("func(dst *float32, apart, ldd int, rows *[4]uintptr, steps *[4]int, masks *[5]uint16, ahead, k int, seen *[32]float32)")
	dst, apart, ldd := load(b, "dst"), load(b, "apart"), load(b, "ldd")
	b.SHLQ(operand.U8(2), apart)
	b.SHLQ(operand.U8(2), ldd)
	list, steps := load(b, "rows"), load(b, "steps")
	var rows [4]reg.GPVirtual
	for i := range rows {
		rows[i] = b.GP64()
		b.MOVQ(operand.Mem{Base: list, Disp: 8 * i}, rows[i])
	}
	mask := masks(b, 5)
	even, odd := vector(b, t.even), vector(b, t.odd)
	ahead, k := load(b, "ahead"), load(b, "k")
	seen, bits, positive := load(b, "seen"), b.GP32(), b.ZMM()
	b.MOVL(operand.U32(0x7fffffff), bits) // all bits but the sign
	b.VPBROADCASTD(bits, positive)
	sum, most := vector(b, operand.Mem{Base: seen}), vector(b, operand.Mem{Base: seen, Disp: 64})
	b.Label("channel")
	var s [4][4]reg.VecVirtual
	for i, row := range rows {
		for disp := 0; disp < 128 && i >= 2; disp += 64 {
			b.PREFETCHT0(operand.Mem{Base: row, Index: ahead, Scale: 4, Disp: disp})
		}
		var x [4]reg.VecVirtual
		for j, disp := range []int{0, 64, 8, 72} {
			x[j] = b.ZMM()
			b.VMOVUPS_Z(operand.Mem{Base: row, Disp: disp}, mask[j], x[j])
		}
		for j, v := range x {
			if j == 2 { // the other three vectors have the same elements
				continue
			}
			size := b.ZMM()
			b.VPANDD(positive, v, size)
			if j < 2 {
				b.VADDPS(size, sum, sum)
			}
			b.VMAXPS(size, most, most)
		}
		step := b.GP64()
		b.MOVQ(operand.Mem{Base: steps, Disp: 8 * i}, step)
		b.LEAQ(operand.Mem{Base: row, Index: step, Scale: 4}, row)
		d0, d1 := permuted(b, even, x[0], x[1]), permuted(b, odd, x[0], x[1])
		d2, d3 := permuted(b, even, x[2], x[3]), permuted(b, odd, x[2], x[3])
		s[i] = [4]reg.VecVirtual{minus(b, d0, d2), plus(b, d1, d2), minus(b, d2, d1), minus(b, d1, d3)}
	}
	matrices(b, dst, apart, func(i int, m operand.Mem) {
		j := i % 4
		var v reg.VecVirtual
		switch i / 4 {
		case 0:
			v = minus(b, s[0][j], s[2][j])
		case 1:
			v = plus(b, s[1][j], s[2][j])
		case 2:
			v = minus(b, s[2][j], s[1][j])
		case 3:
			v = minus(b, s[1][j], s[3][j])
		}
		b.VMOVUPS(v, mask[4], m)
	})
	b.ADDQ(ldd, dst)
	b.DECQ(k)
	b.JG(operand.LabelRef("channel"))
	b.VMOVUPS(sum, operand.Mem{Base: seen})
	b.VMOVUPS(most, operand.Mem{Base: seen, Disp: 64})
	b.VZEROUPPER()
	b.RET()
}

func winogradWeights(b *build.Context) {
	b.Function("winogradWeightsAVX512")
	b.Attributes(build.NOSPLIT)
	b.Doc("winogradWeightsAVX512 transforms the 3×3 weights of 16 output channels, for each of k input channels c. Weight t is at src[c*144+t*tap].",
		"Element i of the transformed weights goes to dst[i*apart+c*16].")
	b.Pragma("noescape")
	b.SignatureExpr("func(dst *float32, apart int, src *float32, tap, k int)")
	dst, apart, src, tap, k := load(b, "dst"), load(b, "apart"), load(b, "src"), load(b, "tap"), load(b, "k")
	b.SHLQ(operand.U8(2), apart)
	b.SHLQ(operand.U8(2), tap)
	bits, half := b.GP32(), b.ZMM()
	b.MOVL(operand.U32(0x3f000000), bits) // 0.5
	b.VPBROADCASTD(bits, half)
	spread := func(g0, g1, g2 reg.VecVirtual) [4]reg.VecVirtual {
		sum := plus(b, g0, g2)
		a, c := plus(b, sum, g1), minus(b, sum, g1)
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
			g[j] = b.ZMM()
			b.VMOVUPS(operand.Mem{Base: at}, g[j])
			if i < 2 || j < 2 {
				b.ADDQ(tap, at)
			}
		}
		s[i] = spread(g[0], g[1], g[2])
	}
	var u [4][4]reg.VecVirtual // column j, row i
	for j := range u {
		u[j] = spread(s[0][j], s[1][j], s[2][j])
	}
	matrices(b, dst, apart, func(i int, m operand.Mem) { b.VMOVUPS(u[i%4][i/4], m) })
	b.ADDQ(operand.I32(9*64), src)
	b.ADDQ(operand.I32(64), dst)
	b.DECQ(k)
	b.JG(operand.LabelRef("channel"))
	b.VZEROUPPER()
	b.RET()
}

func winogradResult(b *build.Context, t winogradTable) {
	b.Function("winogradResultAVX512")
	b.Attributes(build.NOSPLIT)
	b.Doc("winogradResultAVX512 transforms products back to 16 tiles of 2×2 results, in each of k channels. Element i of a tile is at src[i*apart+c*lds+tile].",
		"Row r of the results begins at dst[c*distance+r*pitch]. The masks select the columns 0 … 15 and 16 … 31 of the first row and of the second. Others are not written.")
	b.Pragma("noescape")
	b.SignatureExpr("func(dst *float32, pitch, distance int, src *float32, apart, lds int, masks *[4]uint16, k int)")
	dst, pitch, distance := load(b, "dst"), load(b, "pitch"), load(b, "distance")
	src, apart, lds := load(b, "src"), load(b, "apart"), load(b, "lds")
	for _, r := range []reg.GPVirtual{pitch, distance, apart, lds} {
		b.SHLQ(operand.U8(2), r)
	}
	mask := masks(b, 4)
	low, high := vector(b, t.low), vector(b, t.high)
	k := load(b, "k")
	b.Label("channel")
	var x [4][4]reg.VecVirtual // row, column
	matrices(b, src, apart, func(i int, m operand.Mem) {
		x[i/4][i%4] = b.ZMM()
		b.VMOVUPS(m, x[i/4][i%4])
	})
	var s [2][4]reg.VecVirtual
	for j := range 4 {
		sum, difference := plus(b, x[1][j], x[2][j]), minus(b, x[1][j], x[2][j])
		s[0][j], s[1][j] = plus(b, x[0][j], sum), minus(b, difference, x[3][j])
	}
	for r := range s {
		sum, difference := plus(b, s[r][1], s[r][2]), minus(b, s[r][1], s[r][2])
		left, right := plus(b, s[r][0], sum), minus(b, difference, s[r][3])
		m := operand.Mem{Base: dst}
		if r == 1 {
			m.Index, m.Scale = pitch, 1
		}
		b.VMOVUPS(permuted(b, low, left, right), mask[2*r], m)
		m.Disp = 64
		b.VMOVUPS(permuted(b, high, left, right), mask[2*r+1], m)
	}
	b.ADDQ(lds, src)
	b.ADDQ(distance, dst)
	b.DECQ(k)
	b.JG(operand.LabelRef("channel"))
	b.VZEROUPPER()
	b.RET()
}
