package ptxvm

import (
	"encoding/binary"
	"slices"
)

// function is a .func of a module. A frame of local memory holds its parameters, results and local
// variables, and the arguments of the calls that it makes. Each entry that calls the function has a
// copy of its instructions.
type function struct {
	name   string
	index  int // index in Module.functions
	params []*variable
	rets   []*variable
	size   int // size of the frame in bytes
	stmts  []stmt
	scopes []*scope
	body   bool // whether the function is defined, and not only declared
}

// link is an initial value that is the address of a variable or of a function.
type link struct {
	at   int // offset of the address in the variable that contains it
	name string
	add  int64
	line int
}

// address returns the value of a pointer to the function. No memory has this address.
func (f *function) address() uint64 { return uint64(5)<<windowShift | uint64(f.index+1)<<4 }

func (m *Module) function(name string) *function { return m.funcByName[name] }

func (p *parser) name() string {
	if p.fn != nil {
		return p.fn.name
	}
	return p.entry.Name
}

func (p *parser) child(up *scope) *scope {
	sc := newScope(up)
	if p.fn != nil {
		p.fn.scopes = append(p.fn.scopes, sc)
	}
	return sc
}

// function parses the text after .func: a declaration or a definition.
func (p *parser) function(extern bool) {
	f := &function{}
	p.entry, p.fn, p.stmts, p.local = nil, f, nil, 0
	sc := p.child(p.m.scope)
	list := func() (vars []*variable) {
		for p.expect("("); !p.accept(")"); p.accept(",") {
			if line := p.cur.line; p.is(".reg") {
				fail(line, "a function's parameters in registers are not supported: .param is")
			}
			p.expect(".param")
			if v := p.declare(sc, spParam, false, &p.local); v.name == "_" {
				delete(sc.vars, "_")
			} else {
				vars = append(vars, v)
			}
		}
		return vars
	}
	if p.is("(") {
		f.rets = list()
	}
	line := p.cur.line
	f.name = p.word("a function name")
	if p.is("(") {
		f.params = list()
	}
	for p.accept(".noreturn") {
	}
	if p.m.byName[f.name] != nil || p.m.scope.vars[f.name] != nil {
		fail(line, "%s is declared twice", f.name)
	}
	known := p.m.function(f.name)
	switch {
	case known == nil:
		known = f
		f.index = len(p.m.functions)
		p.m.functions = append(p.m.functions, f)
		p.m.funcByName[f.name] = f
	case known.body && p.is("{"):
		fail(line, "function %s twice", f.name)
	case len(known.params) != len(f.params) || len(known.rets) != len(f.rets):
		fail(line, "function %s is declared with other parameters", f.name)
	}
	if !p.is("{") {
		p.accept(";")
		return
	}
	if extern {
		fail(line, ".extern function %s with a body", f.name)
	}
	p.expect("{")
	p.body(sc)
	p.expect("}")
	f.stmts, f.size, f.body, f.index = p.stmts, p.local, true, known.index
	*known = *f
}

// call parses the text after call: results, target, arguments, and the prototype or the list of
// targets of an indirect call.
func (p *parser) call() []operand {
	var rets, args operand
	list := func(o *operand) {
		for p.expect("("); !p.accept(")"); p.accept(",") {
			o.list = append(o.list, p.operand(true))
		}
	}
	if p.is("(") {
		list(&rets)
		p.expect(",")
	}
	target := p.operand(true)
	if p.accept(",") {
		if p.is("(") {
			list(&args)
			if !p.accept(",") {
				return []operand{rets, target, args}
			}
		}
		p.word("a prototype or a list of targets")
	}
	return []operand{rets, target, args}
}

// lists parses a directive that follows a label: a list of targets or a prototype.
func (p *parser) lists(sc *scope, label string) bool {
	switch {
	case p.accept(".branchtargets"):
		list := []string{p.word("a label")}
		for p.accept(",") {
			list = append(list, p.word("a label"))
		}
		p.expect(";")
		sc.tables[label] = list
	case p.is(".callprototype"), p.is(".calltargets"):
		// These directives only help the assembler's register allocation, so they are skipped.
		for !p.accept(";") {
			if p.cur.kind == tkEOF {
				fail(p.cur.line, "%s has no end", label)
			}
			p.next()
		}
	default:
		return false
	}
	return true
}

// section skips a debugging section.
func (p *parser) section() {
	p.word("a section name")
	p.expect("{")
	for depth := 1; depth > 0; p.next() {
		switch {
		case p.cur.kind == tkEOF:
			fail(p.cur.line, "a .section has no end")
		case p.is("{"):
			depth++
		case p.is("}"):
			depth--
		}
	}
}

// initAddress parses an address among initial values: name, name+n, or generic(name)+n.
func (p *parser) initAddress(v *variable) {
	l := link{at: len(v.init), line: p.cur.line, name: p.word("a name")}
	if l.name == "generic" && p.accept("(") {
		l.name = p.word("a name")
		p.expect(")")
	}
	if p.is("+") || p.is("-") {
		neg := p.next().text == "-"
		if l.add = int64(p.integer("an offset", 1<<40)); neg {
			l.add = -l.add
		}
	}
	if l.at+8 > v.size {
		fail(l.line, "too many initial values for %s", v.name)
	}
	v.links = append(v.links, l)
	v.init = append(v.init, make([]byte, 8)...)
}

// checkLinks fails if an address refers to a name that does not exist. It fills in the addresses in
// constant memory.
func (p *parser) checkLinks() {
	for _, v := range p.m.scope.vars {
		for _, l := range v.links {
			f, to := p.m.function(l.name), p.m.scope.vars[l.name]
			switch {
			case f == nil && to == nil:
				fail(l.line, "%s is not declared", l.name)
			case to != nil && to.space != spGlobal && to.space != spConst:
				fail(l.line, "the address of .%s %s is not known before a launch", to.space, l.name)
			case v.space == spConst && to != nil && to.space == spGlobal:
				fail(l.line, "an address of .global memory in .const memory is not supported")
			case v.space == spConst:
				binary.LittleEndian.PutUint64(p.m.constImage[v.offset+l.at:], l.resolve(p.m, nil))
			}
		}
	}
}

// resolve returns the generic address of a link's target.
func (l *link) resolve(m *Module, globals map[*variable]uint64) uint64 {
	if f := m.function(l.name); f != nil {
		return f.address() + uint64(l.add)
	}
	v := m.scope.vars[l.name]
	if v.space == spConst {
		return winConst + uint64(v.offset) + uint64(l.add)
	}
	return globals[v] + uint64(l.add)
}

// body is the copy of a function in an entry.
type body struct {
	fn         *function
	start, end int32 // indices of the first instruction and of the last one, which is a kReturn
	regs       []int32
	preds      []int32
}

func (b *body) note(r *register) {
	if r.typ == Pred {
		b.preds = append(b.preds, r.slot)
	} else {
		b.regs = append(b.regs, r.slot)
	}
}

// callSite holds what the decoder knows about a call.
type callSite struct {
	to         *body // the called function; nil in a call by address
	args, rets []*variable
	frame      int // bytes of the caller's frame
}

const frameAlign = 64

// functions appends the instructions of all functions that the entry may call.
func (d *decoder) functions() {
	e := d.e
	for len(d.todo) > 0 {
		f := d.todo[0]
		d.todo = d.todo[1:]
		for _, sc := range f.scopes {
			for _, r := range sc.regs {
				r.slot = -1
			}
			e.mod.copied += len(sc.regs) + 1
		}
		b := e.bodies[f]
		b.start = int32(len(e.code))
		b.end = b.start + int32(len(f.stmts))
		d.fn = b
		d.body(f.stmts)
		e.code = append(e.code, inst{kind: kReturn, line: lastLine(e.code), rpc: -1})
		reconverge(e.code[b.start:], b.start)
		if e.mod.copied += len(f.stmts) + 1; e.mod.copied > maxCopied {
			fail(int(lastLine(e.code)), "what the entries of the module call has more than %d instructions, registers and blocks, counted once for each of them", maxCopied)
		}
	}
	d.fn = nil
}

// maxCopied is the largest number of instructions, registers and blocks in the copies of functions
// in all entries of a module together.
const maxCopied = 1 << 20

// reach returns the entry's copy of a function, and queues the function for decoding if there is no
// copy yet.
func (d *decoder) reach(f *function) *body {
	e := d.e
	if e.bodies == nil {
		e.bodies = map[*function]*body{}
		e.base = d.nreg
		d.nreg++
	}
	b := e.bodies[f]
	if b == nil {
		b = &body{fn: f}
		e.bodies[f] = b
		d.todo = append(d.todo, f)
	}
	return b
}

// call decodes call (results), target, (arguments), prototype.
func call(d *decoder) {
	d.modifier("uni")
	rets, target, args := d.stmt.args[0].list, d.stmt.args[1], d.stmt.args[2].list
	if target.kind != okWord {
		d.fail("call needs a function or a register that holds the address of one")
	}
	site := &callSite{frame: d.e.Local}
	if d.fn != nil {
		site.frame = d.fn.fn.size
	}
	site.frame = int(roundUp(uint64(site.frame), frameAlign))
	vars := func(list []operand) (vars []*variable) {
		for _, o := range list {
			v := d.stmt.scope.variable(o.name)
			if o.kind != okWord || v == nil || !v.framed {
				d.fail("arguments and results of a call have to be .param variables")
			}
			vars = append(vars, v)
		}
		return vars
	}
	site.args, site.rets = vars(args), vars(rets)
	d.extra().call = site
	if f := d.e.mod.function(target.name); f != nil && d.register(target.name) == nil {
		switch {
		case f.name == "__assertfail" && !f.body:
			d.run((*warp).assertFailed)
			return
		case !f.body:
			d.fail("function %s is declared and has no body here; an emulated device has no library of device functions", f.name)
		case !sameSizes(f.params, site.args) || !sameSizes(f.rets, site.rets):
			d.fail("the arguments or results of the call differ from what %s takes", f.name)
		}
		site.to = d.reach(f)
	} else {
		d.in.a = d.src(target, U64)
		for _, f := range d.e.mod.functions { // a call by address may reach any of these functions
			if f.body {
				d.reach(f)
			}
		}
		if len(d.e.bodies) == 0 {
			d.fail("there is no function that could be called")
		}
	}
	d.in.kind = kCall
}

func sameSizes(a, b []*variable) bool {
	return slices.EqualFunc(a, b, func(a, b *variable) bool { return a.size == b.size })
}

// maxTargets is the largest number of targets of all brx.idx instructions of an entry together.
const maxTargets = 1 << 20

// jumpTable decodes brx.idx index, list.
func jumpTable(d *decoder) {
	if !d.modifier("idx") {
		d.fail("%s needs .idx", d.stmt.op)
	}
	d.in.uni = d.modifier("uni")
	a := d.args(2)
	d.in.a = d.src(a[0], U32)
	var list []string
	for sc := d.stmt.scope; sc != nil && list == nil; sc = sc.up {
		list = sc.tables[a[1].name]
	}
	if list == nil {
		d.fail("%s is no list of .branchtargets", a[1].name)
	}
	if d.targets += len(list); d.targets > maxTargets {
		d.fail("the brx.idx of the kernel have more than %d targets, counted once for each of them", maxTargets)
	}
	for _, l := range list {
		d.extra().table = append(d.extra().table, d.label(l))
	}
	d.in.kind = kTable
}
