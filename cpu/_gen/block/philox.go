package main

import (
	"fmt"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// philoxVectors is the number of vectors that one round of the loop computes.
const philoxVectors = 2

// philox emits the kernel of the random number generator Philox. Each 64-bit lane of a vector
// computes one block of random words. A multiplication reads only the lower 32 bits of the lane, so
// the upper bits may have any value.
func philox(c *ctx) {
	c.Function("philox" + c.isa.name)
	c.Attributes(build.NOSPLIT)
	blocks := c.isa.bytes / 8
	c.Doc(fmt.Sprintf("philox%s is philox for as many times %d blocks as dst has whole.", c.isa.name, philoxVectors*blocks))
	c.Pragma("noescape")
	c.SignatureExpr("func(dst []uint32, seed, counter uint64)")
	dst := c.base("dst")
	n := c.Load(c.Param("dst").Len(), c.GP64()).(reg.GPVirtual)
	seed := c.Load(c.Param("seed"), c.GP64()).(reg.GPVirtual)
	high := c.GP64()
	c.MOVQ(seed, high)
	c.SHRQ(operand.U8(32), high)
	multiply0, multiply1 := c.broadcast(c64(expr.PhiloxM0)), c.broadcast(c64(expr.PhiloxM1))

	// This order of 32-bit words puts the words of blocks 0 … lanes/2-1 into the even lanes.
	order := c.StaticGlobal("philoxOrder" + c.isa.name)
	c.DataAttributes(build.RODATA | build.NOPTR)
	for i := range blocks {
		c.AddDatum(8*i, operand.U64(i/2+i%2*blocks/2))
	}
	constant := func(name string, v uint64) operand.Mem {
		m := c.StaticGlobal(name + c.isa.name)
		c.DataAttributes(build.RODATA | build.NOPTR)
		for i := range blocks {
			c.AddDatum(8*i, operand.U64(v))
		}
		return m
	}
	weyl0, weyl1 := constant("philoxW0", expr.PhiloxW0), constant("philoxW1", expr.PhiloxW1)
	further := constant("philoxBlocks", uint64(blocks))
	spread := func(r reg.GPVirtual) reg.VecVirtual {
		x, v := c.XMM(), c.full()
		c.VMOVQ(r, x)
		c.VPBROADCASTQ(x, v)
		return v
	}
	counter := spread(c.Load(c.Param("counter"), c.GP64()).(reg.GPVirtual))
	c.VPADDQ(order, counter, counter)
	move := func(from, to reg.VecVirtual) {
		if c.wide() {
			c.VMOVDQA64(from, to)
		} else {
			c.VMOVDQA(from, to)
		}
	}
	// mix returns x>>32 ^ y ^ z.
	mix := func(x, y, z reg.VecVirtual) reg.VecVirtual {
		o := c.full()
		c.VPSRLQ(operand.U8(32), x, o)
		if c.wide() {
			c.VPTERNLOGQ(operand.U8(0x96), y, z, o)
			return o
		}
		return c.bitwise('^', c.bitwise('^', o, y), z)
	}
	c.SUBQ(operand.I32(4*philoxVectors*blocks), n)
	c.JL(operand.LabelRef("done"))
	c.Label("many")
	key0, key1 := spread(seed), spread(high)
	var w [philoxVectors][4]reg.VecVirtual
	for i := range w {
		w[i][0], w[i][1] = c.full(), c.full()
		move(counter, w[i][0])
		c.VPSRLQ(operand.U8(32), counter, w[i][1])
		c.VPADDQ(further, counter, counter)
	}
	for round := range expr.PhiloxRounds {
		for i, v := range w {
			p := c.full()
			c.VPMULUDQ(multiply0, v[0], p)
			if round == 0 { // in the first round, words 2 and 3 of a block are 0
				q := c.full()
				c.VPSRLQ(operand.U8(32), p, q)
				w[i] = [4]reg.VecVirtual{c.bitwise('^', v[1], key0), c.zero(), c.bitwise('^', q, key1), p}
				continue
			}
			q := c.full()
			c.VPMULUDQ(multiply1, v[2], q)
			w[i] = [4]reg.VecVirtual{mix(q, v[1], key0), q, mix(p, v[3], key1), p}
		}
		if round+1 < expr.PhiloxRounds {
			c.VPADDQ(weyl0, key0, key0)
			c.VPADDQ(weyl1, key1, key1)
		}
	}
	shuffle := func(imm uint8, y, x reg.VecVirtual) reg.VecVirtual {
		o := c.full()
		c.VSHUFPS(operand.U8(imm), y, x, o)
		return o
	}
	c.lanes = c.isa.bytes / 4
	for i, v := range w {
		x, y := shuffle(0x88, v[1], v[0]), shuffle(0x88, v[3], v[2])
		for k, imm := range []uint8{0x88, 0xdd} {
			c.store(shuffle(imm, y, x), operand.Mem{Base: dst, Disp: (2*i + k) * c.isa.bytes}, 4, nil)
		}
	}
	c.ADDQ(operand.I32(2*philoxVectors*c.isa.bytes), dst)
	c.SUBQ(operand.I32(4*philoxVectors*blocks), n)
	c.JGE(operand.LabelRef("many"))
	c.Label("done")
	c.VZEROUPPER()
	c.RET()
}

// zero returns a register of zeros.
func (c *ctx) zero() reg.VecVirtual {
	o := c.full()
	c.clear(o)
	return o
}
