package jit

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// A loop for AVX2 has four lanes if a value in it has 64 bits. A value of 32 bits then occupies
// half a register. A truth value is in lanes of 64 or of 32 bits, as the comparison left it. It is
// converted for an instruction that needs the other size.
//
// AVX2 has few instructions on integers of 64 bits. This file builds the missing ones, each from
// several instructions.

// lanes returns how many elements an iteration of the loop computes.
func (l *Loop) lanes() int {
	switch {
	case l.AVX2 && l.has64():
		return 4
	case l.AVX2 || l.has64() || l.Fold != nil && l.Fold.Short:
		return 8
	}
	return 16
}

// has64 reports whether a value in the loop has 64 bits. With AVX2 it also returns true if the loop
// converts floats to 32-bit unsigned integers.
func (l *Loop) has64() bool {
	long := func(i int32) bool { return l.Code[i].Type.Size() == 8 }
	for _, x := range l.Loads {
		if x.Type.Size() == 8 {
			return true
		}
	}
	for _, i := range l.Steps {
		in := l.Code[i]
		for k, o := range [3]int32{in.A, in.B, in.C} {
			if k < in.Op.Arity() && long(o) {
				return true
			}
		}
		if long(i) || l.AVX2 && in.Op == expr.OpCvt && in.Type == dtype.U32 && l.Code[in.A].Type.IsFloat() {
			return true
		}
	}
	for _, s := range l.Stores {
		if s.Type.Size() == 8 || long(s.Value) {
			return true
		}
	}
	return l.Fold != nil && long(l.Fold.Value)
}

// CanFold reports whether the loop can compute its fold. In a loop of four lanes, 64 accumulators
// of 32 bits would need all 16 registers.
func (l *Loop) CanFold() bool {
	f := l.Fold
	if f == nil {
		return true
	}
	t := l.Code[f.Value].Type
	return !l.AVX2 || t != dtype.F32 || f.Kind >= Max || f.Short || f.Columns || !l.has64()
}

// sizeTruths finds the size of the lanes that hold each truth value. A value that the loop does not
// compute gets the size that its first use needs.
func (c *compiler) sizeTruths() {
	truth := func(i int32) *value { return &c.values[c.values[i].root] }
	need := func(i int32, size int) {
		if v := truth(i); v.truth == 0 {
			v.truth = size
		}
	}
	for _, i := range c.Steps {
		in := c.Code[i]
		operands := []int32{in.A, in.B, in.C}[:in.Op.Arity()]
		if c.Code[in.A].Type != dtype.Bool {
			c.values[i].truth = c.Code[in.A].Type.Size()
			continue
		}
		size := in.Type.Size()
		if in.Type == dtype.Bool {
			size = 0
			for _, o := range operands {
				size = max(size, truth(o).truth)
			}
			if size == 0 {
				size = 32 / c.lanes
			}
			c.values[i].truth = size
		}
		for _, o := range operands {
			if c.Code[o].Type == dtype.Bool {
				need(o, size)
			}
		}
	}
	for i := range c.values {
		need(int32(i), 4)
	}
}

// narrow sets the four lanes of r to the lower 32 bits of the lanes of x.
func (c *compiler) narrow(r, x uint8) {
	c.vector(shuffleTwo, len256, r, x, register(x), imm(0x88))
	c.vector(permuteQuarters, len256, r, 0, register(r), imm(0x08))
}

// emitLong writes the instructions on integers of 64 bits that AVX2 lacks. It returns false for all
// other instructions.
func (c *compiler) emitLong(i int32, in expr.Instr) bool {
	signed := in.Type == dtype.I64
	zero := func() uint8 {
		z := c.temp()
		c.vector(xor[0], len256, z, z, register(z), options{})
		return z
	}
	switch {
	case in.Op == expr.OpMul:
		x, y := c.vec(in.A), c.vec(in.B)
		c.mulLong(c.result(i, false), x, y, c.temp(), c.temp(), len256)
	case in.Op == expr.OpMin || in.Op == expr.OpMax:
		x, y := c.vec(in.A), c.vec(in.B)
		c.extremeLong(c.result(i, false), x, y, in.Op == expr.OpMax, signed, len256)
	case in.Op == expr.OpAbs:
		x, s := c.vec(in.A), zero()
		c.vector(greater[1], len256, s, s, register(x), options{})
		r := c.result(i, true)
		c.vector(xor[0], len256, r, x, register(s), options{})
		c.vector(subInt[1], len256, r, r, register(s), options{})
	case in.Op == expr.OpShr && signed:
		// AVX2 shifts only unsigned numbers of 64 bits to the right. So shift the complement of a
		// negative number, and complement the result.
		x, s := c.vec(in.A), zero()
		y := c.vec(in.B)
		c.vector(greater[1], len256, s, s, register(x), options{})
		r := c.result(i, false)
		c.vector(xor[0], len256, r, x, register(s), options{})
		c.vector(shiftRight[1], len256, r, r, register(y), options{})
		c.vector(xor[0], len256, r, r, register(s), options{})
	default:
		return false
	}
	return true
}

// mulLong sets r, which may be x, to the lower 64 bits of the products of x and y. It adds products
// of their halves. The product of both upper halves does not matter. a and b are temporaries.
func (c *compiler) mulLong(r, x, y, a, b uint8, length int) {
	c.vector(shiftBy[1], length, byRight, a, register(x), imm(32))
	c.vector(shiftBy[1], length, byRight, b, register(y), imm(32))
	c.vector(mulEven, length, a, a, register(y), options{})
	c.vector(mulEven, length, b, b, register(x), options{})
	c.vector(addInt[1], length, a, a, register(b), options{})
	c.vector(shiftBy[1], length, byLeft, a, register(a), imm(32))
	c.vector(mulEven, length, r, x, register(y), options{})
	c.vector(addInt[1], length, r, r, register(a), options{})
}

// extremeLong sets r, which may be x, to the minimum or maximum of x and y.
func (c *compiler) extremeLong(r, x, y uint8, most, signed bool, length int) {
	p, q, t := x, y, c.temp()
	if !signed { // comparing with inverted sign bits compares unsigned integers
		p, q = t, c.temp()
		c.vector(xor[0], length, p, x, c.bits(1<<63, 8), options{})
		c.vector(xor[0], length, q, y, c.bits(1<<63, 8), options{})
	}
	c.vector(greater[1], length, t, p, register(q), options{})
	if most {
		x, y = y, x
	}
	c.vector(choose, length, r, x, register(y), imm(t<<4))
}

// convertLong writes conversions from or to types of 64 bits that AVX2 lacks. It returns false for
// all others. An integer below 2⁵² becomes a float if the exponent bits of 2⁵² are set, and 2⁵² is
// subtracted. Adding 2⁵² to a float does the reverse.
func (c *compiler) convertLong(i int32, in expr.Instr, from, to dtype.Type) bool {
	switch {
	case from.IsFloat() && (to == dtype.I64 || to.IsInteger() && from == dtype.F64 || to == dtype.U32 || to == dtype.U64):
		c.truncateLong(i, in, from, to)
	case from == dtype.U32 && to == dtype.F64:
		x := c.vec(in.A)
		r := c.result(i, true)
		c.vector(widenUint, len256, r, 0, register(x), options{})
		c.vector(or[0], len256, r, r, c.bits(floatBits(1<<52, 8), 8), options{})
		c.vector(subFloat[1], len256, r, r, c.bits(floatBits(1<<52, 8), 8), options{})
	case from.Size() == 8 && from.IsInteger() && to == dtype.F64:
		x := c.vec(in.A)
		c.fromLong(c.result(i, false), x, c.temp(), from == dtype.I64)
	case from.Size() == 8 && from.IsInteger() && to == dtype.F32:
		// If a number may not fit into a float64, first clear its lowest 11 bits. If one of them
		// was set, set the next bit. Converting twice then rounds as converting once does.
		x, s, small := c.vec(in.A), c.temp(), c.temp()
		c.vector(and[0], len256, s, x, c.bits(1<<11-1, 8), options{})
		c.vector(addInt[1], len256, s, s, c.bits(1<<11-1, 8), options{})
		c.vector(or[0], len256, s, s, register(x), options{})
		c.vector(and[0], len256, s, s, c.bits(^uint64(1<<11-1), 8), options{})
		if from == dtype.I64 {
			c.vector(addInt[1], len256, small, x, c.bits(1<<53, 8), options{})
			c.vector(shiftBy[1], len256, byRight, small, register(small), imm(54))
		} else {
			c.vector(shiftBy[1], len256, byRight, small, register(x), imm(53))
		}
		c.vector(equals[1], len256, small, small, c.bits(0, 8), options{})
		c.vector(choose, len256, s, s, register(x), imm(small<<4))
		r := c.result(i, false)
		c.fromLong(r, s, small, from == dtype.I64)
		c.vector(converts[[2]dtype.Type{dtype.F64, dtype.F32}], len256, r, 0, register(r), options{})
	case from.Size() == 8 && to.IsInteger() && to.Size() == 4:
		x := c.vec(in.A)
		c.narrow(c.result(i, false), x)
	default:
		return false
	}
	return true
}

// fromLong sets r to integers x, converted to float64. The upper and the lower half become floats
// exactly. Only their sum is rounded. low is a temporary.
func (c *compiler) fromLong(r, x, low uint8, signed bool) {
	upper, bias := floatBits(0x1p84, 8), floatBits(0x1p84+0x1p52, 8)
	if signed {
		upper, bias = floatBits(0x1p84+0x1p63, 8), floatBits(0x1p84+0x1p63+0x1p52, 8)
	}
	c.vector(moveVector[0], len256, low, 0, c.bits(floatBits(1<<52, 8), 8), options{})
	c.vector(chooseBy, len256, low, low, register(x), imm(0x55))
	c.vector(shiftBy[1], len256, byRight, r, register(x), imm(32))
	c.vector(xor[0], len256, r, r, c.bits(upper, 8), options{})
	c.vector(subFloat[1], len256, r, r, c.bits(bias, 8), options{})
	c.vector(addFloat[1], len256, r, r, register(low), options{})
}

// truncateLong writes conversions of floats to integers towards zero. Numbers that do not fit
// become the least or the greatest integer. NaN becomes 0.
func (c *compiler) truncateLong(i int32, in expr.Instr, from, to dtype.Type) {
	signed := to == dtype.I32 || to == dtype.I64
	f := func(v float64) operand { return c.bits(floatBits(v, 8), 8) }
	x, r, a := c.vec(in.A), c.result(i, false), c.temp()
	if from == dtype.F32 {
		c.vector(converts[[2]dtype.Type{from, dtype.F64}], len256, r, 0, register(x), options{})
		x = r
	}
	if !signed { // for NaN this instruction returns its second source
		c.vector(maxFloat[1], len256, r, x, f(0), options{})
		x = r
	}
	switch to {
	case dtype.I32:
		c.withoutNaN(r, x, a)
		c.vector(minFloat[1], len256, r, r, f(1<<31-1), options{})
		c.vector(converts[[2]dtype.Type{dtype.F64, to}], len256, r, 0, register(r), options{})
		return
	case dtype.U32:
		c.vector(minFloat[1], len256, r, r, f(1<<32-1), options{})
		c.vector(roundFloat[1], len256, r, 0, register(r), imm(8|3))
		c.vector(addFloat[1], len256, r, r, f(1<<52), options{})
		c.narrow(r, r)
		return
	}
	small, bias, over := 0x1p52, 0x1p52, c.temp()
	if signed {
		small, bias = 0x1p51, 0x1.8p52
	}
	if op := c.Code[c.values[in.A].root].Op; x == r || op != expr.OpTrunc && op != expr.OpFloor {
		c.vector(roundFloat[1], len256, r, 0, register(x), imm(8|3))
		x = r
	}
	c.vector(and[0], len256, a, x, c.bits(1<<63-1, 8), options{})
	c.vector(compareFloat[1], len256, a, a, f(small), imm(floatNotLess))
	c.vector(testAll, len256, a, 0, register(a), options{})
	large := c.jump(notEqual)
	c.vector(addFloat[1], len256, r, x, f(bias), options{})
	c.vector(subInt[1], len256, r, r, f(bias), options{})
	back := len(c.code)
	c.later = append(c.later, func() {
		large()
		c.toLong(r, x, a, over, signed)
		c.jumpTo(back)
	})
}

// withoutNaN sets r to x, with 0 in place of NaN. t is a temporary.
func (c *compiler) withoutNaN(r, x, t uint8) {
	c.vector(compareFloat[1], len256, t, x, register(x), imm(floatOrdered))
	c.vector(and[0], len256, r, x, register(t), options{})
}

// toLong converts the lanes of x, whole float64 numbers of any size, to integers. It stores them in
// r, which may be x. It converts the lower and the upper half of a number separately. a and over
// are temporaries.
func (c *compiler) toLong(r, x, a, over uint8, signed bool) {
	f := func(v float64) operand { return c.bits(floatBits(v, 8), 8) }
	most, limit, least, bias := uint64(math.MaxUint64), 0x1p64, 0.0, 0x1p52
	if signed {
		most, limit, least, bias = math.MaxInt64, 0x1p63, -0x1p63, 0x1.8p52
	}
	c.withoutNaN(r, x, a)
	c.vector(maxFloat[1], len256, r, r, f(least), options{})
	c.vector(compareFloat[1], len256, over, r, f(limit), imm(floatGreaterEqual))
	// r becomes the lower half, and a the upper half
	c.vector(mulFloat[1], len256, a, r, f(0x1p-32), options{})
	c.vector(roundFloat[1], len256, a, 0, register(a), imm(8|1))
	c.vector(fma231[1], len256, r, a, f(-0x1p32), options{})
	c.vector(addFloat[1], len256, r, r, f(0x1p52), options{})
	c.vector(addFloat[1], len256, a, a, f(bias), options{})
	c.vector(shiftBy[1], len256, byLeft, a, register(a), imm(32))
	c.vector(chooseBy, len256, r, a, register(r), imm(0x55))
	c.vector(choose, len256, r, r, c.bits(most, 8), imm(over<<4))
}
