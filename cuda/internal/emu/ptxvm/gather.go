package ptxvm

import "math/bits"

// Lanes that have taken different ways run one group after the other. Where one group comes to an
// instruction for which lanes of another are missing, these go on first: they may leave the kernel,
// as behind "if (i >= n) return", or come back together.

// together makes the instruction one for which the lanes that register slot mask names have to be
// there.
func (d *decoder) together(mask int32, f func(w *warp, in *inst, m uint32)) {
	d.run(f)
	d.in.kind = kSync
	d.extra().members = mask
}

// gathered says whether the instruction can be executed now; if not, another group has become the
// one that runs. It is also true where that is of no use: the instruction then tells who is
// missing.
func (w *warp) gathered(in *inst, m uint32) bool {
	var want uint32
	r := &w.r[in.x.members]
	for rest := m; rest != 0; rest &= rest - 1 {
		want |= uint32(r[bits.TrailingZeros32(rest)&31])
	}
	if missing := want & w.live &^ m; missing != 0 && w.others(missing) {
		return false
	}
	w.parked = false
	return true
}

// others lets a group go on that has some of the missing lanes, and says whether there is one.
// Lanes that wait for the rest only to leave the kernel leave it.
func (w *warp) others(missing uint32) bool {
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
