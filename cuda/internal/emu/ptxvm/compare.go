package ptxvm

import "slices"

// cmpFn compares two registers. Bit l of its result is the result for lane l.
type cmpFn = func(a, b *lanes) uint32

func bit(c bool) uint32 {
	var v uint32
	if c {
		v = 1
	}
	return v
}

func cmpInt[T integers](op string) cmpFn {
	switch op {
	case "eq":
		return func(a, b *lanes) (m uint32) {
			for l := range a {
				m |= bit(T(a[l]) == T(b[l])) << l
			}
			return m
		}
	case "ne":
		return func(a, b *lanes) (m uint32) {
			for l := range a {
				m |= bit(T(a[l]) != T(b[l])) << l
			}
			return m
		}
	case "lt", "lo":
		return func(a, b *lanes) (m uint32) {
			for l := range a {
				m |= bit(T(a[l]) < T(b[l])) << l
			}
			return m
		}
	case "le", "ls":
		return func(a, b *lanes) (m uint32) {
			for l := range a {
				m |= bit(T(a[l]) <= T(b[l])) << l
			}
			return m
		}
	case "gt", "hi":
		return func(a, b *lanes) (m uint32) {
			for l := range a {
				m |= bit(T(a[l]) > T(b[l])) << l
			}
			return m
		}
	case "ge", "hs":
		return func(a, b *lanes) (m uint32) {
			for l := range a {
				m |= bit(T(a[l]) >= T(b[l])) << l
			}
			return m
		}
	}
	return nil
}

// floatCompare returns the function for an ordered or unordered comparison of two floats.
func floatCompare(op string) func(x, y float64) bool {
	switch op {
	case "eq":
		return func(x, y float64) bool { return x == y }
	case "ne":
		return func(x, y float64) bool { return x < y || x > y }
	case "lt":
		return func(x, y float64) bool { return x < y }
	case "le":
		return func(x, y float64) bool { return x <= y }
	case "gt":
		return func(x, y float64) bool { return x > y }
	case "ge":
		return func(x, y float64) bool { return x >= y }
	case "equ":
		return func(x, y float64) bool { return !(x < y || x > y) }
	case "neu":
		return func(x, y float64) bool { return x != y }
	case "ltu":
		return func(x, y float64) bool { return !(x >= y) }
	case "leu":
		return func(x, y float64) bool { return !(x > y) }
	case "gtu":
		return func(x, y float64) bool { return !(x <= y) }
	case "geu":
		return func(x, y float64) bool { return !(x < y) }
	case "num":
		return func(x, y float64) bool { return x == x && y == y }
	case "nan":
		return func(x, y float64) bool { return x != x || y != y }
	}
	return nil
}

// decodeFloat returns the function that converts a lane of a float type to float64.
func decodeFloat(t Type) func(uint64) float64 {
	switch t {
	case F32:
		return func(u uint64) float64 { return float64(f32(u)) }
	case F64:
		return f64
	case F16:
		return func(u uint64) float64 { return float64(f16(u & 0xffff)) }
	case BF16:
		return func(u uint64) float64 { return float64(bf16(u & 0xffff)) }
	case TF32:
		return func(u uint64) float64 { return float64(tf32(u)) }
	}
	return nil
}

func cmpFloat(op string, t Type, ftz bool) cmpFn {
	f, dec := floatCompare(op), decodeFloat(t)
	if f == nil {
		return nil
	}
	if t == F32 && !ftz {
		switch op {
		case "lt":
			return func(a, b *lanes) (m uint32) {
				for l := range a {
					m |= bit(f32(a[l]) < f32(b[l])) << l
				}
				return m
			}
		case "gt":
			return func(a, b *lanes) (m uint32) {
				for l := range a {
					m |= bit(f32(a[l]) > f32(b[l])) << l
				}
				return m
			}
		case "neu":
			return func(a, b *lanes) (m uint32) {
				for l := range a {
					m |= bit(f32(a[l]) != f32(b[l])) << l
				}
				return m
			}
		}
	}
	flush := func(x float64) float64 {
		switch tiny := 0x1p-126; {
		case t == F16:
			tiny = 0x1p-14
			fallthrough
		default:
			if ftz && x > -tiny && x < tiny {
				return 0
			}
		}
		return x
	}
	return func(a, b *lanes) (m uint32) {
		for l := range a {
			m |= bit(f(flush(dec(a[l])), flush(dec(b[l])))) << l
		}
		return m
	}
}

var cmpOps = []string{"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}

// comparison processes the comparison operator and the type among the modifiers of setp or set.
func (d *decoder) comparison() (cmpFn, Type) {
	t := d.typ()
	i := d.oneOf(cmpOps...)
	if i < 0 {
		d.fail("%s lacks a comparison", d.stmt.op)
	}
	op := cmpOps[i]
	var f cmpFn
	switch {
	case t == F32 || t == F64 || t == F16 || t == BF16:
		f = cmpFloat(op, t, (t == F32 || t == F16) && d.modifier("ftz"))
		if t == BF16 {
			d.require(90, 7, 8)
		}
	case t == B16 || t == B32 || t == B64:
		if op == "eq" || op == "ne" {
			f = cmpInt[uint64](op)
		}
	case t.signed() && (op == "lo" || op == "ls" || op == "hi" || op == "hs"):
	default:
		switch t {
		case U16:
			f = cmpInt[uint16](op)
		case S16:
			f = cmpInt[int16](op)
		case U32:
			f = cmpInt[uint32](op)
		case S32:
			f = cmpInt[int32](op)
		case U64:
			f = cmpInt[uint64](op)
		case S64:
			f = cmpInt[int64](op)
		}
	}
	if f == nil {
		d.fail("%s: comparison .%s of type .%s is not supported", d.stmt.op, op, t)
	}
	return f, t
}

const (
	combineNone uint8 = iota
	combineAnd
	combineOr
	combineXor
)

func (d *decoder) combination(args []operand, n int) []operand {
	c := d.oneOf("and", "or", "xor")
	if c < 0 {
		return d.args(n)
	}
	a := d.args(n + 1)
	x := d.extra()
	x.combine = uint8(c) + 1
	x.p, x.pn = d.condition(a[n])
	return a
}

func setPredicate(d *decoder) {
	for _, t := range []Type{F16x2, BF16x2} {
		if d.modifier(t.String()) {
			setPredicates(d, t)
			return
		}
	}
	f, t := d.comparison()
	a := d.combination(d.stmt.args, 3)
	i := d.in
	dst := a[0]
	if dst.kind == okGroup {
		if t == F16 || t == BF16 {
			d.fail("%s: a second predicate does not go with .%s", d.stmt.op, t)
		}
		if dst.pair != "_" {
			i.q = d.predicate(operand{kind: okWord, name: dst.pair})
		}
		dst.kind = okWord
	}
	if dst.name == "_" && dst.kind == okWord {
		i.p = -1
	} else {
		i.p = d.predicate(dst)
	}
	i.a, i.b, i.cmp = d.src(a[1], t), d.src(a[2], t), f
	i.kind = kCmp
}

// setValue decodes set. It is like setp, but sets a register to all ones, or to 1.0f, where the
// comparison is true.
func setValue(d *decoder) {
	if n := len(d.mods); n > 0 && slices.Contains([]string{"f16", "f16x2", "bf16", "bf16x2"}, d.mods[n-1]) {
		setHalf(d)
		return
	}
	f, t := d.comparison()
	dt := d.typIn(U32, S32, F32)
	a := d.combination(d.stmt.args, 3)
	i := d.in
	i.d, i.a, i.b, i.cmp = d.dst(a[0], dt), d.src(a[1], t), d.src(a[2], t), f
	yes := uint64(0xffffffff)
	if dt == F32 {
		yes = 0x3f800000
	}
	d.run(func(w *warp, in *inst, m uint32) {
		w.requireWritten(in, m, in.a, in.b)
		bits := in.cmp(&w.r[in.a], &w.r[in.b])
		if in.x != nil && in.x.combine != combineNone {
			bits = combine(in.x.combine, bits, w.extraPred(in, m))
		}
		var v lanes
		for l := range v {
			if bits>>l&1 != 0 {
				v[l] = yes
			}
		}
		w.write(in.d, &v, m)
	})
}

func combine(op uint8, a, b uint32) uint32 {
	switch op {
	case combineAnd:
		return a & b
	case combineOr:
		return a | b
	case combineXor:
		return a ^ b
	}
	return a
}
