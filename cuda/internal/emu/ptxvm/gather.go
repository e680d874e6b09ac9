package ptxvm

import "math/bits"

// Lanes that have taken different branches form groups, which run one after the other. If a group
// reaches an instruction that needs lanes of a second group, the second group runs next. The lanes
// of the second group may leave the kernel, as after "if (i >= n) return", or reach that
// instruction.

// gather makes an instruction wait for the lanes in its mask, which is in register slot mask.
func (d *decoder) gather(mask int32, f func(w *warp, in *inst, m uint32)) {
	d.run(f)
	d.in.kind = kSync
	d.extra().members = mask
}

// gathered reports whether the instruction can be executed now. If it returns false, it has
// switched to another group. If the missing lanes can never arrive, it returns true, and the
// instruction then reports which lanes are missing.
func (w *warp) gathered(in *inst, m uint32) bool {
	var want uint32
	r := &w.r[in.x.members]
	for rest := m; rest != 0; rest &= rest - 1 {
		want |= uint32(r[bits.TrailingZeros32(rest)&31])
	}
	if missing := want & w.live &^ m; missing != 0 && w.runMissing(missing) {
		return false
	}
	w.parked = false
	return true
}

// runMissing runs a group that contains some of the missing lanes, and reports whether there is
// such a group. Missing lanes that only wait to leave the kernel together with other lanes leave it
// now.
func (w *warp) runMissing(missing uint32) bool {
	above := w.mask
	for i := len(w.stack) - 1; i >= 0 && w.stack[i].depth == w.depth; i-- {
		f := w.stack[i]
		if f.mask&above == 0 && f.mask&missing != 0 && !f.parked && f.pc != f.rpc {
			copy(w.stack[i:], w.stack[i+1:])
			w.parked = true
			w.stack[len(w.stack)-1] = w.frame
			w.frame = f
			if w.mask &= w.live; w.mask == 0 {
				w.pop()
			}
			return true
		}
		if in := &w.cta.entry.code[f.pc]; in.kind == kExit && in.guard == 0 {
			w.live &^= f.mask &^ above
		}
		above |= f.mask
	}
	return false
}
