package ptxvm

import "strings"

// ParseDeclarations is [Parse] for kernels that will not run: of their bodies it reads only what memory they declare and passes over the
// instructions, so that mistakes in these are not found. What an [Entry] says of its parameters, threads and memory is as from Parse.
func ParseDeclarations(ptx string) (*Module, error) { return parse(ptx, true) }

// passes skips an instruction, a label or a declaration of registers, and reports whether it was one.
func (p *parser) passes() bool {
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
