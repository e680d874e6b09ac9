package ptx

import "math/bits"

// signed returns the lower width bits of v as a two's complement number.
func signed(v uint64, width int) int64 {
	return int64(v<<(64-width)) >> (64 - width)
}

// foldConstants evaluates integer instructions with constant operands, applies the identities of
// integer arithmetic, and resolves branches with constant conditions. It does not change
// floating-point arithmetic: there 0·x, for example, is not always 0.
func foldConstants(b *Builder) {
	b.rewrite(func(_ *region, n *node) bool {
		if n.kind != instruction || n.effect != pure || len(n.dst) != 1 || n.dst[0].mutable || n.form != formPlain {
			return true
		}
		n.canonicalize()
		if r := b.simplify(n); r != nil {
			n.dst[0].same = r
			return false
		}
		return true
	})
	b.foldBranches(b.root)
}

var commutative = map[string]bool{"add": true, "mul.lo": true, "mul.hi": true, "mul.wide": true, "mad.lo": true,
	"mad.wide": true, "and": true, "or": true, "xor": true, "min": true, "max": true, "setp.eq": true, "setp.ne": true}

// canonicalize makes a constant the second operand, and merges the constants of chained additions.
func (n *node) canonicalize() {
	if n.t.IsFloat() || len(n.args) < 2 {
		return
	}
	if commutative[n.op] && n.args[0].konst && !n.args[1].konst {
		n.args[0], n.args[1] = n.args[1], n.args[0]
	}
	if mirror := mirrored[n.op]; mirror != "" && n.args[0].konst && !n.args[1].konst {
		n.op = mirror
		n.args[0], n.args[1] = n.args[1], n.args[0]
	}
}

// mirrored maps each comparison to the comparison that gives the same result with exchanged
// operands.
var mirrored = map[string]string{"setp.lt": "setp.gt", "setp.gt": "setp.lt", "setp.le": "setp.ge", "setp.ge": "setp.le"}

// simplify returns a register that always equals the result of n, or nil if there is none.
func (b *Builder) simplify(n *node) *register {
	a := n.args
	if n.op == "selp" {
		if c, ok := constOperand(a[2]); ok {
			return a[int(1-c)]
		}
		if a[0] == a[1] {
			return a[0]
		}
		return nil
	}
	if n.t.IsFloat() || n.t2.IsFloat() {
		return nil
	}
	all := true
	for _, r := range a {
		all = all && r.konst
	}
	if all && len(a) > 0 {
		if v, ok := evaluate(n, a); ok {
			t := n.dst[0].t
			return b.constant(t, v).r
		}
		return nil
	}
	if len(a) < 2 {
		return nil
	}
	w := n.t.Bits()
	c, ok := constOperand(a[1])
	ones := mask(w)
	zero := func() *register { return b.constant(n.dst[0].t, 0).r }
	switch n.op {
	case "add", "sub", "or", "xor", "shl", "shr":
		if ok && c == 0 {
			return a[0]
		}
		if n.op == "add" && ok {
			// (x + c1) + c2 = x + (c1 + c2) modulo 2^w
			if def := a[0].def; def != nil && def.op == "add" && def.t.Bits() == w && def.args[1].root().konst {
				sum := b.constant(n.t, def.args[1].root().bits+c)
				n.args = []*register{def.args[0].root(), sum.r}
				if sum.r.bits == 0 {
					return n.args[0]
				}
			}
		}
		if n.op == "xor" && a[0] == a[1] || n.op == "sub" && a[0] == a[1] {
			return zero()
		}
		if n.t == Pred && n.op == "or" && ok {
			return a[1] // x or true; the case of x or false is handled above
		}
	case "and":
		switch {
		case ok && c == 0:
			return zero()
		case ok && c == ones:
			return a[0]
		case a[0] == a[1]:
			return a[0]
		}
	case "mul.lo":
		switch {
		case ok && c == 0:
			return zero()
		case ok && c == 1:
			return a[0]
		}
	case "mul.wide", "mul.hi":
		if ok && c == 0 {
			return zero()
		}
	case "mad.lo":
		// x·0 + z = z, x·1 + z = x + z, x·y + 0 = x·y
		switch {
		case ok && c == 0:
			return a[2]
		case ok && c == 1:
			n.op, n.args = "add", []*register{a[0], a[2]}
			n.canonicalize()
			return b.simplify(n)
		case ok && a[0].konst:
			v, _ := evaluate(&node{op: "mul.lo", t: n.t}, a[:2])
			n.op, n.args = "add", []*register{a[2], b.constant(n.t, v).r}
			return b.simplify(n)
		case a[2].konst && a[2].bits == 0:
			n.op, n.args = "mul.lo", a[:2]
		}
	case "mad.wide":
		switch {
		case ok && c == 0:
			return a[2]
		case ok && a[0].konst:
			v, _ := evaluate(&node{op: "mul.wide", t: n.t}, a[:2])
			n.op, n.t = "add", n.dst[0].t
			n.args = []*register{a[2], b.constant(n.t, v).r}
			return b.simplify(n)
		}
	case "div":
		if ok && c == 1 {
			return a[0]
		}
	case "rem":
		if ok && c == 1 {
			return zero()
		}
	case "min", "max":
		if a[0] == a[1] {
			return a[0]
		}
	}
	return nil
}

// evaluate returns the result of an integer instruction with constant operands.
func evaluate(n *node, args []*register) (uint64, bool) {
	w := n.t.Bits()
	var u [3]uint64
	var s [3]int64
	for i, r := range args {
		u[i] = r.bits & mask(w)
		s[i] = signed(r.bits, w)
	}
	sign := n.t.IsSigned()
	truth := func(p bool) (uint64, bool) {
		if p {
			return 1, true
		}
		return 0, true
	}
	switch n.op {
	case "add":
		return u[0] + u[1], true
	case "sub":
		return u[0] - u[1], true
	case "mul.lo":
		return u[0] * u[1], true
	case "mad.lo":
		return u[0]*u[1] + args[2].bits, true
	case "mul.wide", "mad.wide":
		var c uint64
		if len(args) == 3 {
			c = args[2].bits
		}
		if sign {
			return uint64(s[0]*s[1]) + c, true
		}
		return u[0]*u[1] + c, true
	case "mul.hi":
		if w == 32 && !sign {
			return u[0] * u[1] >> 32, true
		}
	case "div", "rem":
		if u[1] == 0 || sign && u[1] == mask(w) {
			// the result is undefined, or it overflows (the least integer divided by -1)
			return 0, false
		}
		q, r := u[0]/u[1], u[0]%u[1]
		if sign {
			q, r = uint64(s[0]/s[1]), uint64(s[0]%s[1])
		}
		if n.op == "div" {
			return q, true
		}
		return r, true
	case "and":
		return u[0] & u[1], true
	case "or":
		return u[0] | u[1], true
	case "xor":
		return u[0] ^ u[1], true
	case "not":
		return ^u[0] & mask(w), true
	case "neg":
		return -u[0], true
	case "shl":
		if args[1].bits >= uint64(w) {
			return 0, true
		}
		return u[0] << args[1].bits, true
	case "shr":
		k := min(args[1].bits, 63)
		if sign {
			return uint64(s[0] >> k), true
		}
		if args[1].bits >= uint64(w) {
			return 0, true
		}
		return u[0] >> k, true
	case "min", "max":
		less := u[0] < u[1]
		if sign {
			less = s[0] < s[1]
		}
		if less == (n.op == "min") {
			return u[0], true
		}
		return u[1], true
	case "popc":
		return uint64(bits.OnesCount64(u[0])), true
	case "setp.eq":
		return truth(u[0] == u[1])
	case "setp.ne":
		return truth(u[0] != u[1])
	case "setp.lt", "setp.le", "setp.gt", "setp.ge":
		less, equal := u[0] < u[1], u[0] == u[1]
		if sign {
			less = s[0] < s[1]
		}
		switch n.op[5:] {
		case "lt":
			return truth(less)
		case "le":
			return truth(less || equal)
		case "gt":
			return truth(!less && !equal)
		}
		return truth(!less)
	case "cvt":
		// n.t is the result's type, and n.t2 is the operand's type.
		if n.t2.IsSigned() {
			return uint64(signed(args[0].bits, n.t2.Bits())), true
		}
		return args[0].bits & mask(n.t2.Bits()), true
	}
	return 0, false
}

// foldBranches replaces a branch whose condition is a constant by the nodes that run. It also drops
// nodes after an unconditional jump.
func (b *Builder) foldBranches(r *region) {
	out := r.nodes[:0:0]
	for _, n := range r.nodes {
		n.resolve()
		for _, inner := range n.regions() {
			b.foldBranches(inner)
		}
		if n.cond != nil && n.cond.konst && n.kind != loopForever {
			yes := (n.cond.bits != 0) != n.negate
			switch {
			case n.kind == branchIf && yes:
				out = append(out, n.body.nodes...)
				continue
			case n.kind == branchIf:
				if n.els != nil {
					out = append(out, n.els.nodes...)
				}
				continue
			case !yes:
				continue
			}
			n.cond, n.negate = nil, false
		}
		out = append(out, n)
		if n.cond == nil && (n.kind == jumpBreak || n.kind == jumpContinue || n.kind == jumpReturn) {
			break
		}
	}
	r.nodes = out
}

// reduceStrength uses shifts and masks in place of multiplications, unsigned divisions and unsigned
// remainders whose second operand is a power of two.
func reduceStrength(b *Builder) {
	b.rewrite(func(_ *region, n *node) bool {
		if n.kind != instruction || len(n.args) < 2 || !n.t.IsInt() || n.args[0].konst {
			return true
		}
		c, ok := constOperand(n.args[1])
		if !ok || c == 0 || c&(c-1) != 0 || c == 1 {
			return true
		}
		k := uint64(bits.TrailingZeros64(c))
		switch {
		case n.op == "mul.lo":
			n.op, n.t = "shl", n.t.bitsType()
			n.args = []*register{n.args[0], b.constant(U32, k).r}
		case n.op == "div" && n.t.IsUnsigned():
			n.op = "shr"
			n.args = []*register{n.args[0], b.constant(U32, k).r}
		case n.op == "rem" && n.t.IsUnsigned():
			n.op = "and"
			n.args = []*register{n.args[0], b.constant(n.t, c-1).r}
			n.t = n.t.bitsType()
		}
		return true
	})
}
