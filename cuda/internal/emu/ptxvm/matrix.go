package ptxvm

import "math/bits"

// fragment returns the slots of n registers in braces.
func (d *decoder) fragment(o operand, n int, t Type) []int32 {
	if o.kind != okVec || len(o.list) != n {
		d.fail("%s needs %d registers in braces here", d.stmt.op, n)
	}
	var s []int32
	for _, r := range o.list {
		if r.kind == okWord {
			s = append(s, d.dst(r, t))
		} else {
			s = append(s, d.src(r, t))
		}
	}
	return s
}

// loadMatrix decodes ldmatrix.sync.aligned.m8n8.x1|x2|x4[.trans].shared.b16.
func loadMatrix(d *decoder) {
	d.require(75, 6, 5)
	matrixMods(d)
	x := d.extra()
	a := d.args(2)
	x.vec = d.fragment(a[0], x.n, B32)
	d.in.a, x.off, _ = d.mem(a[1], spShared)
	d.run((*warp).loadMatrix)
}

func matrixMods(d *decoder) {
	x := d.extra()
	if !d.modifier("sync") || !d.modifier("aligned") || !d.modifier("m8n8") {
		d.fail("%s needs .sync.aligned.m8n8", d.stmt.op)
	}
	i := d.oneOf("x1", "x2", "x4")
	if i < 0 {
		d.fail("%s needs .x1, .x2 or .x4", d.stmt.op)
	}
	x.n = 1 << i
	x.mode = 0
	if d.modifier("trans") {
		x.mode = 1
	}
	if d.oneOf("shared", "shared::cta") < 0 {
		d.fail("%s needs .shared", d.stmt.op)
	}
	d.typIn(B16)
}

// matrixRows returns the offsets of the 8·n rows of 16 bytes, whose addresses lanes 0 to 8n-1 hold.
func (w *warp) matrixRows(in *inst, m uint32) (off [32]int, rows uint32) {
	w.converged(in, m, ShuffleDivergence)
	if m != fullMask {
		w.fault(ShuffleDivergence, in, bits.TrailingZeros32(m), "only %d lanes of the warp are alive", bits.OnesCount32(m))
	}
	rows = uint32(1)<<(8*in.x.n) - 1
	if in.x.n == 4 {
		rows = fullMask
	}
	w.requireWritten(in, rows, in.a)
	r := &w.r[in.a]
	for l := range w.addr {
		w.addr[l] = r[l] + uint64(in.x.off)
	}
	w.conflicts(rows, 16)
	for l := range 8 * in.x.n {
		off[l] = w.sharedSpan(in, l, 16)
	}
	return off, rows
}

// loadMatrix gives lane l the elements 2·(l%4) and 2·(l%4)+1 of row l/4 of each matrix, or of
// column l/4 if transposed.
func (w *warp) loadMatrix(in *inst, m uint32) {
	x, s := in.x, &w.cta.shared
	off, _ := w.matrixRows(in, m)
	w.cta.stats.SharedLoads++
	pc := w.pc + 1
	for l := range 8 * x.n {
		w.sharedReady(in, l, off[l], 16)
		w.trackRead(in, l, off[l], 16, pc, plain)
	}
	for i := range x.n {
		var v lanes
		for l := range v {
			g, t := l/4, 2*(l%4)
			if x.mode == 0 {
				v[l] = loadLE(s.data[off[8*i+g]+2*t:], 4)
			} else {
				v[l] = loadLE(s.data[off[8*i+t]+2*g:], 2) | loadLE(s.data[off[8*i+t+1]+2*g:], 2)<<16
			}
		}
		w.write(x.vec[i], &v, m)
	}
}

// storeMatrix decodes stmatrix, the inverse of ldmatrix.
func storeMatrix(d *decoder) {
	d.require(90, 7, 8)
	matrixMods(d)
	x := d.extra()
	a := d.args(2)
	d.in.a, x.off, _ = d.mem(a[0], spShared)
	x.vec = d.fragment(a[1], x.n, B32)
	d.run((*warp).storeMatrix)
}

func (w *warp) storeMatrix(in *inst, m uint32) {
	x, s := in.x, &w.cta.shared
	w.requireWritten(in, m, x.vec...)
	off, _ := w.matrixRows(in, m)
	pc := w.pc + 1
	for l := range 8 * x.n {
		if s.pend != nil {
			w.notPending(in, l, off[l], 16, "writes")
		}
		w.trackWrite(in, l, off[l], 16, pc, plain, false)
		fill(s.init[off[l]:off[l]+16], 1)
	}
	for i := range x.n {
		for l, v := range w.r[x.vec[i]] {
			g, t := l/4, 2*(l%4)
			if x.mode == 0 {
				put(s.data[off[8*i+g]+2*t:], 4, v)
			} else {
				put(s.data[off[8*i+t]+2*g:], 2, v)
				put(s.data[off[8*i+t+1]+2*g:], 2, v>>16)
			}
		}
	}
}

// matrixMultiply decodes mma.sync.aligned of the shapes m16n8k16 and m16n8k8 with f16, bf16 or tf32
// operands and f32 accumulators (and f16 accumulators for f16).
func matrixMultiply(d *decoder) {
	if !d.modifier("sync") || !d.modifier("aligned") || !d.modifier("row") || !d.modifier("col") {
		d.fail("%s needs .sync.aligned and .row.col", d.stmt.op)
	}
	ct, bt, at, dt := d.typ(), d.typ(), d.typ(), d.typ()
	for i, m := range d.mods {
		if m[0] == 'm' && multiplyOther(d, m, dt, at, bt, ct) {
			d.modifier(d.mods[i])
			return
		}
	}
	shape := d.oneOf("m16n8k16", "m16n8k8", "m16n8k4")
	if shape < 0 || at != bt || ct != dt || at != F16 && at != BF16 && at != TF32 || ct != F32 && (ct != F16 || at != F16) {
		d.fail("%s: this shape or these types are not supported", d.stmt.op)
	}
	k := []int{16, 8, 4}[shape]
	if at == TF32 && k == 16 || at != TF32 && k == 4 {
		d.fail("%s: this shape does not exist for .%s", d.stmt.op, at)
	}
	if at == F16 && k == 8 {
		d.require(75, 6, 5)
	} else {
		d.require(80, 7, 0)
	}
	x := d.extra()
	a := d.args(4)
	na := 16 * k / 64 // number of registers of a: 16·k elements over 32 lanes, two in a register
	nb := 8 * k / 64
	nc, ctReg := 4, F32
	if at == TF32 {
		na, nb = 16*k/32, 8*k/32
	}
	if ct == F16 {
		nc, ctReg = 2, B32
	}
	x.vd, x.vec, x.vb, x.vc = d.fragment(a[0], nc, ctReg), d.fragment(a[1], na, B32), d.fragment(a[2], nb, B32), d.fragment(a[3], nc, ctReg)
	x.n = k
	x.typ = at
	half := ct == F16
	d.run(func(w *warp, in *inst, m uint32) { w.mma(in, m, half) })
}

// mma multiplies a 16×k tile by a k×8 tile. The elements have the layout of the ISA, "Matrix
// Fragments for mma.m16n8k16", with g = lane/4 and t = lane%4. Each 32-bit register of the operand
// a holds two elements of row g, in columns 2t and 2t+1. Registers with odd numbers hold the row 8
// further down. The upper half of the registers holds columns 8 further right.
func (w *warp) mma(in *inst, m uint32, half bool) {
	x := in.x
	w.converged(in, m, ShuffleDivergence)
	if m != fullMask {
		w.fault(ShuffleDivergence, in, bits.TrailingZeros32(m), "only %d lanes of the warp are alive", bits.OnesCount32(m))
	}
	w.requireWritten(in, m, x.vec...)
	w.requireWritten(in, m, x.vb...)
	w.requireWritten(in, m, x.vc...)
	w.cta.stats.MMA++
	var a [16][16]float32
	var b [8][16]float32 // elements of b, by column
	to := f16
	if x.typ == BF16 {
		to = bf16
	}
	for q, s := range x.vec {
		r := &w.r[s]
		row, col := 8*(q&1), 8*(q>>1)
		for l := range r {
			g, t := l>>2, l&3
			if x.typ == TF32 {
				a[g+row][t+col/2] = tf32(r[l])
				continue
			}
			a[g+row][2*t+col] = to(r[l] & 0xffff)
			a[g+row][2*t+col+1] = to(r[l] >> 16)
		}
	}
	for q, s := range x.vb {
		r := &w.r[s]
		for l := range r {
			g, t := l>>2, l&3
			if x.typ == TF32 {
				b[g][t+4*q] = tf32(r[l])
				continue
			}
			b[g][2*t+8*q] = to(r[l] & 0xffff)
			b[g][2*t+8*q+1] = to(r[l] >> 16)
		}
	}
	var out [4]lanes
	for l := range 32 {
		g, t := l>>2, l&3
		for q := range 4 {
			ra, rb := &a[g+8*(q>>1)], &b[2*t+q&1]
			var c float32
			if half {
				c = f16(w.r[x.vc[q>>1]][l] >> (16 * (q & 1)) & 0xffff)
			} else {
				c = f32(w.r[x.vc[q]][l])
			}
			for k := range x.n {
				c += float32(ra[k] * rb[k])
			}
			if half {
				out[q>>1][l] |= toF16(c) << (16 * (q & 1))
			} else {
				out[q][l] = u32(canon(c))
			}
		}
	}
	for i, s := range x.vd {
		w.write(s, &out[i], m)
	}
}
