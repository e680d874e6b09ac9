package ptxvm

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// sharedName returns a text that says which variable contains an address in shared memory.
func (w *warp) sharedName(addr uint64) string {
	if v, off := w.cta.entry.sharedVar(addr); v != "" {
		return fmt.Sprintf("%#x (%s+%d)", addr, v, off)
	}
	return fmt.Sprintf("%#x", addr)
}

// sharedVar returns the shared variable that contains an address, or the last variable that ends
// before it.
func (e *Entry) sharedVar(addr uint64) (name string, off int64) {
	best := int64(-1)
	for _, v := range e.sharedVars {
		start := int64(v.offset) + sharedOrigin
		if v.extern {
			start = int64(e.dynOffset) + sharedOrigin
		}
		if int64(addr) >= start && start > best {
			best, name, off = start, v.name, int64(addr)-start
		}
	}
	return name, off
}

// sharedSpan checks the bounds and the alignment of one lane's access to shared memory, and returns
// its offset.
func (w *warp) sharedSpan(in *inst, l, total int) int {
	s := &w.cta.shared
	a := w.addr[l] - sharedOrigin
	if n := uint64(len(s.data)); a > n || n-a < uint64(total) {
		w.faultAt(OutOfBounds, in, l, w.addr[l], "%d bytes at shared address %s; the block has %d bytes of shared memory from %#x on (%d static, %d dynamic)", total,
			w.sharedName(w.addr[l]), len(s.data), sharedOrigin, w.cta.entry.StaticShared, w.cta.launch.DynShared)
	}
	if a&uint64(total-1) != 0 {
		w.misaligned(in, l, w.addr[l], total, "shared")
	}
	return int(a)
}

func (w *warp) sharedReady(in *inst, l, off, total int) {
	s := &w.cta.shared
	if total >= 4 && s.pend != nil {
		w.notPending(in, l, off, total, "reads")
	}
	if !shadowHas(s.init[off:], total, 1) {
		if s.pend != nil {
			w.notPending(in, l, off, total, "reads")
		}
		for i, ok := range s.init[off : off+total] {
			if ok == 0 {
				w.faultAt(UninitialisedMemory, in, l, w.addr[l], "shared byte %s has not been written in this block so far (a missing store, or a missing barrier after one)", w.sharedName(uint64(off+i)+sharedOrigin))
			}
		}
	}
}

// notPending faults if a cp.async to any of the total bytes at offset off is still pending. The
// argument does is the verb for the fault's message.
func (w *warp) notPending(in *inst, l, off, total int, does string) {
	s := &w.cta.shared
	for i := off >> 2; i < (off+total+3)>>2; i++ {
		if s.pend[i] == 0 {
			continue
		}
		e := w.cta.entry
		line := int(e.code[s.pendPC[i]].line)
		f := &Fault{Kind: AsyncCopyNotWaited, Kernel: e.Name, Line: int(in.line), Source: e.mod.line(int(in.line)), CTA: w.cta.id, Thread: w.cta.thread(w.id*32 + l), Addr: w.addr[l],
			Msg:   "it " + does + " shared byte " + w.sharedName(uint64(4*i)+sharedOrigin) + " while a cp.async to it is in flight",
			Other: &Site{Line: line, Source: e.mod.line(line), Thread: w.cta.thread(int(s.pend[i]) - 1)}}
		panic(f)
	}
}

func kindOf(x *extra) accessKind {
	if x.strong {
		return strong
	}
	return plain
}

func (w *warp) loadShared(in *inst, m uint32) {
	x, s := in.x, &w.cta.shared
	total := x.size * x.n
	w.cta.stats.SharedLoads++
	w.conflicts(m, total)
	pc, k := w.pc+1, kindOf(x)
	if x.n == 1 && x.size == 4 && x.whole {
		m = w.loadWords(in, m, pc, k)
	}
	for rest := m; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		off := w.sharedSpan(in, l, total)
		w.sharedReady(in, l, off, total)
		w.trackRead(in, l, off, total, pc, k)
		for e := range x.n {
			w.storeLoaded(x, e, l, loadLE(s.data[off+e*x.size:], x.size))
		}
	}
	w.landed(x, m)
}

// loadWords executes loads of one 32-bit word by each lane, with fast checks. It handles runs of
// lanes with the same address together, and returns the lanes that need the full checks.
func (w *warp) loadWords(in *inst, m uint32, pc int32, k accessKind) (left uint32) {
	s := &w.cta.shared
	d := &w.r[in.x.vec[0]]
	n := uint64(len(s.data))
	for rest := m; rest != 0; {
		l := bits.TrailingZeros32(rest)
		a := w.addr[l&31]
		run := uint32(1) << l
		rest &= rest - 1
		for rest != 0 {
			j := bits.TrailingZeros32(rest)
			if w.addr[j&31] != a {
				break
			}
			run |= 1 << j
			rest &= rest - 1
		}
		off := a - sharedOrigin
		if off >= n || off+4 > n || off&3 != 0 || binary.LittleEndian.Uint32(s.init[off:]) != 0x01010101 ||
			s.split[off>>2] || s.pend != nil && s.pend[off>>2] != 0 || !s.readQuick(&w.clocks, &s.cells[off>>2], run, pc, k) {
			left |= run
			continue
		}
		v := uint64(binary.LittleEndian.Uint32(s.data[off:]))
		for ; run != 0; run &= run - 1 {
			d[bits.TrailingZeros32(run)&31] = v
		}
	}
	w.wm[in.x.vec[0]] |= m &^ left
	return left
}

func (w *warp) storeShared(in *inst, m uint32) {
	x, s := in.x, &w.cta.shared
	total := x.size * x.n
	w.conflicts(m, total)
	pc, k := w.pc+1, kindOf(x)
	if x.n == 1 && x.size == 4 {
		m = w.storeWords(m, pc, k, x.vec[0])
	}
	mask := ^uint64(0) >> (64 - 8*x.size)
	for rest := m; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		off := w.sharedSpan(in, l, total)
		if s.pend != nil {
			w.notPending(in, l, off, total, "writes")
		}
		same := true
		for e := range x.n {
			at := s.data[off+e*x.size:]
			v := w.r[x.vec[e]][l]
			if loadLE(at, x.size) != v&mask || s.init[off+e*x.size] == 0 {
				same = false
			}
		}
		w.trackWrite(in, l, off, total, pc, k, same)
		for e := range x.n {
			put(s.data[off+e*x.size:], x.size, w.r[x.vec[e]][l])
		}
		for i := range s.init[off : off+total] {
			s.init[off+i] = 1
		}
	}
}

// storeWords executes stores of one 32-bit word by each lane, with fast checks. It returns the
// lanes that need the full checks.
func (w *warp) storeWords(m uint32, pc int32, k accessKind, slot int32) (left uint32) {
	s := &w.cta.shared
	v := &w.r[slot]
	n := uint64(len(s.data))
	for rest := m; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest) & 31
		off := w.addr[l] - sharedOrigin
		if off >= n || off+4 > n || off&3 != 0 || s.split[off>>2] || s.pend != nil && s.pend[off>>2] != 0 || !w.writeQuick(&s.cells[off>>2], 1<<l, pc, k) {
			left |= 1 << l
			continue
		}
		binary.LittleEndian.PutUint32(s.data[off:], uint32(v[l]))
		binary.LittleEndian.PutUint32(s.init[off:], 0x01010101)
	}
	return left
}

// conflicts counts a shared request and the cycles that bank conflicts add to it. There are 32
// banks of 4 bytes. Accesses of 8 and 16 bytes run by half warps and quarter warps.
func (w *warp) conflicts(m uint32, total int) {
	st := &w.cta.stats
	st.SharedRequests++
	lanesPer := 32
	if total == 8 {
		lanesPer = 16
	} else if total == 16 {
		lanesPer = 8
	}
	for first := 0; first < 32; first += lanesPer {
		group := m >> first << (32 - lanesPer) >> (32 - lanesPer)
		if group == 0 {
			continue
		}
		extra := w.phase(first, group, total)
		st.BankConflicts += extra
		if w.cta.lines != nil {
			w.cta.lines[w.pc].BankConflicts += extra
		}
	}
}

// phase returns the cycles that conflicts add for a group of lanes. Bit i of the mask group stands
// for lane base + i.
func (w *warp) phase(base int, group uint32, total int) int64 {
	var word [32]uint64
	var used uint32
	clash := false
	for rest := group; rest != 0 && !clash; rest &= rest - 1 {
		a := w.addr[base+bits.TrailingZeros32(rest)] >> 2
		for k := 0; k < total; k += 4 {
			b := a & 31
			if used>>b&1 != 0 && word[b] != a {
				clash = true
				break
			}
			used |= 1 << b
			word[b] = a
			a++
		}
	}
	if !clash {
		return 0
	}
	// The distinct words of each bank are collected and counted.
	var words [128]uint64
	var per [32]int64
	n, most := 0, int64(1)
	for rest := group; rest != 0; rest &= rest - 1 {
		a := w.addr[base+bits.TrailingZeros32(rest)] >> 2
	next:
		for k := 0; k < max(total/4, 1); k++ {
			for _, v := range words[:n] {
				if v == a {
					a++
					continue next
				}
			}
			words[n] = a
			n++
			per[a&31]++
			most = max(most, per[a&31])
			a++
		}
	}
	return most - 1
}
