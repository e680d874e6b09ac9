package ptxvm

import "strings"

var strongMods = []string{"volatile", "relaxed", "acquire", "release", "mmio"}

// memoryMods takes space, ordering, scope and cache modifiers.
func (d *decoder) memoryMods() {
	x := d.extra()
	spaces := []string{"global", "shared", "local", "param", "const"}
	i := d.oneOf(append(spaces, "shared::cta")...)
	x.space = []space{spGeneric, spGlobal, spShared, spLocal, spParam, spConst, spShared}[i+1]
	if i := d.oneOf(strongMods...); i >= 0 {
		x.strong = true
		if i > 0 {
			d.need(70, 6, 0)
		}
	}
	d.take("weak")
	d.oneOf("cta", "cluster", "gpu", "sys")
	nc := d.take("nc")
	if nc && (d.base != "ld" || x.space != spGlobal) {
		d.fail("%s: .nc needs ld.global", d.stmt.op)
	}
	d.oneOf("ca", "cg", "cs", "cv", "lu", "wb", "wt")
	for i := 0; i < len(d.mods); {
		m := d.mods[i]
		switch m {
		case "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate", "L2::64B", "L2::128B", "L2::256B":
			d.need(70, 7, 4)
			d.mods = append(d.mods[:i:i], d.mods[i+1:]...)
		default:
			if strings.Contains(m, "::") {
				d.fail("%s: modifier .%s is unknown or not supported here", d.stmt.op, m)
			}
			i++
		}
	}
}

// vectorMod takes .v2 or .v4 and returns the number of elements.
func (d *decoder) vectorMod(t Type) int {
	n := 1
	switch d.oneOf("v2", "v4") {
	case 0:
		n = 2
	case 1:
		n = 4
	}
	if n*t.Size() > 16 {
		d.fail("%s: a vector of %d bytes is too wide", d.stmt.op, n*t.Size())
	}
	return n
}

func memType(d *decoder) Type {
	return d.typIn(B8, B16, B32, B64, U8, U16, U32, U64, S8, S16, S32, S64, F32, F64)
}

func load(d *decoder) {
	d.memoryMods()
	x := d.extra()
	t := memType(d)
	n := d.vectorMod(t)
	a := d.args(2)
	list := a[:1]
	if n > 1 {
		if list = a[0].list; a[0].kind != okVec || len(list) != n {
			d.fail("%s needs %d destination registers in braces", d.stmt.op, n)
		}
	}
	for i, o := range list {
		if n > 1 && o.kind == okWord && o.name == "_" {
			x.vec = append(x.vec, -1)
			continue
		}
		s, rt := d.reg(o, t, true)
		x.vec = append(x.vec, s)
		if t.signed() && rt.Size() > t.Size() {
			x.ext = uint8(rt.bits())
		}
		for _, prev := range x.vec[:i] {
			if prev == s {
				d.fail("%s: register %s twice in a vector", d.stmt.op, o.name)
			}
		}
	}
	x.typ, x.size, x.n = t, t.Size(), n
	x.whole = x.ext == 0
	for _, s := range x.vec {
		x.whole = x.whole && s >= 0
	}
	d.in.a, x.off, x.space = d.mem(a[1], x.space)
	if d.base == "ldu" && x.space != spGlobal && x.space != spGeneric {
		d.fail("%s needs .global", d.stmt.op)
	}
	switch x.space {
	case spGlobal:
		d.run(func(w *warp, i *inst, m uint32) { w.addresses(i, m); w.loadGlobal(i, m) })
	case spShared:
		d.run(func(w *warp, i *inst, m uint32) { w.addresses(i, m); w.loadShared(i, m) })
	default:
		d.run((*warp).loadAny)
	}
}

func store(d *decoder) {
	d.memoryMods()
	x := d.extra()
	t := memType(d)
	n := d.vectorMod(t)
	a := d.args(2)
	list := a[1:2]
	if n > 1 {
		if list = a[1].list; a[1].kind != okVec || len(list) != n {
			d.fail("%s needs %d source registers in braces", d.stmt.op, n)
		}
	}
	for _, o := range list {
		x.vec = append(x.vec, d.source(o, t, true))
	}
	x.typ, x.size, x.n = t, t.Size(), n
	d.in.a, x.off, x.space = d.mem(a[0], x.space)
	switch x.space {
	case spParam, spConst:
		d.fail("%s: .%s memory is read-only", d.stmt.op, x.space)
	case spGlobal:
		d.run(func(w *warp, i *inst, m uint32) {
			w.addresses(i, m)
			w.need(i, m, i.x.vec...)
			w.storeGlobal(i, m)
		})
	case spShared:
		d.run(func(w *warp, i *inst, m uint32) {
			w.addresses(i, m)
			w.need(i, m, i.x.vec...)
			w.storeShared(i, m)
		})
	default:
		d.run((*warp).storeAny)
	}
}

// prefetch has no effect that a kernel could see; its address is not checked, as on hardware.
func prefetch(d *decoder) {
	x := d.extra()
	x.space = []space{spGeneric, spGlobal, spLocal}[d.oneOf("global", "local")+1]
	if d.oneOf("L1", "L2") < 0 {
		d.fail("%s needs .L1 or .L2", d.stmt.op)
	}
	a := d.args(1)
	d.in.a, x.off, x.space = d.mem(a[0], x.space)
	d.in.kind = kNop
}
