package ptxvm

import (
	"math"
	"math/bits"
)

// logic decodes the instructions "and", "or", "xor" and "not", on bits and on predicates.
func logic(d *decoder) {
	t := d.typIn(Pred, B16, B32, B64)
	if t == Pred {
		n := 3
		if d.base == "not" {
			n = 2
		}
		a := d.args(n)
		d.in.p = d.predicate(a[0])
		var notA, notB bool
		d.in.a, notA = d.condition(a[1])
		if n == 3 {
			d.in.b, notB = d.condition(a[2])
		}
		op := d.base
		d.run(func(w *warp, i *inst, m uint32) {
			x, y := w.pred(i, i.a, m), w.pred(i, i.b, m)
			if notA {
				x = ^x
			}
			if notB {
				y = ^y
			}
			switch op {
			case "and":
				x &= y
			case "or":
				x |= y
			case "xor":
				x ^= y
			case "not":
				x = ^x
			}
			w.setPred(i.p, x, m)
		})
		return
	}
	if d.base == "not" {
		d.da(t)
		m := t.mask()
		d.alu(lift1(func(a uint64) uint64 { return ^a & m }))
		return
	}
	d.dab(t)
	d.alu(map[string]laneFn{"and": andBits, "or": orBits, "xor": xorBits}[d.base])
}

func cnot(d *decoder) {
	d.da(d.typIn(B16, B32, B64))
	d.alu(lift1(func(a uint64) uint64 {
		if a == 0 {
			return 1
		}
		return 0
	}))
}

func shiftLeft(d *decoder) {
	t := d.typIn(B16, B32, B64)
	a := d.args(3)
	d.in.d, d.in.a, d.in.b = d.dst(a[0], t), d.src(a[1], t), d.src(a[2], U32)
	switch t {
	case B16:
		d.alu(lift2(func(a, b uint64) uint64 { return a << uint32(b) & 0xffff }))
	case B32:
		d.alu(shl32)
	default:
		d.alu(shl64)
	}
}

func shiftRight(d *decoder) {
	t := d.typIn(B16, B32, B64, U16, U32, U64, S16, S32, S64)
	a := d.args(3)
	d.in.d, d.in.a, d.in.b = d.dst(a[0], t), d.src(a[1], t), d.src(a[2], U32)
	switch t {
	case B32, U32:
		d.alu(shr32)
	case B64, U64:
		d.alu(shr64)
	case B16, U16:
		d.alu(shrInt[uint16])
	default:
		d.alu(byType(t, nil, shrInt[int16], nil, shrInt[int32], nil, shrInt[int64]))
	}
}

func funnel(d *decoder) {
	d.typIn(B32)
	left := d.oneOf("l", "r")
	mode := d.oneOf("wrap", "clamp")
	if left < 0 || mode < 0 {
		d.fail("%s needs .l or .r and .wrap or .clamp", d.stmt.op)
	}
	a := d.args(4)
	d.in.d, d.in.a, d.in.b, d.in.c = d.dst(a[0], B32), d.src(a[1], B32), d.src(a[2], B32), d.src(a[3], U32)
	d.alu(lift3(func(a, b, c uint64) uint64 {
		n := c & 31
		if mode == 1 {
			n = min(c, 32)
		}
		v := b<<32 | a
		if left == 0 {
			return uint64(uint32(v << n >> 32))
		}
		return uint64(uint32(v >> n))
	}))
}

func logic3(d *decoder) {
	d.typIn(B32)
	a := d.args(5)
	d.in.d, d.in.a, d.in.b, d.in.c = d.dst(a[0], B32), d.src(a[1], B32), d.src(a[2], B32), d.src(a[3], B32)
	lut := uint8(d.number(a[4], 255))
	d.alu(lift3(func(a, b, c uint64) uint64 { return lop3(a, b, c, lut) }))
}

// number returns an operand that must be an integer literal.
func (d *decoder) number(o operand, limit uint64) uint64 {
	if o.kind != okInt || o.val > limit {
		d.fail("%s: expected a number from 0 to %d", d.stmt.op, limit)
	}
	return o.val
}

func permute(d *decoder) {
	d.typIn(B32)
	mode := d.oneOf("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
	d.dabc(B32)
	d.alu(lift3(func(a, b, c uint64) uint64 { return prmt(a, b, c, mode) }))
}

func bitExtract(d *decoder) {
	t := d.typIn(U32, U64, S32, S64)
	a := d.args(4)
	d.in.d, d.in.a, d.in.b, d.in.c = d.dst(a[0], t), d.src(a[1], t), d.src(a[2], U32), d.src(a[3], U32)
	d.alu(lift3(func(a, b, c uint64) uint64 { return bfe(a, b, c, t) }))
}

func bitInsert(d *decoder) {
	t := d.typIn(B32, B64)
	args := d.args(5)
	i := d.in
	i.d, i.a, i.b, i.c = d.dst(args[0], t), d.src(args[1], t), d.src(args[2], t), d.src(args[3], U32)
	x := d.extra()
	x.count = d.src(args[4], U32)
	d.run(func(w *warp, in *inst, m uint32) {
		w.requireWritten(in, m, in.a, in.b, in.c, in.x.count)
		r := w.dest(in.d, m)
		a, b, c, n := w.r[in.a], w.r[in.b], w.r[in.c], w.r[in.x.count]
		for rest := m; rest != 0; rest &= rest - 1 {
			l := bits.TrailingZeros32(rest)
			r[l] = bfi(a[l], b[l], c[l], n[l], t)
		}
	})
}

func bitFind(d *decoder) {
	t := d.typIn(U32, U64, S32, S64)
	shift := d.modifier("shiftamt")
	a := d.args(2)
	d.in.d, d.in.a = d.dst(a[0], U32), d.src(a[1], t)
	d.alu(lift1(func(a uint64) uint64 { return bfind(a, t, shift) }))
}

func bitUnary(d *decoder) {
	t := d.typIn(B32, B64)
	a := d.args(2)
	out := U32
	if d.base == "brev" {
		out = t
	}
	d.in.d, d.in.a = d.dst(a[0], out), d.src(a[1], t)
	n := t.bits()
	switch d.base {
	case "popc":
		d.alu(lift1(func(a uint64) uint64 { return uint64(bits.OnesCount64(a)) }))
	case "clz":
		d.alu(lift1(func(a uint64) uint64 { return uint64(bits.LeadingZeros64(a) - 64 + n) }))
	default:
		d.alu(lift1(func(a uint64) uint64 { return bits.Reverse64(a) >> (64 - n) }))
	}
}

// move decodes mov of registers, special registers, numbers, addresses and predicates, and the
// packing of vectors.
func move(d *decoder) {
	t := d.typ()
	a := d.args(2)
	switch {
	case t == Pred:
		d.in.p = d.predicate(a[0])
		if a[1].kind == okInt {
			v := uint32(0)
			if a[1].val != 0 {
				v = fullMask
			}
			d.run(func(w *warp, i *inst, m uint32) { w.setPred(i.p, v, m) })
			return
		}
		d.in.a = d.predicate(a[1])
		d.run(func(w *warp, i *inst, m uint32) { w.setPred(i.p, w.pred(i, i.a, m), m) })
	case a[0].kind == okVec:
		unpack(d, t, a)
	case a[1].kind == okVec:
		pack(d, t, a)
	default:
		if t.Size() < 2 || t.Size() > 8 || t.float() && t != F32 && t != F64 {
			d.noType(t)
		}
		d.in.d = d.dst(a[0], t)
		if sr, ok := specialByName[a[1].name]; ok && sr >= srClock && a[1].kind == okWord {
			if sr.wide() != (t.Size() == 8) || t.float() {
				d.fail("%s: %s does not fit type .%s", d.stmt.op, a[1].name, t)
			}
			d.run(func(w *warp, i *inst, m uint32) {
				v := w.readClock(sr)
				r := w.dest(i.d, m)
				for rest := m; rest != 0; rest &= rest - 1 {
					r[bits.TrailingZeros32(rest)] = v
				}
			})
			return
		}
		if o := a[1]; o.kind == okWord && o.name[0] != '%' && o.name != "WARP_SZ" && d.register(o.name) == nil {
			v := d.stmt.scope.variable(o.name)
			if f := d.e.mod.function(o.name); f != nil && v == nil && t.Size() == 8 && !t.float() {
				d.in.a = d.constant(f.address())
			} else if d.fn != nil && v != nil && v.space == spLocal && t.Size() >= 4 && !t.float() {
				d.in.a, d.in.b = d.e.base, d.constant(uint64(v.offset)+uint64(o.off))
				d.alu(addU64)
				return
			} else {
				d.in.a = d.address(o.name, o.off, t)
			}
		} else {
			d.in.a = d.src(o, t)
		}
		d.alu(movLanes)
	}
}

func vectorType(d *decoder, t Type, n int) Type {
	if (n == 2 || n == 4) && (t == B16 || t == B32 || t == B64) {
		if et, ok := map[int]Type{1: B8, 2: B16, 4: B32}[t.Size()/n]; ok {
			return et
		}
	}
	d.fail("%s: cannot split .%s into %d parts", d.stmt.op, t, n)
	return 0
}

func pack(d *decoder, t Type, a []operand) {
	et := vectorType(d, t, len(a[1].list))
	x := d.extra()
	d.in.d = d.dst(a[0], t)
	for _, o := range a[1].list {
		x.vec = append(x.vec, d.source(o, et, false))
	}
	n := et.bits()
	d.run(func(w *warp, i *inst, m uint32) {
		w.requireWritten(i, m, i.x.vec...)
		var v lanes
		for k, s := range i.x.vec {
			r := &w.r[s]
			for l := range v {
				v[l] |= r[l] << (k * n)
			}
		}
		w.write(i.d, &v, m)
	})
}

func unpack(d *decoder, t Type, a []operand) {
	et := vectorType(d, t, len(a[0].list))
	x := d.extra()
	d.in.a = d.src(a[1], t)
	for _, o := range a[0].list {
		if o.kind == okWord && o.name == "_" {
			x.vec = append(x.vec, -1)
			continue
		}
		x.vec = append(x.vec, d.dst(o, et))
	}
	n := et.bits()
	d.run(func(w *warp, i *inst, m uint32) {
		w.requireWritten(i, m, i.a)
		src := w.r[i.a]
		for k, s := range i.x.vec {
			if s < 0 {
				continue
			}
			var v lanes
			for l := range v {
				v[l] = src[l] >> (k * n) & et.mask()
			}
			w.write(s, &v, m)
		}
	})
}

func selectPred(d *decoder) {
	t := d.typIn(B16, B32, B64, U16, U32, U64, S16, S32, S64, F32, F64)
	a := d.args(4)
	d.in.d, d.in.a, d.in.b = d.dst(a[0], t), d.src(a[1], t), d.src(a[2], t)
	var not bool
	if d.in.p, not = d.condition(a[3]); not {
		d.in.a, d.in.b = d.in.b, d.in.a
	}
	d.in.kind = kSelp
}

func selectSign(d *decoder) {
	ct := d.typIn(S32, F32)
	t := d.typIn(B16, B32, B64, U16, U32, U64, S16, S32, S64, F32, F64)
	ftz := d.modifier("ftz")
	a := d.args(4)
	d.in.d, d.in.a, d.in.b, d.in.c = d.dst(a[0], t), d.src(a[1], t), d.src(a[2], t), d.src(a[3], ct)
	d.alu(lift3(func(a, b, c uint64) uint64 {
		ok := int32(c) >= 0
		if ct == F32 {
			x := f32(c)
			if ftz {
				x = ftz32(x)
			}
			ok = x >= 0
		}
		if ok {
			return a
		}
		return b
	}))
}

func copySign(d *decoder) {
	t := d.typIn(F32, F64)
	d.dab(t)
	s := uint64(1) << (t.bits() - 1)
	d.alu(lift2(func(a, b uint64) uint64 { return a&s | b&^s }))
}

// testProperty decodes testp.op.f p, a.
func testProperty(d *decoder) {
	t := d.typIn(F32, F64)
	op := d.oneOf("finite", "infinite", "number", "notanumber", "normal", "subnormal")
	if op < 0 {
		d.fail("%s lacks a property", d.stmt.op)
	}
	a := d.args(2)
	d.in.p, d.in.a = d.predicate(a[0]), d.src(a[1], t)
	d.in.kind = kCmp
	tiny := 0x1p-126
	if t == F64 {
		tiny = 0x1p-1022
	}
	d.in.cmp = func(a, _ *lanes) (m uint32) {
		for l, u := range a {
			x := f64(u)
			if t == F32 {
				x = float64(f32(u))
			}
			nan, inf := x != x, math.IsInf(x, 0)
			normal := !nan && !inf && (math.Abs(x) >= tiny || x == 0) // zero counts as normal here
			if [...]bool{!nan && !inf, inf, !nan, nan, normal, !nan && !inf && !normal}[op] {
				m |= 1 << l
			}
		}
		return m
	}
}
