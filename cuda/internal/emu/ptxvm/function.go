package ptxvm

import (
	"encoding/binary"
	"slices"
)

// function is a .func of a module. Its parameters, results and local variables, and the arguments of the calls that it makes, lie in a frame of
// local memory; an entry that calls it holds its instructions too.
type function struct {
	name   string
	index  int // in Module.functions
	params []*variable
	rets   []*variable
	size   int // bytes of the frame
	stmts  []stmt
	scopes []*scope
	body   bool // it has been defined, not only declared
}

// link is an address among the initial values of a variable, of another variable or of a function.
type link struct {
	at   int // offset
	name string
	add  int64
	line int
}

// functionAddress is what a pointer to a function holds, an address where no memory is.
func (f *function) address() uint64 { return uint64(5)<<windowShift | uint64(f.index+1)<<4 }

func (m *Module) function(name string) *function {
	for _, f := range m.functions {
		if f.name == name {
			return f
		}
	}
	return nil
}

// name is what the body in progress belongs to.
func (p *parser) name() string {
	if p.fn != nil {
		return p.fn.name
	}
	return p.entry.Name
}

// inner returns a scope for a block.
func (p *parser) inner(up *scope) *scope {
	sc := newScope(up)
	if p.fn != nil {
		p.fn.scopes = append(p.fn.scopes, sc)
	}
	return sc
}

// function parses what follows .func: a declaration or a definition.
func (p *parser) function(extern bool) {
	f := &function{}
	p.entry, p.fn, p.stmts, p.local = nil, f, nil, 0
	sc := p.inner(p.m.scope)
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

// call parses what follows call: results, what is called, arguments, and what says of which kind that is.
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

// lists parses what a label names in place of an instruction.
func (p *parser) lists(sc *scope, label string) bool {
	switch {
	case p.accept(".branchtargets"):
		list := []string{p.word("a label")}
		for p.accept(",") {
			list = append(list, p.word("a label"))
		}
		p.expect(";")
		sc.tables[label] = list
	case p.is(".callprototype"), p.is(".calltargets"): // for the assembler, which allots registers by it
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

// section passes debugging information.
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

// initAddress parses an address among initial values: name, name+n, generic(name)+n.
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

// checkLinks finds addresses of what is not there, and fills in those in constant memory.
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

// resolve returns the generic address that a link stands for.
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

// body is a function as part of an entry.
type body struct {
	fn         *function
	start, end int32 // first instruction, and the last, a kReturn
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

// callSite is what a call knows before it is executed.
type callSite struct {
	to         *body // nil: by address
	args, rets []*variable
	frame      int // bytes of the caller's
}

// frameAlign is the alignment of frames.
const frameAlign = 64

// functions appends the instructions of what is called.
func (d *decoder) functions() {
	e := d.e
	for len(d.todo) > 0 {
		f := d.todo[0]
		d.todo = d.todo[1:]
		for _, sc := range f.scopes {
			for _, r := range sc.regs {
				r.slot = -1
			}
			for _, v := range sc.vars {
				v.placed = false
			}
		}
		b := e.bodies[f]
		b.start = int32(len(e.code))
		b.end = b.start + int32(len(f.stmts))
		d.fn = b
		d.body(f.stmts)
		e.code = append(e.code, inst{kind: kReturn, line: lastLine(e.code), rpc: -1})
		reconverge(e.code[b.start:], b.start)
		if len(e.code) > maxCode {
			fail(int(lastLine(e.code)), "%s and what it calls have more than %d instructions", e.Name, maxCode)
		}
	}
	d.fn = nil
}

// maxCode bounds the instructions of an entry that calls functions.
const maxCode = 1 << 20

// reach returns a function as part of the entry.
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
	d.take("uni")
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
		for _, f := range d.e.mod.functions { // any of them may be meant
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

// activation is a call in progress.
type activation struct {
	to   *body
	site *callSite
	// registers of the function as they were, where it was active already
	saved        []lanes
	savedW       []uint32
	preds, predW []uint32
}

// maxStack bounds the local memory of a thread that functions need, in bytes beyond that of the entry.
const maxStack = 64 << 10

// call lets the lanes of m execute a function. The others, and those that call another one by address, wait.
func (w *warp) call(in *inst, m uint32) {
	site, b := in.x.call, in.x.call.to
	w.stack = append(w.stack, frame{pc: w.pc + 1, rpc: w.rpc, mask: w.mask, depth: w.depth})
	if b == nil {
		var group uint32
		b, group = w.callee(in, m)
		if rest := m &^ group; rest != 0 {
			w.stack = append(w.stack, frame{pc: w.pc, rpc: w.pc + 1, mask: rest, depth: w.depth})
		}
		m = group
	}
	f := b.fn
	base := &w.r[w.cta.entry.base]
	need := 0
	for l := range lanesOf(m) {
		need = max(need, int(base[l])+site.frame+f.size)
	}
	w.grow(in, m, need)
	for l := range lanesOf(m) {
		from := l*w.stride + int(base[l])
		to := from + site.frame
		clear(w.localInit[to : to+f.size])
		for i, v := range site.args {
			w.moveLocal(to+f.params[i].offset, from+v.offset, v.size)
		}
		base[l] += uint64(site.frame)
	}
	a := activation{to: b, site: site}
	for _, c := range w.calls {
		if c.to == b {
			w.save(&a)
			break
		}
	}
	for _, s := range b.regs {
		w.wm[s] &^= m
	}
	for _, s := range b.preds {
		w.pm[s] &^= m
	}
	w.calls = append(w.calls, a)
	w.frame = frame{pc: b.start, rpc: -1, mask: m, depth: int32(len(w.calls))}
}

// lanesOf ranges over the lanes of a mask.
func lanesOf(m uint32) func(yield func(l int) bool) {
	return func(yield func(l int) bool) {
		for l := range 32 {
			if m>>l&1 != 0 && !yield(l) {
				return
			}
		}
	}
}

// callee finds the function whose address the first lane of m holds, and the lanes that hold the same.
func (w *warp) callee(in *inst, m uint32) (b *body, group uint32) {
	w.need(in, m, in.a)
	r := &w.r[in.a]
	at := uint64(0)
	for l := range lanesOf(m) {
		if group == 0 {
			at = r[l]
		}
		if r[l] == at {
			group |= 1 << l
		}
	}
	first := 0
	for l := range lanesOf(group) {
		first = l
		break
	}
	for f, c := range w.cta.entry.bodies {
		if f.address() == at {
			b = c
		}
	}
	site := in.x.call
	if b == nil {
		w.fault(BadCall, in, first, "%#x is no function of the module", at)
	}
	if !sameSizes(b.fn.params, site.args) || !sameSizes(b.fn.rets, site.rets) {
		w.fault(BadCall, in, first, "%s takes other arguments or has other results", b.fn.name)
	}
	return b, group
}

// leave ends the call whose function has come to its end.
func (w *warp) leave() {
	a := &w.calls[len(w.calls)-1]
	m, base := w.mask, &w.r[w.cta.entry.base]
	for l := range lanesOf(m) {
		from := l*w.stride + int(base[l])
		base[l] -= uint64(a.site.frame)
		to := l*w.stride + int(base[l])
		for i, v := range a.site.rets {
			w.moveLocal(to+v.offset, from+a.to.fn.rets[i].offset, v.size)
		}
	}
	if a.saved != nil || a.preds != nil {
		w.restore(a, m)
	}
	w.pop()
}

func (w *warp) moveLocal(to, from, n int) {
	copy(w.local[to:to+n], w.local[from:from+n])
	copy(w.localInit[to:to+n], w.localInit[from:from+n])
}

// save keeps the registers of a function that calls itself, perhaps by way of others.
func (w *warp) save(a *activation) {
	a.saved, a.preds = []lanes{}, []uint32{}
	for _, s := range a.to.regs {
		a.saved, a.savedW = append(a.saved, w.r[s]), append(a.savedW, w.wm[s])
	}
	for _, s := range a.to.preds {
		a.preds, a.predW = append(a.preds, w.p[s]), append(a.predW, w.pm[s])
	}
}

func (w *warp) restore(a *activation, m uint32) {
	for i, s := range a.to.regs {
		w.write(s, &a.saved[i], m)
		w.wm[s] = w.wm[s]&^m | a.savedW[i]&m
	}
	for i, s := range a.to.preds {
		w.setPred(s, a.preds[i], m)
		w.pm[s] = w.pm[s]&^m | a.predW[i]&m
	}
}

// grow makes local memory as large as frames need it.
func (w *warp) grow(in *inst, m uint32, need int) {
	if need <= w.stride {
		return
	}
	if need > w.cta.entry.Local+maxStack {
		first := 0
		for l := range lanesOf(m) {
			first = l
			break
		}
		w.fault(BadCall, in, first, "%d calls deep, functions need more than %d bytes of local memory", len(w.calls)+1, maxStack)
	}
	stride := int(roundUp(uint64(max(need, 2*w.stride)), frameAlign))
	local, ready := make([]byte, 32*stride), make([]byte, 32*stride)
	fill(local, poison)
	for l := range 32 {
		copy(local[l*stride:], w.local[l*w.stride:(l+1)*w.stride])
		copy(ready[l*stride:], w.localInit[l*w.stride:(l+1)*w.stride])
	}
	w.local, w.localInit, w.stride = local, ready, stride
}

// frameEnd is where the local memory that a lane may use ends.
func (w *warp) frameEnd(l int) int {
	if n := len(w.calls); n > 0 {
		return int(w.r[w.cta.entry.base][l]) + w.calls[n-1].to.fn.size
	}
	return w.cta.entry.Local
}

// assertFailed executes a call of __assertfail(message, file, line, function, size of a character), which CUDA's assert makes.
func (w *warp) assertFailed(in *inst, m uint32) {
	for l := range lanesOf(m) {
		at := l * w.stride
		if b := w.cta.entry.base; b != 0 {
			at += int(w.r[b][l])
		}
		args := in.x.call.args
		arg := func(i int) uint64 {
			if i >= len(args) || args[i].size > 8 {
				return 0
			}
			return get(w.local[at+args[i].offset:], args[i].size)
		}
		w.fault(Trap, in, l, "assertion %q failed at %s:%d, in %s", w.text(arg(0)), w.text(arg(1)), uint32(arg(2)), w.text(arg(3)))
	}
}

// text reads a string of global memory.
func (w *warp) text(addr uint64) string {
	r := w.cta.launch.Mem.reach(addr)
	if r == nil {
		return "?"
	}
	b := r.data[addr-r.base:]
	if i := slices.Index(b[:min(len(b), 512)], 0); i >= 0 {
		b = b[:i]
	}
	return string(b[:min(len(b), 512)])
}

// jumpTable decodes brx.idx index, list.
func jumpTable(d *decoder) {
	if !d.take("idx") {
		d.fail("%s needs .idx", d.stmt.op)
	}
	d.in.uni = d.take("uni")
	a := d.args(2)
	d.in.a = d.src(a[0], U32)
	var list []string
	for sc := d.stmt.scope; sc != nil && list == nil; sc = sc.up {
		list = sc.tables[a[1].name]
	}
	if list == nil {
		d.fail("%s is no list of .branchtargets", a[1].name)
	}
	for _, l := range list {
		d.extra().table = append(d.extra().table, d.label(l))
	}
	d.in.kind = kTable
}

// jump takes the lanes that go where the first of m goes, and leaves the others for the next time round.
func (w *warp) jump(in *inst, m uint32) {
	if m == 0 {
		w.pc++
		return
	}
	w.need(in, m, in.a)
	r := &w.r[in.a]
	var group uint32
	target := int32(-1)
	for l := range lanesOf(m) {
		i := uint32(r[l])
		if int(i) >= len(in.x.table) {
			w.fault(OutOfBounds, in, l, "index %d of a list of %d targets", i, len(in.x.table))
		}
		if target < 0 {
			target = in.x.table[i]
		}
		if in.x.table[i] == target {
			group |= 1 << l
		}
	}
	rest := w.mask &^ group
	if rest == 0 {
		w.pc = target
		return
	}
	if in.uni {
		w.fault(UniformBranchDivergence, in, 0, "brx.idx.uni goes to several targets")
	}
	if in.rpc != w.rpc && in.rpc >= 0 {
		w.stack = append(w.stack, frame{pc: in.rpc, rpc: w.rpc, mask: w.mask, depth: w.depth})
	}
	if out := rest &^ m; out != 0 { // not taken
		w.stack = append(w.stack, frame{pc: w.pc + 1, rpc: in.rpc, mask: out, depth: w.depth})
	}
	if again := rest & m; again != 0 {
		w.stack = append(w.stack, frame{pc: w.pc, rpc: in.rpc, mask: again, depth: w.depth})
	}
	w.frame = frame{pc: target, rpc: in.rpc, mask: group, depth: w.depth}
}
