package jit

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// Can reports whether the instruction in can be part of a loop.
func Can(in expr.Instr) bool {
	switch in.Op {
	case expr.OpInvalid, expr.OpX, expr.OpY, expr.OpConst, expr.OpParam, expr.OpIndex, expr.OpPhilox:
		return false
	case expr.OpMulHi:
		return in.Type == dtype.U32
	}
	return true
}

// These are the predicates that the instructions for comparisons of floats and of integers take.
const (
	floatEqual, wholeEqual         = 0x00, 0
	floatLess, wholeLess           = 0x11, 1
	floatLessEqual, wholeLessEqual = 0x12, 2
	floatNotEqual, wholeNotEqual   = 0x04, 4
	floatUnordered, floatOrdered   = 0x03, 0x07
	floatGreaterEqual              = 0x1d
	floatNotLess                   = 0x15 // also true for NaN
)

// rangeOf holds the immediate operands of the instruction floatRange. With them, the result keeps
// its sign, and -0 counts as less than +0.
var rangeOf = map[FoldKind]byte{Max: 5, Min: 4}

// emit writes the machine code of instruction i.
func (c *compiler) emit(i int32, in expr.Instr) {
	if c.values[i].root != i || c.inner[i] || !c.wide && c.emitAVX2(i, in) {
		return
	}
	if s, ok := c.chains[i]; ok {
		c.divide(i, s)
		return
	}
	switch {
	case in.Op == expr.OpSelect:
		c.choose(i, in)
		return
	case in.Op == expr.OpCvt:
		c.convert(i, in)
		return
	case in.Op.IsCompare():
		c.comparison(i, in)
		return
	case in.Type == dtype.Bool:
		c.truths(i, in)
		return
	}
	size := in.Type.Size()
	float := in.Type.IsFloat()
	signed := in.Type == dtype.I32 || in.Type == dtype.I64
	switch in.Op {
	case expr.OpAdd:
		c.binary(i, in, either(float, addFloat, addInt), true)
	case expr.OpSub:
		c.binary(i, in, either(float, subFloat, subInt), false)
	case expr.OpMul:
		c.binary(i, in, either(float, mulFloat, mulInt), true)
	case expr.OpDiv:
		c.binary(i, in, divFloat, false)
	case expr.OpAnd:
		c.binary(i, in, and, true)
	case expr.OpOr:
		c.binary(i, in, or, true)
	case expr.OpXor:
		c.binary(i, in, xor, true)
	case expr.OpMin:
		if float {
			c.extreme(i, in, minFloat)
		} else {
			c.binary(i, in, either(signed, minSigned, minUnsigned), true)
		}
	case expr.OpMax:
		if float {
			c.extreme(i, in, maxFloat)
		} else {
			c.binary(i, in, either(signed, maxSigned, maxUnsigned), true)
		}
	case expr.OpFMA:
		c.fma(i, in)
	case expr.OpNeg:
		x := c.vec(in.A)
		if float {
			c.vector(xor.forSize(size), c.length(size), c.result(i, true), x, c.bits(1<<(8*size-1), size), options{})
			return
		}
		z := c.temp()
		c.vector(xor.forSize(size), c.length(size), z, z, register(z), options{})
		c.vector(subInt.forSize(size), c.length(size), c.result(i, true), z, register(x), options{})
	case expr.OpAbs:
		if float {
			x := c.vec(in.A)
			c.vector(and.forSize(size), c.length(size), c.result(i, true), x, c.bits(1<<(8*size-1)-1, size), options{})
			return
		}
		c.unary(i, in, absInt.forSize(size), options{})
	case expr.OpSqrt:
		c.unary(i, in, sqrtFloat.forSize(size), options{})
	case expr.OpRoundEven:
		c.unary(i, in, roundFloat.forSize(size), imm(8))
	case expr.OpFloor:
		c.unary(i, in, roundFloat.forSize(size), imm(8|1))
	case expr.OpTrunc:
		c.unary(i, in, roundFloat.forSize(size), imm(8|3))
	case expr.OpNot:
		x := c.vec(in.A)
		const notLast = 0x55 // truth table of the complement of the last operand
		c.vector(logic.forSize(size), c.length(size), c.result(i, true), x, register(x), imm(notLast))
	case expr.OpShl, expr.OpShr:
		c.shift(i, in, signed)
	case expr.OpMulHi:
		c.mulHigh(i, in)
	}
}

func either(first bool, a, b pair) pair {
	if first {
		return a
	}
	return b
}

// unary writes the machine instruction o for instruction i, which has one operand.
func (c *compiler) unary(i int32, in expr.Instr, o opcode, opt options) {
	x, size := c.operandOf(in.A), in.Type.Size()
	c.vector(o, c.length(size), c.result(i, true), 0, x, opt)
}

// binary writes a machine instruction for instruction i, which has two operands. Only the second
// operand can be in memory. If the operands commute, a constant therefore becomes the second.
func (c *compiler) binary(i int32, in expr.Instr, p pair, commutes bool) {
	a, b := in.A, in.B
	if commutes && c.plain(a) {
		a, b = b, a
	}
	size := in.Type.Size()
	x := c.vec(a)
	y := c.operandOf(b)
	c.vector(p.forSize(size), c.length(size), c.result(i, true), x, y, options{})
}

// plain reports whether value i is a constant other than NaN. Operands may be swapped only if one
// of them is such a constant. If both were NaN, the instruction would return its first operand, and
// a swap would change the bits of the result.
func (c *compiler) plain(i int32) bool {
	v, known := c.known(i)
	return known && v == v
}

// known returns the number v if value i is a constant.
func (c *compiler) known(i int32) (v float64, is bool) {
	root := c.values[i].root
	if c.values[root].from != constant {
		return 0, false
	}
	return expr.Decode(c.Code[i].Type, c.Code[root].Imm), true
}

// limit reports whether value i is a param that is neither NaN nor 0, as Loop.Limited promises.
func (c *compiler) limit(i int32) bool { return c.Limited && c.Code[i].Op == expr.OpParam }

// extreme writes the minimum or maximum of floats. If an operand is NaN, or if both are zeros, the
// processor's instruction returns its second source. Therefore one instruction suffices if one
// operand is known to be neither NaN nor 0: the code makes the other operand the second source. One
// instruction also suffices for the minimum of +0 and x, and for the maximum of -0 and x: if x is a
// zero too, then x is the right result. For the maximum of +0 and x, the code adds +0 to the result
// of the instruction. This turns -0 into +0.
func (c *compiler) extreme(i int32, in expr.Instr, p pair) {
	size := in.Type.Size()
	length, o := c.length(size), p.forSize(size)
	a, b := in.A, in.B
	if c.plain(a) || c.limit(a) {
		a, b = b, a
	}
	if k, known := c.known(b); c.limit(b) || known && k == k && (k != 0 || p == maxFloat || !math.Signbit(k)) {
		limit, x := c.vec(b), register(c.vec(a))
		r := c.result(i, true)
		c.vector(o, length, r, limit, x, options{})
		if known && k == 0 && !math.Signbit(k) && p == maxFloat {
			c.vector(addFloat.forSize(size), length, r, r, c.bits(0, size), options{})
		}
		return
	}
	x, y := c.vec(a), c.vec(b)
	c.extremeOf(p, c.result(i, false), x, y, size, length)
}

// extremeOf sets r, which may be x, to the minimum or maximum of x and y. It runs the instruction
// twice, with both orders of x and y. It combines the two minima with a bitwise or, which keeps a
// -0 (its sign bit is set) and a NaN (its exponent bits are all set). It combines the two maxima
// with a bitwise and. Lanes with a NaN become the sum of x and y.
func (c *compiler) extremeOf(p pair, r, x, y uint8, size, length int) {
	o, t := p.forSize(size), c.temp()
	if p == minFloat {
		c.vector(o, length, t, y, register(x), options{})
		c.vector(o, length, r, x, register(y), options{})
		c.vector(or.forSize(size), length, r, r, register(t), options{})
		return
	}
	if !c.wide {
		nan := c.temp()
		c.vector(compareFloat.forSize(size), length, nan, x, register(y), imm(floatUnordered))
		c.vector(o, length, t, y, register(x), options{})
		c.vector(o, length, r, x, register(y), options{})
		c.vector(and[0], length, r, r, register(t), options{})
		// where x or y is a NaN, all bits become set, which is a NaN
		c.vector(or[0], length, r, r, register(nan), options{})
		return
	}
	k := c.tempMask()
	c.vector(compareFloat.forSize(size), length, k, x, register(y), imm(floatUnordered))
	sum := c.temp()
	c.vector(addFloat.forSize(size), length, sum, x, register(y), options{})
	c.vector(o, length, t, y, register(x), options{})
	c.vector(o, length, r, x, register(y), options{})
	c.vector(and.forSize(size), length, r, r, register(t), options{})
	c.vector(moveVector.forSize(size), length, r, 0, register(sum), options{mask: k})
}

// tempMask returns a mask register that only the current instruction uses.
func (c *compiler) tempMask() uint8 {
	k := uint8(c.takeMask(taken))
	c.tempMasks = append(c.tempMasks, k)
	return k
}

// fma writes x·y+z. The processor has three forms of the instruction, and each overwrites one of
// its operands. If an operand has no later use, the code overwrites it. Otherwise it first copies
// z. One operand may be in memory, so a constant need not be loaded into a register.
func (c *compiler) fma(i int32, in expr.Instr) {
	size := in.Type.Size()
	length := c.length(size)
	x, z := c.vec(in.A), c.operandOf(in.C)
	y := c.operandOf(in.B)
	switch {
	case !z.memory && c.dies(in.C):
		c.vector(fma231.forSize(size), length, c.inherit(i, in.C), x, y, options{})
		return
	case z.memory && y.memory:
		y = register(c.vec(in.B))
	}
	switch {
	case c.dies(in.A) && !z.memory:
		c.vector(fma132.forSize(size), length, c.inherit(i, in.A), z.reg, y, options{})
	case c.dies(in.A):
		c.vector(fma213.forSize(size), length, c.inherit(i, in.A), y.reg, z, options{})
	case !y.memory && c.dies(in.B):
		c.vector(fma213.forSize(size), length, c.inherit(i, in.B), x, z, options{})
	default:
		w := c.vec(in.C)
		r := c.result(i, false)
		c.vector(moveVector[0], c.full(), r, 0, register(w), options{})
		c.vector(fma231.forSize(size), length, r, x, y, options{})
	}
}

// shift writes a shift. If the count is at least the width, all bits of the result are 0. In an
// arithmetic shift to the right, all bits then equal the sign bit.
func (c *compiler) shift(i int32, in expr.Instr, signed bool) {
	size := in.Type.Size()
	length := c.length(size)
	root := c.values[in.B].root
	arithmetic := signed && in.Op == expr.OpShr
	if c.values[root].from == constant {
		n := c.Code[root].Imm
		if size == 4 {
			n &= 0xffffffff
		}
		n = min(n, uint64(8*size))
		x := register(c.vec(in.A))
		r := c.result(i, true)
		switch {
		case arithmetic:
			c.vector(shiftSignedBy.forSize(size), length, 4, r, x, imm(byte(min(n, uint64(8*size-1)))))
		case in.Op == expr.OpShl:
			c.vector(shiftBy.forSize(size), length, byLeft, r, x, imm(byte(n)))
		default:
			c.vector(shiftBy.forSize(size), length, byRight, r, x, imm(byte(n)))
		}
		return
	}
	switch {
	case arithmetic:
		c.binary(i, in, shiftSigned, false)
	case in.Op == expr.OpShl:
		c.binary(i, in, shiftLeft, false)
	default:
		c.binary(i, in, shiftRight, false)
	}
}

// mulHigh writes the code for the upper halves of 32-bit products. It computes the 64-bit products
// of the even lanes and of the odd lanes, and interleaves their upper halves.
func (c *compiler) mulHigh(i int32, in expr.Instr) {
	length := c.length(4)
	x, y := c.vec(in.A), c.vec(in.B)
	even, a, b := c.temp(), c.temp(), c.temp()
	c.vector(mulEven, length, even, x, register(y), options{})
	c.vector(shiftBy[1], length, byRight, a, register(x), imm(32))
	c.vector(shiftBy[1], length, byRight, b, register(y), imm(32))
	c.vector(mulEven, length, a, a, register(b), options{})
	c.vector(shiftBy[1], length, byRight, even, register(even), imm(32))
	c.vector(and[1], length, a, a, c.bits(0xffffffff<<32, 8), options{})
	c.vector(or[0], length, c.result(i, true), a, register(even), options{})
}

func (c *compiler) choose(i int32, in expr.Instr) {
	m := c.truth(in.A)
	if in.Type == dtype.Bool {
		x, y, t := c.truth(in.B), c.truth(in.C), c.tempMask()
		c.masks(maskAndNot, 1, t, m, register(y))
		r := c.resultMask(i)
		c.masks(maskAnd, 1, r, m, register(x))
		c.masks(maskOr, 1, r, r, register(t))
		return
	}
	size := in.Type.Size()
	y := c.vec(in.C)
	x := c.operandOf(in.B)
	c.vector(blend.forSize(size), c.length(size), c.result(i, true), y, x, options{mask: m})
}

func (c *compiler) comparison(i int32, in expr.Instr) {
	a, b, op := in.A, in.B, in.Op
	if op == expr.OpGt || op == expr.OpGe {
		a, b = b, a
		op -= expr.OpGt - expr.OpLt
	}
	t := c.Code[in.A].Type
	size := t.Size()
	var float, integer byte
	switch op {
	case expr.OpEq:
		float, integer = floatEqual, wholeEqual
	case expr.OpNe:
		float, integer = floatNotEqual, wholeNotEqual
	case expr.OpLt:
		float, integer = floatLess, wholeLess
	case expr.OpLe:
		float, integer = floatLessEqual, wholeLessEqual
	}
	x := c.vec(a)
	y := c.operandOf(b)
	switch t {
	case dtype.F32, dtype.F64:
		c.vector(compareFloat.forSize(size), c.length(size), c.resultMask(i), x, y, imm(float))
	case dtype.I32, dtype.I64:
		c.vector(compareInt.forSize(size), c.length(size), c.resultMask(i), x, y, imm(integer))
	default:
		c.vector(compareWord.forSize(size), c.length(size), c.resultMask(i), x, y, imm(integer))
	}
}

// truths writes an operation on truth values.
func (c *compiler) truths(i int32, in expr.Instr) {
	x := c.truth(in.A)
	if in.Op == expr.OpNot {
		c.masks(maskNot, 0, c.resultMask(i), 0, register(x))
		return
	}
	y := c.truth(in.B)
	o := maskAnd
	switch in.Op {
	case expr.OpOr:
		o = maskOr
	case expr.OpXor:
		o = maskXor
	}
	c.masks(o, 1, c.resultMask(i), x, register(y))
}

func floatBits(v float64, size int) uint64 {
	if size == 4 {
		return uint64(math.Float32bits(float32(v)))
	}
	return math.Float64bits(v)
}
