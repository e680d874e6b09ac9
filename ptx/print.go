package ptx

import (
	"fmt"
	"strings"
)

type printer struct {
	strings.Builder
	b      *Builder
	indent string
}

func (p *printer) line(format string, args ...any) {
	p.WriteString(p.indent)
	fmt.Fprintf(p, format, args...)
	p.WriteByte('\n')
}

func (b *Builder) print() string {
	p := &printer{b: b}
	p.line(".version %d.%d", b.version/10, b.version%10)
	p.line(".target %v", b.arch)
	p.line(".address_size 64")
	p.line("")
	if b.dynamic != "" {
		p.line(".extern .shared .align 16 .b8 %s[];", b.dynamic)
		p.line("")
	}
	params := make([]string, len(b.params))
	for i, q := range b.params {
		switch {
		case q.Type == U8:
			params[i] = fmt.Sprintf("\t.param .align %d .b8 %s[%d]", q.Align, q.Name, q.Size)
		default:
			params[i] = fmt.Sprintf("\t.param .%v %s", q.Type, q.Name)
		}
	}
	p.line(".visible .entry %s(", b.name)
	p.line("%s", strings.Join(params, ",\n"))
	p.line(")")
	if b.threads[0] > 0 {
		p.line(".maxntid %d, %d, %d", b.threads[0], b.threads[1], b.threads[2])
	}
	if b.minCTAs > 0 {
		p.line(".minnctapersm %d", b.minCTAs)
	}
	p.line("{")
	p.indent = "\t"
	p.registers()
	for _, a := range b.arrays {
		p.line(".%v .align 16 .b8 %s[%d];", a.space, a.name, a.bytes)
	}
	p.region(b.entry)
	p.region(b.root)
	p.line("ret;")
	p.indent = ""
	p.line("}")
	return p.String()
}

func (p *printer) registers() {
	counts := make([]int, len(classes))
	each := func(_ *region, n *node) {
		for _, d := range n.dst {
			counts[d.t.class()] = max(counts[d.t.class()], d.number)
		}
	}
	p.b.entry.walk(each)
	p.b.root.walk(each)
	for i, c := range classes {
		if counts[i] > 0 {
			p.line(".reg .%s %s<%d>;", c.name, c.prefix, counts[i]+1)
		}
	}
}

func (p *printer) region(r *region) {
	for _, n := range r.nodes {
		p.node(n)
	}
}

func (p *printer) label(format string, label int) {
	saved := p.indent
	p.indent = ""
	p.line(format, label)
	p.indent = saved
}

// guard returns the text before an instruction that runs only if the predicate cond holds.
func guard(cond *register, negate bool) string {
	switch {
	case cond == nil:
		return ""
	case negate:
		return "@!" + name(cond) + " "
	}
	return "@" + name(cond) + " "
}

func (p *printer) node(n *node) {
	switch n.kind {
	case comment:
		p.line("// %s", n.text)
	case branchIf:
		end, els := fmt.Sprintf("$L%d_end", n.label), fmt.Sprintf("$L%d_else", n.label)
		if n.els == nil {
			p.line("%sbra %s;", guard(n.cond, !n.negate), end)
			p.region(n.body)
		} else {
			p.line("%sbra %s;", guard(n.cond, !n.negate), els)
			p.region(n.body)
			p.line("bra %s;", end)
			p.label("$L%d_else:", n.label)
			p.region(n.els)
		}
		p.label("$L%d_end:", n.label)
	case loopForever:
		p.label("$L%d_loop:", n.label)
		p.region(n.body)
		if continues(n) {
			p.label("$L%d_next:", n.label)
		}
		p.region(n.latch)
		p.line("%sbra $L%d_loop;", guard(n.cond, n.negate), n.label)
		p.label("$L%d_end:", n.label)
	case jumpBreak:
		p.line("%sbra $L%d_end;", guard(n.cond, n.negate), n.target.label)
	case jumpContinue:
		p.line("%sbra $L%d_next;", guard(n.cond, n.negate), n.target.label)
	case jumpReturn:
		p.line("%sret;", guard(n.cond, n.negate))
	default:
		p.instruction(n)
	}
}

func continues(loop *node) bool {
	found := false
	loop.body.walk(func(_ *region, n *node) { found = found || n.kind == jumpContinue && n.target == loop })
	return found
}

func (p *printer) instruction(n *node) {
	op := n.op
	if n.t != Invalid {
		t := n.t.String()
		if n.form == formLoad || n.form == formStore {
			t = n.t.memoryName()
		}
		op += "." + t
	}
	if n.t2 != Invalid {
		op += "." + n.t2.String()
	}
	var operands []string
	braces := func(list []*register) string {
		names := make([]string, len(list))
		for i, r := range list {
			names[i] = name(r)
		}
		return "{" + strings.Join(names, ", ") + "}"
	}
	put := func(s string) { operands = append(operands, s) }
	switch n.form {
	case formPlain:
		for _, d := range n.dst {
			put(name(d))
		}
		for i, a := range n.args {
			put(operand(a, n.operandType(i)))
		}
	case formLoad:
		if len(n.dst) > 1 || n.text == "vector" {
			put(braces(n.dst))
		} else {
			put(name(n.dst[0]))
		}
		put(n.addr.String())
	case formStore:
		put(n.addr.String())
		if len(n.args) > 1 {
			put(braces(n.args))
		} else {
			put(operand(n.args[0], n.t))
		}
	case formAtomic:
		for _, d := range n.dst {
			put(name(d))
		}
		put(n.addr.String())
		if len(n.args) > 1 && n.text == "vector" {
			put(braces(n.args))
			break
		}
		for _, a := range n.args {
			put(operand(a, n.t))
		}
	case formCopy:
		put(n.addr.String())
		put(n.addr2.String())
		put(n.text)
		for _, a := range n.args {
			put(operand(a, U32))
		}
	case formText:
		if n.text != "" {
			put(n.text)
		}
	case formSpecial:
		put(name(n.dst[0]))
		put(n.text)
	case formPack:
		put(name(n.dst[0]))
		put(braces(n.args))
	case formUnpack:
		put(braces(n.dst))
		put(name(n.args[0]))
	case formMatrix:
		put(braces(n.dst))
		put(braces(n.args[:4]))
		put(braces(n.args[4:6]))
		put(braces(n.args[6:]))
	}
	if len(operands) == 0 {
		p.line("%s;", op)
		return
	}
	p.line("%s %s;", op, strings.Join(operands, ", "))
}

// operandType returns the type that the instruction expects of operand i.
func (n *node) operandType(i int) Type {
	switch {
	case i > 0 && (n.op == "shl" || n.op == "shr" || n.op == "bfe"),
		strings.HasPrefix(n.op, "shfl."), strings.HasPrefix(n.op, "vote."), strings.HasPrefix(n.op, "bar."), i > 0 && strings.HasPrefix(n.op, "redux."):
		return U32
	case i == 2 && n.op == "mad.wide":
		return U64
	}
	return n.t
}

func name(r *register) string {
	return fmt.Sprintf("%s%d", classes[r.t.class()].prefix, r.number)
}

// operand returns the text of a register, or of a constant as a value of type t.
func operand(r *register, t Type) string {
	if !r.konst {
		return name(r)
	}
	switch t {
	case F32:
		return fmt.Sprintf("0f%08X", r.bits)
	case F64:
		return fmt.Sprintf("0d%016X", r.bits)
	}
	if t.IsSigned() {
		return fmt.Sprint(signed(r.bits, t.Bits()))
	}
	bits := r.bits & mask(t.Bits()) // a store of a byte takes only the lower byte
	if bits < 1<<16 {
		return fmt.Sprint(bits)
	}
	return fmt.Sprintf("0x%x", bits)
}

func (a *address) String() string {
	s := a.symbol
	if a.base != nil {
		s = name(a.base)
	}
	switch {
	case a.offset > 0:
		return fmt.Sprintf("[%s+%d]", s, a.offset)
	case a.offset < 0:
		// PTX writes a plus before a negative offset too: "[r+-4]"
		return fmt.Sprintf("[%s+%d]", s, a.offset)
	}
	return "[" + s + "]"
}
