package ptxvm

import (
	"math"
	"strings"
)

// tile is a matrix in the registers of a warp's lanes. The ISA does not define which lane holds
// which element of a wmma fragment. Here the elements are in row order, and are repeated if the
// registers have room for more elements.
type tile struct {
	rows, cols int
	typ        Type
	regs       int // number of registers of each lane
}

func (t tile) perReg() int {
	if n := t.typ.Size(); n < 4 {
		return 4 / n
	}
	return 1
}

// wmmaShapes maps the shapes of wmma and the types of the factors to five numbers: rows, columns,
// depth, and the numbers of registers of the fragments a and b.
var wmmaShapes = map[string]map[Type][5]int{
	"m16n16k16": {F16: {16, 16, 16, 8, 8}, BF16: {16, 16, 16, 4, 4}, S8: {16, 16, 16, 2, 2}, U8: {16, 16, 16, 2, 2}},
	"m8n32k16":  {F16: {8, 32, 16, 8, 8}, BF16: {8, 32, 16, 2, 8}, S8: {8, 32, 16, 1, 4}, U8: {8, 32, 16, 1, 4}},
	"m32n8k16":  {F16: {32, 8, 16, 8, 8}, BF16: {32, 8, 16, 8, 2}, S8: {32, 8, 16, 4, 1}, U8: {32, 8, 16, 4, 1}},
	"m16n16k8":  {TF32: {16, 16, 8, 4, 4}},
	"m8n8k4":    {F64: {8, 8, 4, 1, 1}},
}

// wmmaTile decodes the shape in wmma.load or wmma.store, and returns the tile of the matrix. The
// argument matrix is "a", "b", "c" or "d".
func (d *decoder) wmmaTile(matrix string, t Type) tile {
	for name, types := range wmmaShapes {
		if !d.modifier(name) {
			continue
		}
		for ft, s := range types {
			if matrix == "a" && ft == t {
				return tile{s[0], s[2], t, s[3]}
			}
			if matrix == "b" && ft == t {
				return tile{s[2], s[1], t, s[4]}
			}
			if matrix == "c" || matrix == "d" {
				switch {
				case t == F16 && ft == F16:
					return tile{s[0], s[1], t, 4}
				case t == F32 && (ft == F16 || ft == BF16 || ft == TF32), t == S32 && ft == S8:
					return tile{s[0], s[1], t, 8}
				case t == F64 && ft == F64:
					return tile{s[0], s[1], t, 2}
				}
			}
		}
	}
	d.fail("%s: this shape or type is not supported", d.stmt.op)
	panic("unreachable")
}

// registerType returns the type of the registers that hold the elements of a tile.
func (t tile) registerType() Type {
	if t.typ == F32 || t.typ == F64 || t.typ == S32 {
		return t.typ
	}
	return B32
}

func warpMatrix(d *decoder) {
	op := d.oneOf("load", "store", "mma")
	if op < 0 || !d.modifier("sync") || !d.modifier("aligned") {
		d.fail("%s needs .load, .store or .mma, and .sync.aligned", d.stmt.op)
	}
	d.require(70, 6, 0)
	if op == 2 {
		wmmaMultiply(d)
		return
	}
	part := d.oneOf("a", "b", "c", "d")
	if part < 0 || (op == 1) != (part == 3) {
		d.fail("%s needs .a, .b or .c to load, .d to store", d.stmt.op)
	}
	x := d.extra()
	x.space = []space{spGeneric, spGlobal, spShared, spShared}[d.oneOf("global", "shared", "shared::cta")+1]
	layout := d.oneOf("row", "col")
	t := d.wmmaTile("abcd"[part:part+1], d.typIn(F16, BF16, TF32, F32, F64, S8, U8, S32))
	a := d.stmt.args
	if len(a) != 2 && len(a) != 3 || layout < 0 {
		d.fail("%s needs a layout, an address, registers and perhaps a stride", d.stmt.op)
	}
	regs, at := a[0], a[1]
	if op == 1 {
		regs, at = at, regs
	}
	x.vec = d.fragment(regs, t.regs, t.registerType())
	d.in.a, x.off, x.space = d.mem(at, x.space)
	if x.space != spGeneric && x.space != spGlobal && x.space != spShared {
		d.fail("%s needs global or shared memory", d.stmt.op)
	}
	stride := t.cols
	if layout == 1 {
		stride = t.rows
	}
	x.count = d.constant(uint64(stride))
	if len(a) == 3 {
		x.count = d.src(a[2], U32)
	}
	// Elements pass through a temporary register, one element of each lane at a time.
	tmp := d.nreg
	d.nreg++
	one := &inst{line: d.in.line, x: &extra{space: x.space, typ: t.typ, size: t.typ.Size(), n: 1, vec: []int32{tmp}}}
	load, per := op == 0, t.perReg()
	d.e.writesGlobal = d.e.writesGlobal || !load && x.space != spShared
	width := 8 * t.typ.Size()
	d.run(func(w *warp, in *inst, m uint32) {
		w.allLanes(in, m)
		w.requireWritten(in, m, in.a, in.x.count)
		if !load {
			w.requireWritten(in, m, in.x.vec...)
		}
		base, ld := &w.r[in.a], &w.r[in.x.count]
		var packed lanes
		for i := range t.regs * per {
			for l := range w.addr {
				e := (l*t.regs*per + i) % (t.rows * t.cols)
				r, c := uint64(e/t.cols), uint64(e%t.cols)
				if layout == 1 {
					r, c = c, r
				}
				w.addr[l] = base[l] + uint64(in.x.off) + (r*uint64(uint32(ld[l]))+c)*uint64(t.typ.Size())
			}
			shift := i % per * width
			if !load {
				for l, v := range w.r[in.x.vec[i/per]] {
					w.r[tmp][l] = v >> shift & t.typ.mask()
				}
				w.wm[tmp] = fullMask
				w.element(one, m, w.storeGlobal, w.storeShared)
				continue
			}
			w.element(one, m, w.loadGlobal, w.loadShared)
			if shift == 0 {
				packed = lanes{}
			}
			for l, v := range w.r[tmp] {
				packed[l] |= v << shift
			}
			if i%per == per-1 {
				w.write(in.x.vec[i/per], &packed, m)
			}
		}
	})
}

// element moves one element of each lane between memory and a register. The instruction single
// describes only this move, and the functions global and shared execute it for the two state
// spaces.
func (w *warp) element(single *inst, m uint32, global, shared func(*inst, uint32)) {
	w.spread(single, m, func(sp space, m uint32) {
		switch sp {
		case spGlobal:
			global(single, m)
		case spShared:
			shared(single, m)
		default:
			w.fault(OutOfBounds, single, 0, "a matrix in .%s memory", sp)
		}
	})
}

// allLanes faults unless all lanes of the warp execute the instruction.
func (w *warp) allLanes(in *inst, m uint32) {
	w.converged(in, m, ShuffleDivergence)
	if m != fullMask {
		for l := range lanesOf(^m) {
			w.fault(ShuffleDivergence, in, l, "not all lanes of the warp are alive")
		}
	}
}

// wmmaMultiply decodes wmma.mma.sync.aligned.layout.layout.shape.types.
func wmmaMultiply(d *decoder) {
	d.modifier("rn")
	sat := d.modifier("satfinite")
	for range 2 { // consumes the two layouts, which matter only to loads and stores
		if d.oneOf("row", "col") < 0 {
			d.fail("%s needs two layouts", d.stmt.op)
		}
	}
	var types []Type
	var shape string
	for _, m := range d.mods {
		if t, ok := typeByName[m]; ok {
			types = append(types, t)
		} else if strings.HasPrefix(m, "m") && shape == "" {
			shape = m
		} else {
			d.fail("%s: modifier .%s is unknown or not supported here", d.stmt.op, m)
		}
	}
	d.mods = nil
	if len(types) == 2 {
		types = []Type{types[0], F16, F16, types[1]}
	}
	if len(types) != 4 || types[1] != types[2] {
		d.fail("%s: these types are not supported", d.stmt.op)
	}
	s, ok := wmmaShapes[shape][types[1]]
	if !ok {
		d.fail("%s: this shape does not exist for .%s", d.stmt.op, types[1])
	}
	acc := func(t Type) tile {
		switch {
		case t == F16 && types[1] == F16:
			return tile{s[0], s[1], t, 4}
		case t == F32 && types[1] >= F16 && types[1] != F64, t == S32 && types[1].integer():
			return tile{s[0], s[1], t, 8}
		case t == F64 && types[1] == F64:
			return tile{s[0], s[1], t, 2}
		}
		d.fail("%s: these types are not supported", d.stmt.op)
		panic("unreachable")
	}
	td, ta, tb, tc := acc(types[0]), tile{s[0], s[2], types[1], s[3]}, tile{s[2], s[1], types[2], s[4]}, acc(types[3])
	a := d.args(4)
	x := d.extra()
	x.vd, x.vec, x.vb, x.vc = d.fragment(a[0], td.regs, td.registerType()), d.fragment(a[1], ta.regs, ta.registerType()), d.fragment(a[2], tb.regs, tb.registerType()), d.fragment(a[3], tc.regs, tc.registerType())
	d.run(func(w *warp, in *inst, m uint32) {
		w.allLanes(in, m)
		w.requireWritten(in, m, in.x.vec...)
		w.requireWritten(in, m, in.x.vb...)
		w.requireWritten(in, m, in.x.vc...)
		w.cta.stats.MMA++
		ma, mb, mc := w.gather(ta, in.x.vec), w.gather(tb, in.x.vb), w.gather(tc, in.x.vc)
		w.scatter(td, in.x.vd, product(ta, tb, tc, td, ma, mb, mc, sat), m)
	})
}

// gather collects the elements of a matrix from the registers of the lanes, and returns their bits.
func (w *warp) gather(t tile, regs []int32) []uint64 {
	m := make([]uint64, t.rows*t.cols)
	per := t.perReg()
	for i := range t.regs * per {
		for l, v := range w.r[regs[i/per]] {
			if e := l*t.regs*per + i; e < len(m) {
				m[e] = v >> (i % per * 8 * t.typ.Size()) & t.typ.mask()
			}
		}
	}
	return m
}

func (w *warp) scatter(t tile, regs []int32, v []uint64, m uint32) {
	per := t.perReg()
	for r, s := range regs {
		var out lanes
		for l := range out {
			for i := range per {
				out[l] |= v[(l*t.regs*per+r*per+i)%len(v)] << (i * 8 * t.typ.Size())
			}
		}
		w.write(s, &out, m)
	}
}

// product returns a·b + c. Integer sums wrap at 32 bits. For float64, each multiplication and
// addition is one fused operation. Other types are added in float32 in the order of k.
func product(ta, tb, tc, td tile, a, b, c []uint64, sat bool) []uint64 {
	out := make([]uint64, td.rows*td.cols)
	integer, wide := ta.typ.integer(), ta.typ == F64
	da, db, dc := decodeFloat(ta.typ), decodeFloat(tb.typ), decodeFloat(tc.typ)
	value := func(v uint64, t Type) int64 {
		if t.signed() {
			return signExtend(v, t.bits())
		}
		return int64(v)
	}
	for i := range td.rows {
		for j := range td.cols {
			at := i*td.cols + j
			switch {
			case integer:
				s := int64(int32(c[at]))
				for k := range ta.cols {
					s += value(a[i*ta.cols+k], ta.typ) * value(b[k*tb.cols+j], tb.typ)
				}
				if out[at] = uint64(uint32(s)); sat {
					out[at] = satS32(s)
				}
			case wide:
				s := f64(c[at])
				for k := range ta.cols {
					s = math.FMA(f64(a[i*ta.cols+k]), f64(b[k*tb.cols+j]), s)
				}
				out[at] = u64(s)
			default:
				s := float32(dc(c[at]))
				for k := range ta.cols {
					s += float32(float32(da(a[i*ta.cols+k])) * float32(db(b[k*tb.cols+j])))
				}
				if out[at] = u32(canon(s)); td.typ == F16 {
					out[at] = toF16(s)
				}
			}
		}
	}
	return out
}

// multiplyOther decodes mma.sync of bytes and of float64. For other types, ok is false. The
// elements have the layout of the ISA, "Matrix Fragments", with g = lane/4, t = lane%4 and e
// elements in a register. Register q of the factor A has row g, or g+8 for odd q if there are 16
// rows. Its columns begin at e·t, and 4e later for each following pair of registers. Register q of
// the factor B has column g. Its rows have the same indices as the columns of the corresponding
// register of A.
func multiplyOther(d *decoder, shape string, dt, at, bt, ct Type) (ok bool) {
	bytes := (at == S8 || at == U8) && (bt == S8 || bt == U8) && dt == S32 && ct == S32
	if !bytes && (at != F64 || bt != F64 || ct != F64 || dt != F64) {
		return false
	}
	s, known := map[string][2]int{"m8n8k16": {8, 16}, "m16n8k16": {16, 16}, "m16n8k32": {16, 32}, "m8n8k4": {8, 4}, "m16n8k4": {16, 4}, "m16n8k8": {16, 8}}[shape]
	if !known || bytes != (shape == "m8n8k16" || s[1] == 32 || s[1] == 16 && at != F64) && !(at == F64 && shape == "m16n8k16") {
		return false
	}
	rows, depth := s[0], s[1]
	if d.require(80, 7, 0); !bytes && rows == 16 {
		d.require(90, 7, 8)
	}
	sat := bytes && d.modifier("satfinite")
	e, reg := 1, F64
	if bytes {
		e, reg = 4, B32
	}
	a := d.args(4)
	x := d.extra()
	n := rows / 8
	x.vd, x.vc = d.fragment(a[0], 2*n, dt), d.fragment(a[3], 2*n, ct)
	x.vec, x.vb = d.fragment(a[1], n*depth/(4*e), reg), d.fragment(a[2], depth/(4*e), reg)
	ta, tb, tc := tile{rows, depth, at, 0}, tile{depth, 8, bt, 0}, tile{rows, 8, ct, 0}
	width := at.bits()
	d.run(func(w *warp, in *inst, m uint32) {
		w.allLanes(in, m)
		w.requireWritten(in, m, in.x.vec...)
		w.requireWritten(in, m, in.x.vb...)
		w.requireWritten(in, m, in.x.vc...)
		w.cta.stats.MMA++
		ma, mb, mc := make([]uint64, rows*depth), make([]uint64, depth*8), make([]uint64, rows*8)
		for q, s := range in.x.vec {
			for l, v := range w.r[s] {
				r, c := l/4+8*(q%n), e*(l%4)+4*e*(q/n)
				for i := range e {
					ma[r*depth+c+i] = v >> (width * i) & at.mask()
				}
			}
		}
		for q, s := range in.x.vb {
			for l, v := range w.r[s] {
				for i := range e {
					mb[(e*(l%4)+4*e*q+i)*8+l/4] = v >> (width * i) & bt.mask()
				}
			}
		}
		place := func(l, q int) int { return (l/4+8*(q/2))*8 + 2*(l%4) + q%2 }
		for q, s := range in.x.vc {
			for l, v := range w.r[s] {
				mc[place(l, q)] = v
			}
		}
		out := product(ta, tb, tc, tc, ma, mb, mc, sat)
		for q, s := range in.x.vd {
			var v lanes
			for l := range v {
				v[l] = out[place(l, q)]
			}
			w.write(s, &v, m)
		}
	})
	return true
}
