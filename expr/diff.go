package expr

// Diff returns the derivative of e with respect to X(i). It returns nil if e does not depend on
// X(i), or depends on X(i) only through ops whose derivative is 0. Where the derivative contains e
// itself, it uses [Y] instead. So a gradient can use the saved result of the op instead of
// computing it again.
//
// Diff removes only zeros and ones that differentiation itself introduces. It removes no float
// operation of the formula, because, for example, 0·x may be NaN. The derivative of Abs at 0 is 0.
// On a tie, Min and Max give half of the gradient to each operand. Select has the derivative of the
// selected branch. Floor, Trunc, RoundEven, comparisons and bit operations have the derivative 0.
func Diff(e *Expr, i int) *Expr {
	d := differ{i: i, memo: map[*Expr]*Expr{}, root: e}
	r := d.walk(e)
	if r == nil || r == one {
		return r
	}
	return replaceRoot(r, e)
}

// one marks a derivative that is identically 1, so that the function mul can drop it.
var one = C(1)

// IsOne reports whether x is a derivative that is identically 1.
func (x *Expr) IsOne() bool { return x == one }

type differ struct {
	i    int
	memo map[*Expr]*Expr
	root *Expr
}

// mul returns a·b. It drops a factor that is identically 1. A nil factor means 0, and then the
// result is nil too.
func mul(a, b *Expr) *Expr {
	switch {
	case a == nil || b == nil:
		return nil
	case a == one:
		return b
	case b == one:
		return a
	}
	return a.Mul(b)
}

func add(a, b *Expr) *Expr {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return a.Add(b)
}

func neg(a *Expr) *Expr {
	if a == nil {
		return nil
	}
	return a.Neg()
}

func orZero(a *Expr) *Expr {
	if a == nil {
		return C(0)
	}
	return a
}

func (d *differ) walk(e *Expr) *Expr {
	if r, ok := d.memo[e]; ok {
		return r
	}
	r := d.rule(e)
	d.memo[e] = r
	return r
}

func (d *differ) rule(e *Expr) *Expr {
	in := func(k int) *Expr { return d.walk(e.args[k]) }
	switch e.op {
	case OpX:
		if e.idx == d.i {
			return one
		}
		return nil
	case OpAdd:
		return add(in(0), in(1))
	case OpSub:
		return add(in(0), neg(in(1)))
	case OpMul:
		return add(mul(in(0), e.args[1]), mul(e.args[0], in(1)))
	case OpDiv: // the derivative of a/b is a'/b - (a/b)·b'/b
		var p *Expr
		if a := in(0); a != nil {
			p = a.Div(e.args[1])
		}
		if b := in(1); b != nil {
			p = add(p, neg(mul(e, b).Div(e.args[1])))
		}
		return p
	case OpFMA:
		return add(add(mul(in(0), e.args[1]), mul(e.args[0], in(1))), in(2))
	case OpNeg:
		return neg(in(0))
	case OpAbs:
		if a := in(0); a != nil {
			x := e.args[0]
			return mul(a, x.Gt(C(0)).Select(C(1), x.Lt(C(0)).Select(C(-1), x.Mul(C(0)))))
		}
		return nil
	case OpMin, OpMax:
		a, b := in(0), in(1)
		if a == nil && b == nil {
			return nil
		}
		x, y := e.args[0], e.args[1]
		first := x.Lt(y)
		if e.op == OpMax {
			first = x.Gt(y)
		}
		tie := C(0.5)
		return first.Select(orZero(a), x.Eq(y).Select(orZero(add(mul(a, tie), mul(b, tie))), orZero(b)))
	case OpSqrt:
		if a := in(0); a != nil {
			return a.Div(e.Scale(2))
		}
		return nil
	case OpSelect:
		a, b := in(1), in(2)
		if a == nil && b == nil {
			return nil
		}
		return e.args[0].Select(orZero(a), orZero(b))
	case OpCvt:
		if a := in(0); a != nil && e.typ.IsFloat() {
			return a.Cvt(e.typ)
		}
		return nil
	case opCall:
		var r *Expr
		var parts []*Expr
		for k := range e.args {
			if a := in(k); a != nil {
				if parts == nil {
					parts = e.fn.Diff(e.args, e)
				}
				r = add(r, mul(a, parts[k]))
			}
		}
		return r
	}
	return nil // leaves, comparisons, rounding and bit operations have no derivative
}

// replaceRoot replaces every subexpression of g that equals root by Y.
func replaceRoot(g, root *Expr) *Expr {
	if root.op == OpX || root.op == OpConst || root.op == OpParam {
		return g // root is a leaf, so Y would save no computation
	}
	num := numbering{ids: map[nodeKey]int{}, memo: map[*Expr]int{}}
	want := num.number(root)
	memo := map[*Expr]*Expr{}
	var walk func(*Expr) *Expr
	walk = func(e *Expr) *Expr {
		if r, ok := memo[e]; ok {
			return r
		}
		r := e
		if num.number(e) == want {
			r = Y()
		} else if len(e.args) > 0 {
			in := make([]*Expr, len(e.args))
			for k, a := range e.args {
				in[k] = walk(a)
			}
			c := *e
			c.args = in
			r = &c
		}
		memo[e] = r
		return r
	}
	return walk(g)
}

// numbering assigns equal numbers to structurally equal nodes.
type numbering struct {
	ids  map[nodeKey]int
	memo map[*Expr]int
}

type nodeKey struct {
	op      Op
	typ     uint8
	bits    uint64
	val     uint64
	idx     int
	fn      *Func
	a, b, c int
}

func (n *numbering) number(e *Expr) int {
	if id, ok := n.memo[e]; ok {
		return id
	}
	k := nodeKey{op: e.op, typ: uint8(e.typ), bits: e.bits, val: f64bits(e.val), idx: e.idx, fn: e.fn, a: -1, b: -1, c: -1}
	for i, in := range e.args {
		switch id := n.number(in); i {
		case 0:
			k.a = id
		case 1:
			k.b = id
		case 2:
			k.c = id
		default:
			panic("expr: a function takes at most 3 arguments")
		}
	}
	id, ok := n.ids[k]
	if !ok {
		id = len(n.ids)
		n.ids[k] = id
	}
	n.memo[e] = id
	return id
}

// Uses returns which operands X(i) occur in e, and whether Y occurs. For a gradient e, these are
// the values to save.
func Uses(e *Expr) (x map[int]bool, y bool) {
	x = map[int]bool{}
	seen := map[*Expr]bool{}
	var walk func(*Expr)
	walk = func(e *Expr) {
		if e == nil || seen[e] {
			return
		}
		seen[e] = true
		switch e.op {
		case OpX:
			x[e.idx] = true
		case OpY:
			y = true
		}
		for _, a := range e.args {
			walk(a)
		}
	}
	walk(e)
	return x, y
}
