package jit

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// convert writes a conversion between types in which the processor computes.
func (c *compiler) convert(i int32, in expr.Instr) {
	from, to := c.Code[in.A].Type, in.Type
	size := to.Size()
	switch {
	case from == dtype.Bool:
		m := c.truth(in.A)
		r := c.result(i, true)
		if to.IsFloat() {
			one := c.constant(floatBits(1, size), size)
			c.vector(spread.forSize(size), c.length(size), r, 0, one, options{mask: m, zero: true})
			return
		}
		c.fromTruth(r, m, size)
	case to == dtype.Bool:
		size := from.Size()
		x := c.vec(in.A)
		if from.IsFloat() {
			z := c.temp()
			c.vector(xor.forSize(size), c.length(size), z, z, register(z), options{})
			c.vector(compareFloat.forSize(size), c.length(size), c.resultMask(i), x, register(z), imm(floatNotEqual))
			return
		}
		c.vector(test.forSize(size), c.length(size), c.resultMask(i), x, register(x), options{})
	case from.IsFloat() && !to.IsFloat():
		c.truncate(i, in, from, to)
	case from.IsInteger() && to.IsInteger() && from.Size() > size:
		x := c.vec(in.A)
		// in this instruction the field reg is the source; the length is that of the source's
		// 64-bit lanes
		c.vector(narrowToInt, c.length(8), x, 0, register(c.result(i, true)), options{})
	default:
		x := register(c.vec(in.A))
		c.vector(converts[[2]dtype.Type{from, to}], c.length(max(size, from.Size())), c.result(i, true), 0, x, options{})
	}
}

// fromTruth sets each lane of r to 1 if it is set in the truth value m, else to 0. For AVX2 the
// lanes of m must have the given size.
func (c *compiler) fromTruth(r, m uint8, size int) {
	if !c.wide {
		c.vector(shiftBy.forSize(size), c.length(size), byRight, r, register(m), imm(byte(8*size-1)))
		return
	}
	c.vector(fromMask.forSize(size), c.length(size), r, 0, register(m), options{})
	c.vector(absInt.forSize(size), c.length(size), r, 0, register(r), options{})
}

// truncate converts floats to integers towards zero. For values that are too large, and for NaN,
// the instructions return the least signed or the greatest unsigned integer. The code corrects
// signed results by masks. Before an unsigned conversion it takes the maximum of the value and 0.
// The maximum of NaN and 0 is 0, because the instruction then returns its second source.
func (c *compiler) truncate(i int32, in expr.Instr, from, to dtype.Type) {
	a, b := from.Size(), to.Size()
	length := c.length(max(a, b))
	o := converts[[2]dtype.Type{from, to}]
	x := c.vec(in.A)
	if to == dtype.U32 || to == dtype.U64 {
		z := c.temp()
		c.vector(xor.forSize(a), c.length(a), z, z, register(z), options{})
		c.vector(maxFloat.forSize(a), c.length(a), z, x, register(z), options{})
		c.vector(o, length, c.result(i, true), 0, register(z), options{})
		return
	}
	limit := c.bits(floatBits(math.Ldexp(1, 8*b-1), a), a)
	r := c.result(i, false)
	c.vector(o, length, r, 0, register(x), options{})
	k := c.tempMask()
	c.vector(compareFloat.forSize(a), c.length(a), k, x, limit, imm(floatGreaterEqual))
	top := c.constant(1<<(8*b-1)-1, b)
	c.vector(spread.forSize(b), c.length(b), r, 0, top, options{mask: k})
	c.vector(compareFloat.forSize(a), c.length(a), k, x, register(x), imm(floatOrdered))
	c.vector(moveVector.forSize(b), c.length(b), r, 0, register(r), options{mask: k, zero: true})
}

// masked returns the options of an instruction that loads or stores elements. After the last whole
// vector, these options contain the mask of the remaining elements. If zero is true, a load sets
// the other lanes to 0.
func (c *compiler) masked(zero bool) options {
	if c.tail && c.wide {
		return options{mask: tailMask, zero: zero}
	}
	return options{}
}

// loadVector writes the code that reads load i of the loop into register r and converts it to the
// type in which the loop computes. If a truth value is true, its lane becomes a number other than
// 0.
func (c *compiler) loadVector(i int, r uint8) {
	l := c.Loads[i]
	once := l.Once || c.tail && !c.wide // all lanes get the same element
	if l.Type == dtype.Bool && l.Wide {
		l.Type = dtype.U32
	}
	if l.stepped() {
		c.loadSteps(i, r)
		return
	}
	size := l.Type.Size()
	m := c.address(i, size, l.Once)
	if size >= 4 {
		o := moveVector.forSize(size)
		if once {
			o = spread.forSize(size)
			c.vector(o, c.length(size), r, 0, m, options{})
			return
		}
		c.vector(o, c.length(size), r, 0, m, c.masked(true))
		return
	}
	opt := c.masked(true)
	if once { // the vector still has the stored type; it is widened below
		o := spreadWord
		if size == 1 {
			o = spreadByte
		}
		c.vector(o, c.length(4), r, 0, m, options{})
		m, opt = register(r), options{}
	}
	o := widenByte
	switch l.Type {
	case dtype.F16:
		o = halfToFloat
	case dtype.BF16:
		o = widenWord
	case dtype.I16:
		o = widenInt16
	case dtype.I8:
		o = widenInt8
	}
	c.vector(o, c.length(4), r, 0, m, opt)
	if l.Type == dtype.BF16 {
		c.vector(shiftBy[0], c.length(4), byLeft, r, register(r), imm(16))
	}
}

// store writes the code for store i of the loop.
func (c *compiler) store(i int) {
	if !c.wide {
		c.storeAVX2(i)
		return
	}
	s := c.Stores[i]
	length, opt := c.length(4), c.masked(false)
	if c.Code[s.Value].Type == dtype.Bool {
		t, m := c.temp(), c.truth(s.Value)
		c.fromTruth(t, m, 4)
		if s.Wide {
			c.vector(storeVector[0], length, t, 0, c.address(len(c.Loads)+i, 4, false), opt)
		} else {
			c.vector(narrowToByte, length, t, 0, c.address(len(c.Loads)+i, 1, false), opt)
		}
		return
	}
	x, size := c.vec(s.Value), s.Type.Size()
	if s.Type == dtype.BF16 {
		x = c.toBF16(x)
	}
	to := c.address(len(c.Loads)+i, size, false)
	switch s.Type {
	case dtype.BF16, dtype.I16:
		c.vector(narrowToWord, length, x, 0, to, opt)
	case dtype.U8, dtype.I8:
		c.vector(narrowToByte, length, x, 0, to, opt)
	case dtype.F16:
		opt.hasImm = true // the immediate 0 means: round to nearest even
		c.vector(floatToHalf, length, x, 0, to, opt)
	default:
		c.vector(storeVector.forSize(size), c.length(size), x, 0, to, opt)
	}
}

// toBF16 returns a register whose lanes have the upper halves of rounded float32 values. To round
// to nearest even, it adds 0x7fff plus the lowest bit of the upper half. A NaN becomes a quiet NaN.
func (c *compiler) toBF16(x uint8) uint8 {
	length := c.length(4)
	top, r, nan := c.temp(), c.temp(), c.tempMask()
	c.vector(compareFloat[0], length, nan, x, register(x), imm(floatUnordered))
	c.vector(shiftBy[0], length, byRight, top, register(x), imm(16))
	c.vector(and[0], length, r, top, c.bits(1, 4), options{})
	c.vector(addInt[0], length, r, r, register(x), options{})
	c.vector(addInt[0], length, r, r, c.bits(0x7fff, 4), options{})
	c.vector(shiftBy[0], length, byRight, r, register(r), imm(16))
	c.vector(or[0], length, r, top, c.bits(0x40, 4), options{mask: nan})
	return r
}
