package ptxvm

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

const ready64 = 0x0101010101010101 * shReady

// shadowHas reports whether all bytes of a span of the shadow have the given bit. The span is 1, 2,
// 4, 8 or 16 bytes long.
func shadowHas(s []byte, size int, bit uint64) bool {
	want := bit * 0x0101010101010101
	switch size {
	case 1:
		return uint64(s[0])&bit == bit
	case 2:
		return uint64(binary.LittleEndian.Uint16(s))&want&0xffff == want&0xffff
	case 4:
		return uint64(binary.LittleEndian.Uint32(s))&want&0xffffffff == want&0xffffffff
	case 8:
		return binary.LittleEndian.Uint64(s)&want == want
	}
	return binary.LittleEndian.Uint64(s)&binary.LittleEndian.Uint64(s[8:])&want == want
}

func shadowSet(s []byte, size int) {
	switch size {
	case 1:
		s[0] = shReady
	case 2:
		binary.LittleEndian.PutUint16(s, ready64&0xffff)
	case 4:
		binary.LittleEndian.PutUint32(s, ready64&0xffffffff)
	case 8:
		binary.LittleEndian.PutUint64(s, ready64)
	default:
		binary.LittleEndian.PutUint64(s, ready64)
		binary.LittleEndian.PutUint64(s[8:], ready64)
	}
}

// globalSpan returns the region and the offset of one lane's global access. It checks that the
// address is mapped and aligned, and that the shadow has the given bit.
func (w *warp) globalSpan(in *inst, l, total int, bit uint64) (*region, uint64) {
	a := w.addr[l]
	r := w.lastRegion
	if r == nil || a-r.base >= r.size || r.size-(a-r.base) < uint64(total) {
		r = w.cta.launch.Mem.reach(a)
		if r == nil || r.size-(a-r.base) < uint64(total) {
			w.globalFault(in, l, OutOfBounds, a, total)
		}
		w.lastRegion = r
	}
	off := a - r.base
	if a&uint64(total-1) != 0 {
		w.globalFault(in, l, Misaligned, a, total)
	}
	if r.shadow != nil && !shadowHas(r.shadow[off:off+uint64(total)], total, bit) {
		for i, s := range r.shadow[off : off+uint64(total)] {
			if s&shAddressable == 0 {
				w.globalFault(in, l, OutOfBounds, a, total)
			}
			if uint64(s)&bit != bit {
				w.globalFault(in, l, UninitialisedMemory, a+uint64(i), 1)
			}
		}
	}
	return r, off
}

func (w *warp) globalFault(in *inst, l int, k FaultKind, addr uint64, size int) {
	switch k {
	case Misaligned:
		w.misaligned(in, l, addr, size, "global")
	case UninitialisedMemory:
		w.faultAt(k, in, l, addr, "global byte %#x has never been written: it lies %s", addr, w.cta.launch.Mem.describeAccess(addr, uint64(size)))
	}
	w.faultAt(k, in, l, addr, "%d bytes at global address %#x: %s", size, addr, w.cta.launch.Mem.describeAccess(addr, uint64(size)))
}

// coalesce counts the 32-byte sectors that a request reads or writes.
func (w *warp) coalesce(m uint32, total int, writes bool) {
	var seen [64]uint64
	n := 0
	last := ^uint64(0)
	top := uint64(0)
	for rest := m; rest != 0; rest &= rest - 1 {
		s := w.addr[bits.TrailingZeros32(rest)&31] >> 5
		if s == last {
			continue
		}
		last = s
		// if the sectors do not ascend, this sector may already be counted
		if s <= top && slices.Contains(seen[:n], s) {
			continue
		}
		top = max(top, s)
		seen[n&63] = s
		n++
	}
	st := &w.cta.stats
	bytes := int64(bits.OnesCount32(m)) * int64(total)
	st.Sectors += int64(n)
	st.IdealSectors += (bytes + 31) / 32
	st.GlobalBytes += bytes
	if w.cta.lines != nil {
		w.cta.lines[w.pc].Sectors += int64(n)
		w.cta.lines[w.pc].IdealSectors += (bytes + 31) / 32
	}
	if w.cta.cache != nil {
		w.cta.cache.touch(seen[:n], writes)
	}
}

// Kernels may race on global memory, for example if two blocks set the same flag. That is not a
// defect of the emulator, so Go's race detector does not check these functions.

//go:norace
func (w *warp) loadGlobal(in *inst, m uint32) {
	x := in.x
	total := x.size * x.n
	w.cta.stats.GlobalLoads++
	w.coalesce(m, total, false)
	if w.cta.blocks != nil {
		w.trackGlobal(in, m, total, false, false)
	}
	if w.cta.watch {
		w.touch(m, total, kindOf(x), false, 0)
	}
	if x.n == 1 && x.size == 4 && x.ext == 0 && x.vec[0] >= 0 {
		d := &w.r[x.vec[0]]
		for rest := m; rest != 0; rest &= rest - 1 {
			l := bits.TrailingZeros32(rest)
			a := w.addr[l&31]
			r := w.lastRegion
			if r != nil && r.shadow != nil && a&3 == 0 {
				if off := a - r.base; off < uint64(len(r.data)) && off+4 <= uint64(len(r.data)) && off+4 <= uint64(len(r.shadow)) &&
					binary.LittleEndian.Uint32(r.shadow[off:off+4]) == ready64&0xffffffff {
					d[l&31] = uint64(binary.LittleEndian.Uint32(r.data[off : off+4]))
					continue
				}
			}
			r, off := w.globalSpan(in, l, 4, shReady)
			d[l&31] = uint64(binary.LittleEndian.Uint32(r.data[off:]))
		}
		w.wm[x.vec[0]] |= m
		return
	}
	for rest := m; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		r, off := w.globalSpan(in, l, total, shReady)
		if b := r.data[off:]; x.n == 4 && x.size == 4 && x.whole {
			_ = b[15]
			w.r[x.vec[0]][l] = uint64(binary.LittleEndian.Uint32(b))
			w.r[x.vec[1]][l] = uint64(binary.LittleEndian.Uint32(b[4:]))
			w.r[x.vec[2]][l] = uint64(binary.LittleEndian.Uint32(b[8:]))
			w.r[x.vec[3]][l] = uint64(binary.LittleEndian.Uint32(b[12:]))
			continue
		}
		for k := range x.n {
			w.storeLoaded(x, k, l, loadLE(r.data[off:], x.size))
			off += uint64(x.size)
		}
	}
	w.landed(x, m)
}

//go:norace
func (w *warp) storeGlobal(in *inst, m uint32) {
	x := in.x
	total := x.size * x.n
	w.cta.stats.GlobalStores++
	w.coalesce(m, total, true)
	if w.cta.blocks != nil {
		w.trackGlobal(in, m, total, true, false)
	}
	// same holds the lanes whose bytes the store does not change.
	var same uint32
	if x.n == 1 && x.size == 4 {
		v := &w.r[x.vec[0]]
		for rest := m; rest != 0; rest &= rest - 1 {
			l := bits.TrailingZeros32(rest)
			a := w.addr[l&31]
			r := w.lastRegion
			if r != nil && r.shadow != nil && a&3 == 0 {
				if off := a - r.base; off < uint64(len(r.data)) && off+4 <= uint64(len(r.data)) && off+4 <= uint64(len(r.shadow)) {
					if sh := r.shadow[off : off+4]; binary.LittleEndian.Uint32(sh)&0x01010101 == 0x01010101 {
						at := r.data[off : off+4]
						if binary.LittleEndian.Uint32(at) == uint32(v[l&31]) && binary.LittleEndian.Uint32(sh) == ready64&0xffffffff {
							same |= 1 << l
						}
						binary.LittleEndian.PutUint32(sh, ready64&0xffffffff)
						binary.LittleEndian.PutUint32(at, uint32(v[l&31]))
						continue
					}
				}
			}
			r, off := w.globalSpan(in, l, 4, shAddressable)
			if w.keeps(x, l, r, off, 4) {
				same |= 1 << l
			}
			if r.shadow != nil {
				shadowSet(r.shadow[off:], 4)
			}
			binary.LittleEndian.PutUint32(r.data[off:], uint32(v[l&31]))
		}
		w.stored(in, m, total, same)
		return
	}
	for rest := m; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		r, off := w.globalSpan(in, l, total, shAddressable)
		if w.keeps(x, l, r, off, total) {
			same |= 1 << l
		}
		if r.shadow != nil {
			shadowSet(r.shadow[off:], total)
		}
		for k := range x.n {
			put(r.data[off:], x.size, w.r[x.vec[k]][l])
			if w.unwritten(x, k, l) && r.shadow != nil {
				fill(r.shadow[off:off+uint64(x.size)], shAddressable)
			}
			off += uint64(x.size)
		}
	}
	w.stored(in, m, total, same)
}

// keeps reports whether a store writes the values that the bytes of a lane already have.
func (w *warp) keeps(x *extra, l int, r *region, off uint64, total int) bool {
	if r.shadow != nil && !shadowHas(r.shadow[off:off+uint64(total)], total, shReady) {
		return false
	}
	mask := ^uint64(0) >> (64 - 8*x.size)
	for k, s := range x.vec {
		if loadLE(r.data[off+uint64(k*x.size):], x.size) != w.r[s][l]&mask {
			return false
		}
	}
	return true
}

// stored records a store, so that races within the block can be found.
func (w *warp) stored(in *inst, m uint32, total int, same uint32) {
	if w.cta.watch {
		w.touch(m, total, kindOf(in.x), true, same)
	}
}
