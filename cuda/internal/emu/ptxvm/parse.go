package ptxvm

import (
	"strconv"
	"strings"
	"sync"
)

// Limits that keep parsing of hostile text bounded.
const (
	maxStatic   = 48 << 10 // static shared memory of an entry
	maxLocal    = 512 << 10
	maxConst    = 64 << 10
	maxGlobal   = 256 << 20
	maxParams   = 32764
	maxRegRange = 1 << 20
	maxNesting  = 200
)

// Module is a parsed PTX module. It is immutable but for the instances of its .global variables, and safe for concurrent use.
type Module struct {
	target       int
	arch         string // "sm_90a"
	major, minor int
	entries      []*Entry
	byName       map[string]*Entry
	src          []string // lines
	scope        *scope   // module-scope variables
	constImage   []byte
	globals      []*variable

	mu        sync.Mutex
	instances map[*Memory]map[*variable]uint64
}

// Param is one kernel parameter. Size and Offset are in bytes, Offset into the packed parameter block.
type Param struct {
	Name   string
	Type   Type
	Size   int // of the whole parameter, arrays included
	Align  int
	Offset int
}

// Entry is one kernel.
type Entry struct {
	Name         string
	Params       []Param
	ParamBytes   int    // size of the packed parameter block
	MaxThreads   [3]int // .maxntid or .reqntid, zero where absent
	ReqThreads   bool   // MaxThreads is exact
	MinCTAs      int    // .minnctapersm
	StaticShared int    // bytes of static shared memory
	Local        int    // bytes of local memory a thread

	mod        *Module
	code       []inst
	consts     []constSlot
	nreg       int
	npred      int
	specials   []specialUse
	dynOffset  int // where dynamic shared memory starts, from sharedOrigin
	usesAsync  bool
	pool       sync.Pool // of *cta, to launch again
	names      map[regKey]string
	sharedVars []variable // placed shared variables, for messages
}

// variable is a declared .shared, .local, .global, .const or .param variable.
type variable struct {
	name   string
	space  space
	typ    Type
	size   int
	align  int
	offset int // within its space (not for .global)
	extern bool
	init   []byte // .global, .const
	placed bool   // module-scope .shared: already laid out in the entry being decoded
}

// scope maps names to declarations, innermost first.
type scope struct {
	up     *scope
	regs   map[string]*register
	ranges []regRange
	vars   map[string]*variable
	labels map[string]int // instruction index
}

type regRange struct {
	prefix string
	n      uint64
	typ    Type
}

// register is a declared register; slot is given on first use.
type register struct {
	typ  Type
	slot int32 // index into the register file, or the predicate file
}

func newScope(up *scope) *scope {
	return &scope{up: up, regs: map[string]*register{}, vars: map[string]*variable{}, labels: map[string]int{}}
}

// span returns the range of registers that a numbered name belongs to: all digits at its end are the number.
func (s *scope) span(name string) *regRange {
	prefix := strings.TrimRight(name, "0123456789")
	num := name[len(prefix):]
	if num == "" || num != "0" && num[0] == '0' {
		return nil
	}
	n, err := strconv.ParseUint(num, 10, 32)
	if err != nil {
		return nil
	}
	for i := range s.ranges {
		if g := &s.ranges[i]; g.prefix == prefix && n < g.n {
			return g
		}
	}
	return nil
}

func (s *scope) register(name string) *register {
	for ; s != nil; s = s.up {
		if r := s.regs[name]; r != nil {
			return r
		}
		if g := s.span(name); g != nil {
			r := &register{typ: g.typ, slot: -1}
			s.regs[name] = r
			return r
		}
	}
	return nil
}

func (s *scope) variable(name string) *variable {
	for ; s != nil; s = s.up {
		if v := s.vars[name]; v != nil {
			return v
		}
	}
	return nil
}

func (s *scope) label(name string) (int, bool) {
	for ; s != nil; s = s.up {
		if pc, ok := s.labels[name]; ok {
			return pc, true
		}
	}
	return 0, false
}

// stmt is one instruction as written.
type stmt struct {
	line     int
	guard    string
	guardNot bool
	op       string // whole opcode with modifiers
	args     []operand
	scope    *scope
}

type operandKind uint8

const (
	okWord  operandKind = iota // register, special register, symbol, label
	okInt                      // val
	okF32                      // val: bits
	okF64                      // val: bits
	okVec                      // list
	okAddr                     // name or val, plus off
	okGroup                    // a | b : name and pair
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
func Parse(ptx string) (m *Module, err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *ParseError:
			m, err = nil, e
		default:
			panic(e)
		}
	}()
	p := &parser{lexer: newLexer(ptx), m: &Module{byName: map[string]*Entry{}, src: strings.Split(ptx, "\n"), scope: newScope(nil), instances: map[*Memory]map[*variable]uint64{}}}
	p.module()
	return p.m, nil
}

// Target returns the compute capability of .target, 80 for sm_80.
func (m *Module) Target() int { return m.target }

// Arch returns .target as written, "sm_90a".
func (m *Module) Arch() string { return m.arch }

// Version returns the PTX ISA version of .version.
func (m *Module) Version() (major, minor int) { return m.major, m.minor }

// Entries returns the names of the entries in order of the text.
func (m *Module) Entries() []string {
	names := make([]string, len(m.entries))
	for i, e := range m.entries {
		names[i] = e.Name
	}
	return names
}

// Entry returns the entry of that name, nil if absent.
func (m *Module) Entry(name string) *Entry { return m.byName[name] }

func (m *Module) line(n int) string {
	if n < 1 || n > len(m.src) {
		return ""
	}
	s := strings.TrimSpace(m.src[n-1])
	if i := strings.Index(s, "//"); i > 0 {
		s = strings.TrimSpace(s[:i])
	}
	return s
}

type parser struct {
	*lexer
	m     *Module
	entry *Entry
	stmts []stmt
	depth int
	local int
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
			case p.accept(".visible"), p.accept(".weak"):
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
			fail(line, "functions (.func) are not supported: inline them")
		case ".file":
			p.skipLine(line)
		case ".version":
			fail(line, ".version twice")
		default:
			fail(line, "unknown directive %s at module scope", word)
		}
	}
}

// skipLine passes the rest of a debugging directive, which ends with its line.
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
	p.entry, p.stmts, p.local = e, nil, 0
	sc := newScope(p.m.scope)
	if p.accept("(") && !p.accept(")") {
		for {
			p.expect(".param")
			p.declare(sc, spParam, false, e)
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
	decode(e, sc, p.stmts)
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
			fail(line, "the body of %s has no end", p.entry.Name)
		case p.accept(";"):
		case p.accept("{"):
			p.body(newScope(sc))
			p.expect("}")
		case p.accept(".reg"):
			p.registers(sc)
		case p.accept(".shared"):
			p.declare(sc, spShared, false, nil)
		case p.accept(".local"):
			p.declare(sc, spLocal, false, nil)
		case p.accept(".extern"):
			p.expect(".shared")
			p.declare(sc, spShared, true, nil)
		case p.is(".pragma"):
			p.pragma()
		case p.is(".loc"):
			p.skipLine(line)
		case p.cur.kind == tkWord && p.cur.text[0] == '.':
			fail(line, "unknown directive %s in the body of %s", p.cur.text, p.entry.Name)
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
			for r := range sc.regs {
				if num, ok := strings.CutPrefix(r, name); ok && num != "" && strings.Trim(num, "0123456789") == "" {
					if v, err := strconv.ParseUint(num, 10, 32); err == nil && v < uint64(n) {
						fail(line, "%s is declared twice", r)
					}
				}
			}
			for _, g := range sc.ranges {
				if g.prefix == name {
					fail(line, "%s is declared twice", name)
				}
			}
			sc.ranges = append(sc.ranges, regRange{name, uint64(n), t})
			p.expect(">")
		} else {
			sc.regs[name] = &register{typ: t, slot: -1}
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
		sc.labels[w] = len(p.stmts)
		return
	}
	s.line, s.op = line, w
	if base, _, _ := strings.Cut(w, "."); handlers[base] == nil || strings.HasPrefix(w, "cp.async.bulk") {
		fail(line, "unknown or unsupported instruction %s", w) // before its operands, whose form is unknown too
	}
	if !p.is(";") {
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
		neg := p.next().text == "-"
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
