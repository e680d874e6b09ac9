package ptxvm

import (
	"encoding/binary"
	"math"
	"strings"
)

// declare parses the variable declarations that follow the name of a state space, and assigns
// offsets. In a list of parameters, *end is the size of the list so far, and each declaration has
// one variable and no semicolon. Elsewhere end is nil.
func (p *parser) declare(sc *scope, sp space, extern bool, end *int) *variable {
	align, vec := 0, 1
	var t Type
	for t == noType {
		line := p.cur.line
		switch {
		case p.accept(".align"):
			align = p.alignment()
		case p.accept(".v2"):
			vec = 2
		case p.accept(".v4"):
			vec = 4
		default:
			if t = p.typ(); t == Pred || t.Size() == 0 {
				fail(line, "a .%s variable cannot have type .%s", sp, t)
			}
		}
	}
	if end != nil && p.accept(".ptr") { // attributes of a pointer parameter: .ptr .space .align n
		for _, s := range []string{".global", ".const", ".shared", ".local"} {
			if p.accept(s) {
				break
			}
		}
		if p.accept(".align") {
			p.alignment()
		}
	}
	for {
		line := p.cur.line
		v := &variable{name: p.word("a variable name"), space: sp, typ: t, size: t.Size() * vec, align: max(align, t.Size()*vec), extern: extern}
		p.dimensions(v)
		if sc.vars[v.name] != nil || sc.regs[v.name] != nil {
			fail(line, "%s is declared twice", v.name)
		}
		sc.vars[v.name] = v
		if p.accept("=") {
			if sp != spGlobal && sp != spConst || extern {
				fail(line, "a .%s variable cannot have an initialiser", sp)
			}
			p.initialiser(v)
		}
		p.place(v, line, end)
		if end != nil {
			return v
		}
		if !p.accept(",") {
			break
		}
	}
	p.expect(";")
	return nil
}

func (p *parser) alignment() int {
	line := p.cur.line
	n := p.integer("an alignment", 4096)
	if n < 1 || n&(n-1) != 0 {
		fail(line, "alignment %d is no power of two", n)
	}
	return n
}

func (p *parser) dimensions(v *variable) {
	for p.accept("[") {
		line := p.cur.line
		if p.accept("]") {
			if !v.extern {
				fail(line, "array %s needs a size", v.name)
			}
			v.size = 0
			continue
		}
		n := p.integer("an array size", maxGlobal)
		if n == 0 && !v.extern {
			fail(line, "array %s has size 0", v.name)
		}
		if n != 0 && v.size > maxGlobal/n {
			fail(line, "array %s is too large", v.name)
		}
		v.size *= n
		p.expect("]")
	}
}

func (p *parser) place(v *variable, line int, params *int) {
	put := func(end *int, limit int, what string) {
		v.offset = int(roundUp(uint64(*end), uint64(v.align)))
		if *end = v.offset + v.size; *end > limit {
			fail(line, "%s needs %d bytes of %s, more than %d", v.name, *end, what, limit)
		}
	}
	switch v.space {
	case spParam:
		switch {
		case params == nil:
			v.framed = true
			put(&p.local, maxLocal, "local memory")
		case p.fn != nil:
			v.framed = true
			put(params, maxParams, "parameters")
		default:
			put(params, maxParams, "parameters")
			p.entry.Params = append(p.entry.Params, Param{Name: v.name, Type: v.typ, Size: v.size, Align: v.align, Offset: v.offset})
		}
	case spLocal:
		put(&p.local, maxLocal, "local memory")
	case spShared:
		if v.extern && v.size != 0 {
			fail(line, ".extern .shared %s must be an array without size", v.name)
		}
		if !v.extern && p.entry != nil && p.depth > 0 {
			put(&p.entry.StaticShared, maxStatic, "static shared memory")
			v.placed = p.entry
			p.entry.noteShared(v)
		}
	case spConst:
		if v.extern {
			fail(line, ".extern .const is not supported")
		}
		end := len(p.m.constImage)
		put(&end, maxConst, "constant memory")
		p.m.constImage = append(p.m.constImage, make([]byte, end-len(p.m.constImage))...)
		copy(p.m.constImage[v.offset:], v.init)
	case spGlobal:
		if v.extern {
			fail(line, ".extern .global %s: linking is not supported", v.name)
		}
		p.m.globals = append(p.m.globals, v)
	}
}

func (p *parser) initialiser(v *variable) {
	p.initValues(v, 0) // the remaining bytes are zero
}

func (p *parser) initValues(v *variable, depth int) {
	if p.accept("{") {
		if depth > 8 {
			fail(p.cur.line, "initialiser of %s nested too deep", v.name)
		}
		for !p.accept("}") {
			p.initValues(v, depth+1)
			if !p.accept(",") {
				p.expect("}")
				return
			}
		}
		return
	}
	line := p.cur.line
	if p.cur.kind == tkWord && v.typ.Size() == 8 && !v.typ.float() {
		p.initAddress(v)
		return
	}
	o := p.operand(true)
	if len(v.init)+v.typ.Size() > v.size {
		fail(line, "too many initial values for %s", v.name)
	}
	bits, ok := literal(o, v.typ)
	if !ok {
		fail(line, "%s is no initial value for .%s", p.m.line(line), v.typ)
	}
	v.init = append(v.init, binary.LittleEndian.AppendUint64(nil, bits)[:v.typ.Size()]...)
}

// literal converts a number to the bits of type t. If its kind or its value does not fit t, ok is
// false.
func literal(o operand, t Type) (bits uint64, ok bool) {
	switch o.kind {
	case okInt:
		if t.float() && t != F16x2 && t != BF16x2 {
			return 0, false
		}
		m := t.mask()
		if o.val&^m != 0 && -o.val-1 > m>>1 {
			return 0, false
		}
		return o.val & m, true
	case okF32:
		switch t {
		case F32, B32:
			return o.val, true
		case F64:
			return math.Float64bits(float64(math.Float32frombits(uint32(o.val)))), true
		}
	case okF64:
		switch t {
		case F64, B64:
			return o.val, true
		case F32:
			return uint64(math.Float32bits(float32(math.Float64frombits(o.val)))), true
		}
	}
	return 0, false
}

// ParseDeclarations is [Parse] for kernels that will not run. It reads the declarations of memory
// in their bodies, but skips the instructions, and does not check them. Parameters, threads and
// memory of an [Entry] are the same as with Parse.
func ParseDeclarations(ptx string) (*Module, error) { return parse(ptx, true) }

// skipStatement skips an instruction, a label or a declaration of registers, and reports whether
// there was one.
func (p *parser) skipStatement() bool {
	switch {
	case p.cur.kind == tkWord && p.cur.text[0] == '.' && p.cur.text != ".reg":
		return false
	case p.cur.kind == tkWord:
		if p.skip(); strings.HasPrefix(p.src[p.pos:], ":") {
			p.next()
			p.next()
			if !p.is(".branchtargets") && !p.is(".callprototype") && !p.is(".calltargets") {
				return true
			}
		}
	case !p.is("@"):
		return false
	}
	for p.pos < len(p.src) {
		p.skip()
		if p.pos < len(p.src) {
			p.pos++
			if p.src[p.pos-1] == ';' {
				break
			}
		}
	}
	p.next()
	return true
}
