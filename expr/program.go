package expr

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
)

// An Instr is one primitive operation. Its operands are the results of earlier instructions.
type Instr struct {
	Op      Op
	Type    dtype.Type // type of the result
	A, B, C int32      // indices of the operands in Program.Code; -1 for none
	Imm     uint64     // OpConst: the bits. OpX and OpParam: the number. OpPhilox: the Draw.
}

// A Program is typed code in canonical form: structurally equal expressions of equal types give
// equal programs.
type Program struct {
	Code   []Instr
	Outs   []int32      // indices of the results in Code, whose types are Out[k].Compute()
	Out    []dtype.Type // element types of the stored results
	In     []dtype.Type // types of the stored operands; an OpX has the type In[Imm].Compute()
	Params []dtype.Type // types of the run-time scalars

	key, name string
	words     []string // names of the operations, from which the program's name is made
}

// Key identifies the program: programs with equal keys have equal code and types. It does not
// depend on run-time values.
func (p *Program) Key() string { return p.key }

// String lists the code, one instruction per line.
func (p *Program) String() string {
	var b strings.Builder
	for i, c := range p.Code {
		fmt.Fprintf(&b, "%%%d = %v.%v", i, c.Op, c.Type)
		switch c.Op {
		case OpX, OpParam:
			fmt.Fprintf(&b, " %d", c.Imm)
		case OpPhilox:
			fmt.Fprintf(&b, " %+v", c.Draw())
		case OpConst:
			fmt.Fprintf(&b, " %#x (%v)", c.Imm, Decode(c.Type, c.Imm))
		}
		for k, a := range [...]int32{c.A, c.B, c.C} {
			if k < c.Op.Arity() {
				fmt.Fprintf(&b, " %%%d", a)
			}
		}
		b.WriteByte('\n')
	}
	for k, o := range p.Outs {
		fmt.Fprintf(&b, "out %v = %%%d\n", p.Out[k], o)
	}
	return b.String()
}

// UsesIndex reports whether the program uses the element's position.
func (p *Program) UsesIndex() bool {
	for _, c := range p.Code {
		if c.Op == OpIndex {
			return true
		}
	}
	return false
}

// Cost returns the number of arithmetic operations per element.
func (p *Program) Cost() int {
	n := 0
	for _, c := range p.Code {
		switch {
		case c.Op == OpPhilox:
			n += philoxCost * c.Type.Size() / 4
		case c.Op.Arity() > 0:
			n++
		}
	}
	return n
}

// philoxCost is the number of operations for one random word: a quarter of the operations for a
// block of four words. Each of ten rounds has two products of two words, four exclusive ors, and
// two additions to the key.
const philoxCost = 10 * (4 + 4 + 2) / 4

func (p *Program) finish() {
	h := sha256.New()
	var buf [8]byte
	num := func(v uint64) {
		binary.LittleEndian.PutUint64(buf[:], v)
		h.Write(buf[:])
	}
	for _, c := range p.Code {
		num(uint64(c.Op)<<8 | uint64(c.Type))
		num(uint64(uint32(c.A))<<32 | uint64(uint32(c.B)))
		num(uint64(uint32(c.C)))
		num(c.Imm)
	}
	for k, o := range p.Outs {
		num(1<<32 | uint64(o)<<8 | uint64(p.Out[k]))
	}
	for _, t := range p.In {
		num(2<<32 | uint64(t))
	}
	for _, t := range p.Params {
		num(3<<32 | uint64(t))
	}
	p.key = hex.EncodeToString(h.Sum(nil)[:12])
}

// An Error says why an expression has no valid type.
type Error struct{ Msg string }

func (e *Error) Error() string { return "expr: " + e.Msg }

// Raised marks an error that tensor.Try returns: see device.Raised.
func (e *Error) Raised() {}

func fail(format string, a ...any) { panic(&Error{fmt.Sprintf(format, a...)}) }

// Lower infers the types of the expressions outs and expands them into a program. The parameter ins
// holds the stored types of the operands, and out holds the stored types of the results. If a type
// in out is Invalid, the result has the type of the computation. The argument y is the number of
// the operand that Y reads, or -1 if Y does not occur.
func Lower(outs []*Expr, out, ins []dtype.Type, y int) (p *Program, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*Error)
			if !ok {
				panic(r)
			}
			p, err = nil, e
		}
	}()
	if len(outs) != len(out) {
		fail("%d results, %d result types", len(outs), len(out))
	}
	l := &lowerer{p: &Program{In: append([]dtype.Type(nil), ins...)}, y: y,
		seen: map[Instr]int32{}, memo: map[emitKey]int32{}, types: map[*Expr]dtype.Type{}, calls: map[*Expr]*Expr{}}
	for k, e := range outs {
		t := l.infer(e)
		stored := out[k]
		if t == dtype.Invalid {
			t = dtype.F32
			if stored != dtype.Invalid {
				t = stored.Compute()
			}
		}
		if stored == dtype.Invalid {
			stored = t
		}
		id := l.convert(l.emit(e, t), stored.Compute())
		l.p.Outs = append(l.p.Outs, id)
		l.p.Out = append(l.p.Out, stored)
	}
	l.prune()
	l.p.finish()
	l.p.setName(outs)
	return l.p, nil
}

// MustLower does what Lower does, but panics on an error. It is for expressions that are fixed in a
// program's source.
func MustLower(outs []*Expr, out, ins []dtype.Type, y int) *Program {
	p, err := Lower(outs, out, ins, y)
	if err != nil {
		panic(err)
	}
	return p
}

type emitKey struct {
	e *Expr
	t dtype.Type
}

type lowerer struct {
	p     *Program
	y     int
	seen  map[Instr]int32
	memo  map[emitKey]int32
	types map[*Expr]dtype.Type
	calls map[*Expr]*Expr
}

// unify returns the type to which operands of types a and b are converted. The type Invalid stands
// for an untyped constant, which adapts to the other operand.
func unify(a, b dtype.Type) dtype.Type {
	switch {
	case a == b || b == dtype.Invalid:
		return a
	case a == dtype.Invalid:
		return b
	case a == dtype.U32 || a == dtype.U64 || b == dtype.U32 || b == dtype.U64:
		fail("%v and %v do not mix without a conversion", a, b)
	}
	return dtype.Promote(a, b).Compute()
}

// infer returns the type of e's value. It is Invalid if e has no type of its own, like an untyped
// constant. Such an e takes the type of the other operand.
func (l *lowerer) infer(e *Expr) dtype.Type {
	if t, ok := l.types[e]; ok {
		return t
	}
	t := l.inferNew(e)
	l.types[e] = t
	return t
}

func (l *lowerer) inferNew(e *Expr) dtype.Type {
	switch e.op {
	case OpX, OpY:
		i := e.idx
		if e.op == OpY {
			i = l.y
		}
		if i < 0 || i >= len(l.p.In) {
			fail("%v(%d) of %d operands", e.op, i, len(l.p.In))
		}
		return l.p.In[i].Compute()
	case OpConst, OpParam, OpIndex:
		return e.typ.Compute()
	case OpCvt, OpBitcast, OpPhilox:
		return e.typ.Compute()
	case OpEq, OpNe, OpLt, OpLe, OpGt, OpGe:
		return dtype.Bool
	case OpSelect:
		return unify(l.infer(e.args[1]), l.infer(e.args[2]))
	case OpShl, OpShr:
		return l.infer(e.args[0])
	case OpMulHi:
		return dtype.U32
	}
	t := dtype.Invalid
	for _, in := range e.args {
		t = unify(t, l.infer(in))
	}
	if t != dtype.Invalid && !t.IsFloat() && (e.op == OpDiv || e.op == OpSqrt || e.op == opCall) {
		// As in torch, division and functions of integers give float32.
		return dtype.F32
	}
	return t
}

// push appends an instruction and returns its index. If all operands are constants, it appends
// their result instead. If the same instruction exists already, it returns the index of that
// instruction.
func (l *lowerer) push(c Instr) int32 {
	switch c.Op.Arity() {
	case 1:
		c.B, c.C = -1, -1
	case 2:
		c.C = -1
		if commutes(c.Op) && c.A > c.B {
			c.A, c.B = c.B, c.A
		}
	case 3:
		if c.Op == OpFMA && c.A > c.B {
			c.A, c.B = c.B, c.A
		}
	default:
		c.A, c.B, c.C = -1, -1, -1
	}
	if n := c.Op.Arity(); n > 0 {
		var v [3]uint64
		konst := true
		operands := [3]int32{c.A, c.B, c.C}
		for k, a := range operands[:n] {
			konst = konst && l.p.Code[a].Op == OpConst
			if konst {
				v[k] = l.p.Code[a].Imm
			}
		}
		if konst {
			from := l.p.Code[c.A].Type
			c = Instr{Op: OpConst, Type: c.Type, A: -1, B: -1, C: -1, Imm: c.apply(from, v[0], v[1], v[2])}
		}
	}
	if id, ok := l.seen[c]; ok {
		return id
	}
	id := int32(len(l.p.Code))
	l.p.Code = append(l.p.Code, c)
	l.seen[c] = id
	return id
}

func commutes(op Op) bool {
	switch op {
	case OpAdd, OpMul, OpMin, OpMax, OpEq, OpNe, OpAnd, OpOr, OpXor, OpMulHi:
		return true
	}
	return false
}

// convert returns the instruction that converts the value of instruction id to type t.
func (l *lowerer) convert(id int32, t dtype.Type) int32 {
	if l.p.Code[id].Type == t {
		return id
	}
	return l.push(Instr{Op: OpCvt, Type: t, A: id})
}

// emit returns the instruction that computes e, converted to type t if necessary.
func (l *lowerer) emit(e *Expr, t dtype.Type) int32 {
	k := emitKey{e, t}
	if id, ok := l.memo[k]; ok {
		return id
	}
	own := l.infer(e)
	var id int32
	if own == dtype.Invalid || own == t {
		id = l.emitNew(e, t)
	} else {
		id = l.convert(l.emit(e, own), t)
	}
	l.memo[k] = id
	return id
}

func (l *lowerer) emitNew(e *Expr, t dtype.Type) int32 {
	switch e.op {
	case OpX, OpY:
		i := e.idx
		if e.op == OpY {
			i = l.y
		}
		return l.push(Instr{Op: OpX, Type: t, Imm: uint64(i)})
	case OpConst:
		if e.typ != dtype.Invalid {
			return l.push(Instr{Op: OpConst, Type: t, Imm: e.bits})
		}
		if !t.IsFloat() && t != dtype.Bool && e.val != float64(int64(e.val)) {
			fail("constant %v is not of type %v", e.val, t)
		}
		return l.push(Instr{Op: OpConst, Type: t, Imm: Encode(t, e.val)})
	case OpParam:
		for len(l.p.Params) <= e.idx {
			l.p.Params = append(l.p.Params, dtype.Invalid)
		}
		if l.p.Params[e.idx] == dtype.Invalid {
			l.p.Params[e.idx] = t
		}
		return l.convert(l.push(Instr{Op: OpParam, Type: l.p.Params[e.idx], Imm: uint64(e.idx)}), t)
	case OpIndex:
		if t != dtype.I64 && t != dtype.U32 {
			fail("an index is of type int64 or uint32, not %v", t)
		}
		return l.push(Instr{Op: OpIndex, Type: t})
	case OpEq, OpNe, OpLt, OpLe, OpGt, OpGe:
		m := unify(l.infer(e.args[0]), l.infer(e.args[1]))
		switch m {
		case dtype.Invalid:
			m = dtype.F64
		case dtype.Bool:
			m = dtype.I32
		}
		return l.push(Instr{Op: e.op, Type: dtype.Bool, A: l.emit(e.args[0], m), B: l.emit(e.args[1], m)})
	case OpSelect:
		return l.push(Instr{Op: OpSelect, Type: t, A: l.emit(e.args[0], dtype.Bool), B: l.emit(e.args[1], t), C: l.emit(e.args[2], t)})
	case OpPhilox:
		return l.push(Instr{Op: OpPhilox, Type: t, A: l.emit(e.args[0], dtype.I64), B: l.emit(e.args[1], dtype.I64),
			C: l.emit(e.args[2], dtype.I64), Imm: e.bits})
	case OpCvt:
		return l.emitCvt(e, t)
	case OpBitcast:
		from := l.infer(e.args[0])
		if from == dtype.Invalid || from.Size() != t.Size() || from == dtype.Bool || t == dtype.Bool {
			fail("no bitcast from %v to %v", from, t)
		}
		a := l.emit(e.args[0], from)
		if from == t {
			return a
		}
		return l.push(Instr{Op: OpBitcast, Type: t, A: a})
	case opCall:
		return l.emit(l.expand(e, t), t)
	}
	return l.emitArith(e, t)
}

// emitCvt emits a conversion to type t. Integers narrower than 32 bits are computed in int32, so
// emitCvt adds instructions that wrap the value.
func (l *lowerer) emitCvt(e *Expr, t dtype.Type) int32 {
	if e.typ.IsHalf() {
		fail("%v is a storage type: values are rounded to it when they are stored", e.typ)
	}
	from := l.infer(e.args[0])
	if from == dtype.Invalid {
		from = t
	}
	a := l.convert(l.emit(e.args[0], from), t)
	imm := func(v float64) int32 { return l.push(Instr{Op: OpConst, Type: dtype.I32, Imm: Encode(dtype.I32, v)}) }
	switch e.typ {
	case dtype.U8:
		return l.push(Instr{Op: OpAnd, Type: t, A: a, B: imm(255)})
	case dtype.I8, dtype.I16:
		s := imm(float64(32 - 8*e.typ.Size()))
		return l.push(Instr{Op: OpShr, Type: t, A: l.push(Instr{Op: OpShl, Type: t, A: a, B: s}), B: s})
	}
	return a
}

func (l *lowerer) expand(e *Expr, t dtype.Type) *Expr {
	if t != dtype.F32 && t != dtype.F64 {
		fail("%s is not defined for %v", e.fn.Name, t)
	}
	key := e
	if r, ok := l.calls[key]; ok && l.infer(r) == t {
		return r
	}
	args := make([]*Expr, len(e.args))
	for i, a := range e.args {
		args[i] = a
		if l.infer(a) != t {
			args[i] = a.Cvt(t)
		}
	}
	r := e.fn.Expand(t, args)
	if l.infer(r) != t {
		r = r.Cvt(t)
	}
	l.calls[key] = r
	return r
}

func (l *lowerer) emitArith(e *Expr, t dtype.Type) int32 {
	op := e.op
	if t == dtype.Bool {
		switch op {
		case OpAdd, OpMax:
			op = OpOr
		case OpMul, OpMin:
			op = OpAnd
		case OpAbs:
			return l.emit(e.args[0], t)
		case OpAnd, OpOr, OpXor, OpNot:
		default:
			fail("%v is not defined for bool", op)
		}
	}
	switch op {
	case OpDiv, OpSqrt:
		if !t.IsFloat() {
			fail("%v is not defined for %v", op, t)
		}
	case OpFloor, OpTrunc, OpRoundEven:
		if !t.IsFloat() {
			return l.emit(e.args[0], t)
		}
	case OpFMA:
		if !t.IsFloat() {
			return l.emit(e.args[0].Mul(e.args[1]).Add(e.args[2]), t)
		}
	case OpAnd, OpOr, OpXor, OpNot, OpShl, OpShr:
		if t.IsFloat() {
			fail("%v is not defined for %v", op, t)
		}
	case OpMulHi:
		t = dtype.U32
	case OpAbs, OpNeg:
		if t == dtype.U32 || t == dtype.U64 {
			fail("%v is not defined for %v", op, t)
		}
	}
	c := Instr{Op: op, Type: t, A: l.emit(e.args[0], t)}
	if len(e.args) > 1 {
		c.B = l.emit(e.args[1], t)
	}
	if len(e.args) > 2 {
		c.C = l.emit(e.args[2], t)
	}
	return l.push(c)
}

// prune removes instructions that folding has made unused. It renumbers the remaining instructions
// in order of first use.
func (l *lowerer) prune() {
	p := l.p
	keep := make([]int32, len(p.Code))
	for i := range keep {
		keep[i] = -1
	}
	var code []Instr
	var walk func(int32) int32
	walk = func(i int32) int32 {
		if keep[i] >= 0 {
			return keep[i]
		}
		c := p.Code[i]
		switch c.Op.Arity() {
		case 3:
			c.A, c.B, c.C = walk(c.A), walk(c.B), walk(c.C)
		case 2:
			c.A, c.B = walk(c.A), walk(c.B)
		case 1:
			c.A = walk(c.A)
		}
		keep[i] = int32(len(code))
		code = append(code, c)
		return keep[i]
	}
	for k, o := range p.Outs {
		p.Outs[k] = walk(o)
	}
	p.Code = code
}
