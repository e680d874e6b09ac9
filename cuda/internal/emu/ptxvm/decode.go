package ptxvm

import (
	"slices"
	"strings"
)

// decoder turns the parsed statements of one entry into instructions. If it fails, it panics with a
// *ParseError.
type decoder struct {
	e        *Entry
	stmt     *stmt
	now      stmt // copy of the statement that is being decoded
	in       *inst
	base     string   // opcode without modifiers
	mods     []string // modifiers that were not processed yet
	nreg     int32
	npred    int32
	consts   map[constSlot]int32
	specials map[special]int32
	shared   int // end of the static shared memory assigned so far
	dynAlign int
	fn       *body       // function that is being decoded; nil for the entry
	todo     []*function // functions that are called but not decoded yet
	targets  int         // number of targets in all lists of brx.idx instructions
}

// decode fills in e.code and the register layout. Register slot 0 is the constant zero. Predicate
// slots 0 and 1 are the constants true and false.
func decode(e *Entry, stmts []stmt) {
	e.names = map[regKey]string{}
	d := &decoder{e: e, nreg: 1, npred: 2, consts: map[constSlot]int32{}, specials: map[special]int32{}, shared: e.StaticShared, dynAlign: 16}
	e.code = make([]inst, 0, len(stmts)+1)
	d.body(stmts)
	// the end of the text acts like ret
	e.code = append(e.code, inst{kind: kExit, line: lastLine(e.code), rpc: -1})
	reconverge(e.code, 0)
	d.functions()
	e.nreg, e.npred = int(d.nreg), int(d.npred)
	for k, slot := range d.consts {
		k.slot = slot
		e.consts = append(e.consts, k)
	}
	for sr, slot := range d.specials {
		e.specials = append(e.specials, specialUse{sr, slot})
	}
	e.StaticShared = d.shared
	e.dynOffset = int(roundUp(uint64(d.shared), uint64(d.dynAlign)))
}

func lastLine(code []inst) int32 {
	if len(code) == 0 {
		return 1
	}
	return code[len(code)-1].line
}

// body decodes the statements of the entry or of a function, and appends their instructions.
func (d *decoder) body(stmts []stmt) {
	e := d.e
	first := len(e.code)
	e.code = slices.Grow(e.code, len(stmts)+1)
	for i := range stmts {
		// This is a copy, because each entry that calls the function decodes the statements again.
		d.now = stmts[i]
		s := &d.now
		e.code = append(e.code, inst{line: int32(s.line), rpc: -1})
		d.stmt, d.in = s, &e.code[first+i]
		if s.guard != "" {
			d.in.guard, d.in.not = d.predicate(operand{kind: okWord, name: s.guard}), s.guardNot
		}
		parts := splitOpcode(s.op)
		d.base, d.mods = parts[0], parts[1:]
		h := handlers[d.base]
		if h == nil {
			d.fail("unknown or unsupported instruction %s", s.op)
		}
		if slices.Contains(d.mods, "") {
			d.fail("%s: a dot without a modifier after it", s.op)
		}
		h(d)
		if len(d.mods) > 0 {
			d.fail("%s: modifier .%s is unknown or not supported here", s.op, d.mods[0])
		}
	}
}

// splitOpcode splits an opcode at its dots, but not at the colons of modifiers such as
// "L1::no_allocate".
func splitOpcode(op string) []string { return strings.Split(op, ".") }

func (d *decoder) fail(format string, args ...any) { fail(d.stmt.line, format, args...) }

// require records the compute capability and the PTX version that an instruction needs. It fails if
// the module declares less.
func (d *decoder) require(sm, major, minor int) {
	m := d.e.mod
	if m.target < sm {
		d.fail("%s needs .target sm_%d or higher, the module has %s", d.stmt.op, sm, m.arch)
	}
	if m.major < major || m.major == major && m.minor < minor {
		d.fail("%s needs .version %d.%d or higher, the module has %d.%d", d.stmt.op, major, minor, m.major, m.minor)
	}
}

// modifier removes a modifier from the list of unprocessed ones, and reports whether it was there.
func (d *decoder) modifier(name string) bool {
	for i, m := range d.mods {
		if m == name {
			d.mods = append(d.mods[:i:i], d.mods[i+1:]...)
			return true
		}
	}
	return false
}

// oneOf removes the first of the named modifiers that is present and returns its index, or -1.
func (d *decoder) oneOf(names ...string) int {
	for i, n := range names {
		if d.modifier(n) {
			return i
		}
	}
	return -1
}

// typ removes the last modifier that is a type, and returns it.
func (d *decoder) typ() Type {
	for i := len(d.mods) - 1; i >= 0; i-- {
		if t, ok := typeByName[d.mods[i]]; ok {
			d.mods = append(d.mods[:i:i], d.mods[i+1:]...)
			return t
		}
	}
	d.fail("%s lacks a type, or has one that is not supported", d.stmt.op)
	panic("unreachable")
}

// typIn is [decoder.typ] with a list of allowed types.
func (d *decoder) typIn(list ...Type) Type {
	t := d.typ()
	if slices.Contains(list, t) {
		return t
	}
	d.fail("%s: type .%s is not supported by %s", d.stmt.op, t, d.base)
	panic("unreachable")
}

// args checks the number of operands and returns them.
func (d *decoder) args(n int) []operand {
	if len(d.stmt.args) != n {
		d.fail("%s takes %d operands, found %d", d.stmt.op, n, len(d.stmt.args))
	}
	return d.stmt.args
}

func (d *decoder) extra() *extra {
	if d.in.x == nil {
		d.in.x = &extra{}
	}
	return d.in.x
}

// constant returns a register slot for the constant v.
func (d *decoder) constant(v uint64) int32 {
	if v == 0 {
		return 0
	}
	return d.constSlot(constSlot{val: v})
}

func (d *decoder) constSlot(k constSlot) int32 {
	slot, ok := d.consts[k]
	if !ok {
		slot = d.nreg
		d.nreg++
		d.consts[k] = slot
	}
	return slot
}

// register resolves a register name. It returns nil if there is no such register.
func (d *decoder) register(name string) *register {
	r := d.stmt.scope.register(name)
	if r != nil && r.slot < 0 {
		if r.typ == Pred {
			r.slot = d.npred
			d.npred++
		} else {
			r.slot = d.nreg
			d.nreg++
		}
		if d.fn != nil {
			d.fn.note(r)
		}
		d.e.names[regKey{r.slot, r.typ == Pred}] = name
	}
	return r
}

func (d *decoder) predicate(o operand) int32 {
	if o.kind != okWord || o.off != 0 {
		d.fail("%s: expected a predicate register", d.stmt.op)
	}
	if o.not {
		d.fail("%s: the predicate cannot be negated here", d.stmt.op)
	}
	r := d.register(o.name)
	if r == nil {
		d.fail("%s: %s is not declared", d.stmt.op, o.name)
	}
	if r.typ != Pred {
		d.fail("%s: %s is a .%s register, not a predicate", d.stmt.op, o.name, r.typ)
	}
	return r.slot
}

// condition resolves a predicate operand that is read: a register or the number 0 or 1, possibly
// negated.
func (d *decoder) condition(o operand) (slot int32, not bool) {
	if o.kind == okInt {
		if o.val == 0 {
			return predFalse, false
		}
		return 0, false
	}
	not = o.not
	o.not = false
	return d.predicate(o), not
}

const predFalse = 1

// fits reports whether a register of type r may be an operand of type t. The sizes must be equal;
// if wide is true, the register may be larger. Integers do not mix with floats. Untyped bits mix
// with everything.
func fits(r, t Type, wide bool) bool {
	if r == Pred {
		return false
	}
	if r.Size() != t.Size() && !(wide && r.Size() > t.Size()) {
		return false
	}
	switch {
	case r.untyped():
		return r.Size() == t.Size() || !t.float()
	case t.untyped():
		return r.Size() == t.Size() || !r.float()
	case r.float() || t.float():
		return r == t
	}
	return true
}

func (d *decoder) reg(o operand, t Type, wide bool) (int32, Type) {
	if o.not {
		d.fail("%s: only predicates can be negated with !", d.stmt.op)
	}
	if o.kind != okWord {
		d.fail("%s: expected a register of type .%s", d.stmt.op, t)
	}
	r := d.register(o.name)
	if r == nil {
		if o.name[0] != '%' && d.stmt.scope.variable(o.name) != nil {
			d.fail("%s: %s is a variable, expected a register", d.stmt.op, o.name)
		}
		d.fail("%s: %s is not declared", d.stmt.op, o.name)
	}
	if o.off != 0 {
		d.fail("%s: a register operand cannot have an offset outside an address", d.stmt.op)
	}
	if !fits(r.typ, t, wide) {
		d.fail("%s: register %s of type .%s does not fit an operand of type .%s", d.stmt.op, o.name, r.typ, t)
	}
	return r.slot, r.typ
}

// dst returns the slot of a destination register.
func (d *decoder) dst(o operand, t Type) int32 { s, _ := d.reg(o, t, false); return s }

// src returns the register slot of a source operand: a register, a special register or a number.
// Only mov also accepts addresses of variables.
func (d *decoder) src(o operand, t Type) int32 { return d.source(o, t, false) }

func (d *decoder) source(o operand, t Type, wide bool) int32 {
	switch o.kind {
	case okInt, okF32, okF64:
		v, ok := literal(o, t)
		if !ok {
			d.fail("%s: literal does not fit an operand of type .%s", d.stmt.op, t)
		}
		return d.constant(v)
	case okWord:
		if o.not {
			d.fail("%s: only predicates can be negated with !", d.stmt.op)
		}
		if sr, ok := specialByName[o.name]; ok {
			return d.special(o.name, sr, t)
		}
		if o.name == "WARP_SZ" {
			return d.constant(32)
		}
		s, _ := d.reg(o, t, wide)
		return s
	}
	d.fail("%s: operand does not fit type .%s", d.stmt.op, t)
	panic("unreachable")
}

func (d *decoder) special(name string, sr special, t Type) int32 {
	want := 4
	if sr.wide() {
		want = 8
	}
	if t.Size() != want || t.float() {
		d.fail("%s: %s has %d bits", d.stmt.op, name, 8*want)
	}
	if strings.Contains(name, "cluster") {
		d.require(90, 7, 8)
	}
	if sr >= srClock {
		d.fail("%s: %s can only be read by mov", d.stmt.op, name)
	}
	slot, ok := d.specials[sr]
	if !ok {
		slot = d.nreg
		d.nreg++
		d.specials[sr] = slot
	}
	return slot
}

// address returns a slot that holds the address of a variable in its own state space.
func (d *decoder) address(name string, off int64, t Type) int32 {
	v := d.stmt.scope.variable(name)
	if v == nil {
		d.fail("%s: %s is not declared", d.stmt.op, name)
	}
	if t.float() || t.Size() != 8 && (t.Size() != 4 || v.space == spGlobal) {
		d.fail("%s: the address of %s does not fit type .%s", d.stmt.op, name, t)
	}
	k := constSlot{val: uint64(off)}
	switch v.space {
	case spGlobal:
		k.global = v
	case spShared:
		d.place(v)
		if v.extern {
			k.dyn = true
		}
		k.val += uint64(v.offset) + sharedOrigin
	case spLocal:
		if d.fn != nil {
			d.fail("%s: the address of %s, a local variable of a function, is only known to mov", d.stmt.op, name)
		}
		k.val += uint64(v.offset)
	default:
		if v.framed {
			d.fail("%s: the address of %s, which is an argument of a call, is not supported", d.stmt.op, name)
		}
		k.val += uint64(v.offset)
	}
	k.val &= t.mask()
	return d.constSlot(k)
}

// place assigns an offset in shared memory to a variable of module scope, when an entry first uses
// the variable.
func (d *decoder) place(v *variable) {
	if v.extern {
		d.dynAlign = max(d.dynAlign, v.align)
		v.offset = 0
		d.e.noteShared(v)
		return
	}
	if v.placed == d.e {
		return
	}
	v.offset = int(roundUp(uint64(d.shared), uint64(v.align)))
	v.placed = d.e
	d.e.noteShared(v)
	if d.shared = v.offset + v.size; d.shared > maxStatic {
		d.fail("%s: static shared memory of %d bytes exceeds %d", v.name, d.shared, maxStatic)
	}
}

// sharedKey identifies a shared variable by its name and its offset in shared memory.
type sharedKey struct {
	name   string
	offset int
	extern bool
}

func (e *Entry) noteShared(v *variable) {
	k := sharedKey{v.name, v.offset, v.extern}
	if e.noted[k] {
		return
	}
	if e.noted == nil {
		e.noted = map[sharedKey]bool{}
	}
	e.noted[k] = true
	e.sharedVars = append(e.sharedVars, *v)
}

// mem resolves an address operand [base+off] in space sp to a slot and an offset. For a generic
// access to a named variable it returns the variable's space.
func (d *decoder) mem(o operand, sp space) (slot int32, off int64, at space) {
	if o.kind != okAddr {
		d.fail("%s: expected an address in brackets", d.stmt.op)
	}
	if o.name == "" {
		return d.constant(o.val), o.off, sp
	}
	if r := d.register(o.name); r != nil {
		if r.typ.float() || r.typ == Pred || r.typ.Size() != 8 && (r.typ.Size() != 4 || sp == spGlobal || sp == spGeneric) {
			d.fail("%s: register %s of type .%s cannot address .%s memory", d.stmt.op, o.name, r.typ, sp)
		}
		return r.slot, o.off, sp
	}
	v := d.stmt.scope.variable(o.name)
	if v == nil {
		d.fail("%s: %s is not declared", d.stmt.op, o.name)
	}
	if sp == spGeneric {
		sp = v.space
	}
	if v.space != sp {
		d.fail("%s: %s lies in .%s, not in .%s", d.stmt.op, o.name, v.space, sp)
	}
	if v.framed || sp == spLocal {
		if d.fn != nil {
			return d.e.base, o.off + int64(v.offset), spLocal
		}
		return d.constant(uint64(v.offset)), o.off, spLocal
	}
	return d.address(o.name, 0, B64), o.off, sp
}

func (d *decoder) alu(f func(d, a, b, c *lanes)) { d.in.kind, d.in.alu = kALU, f }

func (d *decoder) run(f func(w *warp, in *inst, m uint32)) { d.in.kind, d.in.run = kRun, f }
