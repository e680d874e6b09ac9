package expr

import (
	"slices"
	"strings"
)

// maxName is the maximum length, in bytes, of the operations in a program's name. Types and a hash
// may follow.
const maxName = 32

// maxTypes is the maximum number of types in a program's name.
const maxTypes = 4

// Named returns x with a name for use in names of programs: see [Program.Name]. The computation
// stays the same.
func (x *Expr) Named(name string) *Expr {
	if name == x.operation() {
		return x
	}
	named := *x
	named.called = name
	return &named
}

// operation returns the name of the node's operation. It returns "" for leaves and conversions,
// which do not appear in names.
func (x *Expr) operation() string {
	switch {
	case x.called != "":
		return x.called
	case x.op == opCall:
		return x.fn.Name
	case x.op.Arity() == 0 || x.op == OpCvt || x.op == OpBitcast:
		return ""
	}
	return x.op.String()
}

// Name describes the program's operations and types for a reader: "gelu_tanh_bfloat16",
// "cast_float32_bfloat16", "mul_add_float32_1ed33e2c". It consists of ASCII letters, digits and
// underscores.
//
// The name is unique if the program is a copy, or a single operation on the program's operands in
// order. Other names end with the first digits of the program's key. Only the key identifies a
// program.
func (p *Program) Name() string { return p.name }

// setName sets the name of the finished program, which computes the expressions outs.
func (p *Program) setName(outs []*Expr) {
	p.words = operations(outs)
	p.name = p.nameOf(len(outs) == 1 && outs[0].called == "" && overOperands(outs[0], len(p.In)))
}

// nameOf returns the name of the finished program. The argument single says that the program is one
// operation on its operands in order.
func (p *Program) nameOf(single bool) string {
	words, types := p.words, slices.Concat(p.In, p.Out)
	alone := p.copies() || single && len(types) <= maxTypes
	if !alone {
		types = slices.Compact(types)
	} else if slices.Max(types) == slices.Min(types) {
		types = types[:1]
	}
	switch {
	case len(words) > 0 && !p.copies():
	case p.UsesIndex():
		words = []string{"index"}
	case len(p.In) == 0:
		words = []string{"fill"}
	case len(types) == 1:
		words = []string{"copy"}
	default:
		words = []string{"cast"}
	}
	name := words[0]
	for i, w := range words[1:] {
		if len(name)+len(w) >= maxName {
			break
		}
		if w != words[i] {
			name += "_" + w
		}
	}
	name = plain(name)
	for _, t := range types[:min(len(types), maxTypes)] {
		name += "_" + t.String()
	}
	if !alone {
		name += "_" + p.key[:8]
	}
	return name
}

// copies reports whether the program only copies its operand, like the program of X(0).
func (p *Program) copies() bool {
	if len(p.In) != 1 || len(p.Out) != 1 {
		return false
	}
	last := p.Code[p.Outs[0]]
	return len(p.Code) == 1 && last.Op == OpX || len(p.Code) == 2 && last.Op == OpCvt && p.Code[last.A].Op == OpX
}

// reserved lists the names of copies, casts, fills and primitives. If a function has such a name,
// the names of its programs contain a key.
var reserved = append([]string{"copy", "cast", "fill"}, opNames[:]...)

// overOperands reports whether x is one operation on n operands in order. Then the operation's name
// and the types determine the program.
func overOperands(x *Expr, n int) bool {
	if x.operation() == "" || len(x.args) != n || x.op == opCall && slices.Contains(reserved, x.fn.Name) {
		return false
	}
	for i, in := range x.args {
		if !in.IsX(i) || in.called != "" {
			return false
		}
	}
	return true
}

// operations lists the operations of the expressions. The operations of operands come first.
func operations(outs []*Expr) (words []string) {
	seen := map[*Expr]bool{}
	var walk func(x *Expr)
	walk = func(x *Expr) {
		if seen[x] {
			return
		}
		seen[x] = true
		if x.called == "" {
			for _, in := range x.args {
				walk(in)
			}
		}
		if w := x.operation(); w != "" {
			words = append(words, w)
		}
	}
	for _, x := range outs {
		walk(x)
	}
	return words
}

// plain returns a name of at most maxName bytes. Characters other than ASCII letters and digits
// become underscores.
func plain(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), maxName)]
}
