package jit

import "github.com/flambeau-go/flambeau/dtype"

// pair holds the two forms of a vector instruction, for lanes of 32 bits and of 64 bits.
type pair [2]opcode

func (p pair) forSize(size int) opcode {
	if size == 8 {
		return p[1]
	}
	return p[0]
}

// floats returns the two forms of an arithmetic instruction on floats. They differ in the prefix
// and the W bit.
func floats(op byte) pair { return pair{{1, 0, 0, op}, {1, 1, 1, op}} }

// lanes returns the two forms of an instruction, which differ only in the W bit.
func lanes(space, prefix, op byte) pair { return pair{{space, prefix, 0, op}, {space, prefix, 1, op}} }

var (
	addFloat, mulFloat, subFloat = floats(0x58), floats(0x59), floats(0x5c)
	minFloat, divFloat, maxFloat = floats(0x5d), floats(0x5e), floats(0x5f)
	sqrtFloat                    = floats(0x51)
	moveVector, storeVector      = floats(0x10), floats(0x11)
	compareFloat                 = floats(0xc2)
	// the minimum or maximum of two numbers; if one of them is NaN, the result is the other one
	floatRange = lanes(3, 1, 0x50)
	roundFloat = pair{{3, 1, 0, 0x08}, {3, 1, 1, 0x09}}
	// fused multiply-add; the first two digits of a name say which operands are multiplied, and the
	// last which one is added
	fma132, fma213, fma231 = lanes(2, 1, 0x98), lanes(2, 1, 0xa8), lanes(2, 1, 0xb8)

	addInt, subInt         = pair{{1, 1, 0, 0xfe}, {1, 1, 1, 0xd4}}, pair{{1, 1, 0, 0xfa}, {1, 1, 1, 0xfb}}
	mulInt, mulEven        = lanes(2, 1, 0x40), opcode{1, 1, 1, 0xf4}
	minSigned, minUnsigned = lanes(2, 1, 0x39), lanes(2, 1, 0x3b)
	maxSigned, maxUnsigned = lanes(2, 1, 0x3d), lanes(2, 1, 0x3f)
	absInt                 = pair{{2, 1, 0, 0x1e}, {2, 1, 1, 0x1f}}
	and, or, xor           = lanes(1, 1, 0xdb), lanes(1, 1, 0xeb), lanes(1, 1, 0xef)
	logic                  = lanes(3, 1, 0x25) // combines three operands by a truth table
	shiftLeft, shiftRight  = lanes(2, 1, 0x47), lanes(2, 1, 0x45)
	shiftSigned            = lanes(2, 1, 0x46)
	// shift by an immediate; the field reg is an opcode extension that selects the kind of shift
	shiftBy = pair{{1, 1, 0, 0x72}, {1, 1, 1, 0x73}}
	// comparisons of signed and of unsigned integers
	compareInt, compareWord = lanes(3, 1, 0x1f), lanes(3, 1, 0x1e)
	test                    = lanes(2, 1, 0x27)
	blend                   = pair{{2, 1, 0, 0x65}, {2, 1, 1, 0x65}}
	// copies an element from memory to all lanes
	spread = pair{{2, 1, 0, 0x18}, {2, 1, 1, 0x19}}
	// sets all bits of each lane whose mask bit is set, and no bits of the other lanes
	fromMask = lanes(2, 2, 0x38)
)

// These are the opcode extensions of shiftBy and of shiftSignedBy, which select the kind of shift.
const (
	byRight = 2
	byLeft  = 6
)

var (
	// shift of signed lanes by an immediate; the opcode extension is 4
	shiftSignedBy          = lanes(1, 1, 0x72)
	spreadByte, spreadWord = opcode{2, 1, 0, 0x78}, opcode{2, 1, 0, 0x79}
	widenByte, widenInt8   = opcode{2, 1, 0, 0x31}, opcode{2, 1, 0, 0x21}
	widenWord, widenInt16  = opcode{2, 1, 0, 0x33}, opcode{2, 1, 0, 0x23}
	// widen lanes of 32 bits to 64
	widenInt, widenUint       = opcode{2, 1, 0, 0x25}, opcode{2, 1, 0, 0x35}
	narrowToByte              = opcode{2, 2, 0, 0x31}
	narrowToWord              = opcode{2, 2, 0, 0x33}
	narrowToInt               = opcode{2, 2, 0, 0x35} // narrows lanes of 64 bits to 32
	halfToFloat, floatToHalf  = opcode{2, 1, 0, 0x13}, opcode{3, 1, 0, 0x1d}
	maskAnd, maskAndNot       = opcode{1, 0, 0, 0x41}, opcode{1, 0, 0, 0x42}
	maskOr, maskXor, maskXnor = opcode{1, 0, 0, 0x45}, opcode{1, 0, 0, 0x47}, opcode{1, 0, 0, 0x46}
	maskNot, maskTest         = opcode{1, 0, 0, 0x44}, opcode{1, 0, 0, 0x98}
	maskTestByte              = opcode{1, 1, 0, 0x98}
	maskMove, maskStore       = opcode{1, 0, 0, 0x90}, opcode{1, 0, 0, 0x91}
	maskFromInt               = opcode{1, 0, 0, 0x92}
	// store the upper 256 of 512 bits, and the upper 128 of 256; the field reg is the source
	upperHalf, upperQuarter = opcode{3, 1, 1, 0x1b}, opcode{3, 1, 0, 0x19}
	shuffle                 = opcode{1, 1, 0, 0x70} // rearranges 32-bit lanes by an immediate
	storeLow                = lanes(1, 1, 0x7e)     // stores the first lane
	// take lanes of one vector, or of two, by a list of lane numbers; the destination of permuteTwo
	// also holds its first vector
	permute, permuteTwo = opcode{2, 1, 0, 0x36}, opcode{2, 1, 0, 0x7e}
	gatherWords         = opcode{2, 1, 0, 0x90}

	// instructions that only AVX2 code uses
	equalInt, greaterInt = opcode{1, 1, 0, 0x76}, opcode{1, 1, 0, 0x66}
	equals, greater      = pair{equalInt, {2, 1, 0, 0x29}}, pair{greaterInt, {2, 1, 0, 0x37}}
	andNot, choose       = opcode{1, 1, 0, 0xdf}, opcode{3, 1, 0, 0x4a}
	packWords, packBytes = opcode{2, 1, 0, 0x2b}, opcode{1, 1, 0, 0x67}
	storeHalf            = opcode{1, 1, 0, 0xd6} // stores 64 bits
	storeByte, storeWord = opcode{3, 1, 0, 0x14}, opcode{3, 1, 0, 0x15}
	permuteQuarters      = opcode{3, 1, 1, 0x00} // rearranges 64-bit lanes by an immediate
	// combines 32-bit lanes of two operands: where a bit of the immediate is set, the lane comes
	// from the second operand
	chooseBy   = opcode{3, 1, 0, 0x02}
	shuffleTwo = opcode{1, 0, 0, 0xc6} // takes two 32-bit lanes of each operand by an immediate
	// sets the zero flag if x & y is 0, and the carry flag if ^x & y is 0
	testAll = opcode{2, 1, 0, 0x17}
)

// converts holds the instructions that convert numbers to another type. Conversions from floats to
// integers truncate.
var converts = map[[2]dtype.Type]opcode{
	{dtype.F32, dtype.F64}: {1, 0, 0, 0x5a}, {dtype.F64, dtype.F32}: {1, 1, 1, 0x5a},
	{dtype.I32, dtype.F32}: {1, 0, 0, 0x5b}, {dtype.U32, dtype.F32}: {1, 3, 0, 0x7a},
	{dtype.I64, dtype.F32}: {1, 0, 1, 0x5b}, {dtype.U64, dtype.F32}: {1, 3, 1, 0x7a},
	{dtype.I32, dtype.F64}: {1, 2, 0, 0xe6}, {dtype.U32, dtype.F64}: {1, 2, 0, 0x7a},
	{dtype.I64, dtype.F64}: {1, 2, 1, 0xe6}, {dtype.U64, dtype.F64}: {1, 2, 1, 0x7a},
	{dtype.F32, dtype.I32}: {1, 2, 0, 0x5b}, {dtype.F32, dtype.U32}: {1, 0, 0, 0x78},
	{dtype.F32, dtype.I64}: {1, 1, 0, 0x7a}, {dtype.F32, dtype.U64}: {1, 1, 0, 0x78},
	{dtype.F64, dtype.I32}: {1, 1, 1, 0xe6}, {dtype.F64, dtype.U32}: {1, 0, 1, 0x78},
	{dtype.F64, dtype.I64}: {1, 1, 1, 0x7a}, {dtype.F64, dtype.U64}: {1, 1, 1, 0x78},
	{dtype.I32, dtype.I64}: widenInt, {dtype.I32, dtype.U64}: widenInt,
	{dtype.U32, dtype.I64}: widenUint, {dtype.U32, dtype.U64}: widenUint,
}
