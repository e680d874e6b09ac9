package jit

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// AVX2 has only 16 registers and no masks. A truth value is a vector whose lanes have all bits set
// or no bits set. If a value has 64 bits, a loop has four lanes (lanes64.go). The elements after
// the last whole vector are computed one at a time: a load fills all lanes with one element, and a
// store writes the first lane.

// These spill slots hold fixed values.
const (
	countSlot = 0 // number of elements of a row
	foldSlot  = 1 // the values after the last whole vector, which are then combined as a vector
)

// scratch is a register for addresses and counts. Go restores its value after a call of assembly.
const scratch = r14

// tailLoop writes the loop over the elements after the last whole vector.
func (c *compiler) tailLoop() {
	n := c.spillMemory(countSlot).disp
	c.compareMemory(at, arena, n)
	done := c.jump(aboveEqual)
	again := len(c.code)
	c.iterate(true)
	c.addImmediate(at, 1)
	c.compareMemory(at, arena, n)
	c.jumpBack(below, again)
	if c.Fold != nil && !c.columns() {
		t := c.temp()
		c.vector(moveVector[0], len256, t, 0, c.spillMemory(foldSlot), options{})
		c.combine(c.accumulators[0], c.accumulators[0], t)
		c.endInstruction()
	}
	done()
}

// emitAVX2 writes the instructions whose code differs for AVX2. It returns false for all other
// instructions.
func (c *compiler) emitAVX2(i int32, in expr.Instr) bool {
	s, chained := c.chains[i]
	switch {
	case chained && s.second:
		c.divideAgain(i, s)
	case in.Op == expr.OpSelect:
		if size := in.Type.Size(); in.Type != dtype.Bool {
			m := c.truthFor(in.A, size)
			y, x := c.vec(in.C), register(c.vec(in.B))
			c.vector(choose, c.length(size), c.result(i, true), y, x, imm(m<<4))
			return true
		}
		size := c.values[i].truth
		m, x, y, t := c.truthFor(in.A, size), c.truthFor(in.B, size), c.truthFor(in.C, size), c.temp()
		c.vector(andNot, len256, t, m, register(y), options{})
		r := c.result(i, true)
		c.vector(and[0], len256, r, m, register(x), options{})
		c.vector(or[0], len256, r, r, register(t), options{})
	case in.Op.IsCompare():
		c.compareAVX2(i, in)
	case in.Op == expr.OpCvt:
		return c.convertAVX2(i, in)
	case in.Op == expr.OpNot && in.Type == dtype.Bool:
		c.invert(i, c.truth(in.A))
	case in.Op == expr.OpNot:
		c.invert(i, c.vec(in.A))
	case in.Type.Size() == 8 && in.Type.IsInteger() && c.emitLong(i, in):
	case in.Type == dtype.Bool:
		p := and
		switch in.Op {
		case expr.OpOr:
			p = or
		case expr.OpXor:
			p = xor
		}
		size := c.values[i].truth
		x, y := c.truthFor(in.A, size), c.truthFor(in.B, size)
		c.vector(p[0], len256, c.result(i, true), x, register(y), options{})
	default:
		return false
	}
	return true
}

// invert sets the result of instruction i to the complement of x.
func (c *compiler) invert(i int32, x uint8) {
	c.vector(xor[0], len256, c.result(i, true), x, c.bits(0xffffffff, 4), options{})
}

func (c *compiler) compareAVX2(i int32, in expr.Instr) {
	a, b, op := in.A, in.B, in.Op
	if op == expr.OpGt || op == expr.OpGe {
		a, b = b, a
		op -= expr.OpGt - expr.OpLt
	}
	t := c.Code[in.A].Type
	size := t.Size()
	length := c.length(size)
	x, y := c.vec(a), c.vec(b)
	if t.IsFloat() {
		predicate := map[expr.Op]byte{expr.OpEq: floatEqual, expr.OpNe: floatNotEqual, expr.OpLt: floatLess, expr.OpLe: floatLessEqual}[op]
		c.vector(compareFloat.forSize(size), length, c.result(i, true), x, register(y), imm(predicate))
		return
	}
	o := equals
	if op == expr.OpLt || op == expr.OpLe {
		// The instruction compares signed integers. With inverted sign bits, it compares unsigned
		// integers.
		if o = greater; t == dtype.U32 || t == dtype.U64 {
			p, q := c.temp(), c.temp()
			c.vector(xor[0], length, p, x, c.bits(1<<(8*size-1), size), options{})
			c.vector(xor[0], length, q, y, c.bits(1<<(8*size-1), size), options{})
			x, y = p, q
		}
		if op == expr.OpLt { // a < b is b > a, and a <= b is the negation of a > b
			x, y = y, x
		}
	}
	if op == expr.OpEq || op == expr.OpLt {
		c.vector(o.forSize(size), length, c.result(i, true), x, register(y), options{})
		return
	}
	r := c.temp()
	c.vector(o.forSize(size), length, r, x, register(y), options{})
	c.invert(i, r)
}

func (c *compiler) convertAVX2(i int32, in expr.Instr) bool {
	from, to := c.Code[in.A].Type, in.Type
	size, length := to.Size(), c.length(4)
	switch {
	case from == dtype.Bool && to.IsFloat():
		m := c.truthFor(in.A, size)
		c.vector(and[0], len256, c.result(i, true), m, c.bits(floatBits(1, size), size), options{})
	case from == dtype.Bool:
		m := c.truthFor(in.A, size)
		c.fromTruth(c.result(i, true), m, size)
	case to == dtype.Bool && from.IsFloat():
		x := c.vec(in.A)
		size = from.Size()
		c.vector(compareFloat.forSize(size), c.length(size), c.result(i, true), x, c.bits(0, size), imm(floatNotEqual))
	case to == dtype.Bool:
		r, x := c.temp(), c.vec(in.A)
		size = from.Size()
		c.vector(equals.forSize(size), c.length(size), r, x, c.bits(0, size), options{})
		c.invert(i, r)
	case from == dtype.F32 && to == dtype.I32:
		// The instruction returns the least integer for a number that it cannot convert. The
		// complement of the least integer is the greatest integer.
		x, over, number := c.vec(in.A), c.temp(), c.temp()
		c.vector(compareFloat[0], length, over, x, c.bits(floatBits(1<<31, 4), 4), imm(floatGreaterEqual))
		c.vector(compareFloat[0], length, number, x, register(x), imm(floatOrdered))
		r := c.result(i, false)
		c.vector(converts[[2]dtype.Type{from, to}], length, r, 0, register(x), options{})
		c.vector(xor[0], length, r, r, register(over), options{})
		c.vector(and[0], length, r, r, register(number), options{})
	case from == dtype.U32 && to == dtype.F32:
		// Convert the two 16-bit halves exactly, and subtract the bias from the upper half exactly.
		// Only the final addition rounds.
		x, low := c.vec(in.A), c.temp()
		c.vector(and[0], length, low, x, c.bits(0xffff, 4), options{})
		c.vector(or[0], length, low, low, c.bits(floatBits(1<<23, 4), 4), options{})
		r := c.result(i, false)
		c.vector(shiftBy[0], length, byRight, r, register(x), imm(16))
		c.vector(or[0], length, r, r, c.bits(floatBits(1<<39, 4), 4), options{})
		c.vector(subFloat[0], length, r, r, c.bits(floatBits(1<<39+1<<23, 4), 4), options{})
		c.vector(addFloat[0], length, r, low, register(r), options{})
	default:
		return c.convertLong(i, in, from, to)
	}
	return true
}

// truthVector returns a vector register that holds truth value i.
func (c *compiler) truthVector(i int32) uint8 {
	i = c.values[i].root
	v := &c.values[i]
	if v.reg < 0 {
		v.reg = c.take(i)
		r := uint8(v.reg)
		zero := c.bits(0, 4)
		switch {
		case v.slot >= 0:
			c.vector(moveVector[0], len256, r, 0, c.spillMemory(v.slot), options{})
		case v.from == constant && c.Code[i].Imm == 0:
			c.vector(moveVector[0], len256, r, 0, zero, options{})
		case v.from == constant:
			c.vector(moveVector[0], len256, r, 0, c.bits(0xffffffff, 4), options{})
		default: // set each lane to 0 or 1
			if v.from == loaded {
				c.loadVector(v.load, r)
			} else {
				c.vector(moveVector[0], c.length(4), r, 0, memory(arena, v.offset), options{})
			}
			c.vector(greaterInt, c.length(4), r, r, zero, options{})
			if v.truth == 8 {
				c.vector(widenInt, len256, r, 0, register(r), options{})
			}
		}
	}
	c.pinned |= 1 << v.reg
	return uint8(v.reg)
}

// storeAVX2 writes the code for store i of the loop. It stores a vector or, at the end of a row,
// the vector's first lane.
func (c *compiler) storeAVX2(i int) {
	s := c.Stores[i]
	var x uint8
	t := s.Type
	if c.Code[s.Value].Type == dtype.Bool {
		x = c.temp()
		c.fromTruth(x, c.truthFor(s.Value, 4), 4)
		if s.Wide {
			t = dtype.U32
		}
	} else {
		x = c.vec(s.Value)
	}
	to := c.address(len(c.Loads)+i, t.Size(), false)
	if size := t.Size(); size >= 4 {
		if c.tail {
			c.vector(storeLow.forSize(size), len128, x, 0, to, options{})
		} else {
			c.vector(storeVector.forSize(size), c.length(size), x, 0, to, options{})
		}
		return
	}
	r := c.temp()
	switch t {
	case dtype.F16:
		// the immediate 0 means: round to nearest even
		c.vector(floatToHalf, len256, x, 0, register(r), imm(0))
	case dtype.BF16:
		c.toBF16AVX2(r, x)
		c.pack(r, r)
	case dtype.I16:
		c.vector(and[0], len256, r, x, c.bits(0xffff, 4), options{})
		c.pack(r, r)
	default:
		c.vector(and[0], len256, r, x, c.bits(0xff, 4), options{})
		c.pack(r, r)
		c.vector(packBytes, len128, r, r, register(r), options{})
	}
	switch {
	case c.tail && t.Size() == 2:
		c.vector(storeWord, len128, r, 0, to, imm(0))
	case c.tail:
		c.vector(storeByte, len128, r, 0, to, imm(0))
	case c.lanes*t.Size() == 16:
		c.vector(storeVector[0], len128, r, 0, to, options{})
	case c.lanes*t.Size() == 8:
		c.vector(storeHalf, len128, r, 0, to, options{})
	default:
		c.vector(storeLow[0], len128, r, 0, to, options{})
	}
}

// pack sets r to the lower 16 bits of the lanes of x. The values of the lanes must fit into 16
// bits.
func (c *compiler) pack(r, x uint8) {
	t := c.temp()
	c.vector(upperQuarter, len256, x, 0, register(t), imm(1))
	c.vector(packWords, len128, r, x, register(t), options{})
}

func (c *compiler) toBF16AVX2(r, x uint8) {
	top, nan := c.temp(), c.temp()
	c.vector(compareFloat[0], len256, nan, x, register(x), imm(floatUnordered))
	c.vector(shiftBy[0], len256, byRight, top, register(x), imm(16))
	c.vector(and[0], len256, r, top, c.bits(1, 4), options{})
	c.vector(addInt[0], len256, r, r, register(x), options{})
	c.vector(addInt[0], len256, r, r, c.bits(0x7fff, 4), options{})
	c.vector(shiftBy[0], len256, byRight, r, register(r), imm(16))
	c.vector(or[0], len256, top, top, c.bits(0x40, 4), options{})
	c.vector(choose, len256, r, r, register(top), imm(nan<<4))
}
