package ptxvm

import (
	"strconv"
	"strings"
)

// Limits of memory and time for parsing text that may be malicious.
const (
	maxStatic   = 48 << 10 // bytes of static shared memory of an entry
	maxLocal    = 512 << 10
	maxConst    = 64 << 10
	maxGlobal   = 256 << 20
	maxParams   = 32764
	maxRegRange = 1 << 20
	maxNesting  = 200
)

// stmt is one instruction in the text.
type stmt struct {
	line     int
	guard    string
	guardNot bool
	op       string // whole opcode, with its modifiers
	args     []operand
	scope    *scope
}

type operandKind uint8

const (
	okWord  operandKind = iota // register, special register, symbol, label
	okInt                      // an integer, in the field val
	okF32                      // a float32, whose bits are in the field val
	okF64                      // a float64, whose bits are in the field val
	okVec                      // operands in braces, in the field list
	okAddr                     // an address: the field name or val, plus off
	okGroup                    // two operands "a | b", in the fields name and pair
)

type operand struct {
	kind operandKind
	name string
	not  bool
	val  uint64
	list []operand
	pair string
	off  int64
}

// Parse parses PTX text and decodes every entry. The error is a *ParseError.
func Parse(ptx string) (*Module, error) { return parse(ptx, false) }

// parse implements Parse and, if brief is true, [ParseDeclarations].
func parse(ptx string, brief bool) (m *Module, err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *ParseError:
			m, err = nil, e
		default:
			panic(e)
		}
	}()
	p := newParser(ptx)
	p.brief = brief
	p.module()
	p.checkLinks()
	for _, decode := range p.later {
		decode()
	}
	return p.m, nil
}

func newParser(ptx string) *parser {
	return &parser{lexer: newLexer(ptx), m: &Module{byName: map[string]*Entry{}, funcByName: map[string]*function{}, src: strings.Split(ptx, "\n"), scope: newScope(nil), instances: map[*Memory]map[*variable]uint64{}}}
}

type parser struct {
	*lexer
	m     *Module
	entry *Entry    // the entry whose body is being parsed
	fn    *function // function whose body is being parsed; nil in an entry
	stmts []stmt
	depth int
	local int
	// later holds functions that decode the entries. They are called when all functions of the
	// module are known.
	later []func()
	brief bool // whether to skip instructions, as ParseDeclarations does
}

func (p *parser) module() {
	p.header()
	for p.cur.kind != tkEOF {
		if p.accept(";") {
			continue
		}
		line := p.cur.line
		extern := false
	linkage:
		for {
			switch {
			case p.accept(".visible"), p.accept(".weak"), p.accept(".common"):
			case p.accept(".extern"):
				extern = true
			default:
				break linkage
			}
		}
		switch word := p.word("a directive"); word {
		case ".entry":
			if extern {
				fail(line, ".extern .entry is not supported")
			}
			p.kernel()
		case ".global", ".const", ".shared":
			p.declare(p.m.scope, map[string]space{".global": spGlobal, ".const": spConst, ".shared": spShared}[word], extern, nil)
		case ".func":
			p.function(extern)
		case ".file":
			p.skipLine(line)
		case ".section":
			p.section()
		case ".version":
			fail(line, ".version twice")
		default:
			fail(line, "unknown directive %s at module scope", word)
		}
	}
}

// skipLine skips the rest of a debugging directive, which ends at the end of its line.
func (p *parser) skipLine(line int) {
	for p.cur.kind != tkEOF && p.cur.line == line {
		p.next()
	}
}

func (p *parser) header() {
	p.expect(".version")
	t := p.next()
	major, minor, ok := strings.Cut(t.text, ".")
	a, err1 := strconv.ParseUint(major, 10, 8)
	b, err2 := strconv.ParseUint(minor, 10, 8)
	if !ok || err1 != nil || err2 != nil || t.kind != tkF64 {
		fail(t.line, "bad .version %s", t)
	}
	p.m.major, p.m.minor = int(a), int(b)
	if a < 6 || a > 9 {
		fail(t.line, "PTX version %s is not supported (6.0 to 9.x are)", t.text)
	}
	p.expect(".target")
	p.m.arch = p.word("a target")
	num, ok := strings.CutPrefix(p.m.arch, "sm_")
	n, err := strconv.ParseUint(strings.TrimSuffix(num, "a"), 10, 16)
	if !ok || err != nil || n < 50 {
		fail(p.cur.line, "bad .target %s", p.m.arch)
	}
	p.m.target = int(n)
	for p.accept(",") {
		if o := p.word("a target option"); o != "debug" {
			fail(p.cur.line, "target option %s is not supported", o)
		}
	}
	p.expect(".address_size")
	if n := p.integer("an address size", 64); n != 64 {
		fail(p.cur.line, "only .address_size 64 is supported")
	}
}

func (p *parser) typ() Type {
	line := p.cur.line
	w := p.word("a type")
	t, ok := typeByName[strings.TrimPrefix(w, ".")]
	if !ok || w[0] != '.' {
		fail(line, "unknown type %s", w)
	}
	return t
}

func (p *parser) kernel() {
	line := p.cur.line
	e := &Entry{Name: p.word("an entry name"), mod: p.m}
	if p.m.byName[e.Name] != nil {
		fail(line, "entry %s twice", e.Name)
	}
	p.entry, p.fn, p.stmts, p.local = e, nil, nil, 0
	sc := newScope(p.m.scope)
	if p.accept("(") && !p.accept(")") {
		for {
			p.expect(".param")
			p.declare(sc, spParam, false, &e.ParamBytes)
			if p.accept(")") {
				break
			}
			p.expect(",")
		}
	}
	p.performance(e)
	p.expect("{")
	p.body(sc)
	p.expect("}")
	e.Local = p.local
	if stmts := p.stmts; !p.brief {
		p.later = append(p.later, func() { decode(e, stmts) })
	}
	p.m.entries = append(p.m.entries, e)
	p.m.byName[e.Name] = e
}

func (p *parser) performance(e *Entry) {
	for {
		switch {
		case p.is(".maxntid"), p.is(".reqntid"):
			e.ReqThreads = p.next().text == ".reqntid"
			e.MaxThreads = [3]int{1, 1, 1}
			for i := range 3 {
				e.MaxThreads[i] = p.integer("a thread count", 1024)
				if !p.accept(",") {
					break
				}
			}
		case p.accept(".minnctapersm"):
			e.MinCTAs = p.integer("a block count", 64)
		case p.accept(".maxnreg"):
			p.integer("a register count", 255)
		case p.is(".pragma"):
			p.pragma()
		default:
			return
		}
	}
}

func (p *parser) pragma() {
	p.expect(".pragma")
	for {
		if p.cur.kind != tkString {
			fail(p.cur.line, "expected a string after .pragma, found %s", p.cur)
		}
		p.next()
		if !p.accept(",") {
			break
		}
	}
	p.expect(";")
}

func (p *parser) body(sc *scope) {
	if p.depth++; p.depth > maxNesting {
		fail(p.cur.line, "blocks nested more than %d deep", maxNesting)
	}
	for !p.is("}") {
		switch line := p.cur.line; {
		case p.cur.kind == tkEOF:
			fail(line, "the body of %s has no end", p.name())
		case p.accept(";"):
		case p.accept("{"):
			p.body(p.child(sc))
			p.expect("}")
		case p.brief && p.skipStatement():
		case p.accept(".reg"):
			p.registers(sc)
		case p.accept(".shared"):
			p.declare(sc, spShared, false, nil)
		case p.accept(".local"):
			p.declare(sc, spLocal, false, nil)
		case p.accept(".param"): // declares an argument or a result of a call
			p.declare(sc, spParam, false, nil)
		case p.accept(".extern"):
			p.expect(".shared")
			p.declare(sc, spShared, true, nil)
		case p.is(".pragma"):
			p.pragma()
		case p.is(".loc"):
			p.skipLine(line)
		case p.cur.kind == tkWord && p.cur.text[0] == '.':
			fail(line, "unknown directive %s in the body of %s", p.cur.text, p.name())
		default:
			p.statement(sc)
		}
	}
	p.depth--
}

func (p *parser) registers(sc *scope) {
	t := p.typ()
	for {
		line := p.cur.line
		name := p.word("a register name")
		if strings.ContainsAny(name, ".:") {
			fail(line, "bad register name %s", name)
		}
		if _, sr := specialByName[name+".x"]; sr {
			fail(line, "%s hides a special register", name)
		}
		if sc.regs[name] != nil || sc.vars[name] != nil || sc.span(name) != nil {
			fail(line, "%s is declared twice", name)
		}
		if p.accept("<") {
			n := p.integer("a register count", maxRegRange)
			if digit(name[len(name)-1]) {
				fail(line, "the name of a register range cannot end in a digit: %s", name)
			}
			if low, ok := sc.numbered[name]; ok && low < uint64(n) {
				fail(line, "%s%d is declared twice", name, low)
			}
			if sc.ranges[name] != nil {
				fail(line, "%s is declared twice", name)
			}
			if sc.ranges == nil {
				sc.ranges = map[string]*regRange{}
			}
			sc.ranges[name] = &regRange{uint64(n), t}
			p.expect(">")
		} else {
			sc.regs[name] = &register{typ: t, slot: -1}
			if prefix, v, ok := numbered(name); ok {
				if sc.numbered == nil {
					sc.numbered = map[string]uint64{}
				}
				if low, ok := sc.numbered[prefix]; !ok || v < low {
					sc.numbered[prefix] = v
				}
			}
		}
		if !p.accept(",") {
			break
		}
	}
	p.expect(";")
}

func (p *parser) statement(sc *scope) {
	s := stmt{line: p.cur.line, scope: sc}
	if p.accept("@") {
		s.guardNot = p.accept("!")
		s.guard = p.word("a predicate register")
	}
	line := p.cur.line
	w := p.word("an instruction or label")
	if s.guard == "" && p.accept(":") {
		if _, dup := sc.labels[w]; dup {
			fail(line, "label %s twice", w)
		}
		if p.lists(sc, w) {
			return
		}
		sc.labels[w] = len(p.stmts)
		return
	}
	s.line, s.op = line, w
	if base, _, _ := strings.Cut(w, "."); handlers[base] == nil || strings.HasPrefix(w, "cp.async.bulk") {
		// The name is checked first, because the form of an unknown instruction's operands is
		// unknown too.
		fail(line, "unknown or unsupported instruction %s", w)
	}
	if base, _, _ := strings.Cut(w, "."); base == "call" {
		s.args = p.call()
	} else if !p.is(";") {
		for {
			s.args = append(s.args, p.operand(false))
			if !p.accept(",") {
				break
			}
		}
	}
	p.expect(";")
	p.stmts = append(p.stmts, s)
}

func (p *parser) operand(inVec bool) operand {
	line := p.cur.line
	switch {
	case p.accept("["):
		o := operand{kind: okAddr}
		switch {
		case p.cur.kind == tkWord:
			o.name = p.next().text
		case p.cur.kind == tkInt:
			o.val = p.next().val
		default:
			fail(line, "expected an address, found %s", p.cur)
		}
		for p.is("+") || p.is("-") {
			neg := p.next().text == "-"
			if p.accept("-") {
				neg = !neg
			}
			v := int64(p.integer("an offset", 1<<47))
			if neg {
				v = -v
			}
			o.off += v
		}
		p.expect("]")
		return o
	case !inVec && p.accept("{"):
		o := operand{kind: okVec}
		for {
			o.list = append(o.list, p.operand(true))
			if !p.accept(",") {
				break
			}
		}
		p.expect("}")
		return o
	case p.accept("!"):
		return operand{kind: okWord, not: true, name: p.word("a predicate register")}
	case p.is("-"), p.is("+"):
		neg := false
		// This is a loop and not a recursion, because there may be many signs.
		for p.is("-") || p.is("+") {
			neg = neg != (p.next().text == "-")
		}
		o := p.operand(true)
		if neg {
			switch o.kind {
			case okInt:
				o.val = -o.val
			case okF32:
				o.val ^= 1 << 31
			case okF64:
				o.val ^= 1 << 63
			default:
				fail(line, "a sign needs a number")
			}
		}
		return o
	case p.cur.kind == tkInt:
		return operand{kind: okInt, val: p.next().val}
	case p.cur.kind == tkF32:
		return operand{kind: okF32, val: p.next().val}
	case p.cur.kind == tkF64:
		return operand{kind: okF64, val: p.next().val}
	case p.cur.kind == tkWord:
		o := operand{kind: okWord, name: p.next().text}
		if p.accept("|") {
			o.kind, o.pair = okGroup, p.word("a predicate register")
		} else if p.is("+") || p.is("-") {
			neg := p.next().text == "-"
			o.off = int64(p.integer("an offset", 1<<47))
			if neg {
				o.off = -o.off
			}
		}
		return o
	}
	fail(line, "expected an operand, found %s", p.cur)
	panic("unreachable")
}
