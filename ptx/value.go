package ptx

import (
	"math"
)

// Value is a typed value of the kernel that is being built. The zero Value is invalid.
type Value struct {
	b *Builder
	r *register // register of the value; nil if the value is invalid and the misuse was reported
	t Type
}

// Type returns the type of v.
func (v Value) Type() Type { return v.t }

// Operand is an argument of an operation: a [Value], a [*Var], or an untyped constant [Int] or
// [Float]. The value of a Var is read when the operation is called.
type Operand interface {
	as(b *Builder, t Type) Value
}

// Int is an integer constant. It gets the type of the operation's other operand.
type Int int64

// Float is a floating-point constant. It gets the type of the operation's other operand.
type Float float64

func (v Value) as(*Builder, Type) Value { return v }

func (i Int) as(b *Builder, t Type) Value {
	switch {
	case t == F32 || t == F64:
		return Float(i).as(b, t)
	case t.IsInt() || t == B32 || t == B64 || t == B16:
		bits := t.Bits()
		lo, hi := int64(math.MinInt64), int64(math.MaxInt64)
		if bits < 64 {
			lo, hi = -1<<(bits-1), 1<<bits-1
			if t.IsSigned() {
				hi = 1<<(bits-1) - 1
			}
		}
		if int64(i) < lo || int64(i) > hi {
			b.fail("constant %d does not fit %v", int64(i), t)
		}
		return b.constant(t, uint64(i))
	}
	if t != Invalid {
		b.fail("integer constant %d where %v is wanted", int64(i), t)
	}
	return b.poison(t)
}

func (f Float) as(b *Builder, t Type) Value {
	switch t {
	case F32:
		return b.constant(t, uint64(math.Float32bits(float32(f))))
	case F64:
		return b.constant(t, math.Float64bits(float64(f)))
	case Invalid:
		return b.poison(t)
	}
	b.fail("floating-point constant %v where %v is wanted", float64(f), t)
	return b.poison(t)
}

// Const returns c as a value of type t.
func (b *Builder) Const(t Type, c Operand) Value {
	v := c.as(b, t)
	if v.r != nil && v.t != t {
		b.fail("Const: %v is not %v", v.t, t)
		return b.poison(t)
	}
	return v
}

// U32 returns a constant of type U32.
func (b *Builder) U32(c uint32) Value { return b.constant(U32, uint64(c)) }

// S32 returns a constant of type S32.
func (b *Builder) S32(c int32) Value { return b.constant(S32, uint64(uint32(c))) }

// U64 returns a constant of type U64.
func (b *Builder) U64(c uint64) Value { return b.constant(U64, c) }

// F32 returns a constant of type F32. The bits of a NaN are kept.
func (b *Builder) F32(c float32) Value { return b.constant(F32, uint64(math.Float32bits(c))) }

// F64 returns a constant of type F64.
func (b *Builder) F64(c float64) Value { return b.constant(F64, math.Float64bits(c)) }

// Bits returns the constant of type t with the given bits.
func (b *Builder) Bits(t Type, bits uint64) Value { return b.constant(t, bits) }

func mask(bits int) uint64 {
	if bits >= 64 {
		return math.MaxUint64
	}
	return 1<<bits - 1
}

func (b *Builder) constant(t Type, bits uint64) Value {
	key := constKey{t, bits & mask(t.Bits())}
	r := b.consts[key]
	if r == nil {
		r = &register{t: t, konst: true, bits: key.bits}
		b.consts[key] = r
	}
	return Value{b, r, t}
}

func (b *Builder) poison(t Type) Value { return Value{b: b, t: t} }

func (b *Builder) result(t Type) Value {
	return Value{b, &register{t: t, region: b.cur}, t}
}

// check reports whether all values may be used in the current region.
func (b *Builder) check(op string, values ...Value) bool {
	for i, v := range values {
		switch {
		case v.b == nil:
			b.fail("%s: operand %d is the zero Value", op, i+1)
			return false
		case v.b != b:
			b.fail("%s: operand %d belongs to kernel %s, not %s", op, i+1, v.b.name, b.name)
			return false
		case v.r == nil:
			return false
		case v.r.region != nil && !v.r.region.encloses(b.cur):
			b.fail("%s: operand %d (%v) was defined in a region that has ended; use a Var to carry it out", op, i+1, v.t)
			return false
		}
	}
	return true
}

// sameType checks that all values have the same type.
func (b *Builder) sameType(op string, values ...Value) bool {
	if !b.check(op, values...) {
		return false
	}
	for _, v := range values[1:] {
		if v.t != values[0].t {
			b.fail("%s: mixed types %v and %v", op, values[0].t, v.t)
			return false
		}
	}
	return true
}

// emit adds a pure instruction with plain operands.
func (b *Builder) emit(op string, t, t2, result Type, args ...Value) Value {
	v := b.result(result)
	b.add(&node{op: op, t: t, t2: t2, dst: []*register{v.r}, args: registers(args), effect: pure})
	return v
}

func registers(values []Value) []*register {
	list := make([]*register, len(values))
	for i, v := range values {
		list[i] = v.r
	}
	return list
}

// Var is a register that may be set more than once.
type Var struct {
	b *Builder
	v Value
}

// Var declares a variable and sets it to init.
func (b *Builder) Var(init Value) *Var {
	x := &Var{b: b, v: Value{b, &register{t: init.t, mutable: true, region: b.cur}, init.t}}
	x.Set(init)
	return x
}

// Type returns the variable's type.
func (x *Var) Type() Type { return x.v.t }

// Set sets x to a new value.
func (x *Var) Set(o Operand) {
	b := x.b
	v := o.as(b, x.v.t)
	if !b.sameType("Set", x.v, v) {
		return
	}
	b.add(&node{op: "mov", t: x.v.t.bitsType(), dst: []*register{x.v.r}, args: []*register{v.r}, effect: pure})
}

// Get returns the current value of x. A later Set does not change the returned value.
func (x *Var) Get() Value {
	b := x.b
	if !b.check("Get", x.v) {
		return b.poison(x.v.t)
	}
	v := b.result(x.v.t)
	b.add(&node{op: "mov", t: x.v.t.bitsType(), dst: []*register{v.r}, args: []*register{x.v.r}, effect: pure})
	return v
}

func (x *Var) as(*Builder, Type) Value { return x.Get() }
