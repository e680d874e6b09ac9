package ptx

// Relation is a comparison.
type Relation uint8

// These are the relations. If an operand is a NaN, NotEqual and Unordered are true, and every other
// relation is false. Unordered exists for floats only.
const (
	Equal Relation = iota
	NotEqual
	Less
	LessEqual
	Greater
	GreaterEqual
	Unordered
)

var relationNames = [...]string{"eq", "ne", "lt", "le", "gt", "ge", "nan"}

// Compare returns the predicate v rel o.
func (v Value) Compare(rel Relation, o Operand) Value {
	b := v.b
	w := o.as(b, v.t)
	if !b.sameType("setp", v, w) {
		return b.poison(Pred)
	}
	name := relationNames[rel]
	switch {
	case v.t.IsInt() && v.t.Bits() >= 16 && rel != Unordered:
	case v.t == F32 || v.t == F64:
		if rel == NotEqual {
			name = "neu"
		}
	case typeTable[v.t].kind == kindBits && rel <= NotEqual:
	default:
		b.fail("setp.%s is not defined for %v", name, v.t)
		return b.poison(Pred)
	}
	return b.emit("setp."+name, v.t, Invalid, Pred, v, w)
}

// Eq returns v == o.
func (v Value) Eq(o Operand) Value { return v.Compare(Equal, o) }

// Ne returns v != o.
func (v Value) Ne(o Operand) Value { return v.Compare(NotEqual, o) }

// Lt returns v < o.
func (v Value) Lt(o Operand) Value { return v.Compare(Less, o) }

// Le returns v <= o.
func (v Value) Le(o Operand) Value { return v.Compare(LessEqual, o) }

// Gt returns v > o.
func (v Value) Gt(o Operand) Value { return v.Compare(Greater, o) }

// Ge returns v >= o.
func (v Value) Ge(o Operand) Value { return v.Compare(GreaterEqual, o) }

// IsNaN returns whether v is NaN.
func (v Value) IsNaN() Value { return v.Compare(Unordered, v) }

// Select returns the first operand where the predicate v is true, and the second where it is
// false. At most one operand may be an untyped constant. [Builder.Const] turns a constant into a
// Value.
func (v Value) Select(yes, no Operand) Value {
	b := v.b
	var y, n Value
	if typed, ok := yes.(Value); ok {
		y, n = typed, no.as(b, typed.t)
	} else {
		n = no.as(b, Invalid)
		y = yes.as(b, n.t)
	}
	if n.t == Invalid && n.r == nil && y.r == nil {
		b.fail("selp: one of two constants must be a Value")
		return b.poison(Invalid)
	}
	if !b.check("selp", v) || !b.sameType("selp", y, n) {
		return b.poison(y.t)
	}
	if v.t != Pred {
		b.fail("selp: the condition is %v, not pred", v.t)
		return b.poison(y.t)
	}
	if y.t == Pred { // PTX has no selp.pred, so compute (v and yes) or (not v and no)
		return v.And(y).Or(v.Not().And(n))
	}
	return b.emit("selp", y.t.bitsType(), Invalid, y.t, y, n, v)
}
