package main

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// functions lists the functions of package expr for which a kernel is generated: those of one
// argument that compute with at most 32 bits. Such a kernel computes the function's float32 formula
// with all intermediate values in registers. It gives the same bits as one kernel for each
// primitive of the formula, but is several times as fast.
var functions = func() (names []string) {
	for name, f := range expr.Funcs() {
		if f.Arity != 1 {
			continue
		}
		narrow := true
		for _, c := range program(name).Code {
			switch c.Type {
			case dtype.F32, dtype.U32, dtype.I32, dtype.Bool:
			default:
				narrow = false
			}
		}
		if narrow {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}()

// value is the result of an instruction, usually a vector register. A truth value is a mask
// register (AVX-512), or a vector whose lanes are all ones or all zeros (AVX2).
type value struct {
	v reg.VecVirtual
	k reg.Register
}

type translator struct {
	*ctx
	code []expr.Instr
	// for each value, the value whose register holds its bits. For a conversion that keeps the bits
	// it is the operand, otherwise the value itself.
	root []int32
	last []int // for each value, the last instruction that uses its register
	vals []value
	pool map[uint64]operand.Mem // constants in memory; all functions of a file share them
}

func program(name string) *expr.Program {
	p, err := expr.Lower([]*expr.Expr{expr.Call(name, expr.X(0))}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
	if err != nil {
		fatal(err)
	}
	return p
}

// translate returns the lowering of a program with one operand and one result.
func translate(p *expr.Program, pool map[uint64]operand.Mem) lowering {
	root, last := make([]int32, len(p.Code)), make([]int, len(p.Code))
	for i, c := range p.Code {
		root[i] = int32(i)
		if c.Op == expr.OpBitcast || c.Op == expr.OpCvt && c.Type != dtype.F32 && p.Code[c.A].Type != dtype.F32 && p.Code[c.A].Type != dtype.Bool {
			root[i] = root[c.A] // a conversion between 32-bit integer types keeps the bits
			continue
		}
		for k, o := range [3]int32{c.A, c.B, c.C} {
			if k < c.Op.Arity() {
				last[root[o]] = i
			}
		}
	}
	for _, o := range p.Outs {
		last[root[o]] = len(p.Code)
	}
	return lowering{unroll: 1, f: func(c *ctx, v, _ vecs) reg.VecVirtual {
		t := &translator{ctx: c, code: p.Code, root: root, last: last, vals: make([]value, len(p.Code)), pool: pool}
		for i, in := range p.Code {
			switch {
			case in.Op == expr.OpX:
				t.vals[i].v = v[0]
			// no register is needed: a constant is loaded at each use, and a value whose root is
			// another value uses that value's register
			case in.Op == expr.OpConst || root[i] != int32(i):
			default:
				t.vals[i] = t.emit(i, in)
			}
		}
		return t.vec(p.Outs[0])
	}}
}

// vec returns the register of value i, which must not be a truth value. It loads a constant from
// memory at each use, because registers are scarce.
func (t *translator) vec(i int32) reg.VecVirtual {
	i = t.root[i]
	if c := t.code[i]; c.Op == expr.OpConst {
		o := t.full()
		t.VBROADCASTSS(t.constant(uint32(c.Imm)), o)
		return o
	}
	return t.vals[i].v
}

func (t *translator) constant(bits uint32) operand.Mem {
	m, ok := t.pool[uint64(bits)]
	if !ok {
		m = t.StaticGlobal(fmt.Sprintf("const%08x%s", bits, t.isa.name))
		t.DataAttributes(build.RODATA | build.NOPTR)
		t.AddDatum(0, operand.U32(bits))
		t.pool[uint64(bits)] = m
	}
	return m
}

// own returns a register that holds value v and that instruction i may overwrite.
func (t *translator) own(v int32, i int) reg.VecVirtual {
	x := t.vec(v)
	if t.isConst(v) || t.last[t.root[v]] == i {
		return x
	}
	o := t.full()
	t.VMOVAPS(x, o)
	return o
}

func (t *translator) isConst(i int32) bool { return t.code[t.root[i]].Op == expr.OpConst }

// imm returns the bits of value i, which is a constant.
func (t *translator) imm(i int32) uint64 { return t.code[t.root[i]].Imm }

// harmless reports whether value i is a constant that is neither zero nor NaN. With such a constant
// as an operand, a minimum or maximum needs only one instruction.
func (t *translator) harmless(i int32) bool {
	if !t.isConst(i) {
		return false
	}
	f := math.Float32frombits(uint32(t.imm(i)))
	return f != 0 && f == f
}

var opName = map[expr.Op]string{expr.OpAdd: "Add", expr.OpSub: "Sub", expr.OpMul: "Mul", expr.OpDiv: "Div", expr.OpNeg: "Neg", expr.OpAbs: "Abs",
	expr.OpMin: "Min", expr.OpMax: "Max", expr.OpSqrt: "Sqrt", expr.OpFloor: "Floor", expr.OpTrunc: "Trunc", expr.OpRoundEven: "RoundEven",
	expr.OpAnd: "And", expr.OpOr: "Or", expr.OpXor: "Xor", expr.OpNot: "Not", expr.OpShl: "Shl", expr.OpShr: "Shr", expr.OpMulHi: "MulHi"}

var suffix = map[dtype.Type]string{dtype.F32: "F32", dtype.U32: "U32", dtype.I32: "I32"}

func (t *translator) emit(i int, in expr.Instr) value {
	switch {
	case in.Op == expr.OpFMA && in.Type == dtype.F32:
		return value{v: t.fma(i, in)}
	case in.Op == expr.OpSelect:
		return value{v: t.choose(i, in)}
	case in.Op.IsCompare():
		return t.compare(in)
	case in.Type == dtype.Bool:
		return t.logic(in)
	case (in.Op == expr.OpShl || in.Op == expr.OpShr) && t.isConst(in.B):
		o, n := t.full(), operand.U8(t.imm(in.B))
		switch {
		case in.Op == expr.OpShl:
			t.VPSLLD(n, t.vec(in.A), o)
		case in.Type == dtype.I32:
			t.VPSRAD(n, t.vec(in.A), o)
		default:
			t.VPSRLD(n, t.vec(in.A), o)
		}
		return value{v: o}
	case (in.Op == expr.OpMin || in.Op == expr.OpMax) && in.Type == dtype.F32 && (t.harmless(in.A) || t.harmless(in.B)):
		x, k := in.A, in.B // for NaN the instruction returns its second source, so x must be second
		if t.harmless(x) {
			x, k = k, x
		}
		o := t.full()
		if in.Op == expr.OpMin {
			t.VMINPS(t.vec(x), t.vec(k), o)
		} else {
			t.VMAXPS(t.vec(x), t.vec(k), o)
		}
		return value{v: o}
	}
	name := opName[in.Op] + suffix[in.Type]
	switch {
	case in.Op == expr.OpCvt:
		name = "Cvt" + suffix[t.code[in.A].Type] + "To" + suffix[in.Type]
	case in.Type == dtype.I32 && in.Op != expr.OpShr && in.Op != expr.OpMin && in.Op != expr.OpMax && in.Op != expr.OpAbs:
		// the bits of the result are the same for signed and unsigned operands
		name = opName[in.Op] + "U32"
	}
	l, ok := t.isa.lowers[name]
	if !ok {
		fatal(fmt.Errorf("%s: no lowering of %s, instruction %v of %v", t.isa.name, name, in.Op, in.Type))
	}
	var v, k vecs
	for n, o := range [3]int32{in.A, in.B, in.C} {
		if n < in.Op.Arity() {
			v = append(v, t.own(o, i))
		}
	}
	// the lowering may overwrite one operand before it reads the other, so each needs its own
	// register
	if len(v) == 2 && v[0] == v[1] {
		o := t.full()
		t.VMOVAPS(v[0], o)
		v[1] = o
	}
	for _, c := range l.consts {
		if c.width == 8 && c.bits>>32 != c.bits&0xffffffff {
			k = append(k, t.broadcast(c))
			continue
		}
		o := t.full()
		t.VBROADCASTSS(t.constant(uint32(c.bits)), o)
		k = append(k, o)
	}
	return value{v: l.f(t.ctx, v, k)}
}

// fma emits a fused multiply-add. If an operand is not needed later, the result overwrites it.
func (t *translator) fma(i int, in expr.Instr) reg.VecVirtual {
	free := func(o int32) bool { return t.isConst(o) || t.last[t.root[o]] == i }
	if a, b, c := t.root[in.A], t.root[in.B], t.root[in.C]; a != b && a != c && b != c {
		switch {
		case !t.isConst(in.A) && free(in.A):
			o := t.vec(in.A)
			t.VFMADD213PS(t.vec(in.C), t.vec(in.B), o)
			return o
		case !t.isConst(in.B) && free(in.B):
			o := t.vec(in.B)
			t.VFMADD213PS(t.vec(in.C), t.vec(in.A), o)
			return o
		case free(in.C):
			o := t.vec(in.C)
			t.VFMADD231PS(t.vec(in.B), t.vec(in.A), o)
			return o
		}
	}
	o := t.full()
	t.VMOVAPS(t.vec(in.C), o)
	t.VFMADD231PS(t.vec(in.B), t.vec(in.A), o)
	return o
}

func (t *translator) choose(i int, in expr.Instr) reg.VecVirtual {
	m := t.vals[in.A]
	if t.wide() {
		o := t.own(in.C, i)
		t.VMOVAPS(t.vec(in.B), m.k, o)
		return o
	}
	o := t.full()
	t.VBLENDVPS(m.v, t.vec(in.B), t.vec(in.C), o)
	return o
}

func (t *translator) compare(in expr.Instr) value {
	a, b := t.vec(in.A), t.vec(in.B)
	op := in.Op
	if op == expr.OpGt || op == expr.OpGe {
		a, b = b, a
		op = map[expr.Op]expr.Op{expr.OpGt: expr.OpLt, expr.OpGe: expr.OpLe}[op]
	}
	float := map[expr.Op]uint64{expr.OpEq: eqOQ, expr.OpNe: neUQ, expr.OpLt: ltOQ, expr.OpLe: leOQ}[op]
	whole := map[expr.Op]uint64{expr.OpEq: 0, expr.OpLt: 1, expr.OpLe: 2, expr.OpNe: 4}[op]
	from := t.code[in.A].Type
	if t.wide() {
		k := t.K()
		switch from {
		case dtype.F32:
			t.VCMPPS(operand.U8(float), b, a, k)
		case dtype.I32:
			t.VPCMPD(operand.U8(whole), b, a, k)
		case dtype.U32:
			t.VPCMPUD(operand.U8(whole), b, a, k)
		default:
			fatal(fmt.Errorf("comparison of %v", from))
		}
		return value{k: k}
	}
	o := t.full()
	switch {
	case from == dtype.F32:
		t.VCMPPS(operand.U8(float), b, a, o)
		return value{v: o}
	case op == expr.OpEq || op == expr.OpNe:
		t.VPCMPEQD(b, a, o)
	default:
		if from == dtype.U32 {
			sign := t.full()
			t.VBROADCASTSS(t.constant(1<<31), sign)
			a, b = t.bitwise('^', a, sign), t.bitwise('^', b, sign)
		}
		if op == expr.OpLe { // a <= b is the negation of b < a
			a, b = b, a
		}
		t.VPCMPGTD(a, b, o)
	}
	if op == expr.OpNe || op == expr.OpLe {
		return value{v: t.invert(o)}
	}
	return value{v: o}
}

func (t *translator) invert(v reg.VecVirtual) reg.VecVirtual {
	ones := t.full()
	t.VBROADCASTSS(t.constant(0xffffffff), ones)
	return t.bitwise('^', v, ones)
}

// logic emits an operation on truth values.
func (t *translator) logic(in expr.Instr) value {
	a := t.vals[in.A]
	if t.wide() {
		k := t.K()
		switch in.Op {
		case expr.OpAnd:
			t.KANDW(t.vals[in.B].k, a.k, k)
		case expr.OpOr:
			t.KORW(t.vals[in.B].k, a.k, k)
		case expr.OpXor:
			t.KXORW(t.vals[in.B].k, a.k, k)
		case expr.OpNot:
			t.KNOTW(a.k, k)
		default:
			fatal(fmt.Errorf("%v of truth values", in.Op))
		}
		return value{k: k}
	}
	switch in.Op {
	case expr.OpAnd:
		return value{v: t.bitwise('&', a.v, t.vals[in.B].v)}
	case expr.OpOr:
		return value{v: t.bitwise('|', a.v, t.vals[in.B].v)}
	case expr.OpXor:
		return value{v: t.bitwise('^', a.v, t.vals[in.B].v)}
	case expr.OpNot:
		return value{v: t.invert(a.v)}
	}
	fatal(fmt.Errorf("%v of truth values", in.Op))
	return value{}
}

// writeFunctions emits the kernels of one instruction set for functions, except those in excluded.
// It returns the Go text of the table of these kernels.
func writeFunctions(c *ctx, excluded map[string]bool) string {
	var b bytes.Buffer
	pool := map[uint64]operand.Mem{}
	fmt.Fprintf(&b, "\n// functions%s are the named functions with a kernel of their own.\nvar functions%s = map[string]function{\n", c.isa.name, c.isa.name)
	for _, name := range functions {
		k := kernel{name: name + "Function", dst: "float32", src: []string{"float32"}, args: []string{"a"}, loop: fmt.Sprintf("dst[i] = %s(a[i]) by the formula of package expr", name)}
		if excluded[lower(k.name)+c.isa.name] {
			continue
		}
		p := program(name)
		elementwise(c, k, translate(p, pool))
		if c.wide() {
			fmt.Fprintf(&b, "%q: {%q, %sFunction%s},\n", name, p.Key(), name, c.isa.name)
			continue
		}
		fmt.Fprintf(&b, `%q: {%q, func(dst, a []float32) {
			%[3]sFunction%[4]s(dst, a)
			if n := len(dst) &^ 7; n < len(dst) {
				var t [8]float32
				copy(t[:], a[n:])
				%[3]sFunction%[4]s(t[:], t[:])
				copy(dst[n:], t[:])
			}
		}},
`, name, p.Key(), name, c.isa.name)
	}
	b.WriteString("}\n")
	return b.String()
}

// tooLarge returns the names of the kernels in AVX2 assembly text that need more than 16 registers.
// In these kernels, the register allocator has used registers that only AVX-512 has.
func tooLarge(text []byte) (names []string) {
	for _, f := range bytes.Split(text, []byte("\nTEXT ·"))[1:] {
		if highRegister.Match(f) {
			names = append(names, string(f[:bytes.IndexByte(f, '(')]))
		}
	}
	return names
}

var highRegister = regexp.MustCompile(`\b[XY](1[6-9]|2\d|3[01])\b`)
