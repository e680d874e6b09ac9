package ptxvm

// memoryMods processes the modifiers of ld and st for the state space, the ordering and the cache.
func (d *decoder) memoryMods() {
	x := d.extra()
	ld := d.base != "st"
	i := d.oneOf("global", "shared", "local", "param", "const", "shared::cta")
	x.space = []space{spGeneric, spGlobal, spShared, spLocal, spParam, spConst, spShared}[i+1]
	// whether other threads can access this space
	anyone := x.space == spGeneric || x.space == spGlobal || x.space == spShared
	orders, caches := []string{"volatile", "relaxed", "release"}, []string{"wb", "cg", "cs", "wt"}
	if ld {
		orders[2], caches = "acquire", []string{"ca", "cg", "cs", "cv", "lu"}
	}
	order := -1
	if anyone {
		order = d.oneOf(orders...)
		x.strong = order >= 0
	} else if x.space == spLocal {
		if d.modifier("volatile") {
			d.require(50, 9, 1)
		}
	}
	if order > 0 {
		x.release, x.acquire = orders[order] == "release", orders[order] == "acquire"
		d.require(70, 6, 0)
		scope := d.oneOf("cta", "cluster", "gpu", "sys")
		if scope < 0 {
			d.fail("%s: .%s needs a scope", d.stmt.op, orders[order])
		}
		x.block = scope == 0
	}
	d.modifier("weak")
	if d.modifier("nc") && (d.base != "ld" || x.space != spGlobal) {
		d.fail("%s: .nc needs ld.global", d.stmt.op)
	}
	d.oneOf(caches...)
	if x.space != spGeneric && x.space != spGlobal {
		return
	}
	if d.oneOf("L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate") >= 0 {
		d.require(70, 7, 4)
	}
	if ld && d.oneOf("L2::64B", "L2::128B", "L2::256B") >= 0 {
		d.require(75, 7, 4)
	}
	d.cacheHint()
}

// cacheHint removes .L2::cache_hint and its operand. This is the last operand, a policy made by
// createpolicy. The hint does not change a kernel's results.
func (d *decoder) cacheHint() {
	n := len(d.stmt.args)
	if !d.modifier("L2::cache_hint") {
		return
	}
	d.require(80, 7, 4)
	if n == 0 {
		d.fail("%s lacks a policy", d.stmt.op)
	}
	d.src(d.stmt.args[n-1], U64)
	d.stmt.args = d.stmt.args[:n-1]
}

// createPolicy decodes createpolicy.fractional and .cvt. The resulting policy has no effect in the
// emulator.
func createPolicy(d *decoder) {
	d.require(80, 7, 4)
	d.typIn(B64)
	fractional := d.modifier("fractional")
	if !fractional && (!d.modifier("cvt") || !d.modifier("L2")) {
		d.fail("%s: .fractional and .cvt.L2 are supported", d.stmt.op)
	}
	a := d.stmt.args
	if fractional {
		if d.oneOf("L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged") < 0 {
			d.fail("%s lacks a priority", d.stmt.op)
		}
		d.oneOf("L2::evict_first", "L2::evict_unchanged")
	}
	if len(a) != 1 && len(a) != 2 {
		d.fail("%s takes a destination and a fraction or a policy", d.stmt.op)
	}
	if len(a) == 2 && fractional {
		d.src(a[1], F32)
	} else if len(a) == 2 {
		d.src(a[1], U64)
	}
	d.in.d, d.in.a = d.dst(a[0], B64), d.constant(1)
	d.alu(movLanes)
}

// adviseCache decodes discard and applypriority. The instruction discard makes memory undefined,
// but the emulator leaves the memory unchanged.
func adviseCache(d *decoder) {
	d.require(80, 7, 4)
	x := d.extra()
	x.space = []space{spGeneric, spGlobal}[d.oneOf("global")+1]
	if d.oneOf("L2", "L2::evict_normal") != map[string]int{"discard": 0, "applypriority": 1}[d.base] {
		d.fail("%s needs .L2 (discard) or .L2::evict_normal (applypriority)", d.stmt.op)
	}
	a := d.args(2)
	d.in.a, x.off, x.space = d.mem(a[0], x.space)
	if d.number(a[1], 128) != 128 {
		d.fail("%s: the size has to be 128", d.stmt.op)
	}
	d.in.kind = kNop
}

// vectorMod removes .v2 or .v4 and returns the number of elements.
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
	if n > 1 || a[0].kind == okVec {
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
	if n > 1 || a[1].kind == okVec {
		if list = a[1].list; a[1].kind != okVec || len(list) != n {
			d.fail("%s needs %d source registers in braces", d.stmt.op, n)
		}
	}
	for _, o := range list {
		x.vec = append(x.vec, d.source(o, t, true))
	}
	x.typ, x.size, x.n = t, t.Size(), n
	d.in.a, x.off, x.space = d.mem(a[0], x.space)
	d.e.writesGlobal = d.e.writesGlobal || x.space == spGlobal || x.space == spGeneric
	switch x.space {
	case spParam, spConst:
		d.fail("%s: .%s memory is read-only", d.stmt.op, x.space)
	case spGlobal:
		d.run(func(w *warp, i *inst, m uint32) {
			w.addresses(i, m)
			w.storable(i, m)
			w.storeGlobal(i, m)
		})
	case spShared:
		d.run(func(w *warp, i *inst, m uint32) {
			w.addresses(i, m)
			w.requireWritten(i, m, i.x.vec...)
			w.storeShared(i, m)
		})
	default:
		d.run((*warp).storeAny)
	}
}

// prefetch has no effect on a kernel's results. As on hardware, its address is not checked.
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
