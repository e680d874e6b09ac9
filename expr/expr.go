// Package expr is the scalar language in which elementwise ops are written once, for all devices.
//
// A caller builds an [Expr] from operands, differentiates it with [Diff], and lowers it to a
// [Program] with [Lower]. A program for training seldom needs the package: tensor.Expr takes such
// formulas as text.
//
// An Expr is an immutable graph over the elements of an op's operands. [X] is an element of operand
// i. [Y] is the op's own result, for gradients. [Param] is a scalar given at run time, and [Index]
// the element's position.
//
// Lower resolves types, expands named functions (exp, tanh, …) into primitives and shares common
// subexpressions. The Program that it returns is typed code in static single assignment form.
// [Program.Eval] defines what it computes, and every backend gives the same bits. Every float
// operation rounds its result. Operations are fused only by Expr.FMA.
//
// A constant or parameter without a type takes the type of the other operand. Operands of different
// types are converted to their promoted type. 16-bit floats are computed in float32 and narrow
// integers in int32, and are rounded or wrapped once when stored. Bool is a truth value: the sum of
// two values is "or", and their product is "and".
package expr

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

// An Op is a primitive operation of the expression language.
type Op uint8

// The primitives. Their operands are a, b and c. Imm is the field Imm of the instruction ([Instr]),
// and T is the type of its result. Integer arithmetic wraps.
const (
	OpInvalid Op = iota
	OpX          // element of the operand with number Imm
	OpY          // the result of the op itself; Lower replaces it by an operand
	OpConst      // constant with the bits Imm
	OpParam      // run-time scalar with number Imm
	// row-major index of the element in the shape over which the program runs: I64 or U32
	OpIndex
	OpAdd       // a + b
	OpSub       // a - b
	OpMul       // a · b
	OpDiv       // a / b, floats only
	OpFMA       // a·b + c rounded once, floats only
	OpNeg       // -a; for floats it flips the sign bit
	OpAbs       // |a|; for floats it clears the sign bit
	OpMin       // the lesser of a and b; NaN if either is NaN; -0 < +0
	OpMax       // the greater of a and b; NaN if either is NaN; -0 < +0
	OpSqrt      // square root, correctly rounded
	OpFloor     // rounds to an integer towards -∞
	OpTrunc     // rounds to an integer towards 0
	OpRoundEven // rounds to the nearest integer, ties to even
	// comparisons of two operands of the same type, with a Bool as result; if an operand is NaN, Ne
	// is true and the others are false
	OpEq
	OpNe
	OpLt
	OpLe
	OpGt
	OpGe
	OpSelect // b where a (Bool) is true, else c
	OpAnd    // bitwise and; for truth values logical and
	OpOr     // bitwise or; for truth values logical or
	OpXor    // bitwise exclusive or; for truth values, whether a and b differ
	OpNot    // bitwise complement; for truth values negation
	OpShl    // a << b; 0 if b is at least the width of T
	OpShr    // a >> b, arithmetic for signed types
	OpMulHi  // upper half of the double-width product, U32
	// conversion to T: floats are rounded to nearest even. A float becomes an integer by truncation
	// with saturation; NaN becomes 0. Integers wrap. To Bool, values ≠ 0 become true.
	OpCvt
	OpBitcast // reinterprets the bits of a as type T, which has the same size
	// random bits; the field Imm holds the Draw, which says which bits; a is the seed, b the offset
	// and c the index, all of type I64
	OpPhilox
	opCall // a named function; Lower expands it
)

var opNames = [...]string{"invalid", "x", "y", "const", "param", "index", "add", "sub", "mul", "div", "fma", "neg", "abs", "min", "max",
	"sqrt", "floor", "trunc", "roundeven", "eq", "ne", "lt", "le", "gt", "ge", "select", "and", "or", "xor", "not", "shl", "shr",
	"mulhi", "cvt", "bitcast", "philox", "call"}

// String returns the primitive's name in lower case.
func (op Op) String() string { return opNames[op] }

// Arity returns the number of operands of a primitive.
func (op Op) Arity() int {
	switch op {
	case OpInvalid, OpX, OpY, OpConst, OpParam, OpIndex, opCall:
		return 0
	case OpNeg, OpAbs, OpSqrt, OpFloor, OpTrunc, OpRoundEven, OpNot, OpCvt, OpBitcast:
		return 1
	case OpFMA, OpSelect, OpPhilox:
		return 3
	}
	return 2
}

// IsCompare reports whether op compares two values of the same type and returns a Bool.
func (op Op) IsCompare() bool { return op >= OpEq && op <= OpGe }

// An Expr is an immutable node. Make one with [X], [C] and the methods.
type Expr struct {
	op Op
	// the type of a Cvt, Bitcast, Index or Philox, or of a typed constant or Param. For other nodes
	// it is Invalid, because Lower infers the type
	typ  dtype.Type
	val  float64 // value of an untyped constant
	bits uint64  // bits of a typed constant, or the Draw of OpPhilox
	idx  int     // number of the operand of an X, or of the scalar of a Param
	fn   *Func   // the called function
	args []*Expr

	called string // name of the operation in names of programs, set by the method Named
}

// X returns a leaf that stands for an element of operand i.
func X(i int) *Expr { return &Expr{op: OpX, idx: i} }

// Y returns a leaf that stands for the op's own result. It may occur only in gradients.
func Y() *Expr { return &Expr{op: OpY} }

// C returns a constant with the value v. In an operation it takes the type of the other operand.
func C(v float64) *Expr { return &Expr{op: OpConst, val: v} }

// Bits returns a constant of type t. Its bits are in the low bytes of b.
func Bits(t dtype.Type, b uint64) *Expr { return &Expr{op: OpConst, typ: t, bits: b} }

// F64Const returns the float64 constant v.
func F64Const(v float64) *Expr { return Bits(dtype.F64, math.Float64bits(v)) }

// F32Const returns the float32 constant v.
func F32Const(v float32) *Expr { return Bits(dtype.F32, uint64(math.Float32bits(v))) }

// Param returns a leaf that stands for scalar i, whose value is given at run time. Its type is t.
// Without t, it takes the type of the other operand of an operation.
func Param(i int, t ...dtype.Type) *Expr {
	e := &Expr{op: OpParam, idx: i}
	if len(t) > 0 {
		e.typ = t[0]
	}
	return e
}

// Index returns the row-major index of the element in the iteration shape. Its type is I64, or U32
// for fewer than 2³² elements.
func Index(t dtype.Type) *Expr { return &Expr{op: OpIndex, typ: t} }

func node(op Op, in ...*Expr) *Expr { return &Expr{op: op, args: in} }

// Add returns x + y.
func (x *Expr) Add(y *Expr) *Expr { return node(OpAdd, x, y) }

// Sub returns x - y.
func (x *Expr) Sub(y *Expr) *Expr { return node(OpSub, x, y) }

// Mul returns x · y.
func (x *Expr) Mul(y *Expr) *Expr { return node(OpMul, x, y) }

// Div returns x / y, for floats.
func (x *Expr) Div(y *Expr) *Expr { return node(OpDiv, x, y) }

// FMA returns x·y + z with one rounding.
func (x *Expr) FMA(y, z *Expr) *Expr { return node(OpFMA, x, y, z) }

// Neg returns -x.
func (x *Expr) Neg() *Expr { return node(OpNeg, x) }

// Abs returns |x|.
func (x *Expr) Abs() *Expr { return node(OpAbs, x) }

// Min returns the lesser of x and y, or NaN if either is NaN.
func (x *Expr) Min(y *Expr) *Expr { return node(OpMin, x, y) }

// Max returns the greater of x and y, or NaN if either is NaN.
func (x *Expr) Max(y *Expr) *Expr { return node(OpMax, x, y) }

// Sqrt returns the square root of x.
func (x *Expr) Sqrt() *Expr { return node(OpSqrt, x) }

// Floor rounds x towards -∞.
func (x *Expr) Floor() *Expr { return node(OpFloor, x) }

// Trunc rounds x towards zero.
func (x *Expr) Trunc() *Expr { return node(OpTrunc, x) }

// RoundEven rounds x to the nearest integer, ties to even.
func (x *Expr) RoundEven() *Expr { return node(OpRoundEven, x) }

// Eq returns x == y.
func (x *Expr) Eq(y *Expr) *Expr { return node(OpEq, x, y) }

// Ne returns x != y.
func (x *Expr) Ne(y *Expr) *Expr { return node(OpNe, x, y) }

// Lt returns x < y.
func (x *Expr) Lt(y *Expr) *Expr { return node(OpLt, x, y) }

// Le returns x <= y.
func (x *Expr) Le(y *Expr) *Expr { return node(OpLe, x, y) }

// Gt returns x > y.
func (x *Expr) Gt(y *Expr) *Expr { return node(OpGt, x, y) }

// Ge returns x >= y.
func (x *Expr) Ge(y *Expr) *Expr { return node(OpGe, x, y) }

// Select returns the value of a if x is true, and otherwise the value of b.
func (x *Expr) Select(a, b *Expr) *Expr { return node(OpSelect, x, a, b) }

// And returns x & y.
func (x *Expr) And(y *Expr) *Expr { return node(OpAnd, x, y) }

// Or returns x | y.
func (x *Expr) Or(y *Expr) *Expr { return node(OpOr, x, y) }

// Xor returns x ^ y.
func (x *Expr) Xor(y *Expr) *Expr { return node(OpXor, x, y) }

// Not returns the complement of x.
func (x *Expr) Not() *Expr { return node(OpNot, x) }

// Shl returns x << y.
func (x *Expr) Shl(y *Expr) *Expr { return node(OpShl, x, y) }

// Shr returns x >> y.
func (x *Expr) Shr(y *Expr) *Expr { return node(OpShr, x, y) }

// MulHi returns the upper 32 bits of the product of two U32.
func (x *Expr) MulHi(y *Expr) *Expr { return node(OpMulHi, x, y) }

// Cvt converts x to type t.
func (x *Expr) Cvt(t dtype.Type) *Expr {
	e := node(OpCvt, x)
	e.typ = t
	return e
}

// Bitcast reinterprets the bits of x as type t of the same size.
func (x *Expr) Bitcast(t dtype.Type) *Expr {
	e := node(OpBitcast, x)
	e.typ = t
	return e
}

// A Func is a function that Lower expands into primitives. It has one formula for float32 and one
// for float64.
type Func struct {
	Name  string
	Arity int
	// Expand returns the formula for type t, F32 or F64. The formula may call other functions
	Expand func(t dtype.Type, x []*Expr) *Expr
	// Diff returns the partial derivatives with respect to each argument. y is the function's
	// value.
	Diff func(x []*Expr, y *Expr) []*Expr
	// Ref computes the exact function with package math. Tests compare the formula with it
	Ref func(x []float64) float64
}

var funcs = map[string]*Func{}

// Define registers a function under its name. Call it during package initialisation.
func Define(f Func) {
	if _, dup := funcs[f.Name]; dup {
		fail("function %s is defined twice", f.Name)
	}
	funcs[f.Name] = &f
}

// Funcs returns the defined functions by name.
func Funcs() map[string]*Func { return funcs }

// Call applies the function of the given name. It panics with an *[Error] if there is no such
// function, or if the number of arguments is wrong.
func Call(name string, x ...*Expr) *Expr {
	f := funcs[name]
	if f == nil {
		fail("no function %s", name)
	}
	if len(x) != f.Arity {
		fail("%s takes %d arguments, got %d", name, f.Arity, len(x))
	}
	e := node(opCall, x...)
	e.fn = f
	return e
}

// Scale returns c·x.
func (x *Expr) Scale(c float64) *Expr { return x.Mul(C(c)) }

// Substitute returns e with each leaf X(i) replaced by x(i), and Y by y. A leaf for which x(i) is
// nil stays.
func Substitute(e *Expr, x func(i int) *Expr, y *Expr) *Expr {
	memo := map[*Expr]*Expr{}
	var walk func(*Expr) *Expr
	walk = func(e *Expr) *Expr {
		if r, ok := memo[e]; ok {
			return r
		}
		r := e
		switch e.op {
		case OpX:
			if s := x(e.idx); s != nil {
				r = s
			}
		case OpY:
			if y != nil {
				r = y
			}
		default:
			var in []*Expr
			for i, a := range e.args {
				if b := walk(a); b != a && in == nil {
					in = append(in, e.args[:i]...)
					in = append(in, b)
				} else if in != nil {
					in = append(in, b)
				}
			}
			if in != nil {
				c := *e
				c.args = in
				r = &c
			}
		}
		memo[e] = r
		return r
	}
	return walk(e)
}

// IsX reports whether e is the leaf X(i).
func (x *Expr) IsX(i int) bool { return x.op == OpX && x.idx == i }
