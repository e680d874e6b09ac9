package ptx

// The intermediate representation is a tree. A region is a list of nodes. A node is an instruction,
// or an if or a loop, which holds regions. Every register has one definition, except the registers
// of Vars.

// register is a virtual register, or a constant if konst is true.
type register struct {
	t       Type // type of the definition; the printer uses only its register class
	konst   bool
	bits    uint64  // bits of a constant
	mutable bool    // register of a Var, with any number of definitions
	region  *region // region of the definition; nil for constants
	def     *node   // node that defines the register; nil for Vars and constants
	same    *register
	number  int
	usage   usage // what the pass coalesceVariables knows about the register
	setters []*node
}

// root returns r, or the register by which the passes have replaced it.
func (r *register) root() *register {
	for r.same != nil {
		r = r.same
	}
	return r
}

type nodeKind uint8

const (
	instruction nodeKind = iota
	comment
	branchIf // branch with the fields cond, body and els
	// loop with the regions body and latch; latch computes cond, and the loop repeats while cond
	// is true
	loopForever
	jumpBreak    // leaves the loop in the field target, if cond is true
	jumpContinue // continues at the latch of the loop in the field target, if cond is true
	jumpReturn   // leaves the kernel, if cond is true
)

// effect says what an instruction does in addition to defining its results.
type effect uint8

const (
	pure      effect = iota // may be moved, merged with an equal instruction, and dropped
	reads                   // may be dropped, but must not be moved
	effectful               // must be neither dropped nor moved
)

type node struct {
	kind   nodeKind
	op     string // mnemonic of the instruction, with the modifiers before the types
	t      Type   // first type in the text; Invalid if there is none
	t2     Type   // second type in the text; Invalid if there is none
	dst    []*register
	args   []*register
	addr   *address // memory operand
	addr2  *address // second memory operand (cp.async)
	effect effect
	text   string // a comment, or operands that are not registers
	form   form

	cond   *register // predicate under which the node runs; nil if it always runs
	negate bool
	body   *region
	els    *region
	latch  *region
	target *node
	label  int
	live   bool // whether the pass removeDead has found that the node is needed
	owner  *node
}

// form tells the printer how to arrange the operands.
type form uint8

const (
	formPlain   form = iota // prints op d, a, b, c
	formLoad                // prints op d|{d..}, [addr]
	formStore               // prints op [addr], a|{a..}
	formAtomic              // prints op d, [addr], a, b; without d it prints red
	formCopy                // prints op [addr], [addr2], text
	formText                // prints op text
	formSpecial             // prints op d, text (mov from special registers and symbols)
	formPack                // prints op d, {a, b}
	formUnpack              // prints op {d, e}, a
	formPredOut             // prints op d|p, a, b, c (shfl)
	// prints op {d..}, {a..}, {b..}, {c..}; the field counts says how many of args each list has
	formMatrix
)

// address is a memory operand: [base+offset] or [symbol+offset].
type address struct {
	base   *register
	symbol string
	offset int64
}

type region struct {
	nodes  []*node
	parent *region
	owner  *node
}

// encloses reports whether r contains the region s, or is that region.
func (r *region) encloses(s *region) bool {
	for ; s != nil; s = s.parent {
		if s == r {
			return true
		}
	}
	return false
}

// regions returns the regions of n in execution order.
func (n *node) regions() []*region {
	var list []*region
	for _, r := range []*region{n.body, n.els, n.latch} {
		if r != nil {
			list = append(list, r)
		}
	}
	return list
}

// uses calls f for each register operand of n, with a pointer through which f can replace the
// operand. It does not visit the regions of n.
func (n *node) uses(f func(**register)) {
	for i := range n.args {
		f(&n.args[i])
	}
	for _, a := range []*address{n.addr, n.addr2} {
		if a != nil && a.base != nil {
			f(&a.base)
		}
	}
	if n.cond != nil {
		f(&n.cond)
	}
}

// walk calls f for each node of r and of the regions inside r, in order.
func (r *region) walk(f func(*region, *node)) {
	for _, n := range r.nodes {
		f(r, n)
		for _, inner := range n.regions() {
			inner.walk(f)
		}
	}
}
