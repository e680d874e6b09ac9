package ptxvm

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// addresses sets w.addr to the base register plus the offset, for the lanes of m.
func (w *warp) addresses(in *inst, m uint32) {
	if m&^w.wm[in.a] != 0 {
		w.requireWritten(in, m, in.a)
	}
	r, off := &w.r[in.a], uint64(in.x.off)
	for l := range w.addr {
		w.addr[l] = r[l] + off
	}
}

// spread calls f for each group of active lanes whose generic addresses lie in the same space.
// During the call w.addr holds the lanes' addresses in that space.
func (w *warp) spread(in *inst, m uint32, f func(sp space, m uint32)) {
	if in.x.space != spGeneric {
		f(in.x.space, m)
		return
	}
	for m != 0 {
		win := w.addr[bits.TrailingZeros32(m)] >> windowShift
		var group uint32
		for rest := m; rest != 0; rest &= rest - 1 {
			l := bits.TrailingZeros32(rest)
			if w.addr[l]>>windowShift == win {
				group |= 1 << l
				if win > 0 && win <= 4 {
					w.addr[l] &= winMask
				}
			}
		}
		sp := spGlobal
		if win <= 4 {
			sp = [...]space{spGlobal, spShared, spLocal, spConst, spParam}[win]
		}
		f(sp, group)
		m &^= group
	}
}

// loadAny loads from a generic address, or from local, parameter or constant memory.
func (w *warp) loadAny(in *inst, m uint32) {
	w.addresses(in, m)
	w.spread(in, m, func(sp space, m uint32) {
		switch sp {
		case spGlobal:
			w.loadGlobal(in, m)
		case spShared:
			w.loadShared(in, m)
		case spLocal:
			w.loadLocal(in, m)
		case spParam:
			w.loadImage(in, m, w.cta.launch.Params, "parameters")
		case spConst:
			w.loadImage(in, m, w.cta.entry.mod.constImage, "constants")
		}
	})
}

func (w *warp) storeAny(in *inst, m uint32) {
	w.addresses(in, m)
	w.storable(in, m)
	w.spread(in, m, func(sp space, m uint32) {
		switch sp {
		case spGlobal:
			w.storeGlobal(in, m)
		case spShared:
			w.storeShared(in, m)
		case spLocal:
			w.storeLocal(in, m)
		default:
			w.fault(ReadOnly, in, bits.TrailingZeros32(m), "a store to .%s memory", sp)
		}
	})
}

// loadLE reads a little-endian element of 1, 2, 4 or 8 bytes.
func loadLE(b []byte, size int) uint64 {
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

func put(b []byte, size int, v uint64) {
	switch size {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	default:
		binary.LittleEndian.PutUint64(b, v)
	}
}

// storeLoaded stores element k of a load in lane l of its register.
func (w *warp) storeLoaded(x *extra, k, l int, v uint64) {
	s := x.vec[k]
	if s < 0 {
		return
	}
	if x.ext != 0 {
		v = uint64(signExtend(v, 8*x.size))
		if x.ext < 64 {
			v &= 1<<x.ext - 1
		}
	}
	w.r[s][l] = v
}

func (w *warp) landed(x *extra, m uint32) {
	for _, s := range x.vec {
		if s >= 0 {
			w.wm[s] |= m
		}
	}
}

func (w *warp) misaligned(in *inst, l int, addr uint64, size int, sp string) {
	w.faultAt(Misaligned, in, l, addr, "%s address %#x is no multiple of the access size %d", sp, addr, size)
}

// loadImage loads from img, a copy of the parameter or constant memory.
func (w *warp) loadImage(in *inst, m uint32, img []byte, what string) {
	x := in.x
	total := x.size * x.n
	first := bits.TrailingZeros32(m)
	same := true
	for rest := m; rest != 0 && same; rest &= rest - 1 {
		same = w.addr[bits.TrailingZeros32(rest)&31] == w.addr[first&31]
	}
	group := m
	if same { // all lanes read the same element
		group = m & -m
	}
	for rest := group; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		a := w.addr[l]
		if a > uint64(len(img)) || uint64(len(img))-a < uint64(total) {
			w.fault(OutOfBounds, in, l, "a read of %d bytes at offset %d of the %d bytes of %s", total, int64(a), len(img), what)
		}
		if a&uint64(total-1) != 0 {
			w.misaligned(in, l, a, total, what)
		}
		for k := range x.n {
			w.storeLoaded(x, k, l, loadLE(img[int(a)+k*x.size:], x.size))
		}
	}
	if same {
		for _, s := range x.vec {
			if s >= 0 {
				r := &w.r[s]
				v := r[first]
				for rest := m; rest != 0; rest &= rest - 1 {
					r[bits.TrailingZeros32(rest)&31] = v
				}
			}
		}
	}
	w.landed(x, m)
}

// localSpan checks a local access of one lane and returns its offset in w.local.
func (w *warp) localSpan(in *inst, l, total int) int {
	size := uint64(w.frameEnd(l))
	a := w.addr[l]
	if a > size || size-a < uint64(total) {
		w.fault(OutOfBounds, in, l, "an access of %d bytes at local offset %d of %d", total, int64(a), size)
	}
	if a&uint64(total-1) != 0 {
		w.misaligned(in, l, a, total, "local")
	}
	return l*w.stride + int(a)
}

func (w *warp) loadLocal(in *inst, m uint32) {
	x := in.x
	total := x.size * x.n
	for _, s := range x.vec {
		if s >= 0 && w.junk != nil {
			w.junk[s] &^= m
		}
	}
	for rest := m; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		at := w.localSpan(in, l, total)
		for k := range x.n {
			w.storeLoaded(x, k, l, loadLE(w.local[at+k*x.size:], x.size))
		}
		if !shadowHas(w.localInit[at:at+total], total, 1) {
			w.padding(in, l, at)
		}
	}
	w.landed(x, m)
	for _, s := range x.vec {
		if s >= 0 && w.junk != nil {
			w.wm[s] &^= w.junk[s] & m
		}
	}
}

// padding handles a load of bytes that were never written. Compilers copy structs together with the
// padding between fields. If an element of a vector consists only of such bytes, its register
// counts as unwritten, and may only be stored. A load of a single element faults if none of its
// bytes was written.
func (w *warp) padding(in *inst, l, at int) {
	x := in.x
	for k := range x.n {
		part := w.localInit[at+k*x.size : at+(k+1)*x.size]
		if slices.Contains(part, 1) {
			continue
		}
		if x.n == 1 {
			w.fault(UninitialisedMemory, in, l, "local byte %d has never been written", int(w.addr[l]))
		}
		if s := x.vec[k]; s >= 0 {
			w.junk[s] |= 1 << l
		}
	}
}

// storable faults unless the registers to be stored are written, or hold padding of structs, which
// a store may copy. All other instructions use [warp.requireWritten].
func (w *warp) storable(in *inst, m uint32) {
	for _, s := range in.x.vec {
		if bad := m &^ w.wm[s]; bad != 0 && (w.junk == nil || bad&^w.junk[s] != 0) {
			w.uninitialised(in, s, bad)
		}
	}
}

// unwritten reports whether element k of a store is padding of a struct in lane l.
func (w *warp) unwritten(x *extra, k, l int) bool {
	return w.junk != nil && w.wm[x.vec[k]]>>l&1 == 0
}

func (w *warp) storeLocal(in *inst, m uint32) {
	x := in.x
	total := x.size * x.n
	for rest := m; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		at := w.localSpan(in, l, total)
		for k := range x.n {
			put(w.local[at+k*x.size:], x.size, w.r[x.vec[k]][l])
			fill(w.localInit[at+k*x.size:at+(k+1)*x.size], byte(bit(!w.unwritten(x, k, l))))
		}
	}
}
