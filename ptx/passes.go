package ptx

import "strings"

// passes run in this order on every kernel. Each pass transforms the whole tree and does not change
// what the kernel computes, so any optional pass may be left out. The assembler does register
// allocation, scheduling and branch conversion.
var passes = []struct {
	name     string
	run      func(*Builder)
	optional bool
}{
	{"fold integer constants and branches on them", foldConstants, true},
	{"reduce the strength of multiplications and divisions", reduceStrength, true},
	{"fold constant offsets into addresses", foldAddresses, true},
	{"share common subexpressions along dominating regions", shareCommon, true},
	{"remove dead code", removeDead, true},
	{"hoist loop invariants", hoistInvariants, true},
	{"coalesce variables with their snapshots", coalesceVariables, true},
	{"give constants registers where an instruction needs one", materializeConstants, false},
	{"number registers and labels", number, false},
}

// resolve replaces the operands of n by the registers that passes have put in their place.
func (n *node) resolve() {
	n.uses(func(r **register) { *r = (*r).root() })
}

// rewrite resolves the operands of every instruction, in execution order, and then calls f for it.
// If f returns false, the node is dropped.
func (r *region) rewrite(f func(*region, *node) bool) {
	kept := r.nodes[:0:0]
	for _, n := range r.nodes {
		n.resolve()
		for _, inner := range n.regions() {
			inner.rewrite(f)
		}
		// the latch of a loop computes the loop's condition, so resolve the condition after the
		// latch
		n.resolve()
		if f(r, n) {
			kept = append(kept, n)
		}
	}
	r.nodes = kept
}

func (b *Builder) rewrite(f func(*region, *node) bool) {
	b.entry.rewrite(f)
	b.root.rewrite(f)
}

func constOperand(r *register) (uint64, bool) { return r.bits, r.konst }

// foldAddresses replaces an address [r] by [x+c] if r is the result of x + c, where c is a
// constant.
func foldAddresses(b *Builder) {
	b.rewrite(func(_ *region, n *node) bool {
		for _, a := range []*address{n.addr, n.addr2} {
			for a != nil && a.base != nil && a.base.def != nil {
				def := a.base.def
				if def.op != "add" && def.op != "sub" || !def.t.IsInt() || !def.args[1].root().konst {
					break
				}
				c := signed(def.args[1].root().bits, def.t.Bits())
				if def.op == "sub" {
					c = -c
				}
				offset := a.offset + c
				// the offset in a machine instruction is a signed number of 24 bits
				if offset < -1<<23 || offset >= 1<<23 {
					break
				}
				a.base, a.offset = def.args[0].root(), offset
			}
		}
		return true
	})
}

type valueKey struct {
	op     string
	t, t2  Type
	form   form
	text   string
	symbol string
	offset int64
	args   [4]*register
}

// shareCommon drops a pure instruction if an equal instruction always runs before it. The uses of
// the dropped instruction then refer to the result of the earlier one.
func shareCommon(b *Builder) {
	table := map[valueKey]*node{}
	var visit func(r *region, top bool)
	visit = func(r *region, top bool) {
		var mine []valueKey
		kept := r.nodes[:0:0]
		for _, n := range r.nodes {
			n.resolve()
			for _, inner := range n.regions() {
				visit(inner, false)
			}
			n.resolve()
			if key, ok := n.valueKey(); ok {
				if first := table[key]; first != nil {
					for i, d := range n.dst {
						d.same = first.dst[i]
					}
					continue
				}
				table[key] = n
				mine = append(mine, key)
			}
			kept = append(kept, n)
		}
		r.nodes = kept
		if !top {
			for _, key := range mine {
				delete(table, key)
			}
		}
	}
	visit(b.entry, true)
	visit(b.root, true)
}

func (n *node) valueKey() (valueKey, bool) {
	key := valueKey{op: n.op, t: n.t, t2: n.t2, form: n.form, text: n.text}
	if n.kind != instruction || n.effect != pure || len(n.args) > len(key.args) || n.dst[0].mutable {
		return key, false
	}
	for i, a := range n.args {
		if a.mutable {
			return key, false
		}
		key.args[i] = a
	}
	if n.addr != nil {
		key.symbol, key.offset = n.addr.symbol, n.addr.offset
	}
	return key, true
}

// hoistInvariants moves pure instructions out of loops, innermost loops first. An instruction is
// moved if all its operands come from outside of the loop.
func hoistInvariants(b *Builder) {
	var visit func(r *region)
	visit = func(r *region) {
		var out []*node
		for _, n := range r.nodes {
			for _, inner := range n.regions() {
				visit(inner)
			}
			if n.kind == loopForever {
				inside := map[*register]bool{}
				mark := func(_ *region, m *node) {
					for _, d := range m.dst {
						inside[d] = true
					}
				}
				n.body.walk(mark)
				n.latch.walk(mark)
				for _, part := range []*region{n.body, n.latch} {
					kept := part.nodes[:0:0]
					for _, m := range part.nodes {
						m.resolve()
						move := m.kind == instruction && m.effect == pure && !m.dst[0].mutable
						m.uses(func(u **register) { move = move && !inside[*u] })
						if !move {
							kept = append(kept, m)
							continue
						}
						for _, d := range m.dst {
							delete(inside, d)
						}
						out = append(out, m)
					}
					part.nodes = kept
				}
			}
			out = append(out, n)
		}
		r.nodes = out
	}
	visit(b.root)
}

// removeDead drops instructions on which no effect of the kernel depends.
func removeDead(b *Builder) {
	var work []*register
	keep := func(n *node) {
		if !n.live {
			n.live = true
			n.uses(func(r **register) { work = append(work, *r) })
		}
	}
	var roots []*node
	each := func(_ *region, n *node) {
		n.resolve()
		for _, d := range n.dst {
			d.setters = append(d.setters, n)
		}
		if n.kind == instruction && n.effect == effectful {
			roots = append(roots, n)
		}
		if n.kind == comment {
			n.live = true
		}
		if n.kind == jumpReturn || n.kind == jumpBreak || n.kind == jumpContinue {
			roots = append(roots, n)
		}
	}
	b.entry.walk(each)
	b.root.walk(each)
	// A branch or a loop is needed if a node inside it is needed.
	var own func(r *region, parent *node)
	own = func(r *region, parent *node) {
		for _, n := range r.nodes {
			n.owner = parent
			for _, inner := range n.regions() {
				own(inner, n)
			}
		}
	}
	own(b.root, nil)
	reach := func(n *node) {
		for ; n != nil && !n.live; n = n.owner {
			keep(n)
		}
	}
	for _, n := range roots {
		// A break or continue is needed only if its loop is needed.
		if n.kind == instruction || n.kind == jumpReturn {
			reach(n)
		}
	}
	for again := true; again; {
		again = false
		for len(work) > 0 {
			r := work[len(work)-1]
			work = work[:len(work)-1]
			for _, n := range r.setters {
				reach(n)
			}
			r.setters = nil
		}
		for _, n := range roots {
			if !n.live && n.target != nil && n.target.live {
				reach(n)
				again = true
			}
		}
	}
	var sweep func(r *region)
	sweep = func(r *region) {
		kept := r.nodes[:0:0]
		for _, n := range r.nodes {
			if n.live {
				for _, inner := range n.regions() {
					sweep(inner)
				}
				kept = append(kept, n)
			}
		}
		r.nodes = kept
	}
	sweep(b.entry)
	sweep(b.root)
}

// immediate lists the operations whose operands may be constants in PTX.
var immediate = map[string]bool{
	"add": true, "add.rn": true, "sub": true, "sub.rn": true, "mul.lo": true, "mul.hi": true, "mul.wide": true,
	"mul.rn": true, "mad.lo": true, "mad.wide": true, "fma.rn": true, "div": true, "div.rn": true, "rem": true,
	"min": true, "max": true, "min.NaN": true, "max.NaN": true, "and": true, "or": true, "xor": true, "shl": true,
	"shr": true, "selp": true, "bfe": true, "prmt": true, "mov": true,
}

func (n *node) takesImmediate() bool {
	switch n.form {
	case formStore:
		return len(n.args) == 1
	case formAtomic, formCopy:
		return n.text != "vector"
	case formPlain:
		return immediate[n.op] || strings.HasPrefix(n.op, "setp.") || strings.HasPrefix(n.op, "shfl.") || strings.HasPrefix(n.op, "vote.") || strings.HasPrefix(n.op, "bar.") || strings.HasPrefix(n.op, "redux.")
	}
	return false
}

func materializeConstants(b *Builder) {
	var visit func(r *region)
	visit = func(r *region) {
		made := map[constKey]*register{}
		out := r.nodes[:0:0]
		for _, n := range r.nodes {
			n.resolve()
			imm := n.takesImmediate()
			n.uses(func(u **register) {
				c := *u
				if !c.konst || imm && c.t != Pred {
					return
				}
				key := constKey{c.t.bitsType(), c.bits}
				m := made[key]
				if m == nil {
					m = &register{t: c.t}
					def := &node{op: "mov", t: c.t.bitsType(), dst: []*register{m}, args: []*register{c}}
					if c.t == Pred {
						zero := b.constant(U32, 0).r
						def = &node{op: "setp.eq", t: U32, dst: []*register{m}, args: []*register{zero, b.constant(U32, 1-c.bits).r}}
					}
					m.def = def
					made[key] = m
					out = append(out, def)
				}
				*u = m
			})
			out = append(out, n)
			for _, inner := range n.regions() {
				visit(inner)
			}
		}
		r.nodes = out
	}
	visit(b.entry)
	visit(b.root)
}

// number gives numbers to the registers of each class, in the order in which they appear. It also
// gives numbers to loops and branches, for their labels.
func number(b *Builder) {
	counts := make([]int, len(classes))
	each := func(_ *region, n *node) {
		n.resolve()
		for _, d := range n.dst {
			if d.number == 0 {
				counts[d.t.class()]++
				d.number = counts[d.t.class()]
			}
		}
		if n.kind == branchIf || n.kind == loopForever {
			b.labels++
			n.label = b.labels
		}
	}
	b.entry.walk(each)
	b.root.walk(each)
}
