package ptx

// The intermediate form is a tree: a region is a list of nodes; an if or a loop
// is a node that holds regions. Registers other than Vars have one definition.

// register is a virtual register, or a constant when konst is set.
type register struct {
	t       Type // of the definition; only its class matters to the printer
	konst   bool
	bits    uint64  // the constant's bits
	mutable bool    // a Var: any number of definitions
	region  *region // where it was defined; nil for constants
	def     *node   // nil for Vars and constants
	same    *register
	number  int
	usage   usage // the coalescer's
	setters []*node
}

// root follows the replacements that passes made.
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
	branchIf     // cond, body, els
	loopForever  // body, latch; repeated while cond (evaluated in latch) holds
	jumpBreak    // leave target, when cond holds
	jumpContinue // go to target's latch, when cond holds
	jumpReturn   // leave the kernel, when cond holds
)

// effect says what an instruction does besides defining its results.
type effect uint8

const (
	pure      effect = iota // may be moved, shared and dropped
	reads                   // may be dropped, not moved
	effectful               // stays where it is
)

type node struct {
	kind   nodeKind
	op     string // base mnemonic with the modifiers that precede the types
	t      Type   // first printed type; Invalid: none
	t2     Type   // second printed type; Invalid: none
	dst    []*register
	args   []*register
	addr   *address // memory operand
	addr2  *address // second memory operand (cp.async)
	effect effect
	text   string // for comments; for special operands of an instruction
	form   form

	cond   *register // nil: always
	negate bool
	body   *region
	els    *region
	latch  *region
	target *node
	label  int
	live   bool // to the removal of dead code
	owner  *node
}

// form tells the printer how the operands are laid out.
type form uint8

const (
	formPlain   form = iota // op d, a, b, c
	formLoad                // op d|{d..}, [addr]
	formStore               // op [addr], a|{a..}
	formAtomic              // op d, [addr], a, b (d absent: red)
	formCopy                // op [addr], [addr2], text
	formText                // op text
	formSpecial             // op d, text (mov from special registers, symbols)
	formPack                // op d, {a, b}
	formUnpack              // op {d, e}, a
	formPredOut             // op d|p, a, b, c (shfl)
	formMatrix              // op {d..}, {a..}, {b..}, {c..}; split by counts
)

// address is [base+offset] or [symbol+offset].
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

// encloses reports whether r is inner or one of its ancestors.
func (r *region) encloses(inner *region) bool {
	for ; inner != nil; inner = inner.parent {
		if inner == r {
			return true
		}
	}
	return false
}

// regions lists the regions of n in execution order.
func (n *node) regions() []*region {
	var list []*region
	for _, r := range []*region{n.body, n.els, n.latch} {
		if r != nil {
			list = append(list, r)
		}
	}
	return list
}

// uses calls f for each register operand of n, by pointer so that it can be
// replaced. The regions of n are not visited.
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

// walk calls f for each node of r and of the regions inside, in order.
func (r *region) walk(f func(*region, *node)) {
	for _, n := range r.nodes {
		f(r, n)
		for _, inner := range n.regions() {
			inner.walk(f)
		}
	}
}
